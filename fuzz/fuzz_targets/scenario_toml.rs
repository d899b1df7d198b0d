//! Any bytes as a scenario file: a set-up or complaints that can be shown, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::{ComputerScenario, ComputerSetup, Doc, Library, Scenario, Setup};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Looking for files is not what is tried here.
    if text.contains('/') || text.contains(".toml") {
        return;
    }
    let library = Library::built_in();
    let doc = Doc::<Scenario>::from_text(&library, "fuzz.toml", text);
    match Setup::load(&library, &doc) {
        Ok(setup) => assert!(!setup.scenario.pcie_bench.runs().is_empty()),
        Err(complaints) => {
            assert!(complaints.iter().count() > 0);
            let _ = complaints.render(false);
        }
    }
    let doc = Doc::<ComputerScenario>::from_text(&library, "fuzz.toml", text);
    match ComputerSetup::load(&library, &doc) {
        Ok(setup) => assert!(!setup.hosts.is_empty()),
        Err(complaints) => {
            assert!(complaints.iter().count() > 0);
            let _ = complaints.render(false);
        }
    }
});
