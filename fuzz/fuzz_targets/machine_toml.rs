//! Any bytes as the file of a machine, card, NIC, drive or kernel: a value or complaints that can be shown, never a panic.
//! What reads can be written back and reads the same.
//!
//! A file is read as the one kind that its tables speak of, and kept short: read as another kind, or with most of its figures missing,
//! it brings hundreds of complaints, each with a list of keys and a quotation of the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::{Doc, Drive, KernelFile, Kindred, Library, Machine, Nic, Part};

/// Longer than the largest part file; a whole machine's does not fit, but all of its tables do, each by itself.
const MOST_BYTES: usize = 8 << 10;

fn try_as<T: Kindred + PartialEq>(text: &str) {
    let library = Library::built_in();
    let doc = Doc::<T>::from_text(&library, "fuzz.toml", text);
    match doc.read() {
        Ok(read) => {
            let written = doc.to_text().expect("what reads can be written");
            let again =
                Doc::<T>::from_text(&library, "fuzz.toml", &written).read().expect("what was written reads");
            assert!(read == again, "written and read again it is the same");
        }
        Err(complaints) => {
            assert!(complaints.iter().count() > 0);
            let _ = complaints.iter().next().map(|first| first.render(false));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Looking for files is not what is tried here.
    if text.contains("extends") || text.len() > MOST_BYTES {
        return;
    }
    let has = |table: &str| text.contains(table);
    match () {
        () if has("dma_engine") => try_as::<Part>(text),
        () if has("[media") => try_as::<Drive>(text),
        () if has("[controller") => try_as::<Nic>(text),
        () if has("[scheduler") => try_as::<KernelFile>(text),
        () => try_as::<Machine>(text),
    }
});
