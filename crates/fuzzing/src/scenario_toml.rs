//! Any bytes as a scenario file: a scenario or printable diagnostics, never a panic.
//!
//! Nearly all inputs are only parsed. Building a setup also reads a machine file with hundreds of figures, which takes
//! a hundred times as long, so only one input of many gets that far.

use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library, Scenario, Setup};

/// One input of this many is built with machine and card.
const WHOLE: u64 = 512;

/// Prints one diagnostic, which is as good as printing all; each quotes the file.
fn show(complaints: &Diagnostics) {
    assert!(complaints.iter().count() > 0);
    let _ = complaints.iter().next().map(|first| first.render(false));
}

/// Tests an input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // File lookup is not tested here, and longer inputs reveal nothing new.
    if text.contains('/') || text.contains(".toml") || text.contains("extends") || text.len() > 2048 {
        return;
    }
    let library = Library::built_in();
    let whole =
        data.iter().fold(0u64, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % WHOLE == 0;
    // A file with hosts is of the other kind, and would cause a diagnostic for each of its keys.
    if text.contains("[host") {
        let doc = Doc::<ComputerScenario>::from_text(&library, "fuzz.toml", text);
        match doc.read() {
            Ok(_) if whole => match ComputerSetup::load(&library, &doc) {
                Ok(setup) => assert!(!setup.hosts.is_empty()),
                Err(complaints) => show(&complaints),
            },
            Ok(_) => {}
            Err(complaints) => show(&complaints),
        }
        return;
    }
    let doc = Doc::<Scenario>::from_text(&library, "fuzz.toml", text);
    match doc.read() {
        Ok(_) if whole => match Setup::load(&library, &doc) {
            Ok(setup) => assert!(!setup.scenario.pcie_bench.runs().is_empty()),
            Err(complaints) => show(&complaints),
        },
        Ok(_) => {}
        Err(complaints) => show(&complaints),
    }
}
