//! Any bytes as a scenario file: a scenario or complaints that can be shown, never a panic.
//!
//! The parser alone is tried nearly always. Putting a set-up together reads a machine's file of hundreds of figures as
//! well, which costs a hundred times as much, so only one input of many gets that far.

use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library, Scenario, Setup};

/// One input of so many is put together with machine and card.
const WHOLE: u64 = 512;

/// Complaints can be shown; to show one is as good as to show all, each of which quotes the file.
fn show(complaints: &Diagnostics) {
    assert!(complaints.iter().count() > 0);
    let _ = complaints.iter().next().map(|first| first.render(false));
}

/// Tries `data`.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Looking for files is not what is tried here, and what is longer says nothing new.
    if text.contains('/') || text.contains(".toml") || text.contains("extends") || text.len() > 2048 {
        return;
    }
    let library = Library::built_in();
    let whole =
        data.iter().fold(0u64, |hash, &byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % WHOLE == 0;
    // A file with hosts is of the other kind: read as this one, it brings complaints about each of its keys.
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
