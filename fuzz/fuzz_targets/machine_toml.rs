//! Any bytes as a machine or part file: a value or complaints that can be shown, never a panic.
//! What reads can be written back and reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use machine::{Doc, Kindred, Library, Machine, Part};

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
            let _ = complaints.render(false);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Looking for files is not what is tried here.
    if text.contains("extends") {
        return;
    }
    try_as::<Machine>(text);
    try_as::<Part>(text);
});
