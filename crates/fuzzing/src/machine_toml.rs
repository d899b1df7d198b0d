//! Any bytes as a machine, card, NIC, drive or kernel file: a value or printable diagnostics, never a panic. A valid
//! file can be written back and reads the same, and a valid machine or card can be built.
//!
//! A file is only read as the kind that its tables suggest, and is limited in size: read as another kind, or with most
//! figures missing, it causes hundreds of diagnostics, each with a list of keys and an excerpt of the file.

use std::sync::LazyLock;

use engine::Seed;
use hardware::memory::MemorySystem;
use machine::{Doc, Drive, KernelFile, Kindred, Library, Machine, Nic, Part};
use nearfar::topology::{assemble, memory_params};

/// More than the largest part file; enough for a whole machine without the sources of its figures.
const MOST_BYTES: usize = 8 << 10;

/// The machine that cards are built into.
static MACHINE: LazyLock<Machine> = LazyLock::new(|| shipped("dell-t630"));
/// The card that machines are built with.
static CARD: LazyLock<Part> = LazyLock::new(|| shipped("nfp6000"));

fn shipped<T: Kindred>(name: &str) -> T {
    Doc::load(&Library::built_in(), name).and_then(|doc| doc.read()).expect("a shipped file reads")
}

/// Puts `card` into the first slot of `machine`, with its IOMMU on.
fn build(machine: &Machine, card: &Part) {
    let caches = MemorySystem::new(&memory_params(&machine.host, 1)).into_cache_state();
    let slot = machine.host.port.keys().next().expect("a machine has a slot");
    if let Err(error) = assemble(machine, card, slot, true, caches, Seed::new(1)) {
        panic!("{error}");
    }
}

fn try_as<T: Kindred + PartialEq>(text: &str, build: impl Fn(&T)) {
    let library = Library::built_in();
    let doc = Doc::<T>::from_text(&library, "fuzz.toml", text);
    match doc.read() {
        Ok(read) => {
            let written = doc.to_text().expect("what reads can be written");
            let again =
                Doc::<T>::from_text(&library, "fuzz.toml", &written).read().expect("what was written reads");
            assert!(read == again, "written and read again it is the same");
            build(&read);
        }
        Err(complaints) => {
            assert!(complaints.iter().count() > 0);
            let _ = complaints.iter().next().map(|first| first.render(false));
        }
    }
}

/// Tests an input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // File lookup is not tested here.
    if text.contains("extends") || text.len() > MOST_BYTES {
        return;
    }
    let has = |table: &str| text.contains(table);
    match () {
        () if has("dma_engine") => try_as::<Part>(text, |card| build(&MACHINE, card)),
        () if has("[media") => try_as::<Drive>(text, |_| ()),
        () if has("[controller") => try_as::<Nic>(text, |_| ()),
        () if has("[scheduler") => try_as::<KernelFile>(text, |_| ()),
        () => try_as::<Machine>(text, |machine| build(machine, &CARD)),
    }
}
