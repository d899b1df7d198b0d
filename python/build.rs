//! Says by one number which simulator this is: a digest of all that results depend on. Two installations with the same
//! number give the same results to the bit; others are not mixed.

use std::fs;
use std::path::{Path, PathBuf};

/// What results depend on, from the repository's root. Files that come with the program are in the crates by links.
const SOURCES: [&str; 2] = ["crates", "Cargo.lock"];

fn collect(path: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else {
        into.push(path.to_owned());
        return;
    };
    for entry in entries.flatten() {
        // Tests and benchmarks are no part of the simulator.
        if !["tests", "benches", "target"].iter().any(|name| entry.file_name() == *name) {
            collect(&entry.path(), into);
        }
    }
}

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
        collect(&root.join(source), &mut all);
    }
    all.sort();
    let parts = all.iter().flat_map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string().into_bytes();
        [name, fs::read(path).unwrap_or_default()]
    });
    let parts: Vec<Vec<u8>> = parts.collect();
    println!("cargo:rustc-env=NEARFAR_BUILD={}", files::digest(parts.iter().map(Vec::as_slice)));
}
