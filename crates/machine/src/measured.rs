//! Which machine and card files are about what a directory of results was measured on.

use crate::diagnostic::Diagnostics;
use crate::doc::Doc;
use crate::host::Machine;
use crate::library::Library;
use crate::part::Part;
use crate::suggest;

/// How near a file is to what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nearness {
    /// The same CPU in the same box.
    Same,
    /// The same CPU in another box.
    SameCpu,
    /// Another CPU of the same generation.
    SameGeneration,
}

/// The names of a measured machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The CPU, such as `E5-2630v4`.
    pub cpu: &'a str,
    /// The box, such as `dell-t430`.
    pub system: &'a str,
    /// The CPU's generation in pcie-bench's short form, such as `bdw`.
    pub generation: &'a str,
}

/// The file nearest to a measured machine: of the same CPU and box, of the same CPU, or of the same generation, a
/// measured one first.
///
/// # Errors
/// If no file is near, or one is wrong.
pub fn find_machine(library: &Library, wanted: Wanted<'_>) -> Result<(Doc<Machine>, Nearness), Diagnostics> {
    let names = library.names("machines");
    let mut best: Option<((Nearness, bool, bool), Doc<Machine>)> = None;
    for name in &names {
        let doc = Doc::<Machine>::load(library, name)?;
        let machine = doc.read()?;
        let Some(known) = &machine.measured_as else { continue };
        let same_box = known.system.as_deref().is_some_and(|s| same(s, wanted.system));
        let nearness = if !same(&known.cpu, wanted.cpu) {
            if !is_of(&machine.host.microarchitecture, wanted) {
                continue;
            }
            Nearness::SameGeneration
        } else if same_box {
            Nearness::Same
        } else {
            Nearness::SameCpu
        };
        let rank = (nearness, known.directories.is_empty(), !same_box);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, doc));
        }
    }
    best.map(|((nearness, ..), doc)| (doc, nearness)).ok_or_else(|| {
        let Wanted { cpu, system, generation } = wanted;
        Diagnostics::about(
            cpu,
            format!("no machine file is about `{system}` with an `{cpu}`, nor about another of generation `{generation}`"),
            Some(format!("name the nearest with --machine: {}", suggest::list(names.iter().map(String::as_str)))),
        )
    })
}

/// Whether two names differ in case and separators alone.
fn same(a: &str, b: &str) -> bool {
    let bare = |text: &str| text.to_ascii_lowercase().replace(['-', '_', ' '], "");
    bare(a) == bare(b)
}

/// Whether a design is that of the CPU: its generation, and a server's or a desktop's.
fn is_of(microarchitecture: &str, wanted: Wanted<'_>) -> bool {
    let begins = match wanted.generation {
        "snb" => "sandy-bridge",
        "ib" | "ivb" => "ivy-bridge",
        "hsw" => "haswell",
        "bdw" => "broadwell",
        _ => return false,
    };
    let server = wanted.cpu.starts_with("E5") || wanted.cpu.starts_with("E7");
    microarchitecture.starts_with(begins) && microarchitecture.ends_with("-ep") == server
}

/// The file about the card that results call `card`, such as `nfp6000-1.2GHz`.
///
/// # Errors
/// If there is none.
pub fn find_card(library: &Library, card: &str) -> Result<Doc<Part>, Diagnostics> {
    let card = card.split('-').next().unwrap_or(card);
    let names = library.names("machines/parts");
    for name in &names {
        let doc = Doc::<Part>::load(library, name)?;
        if doc.read()?.measured_as.is_some_and(|known| known.eq_ignore_ascii_case(card)) {
            return Ok(doc);
        }
    }
    let help = format!("name one with --card: {}", suggest::list(names.iter().map(String::as_str)));
    Err(Diagnostics::about(card, format!("no part file is about a `{card}`"), Some(help)))
}
