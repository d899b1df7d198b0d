//! A type's name says what it is where it is read. Within a crate it stands for one type; that several crates have one of the
//! same name is allowed, and becomes no more frequent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Names of two types of one crate, with the reason.
const TWICE: [(&str, &str, &str); 1] =
    [("hardware", "Means", "what a root complex, or an endpoint, needs of its surroundings")];
/// Names that types of several crates have.
const SHARED: usize = 241;

/// The types outside of functions and tests that the files of a folder define.
fn types(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            types(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("a file of Rust");
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            found.extend(code.lines().filter_map(defined));
        }
    }
}

/// The type that a line begins to define, outside of all blocks.
fn defined(line: &str) -> Option<String> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let starts = line.starts_with(|c: char| c.is_ascii_lowercase());
    let kind = words.find(|word| !["pub", "crate", "super", "in"].contains(word))?;
    let is_type = starts && ["struct", "enum", "trait", "type"].contains(&kind);
    is_type.then(|| words.next().map(str::to_owned)).flatten()
}

#[test]
fn a_name_stands_for_one_type_of_a_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut owners, mut twice) = (BTreeMap::<String, BTreeSet<String>>::new(), Vec::new());
    for entry in fs::read_dir(crates).expect("the crates") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut found = Vec::new();
        types(&path.join("src"), &mut found);
        for of in found {
            if !owners.entry(of.clone()).or_default().insert(name.clone()) {
                twice.push((name.clone(), of));
            }
        }
    }
    let allowed: Vec<_> = TWICE.map(|(of, name, _)| (of.to_owned(), name.to_owned())).into();
    assert_eq!(twice, allowed, "name one of the two for what it is there");
    let shared: Vec<_> = owners.iter().filter(|(_, crates)| crates.len() > 1).collect();
    assert!(owners.len() > 1_000, "the sources are read");
    assert!(
        shared.len() <= SHARED,
        "{} names are those of types of several crates: {shared:?}",
        shared.len()
    );
}
