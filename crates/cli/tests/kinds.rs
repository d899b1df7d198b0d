//! What a new kind of device costs, counted by the GPU: the files that the guide lists are all that know of it, but for
//! what is about GPUs in particular.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that a kind with registers, firmware, driver and part file takes, and how many of these are its own.
const MOST: (usize, usize) = (18, 10);
/// What can be done with GPUs and not with any device.
const ABOUT_GPUS: [(&str, &str); 7] = [
    ("crates/machine/src/computer/vm.rs", "they can be passed through"),
    ("crates/nearfar/src/computer/programs.rs", "programs count them"),
    ("crates/nearfar/src/peers.rs", "copies between them"),
    ("crates/nearfar/src/peers/heat_map.rs", "copies between them"),
    ("crates/nearfar/src/peers/way.rs", "copies between them"),
    ("crates/nearfar/src/compare/tools.rs", "real tools that measure them"),
    ("crates/platform/src/kernel.rs", "an example in a comment"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths in a column of the guide's table, for the GPU.
fn listed(guide: &str, column: usize) -> BTreeSet<String> {
    let table = guide.split("| Its own | Others |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(column)?.split('`').nth(1));
    cells.map(|path| path.replace("NAME", "k420").replace("foo", "gpu")).collect()
}

/// Files below a folder, but for those of the kind's own folders.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true if path.ends_with("gpu") => {}
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Whether a text has a word of the kind, such as `gpu`, `Gpu` and `GpuDriver`.
fn knows(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.into_iter().any(|word| word.contains("Gpu") || word.split('_').any(|part| part == "gpu"))
}

#[test]
fn a_new_kind_of_device_takes_the_files_that_the_guide_lists() {
    let guide = fs::read_to_string(root().join("docs/guide/src/add-a-device.md")).expect("the guide");
    let (own, others) = (listed(&guide, 1), listed(&guide, 2));
    assert!(own.len() + others.len() <= MOST.0 && own.len() <= MOST.1, "{own:?}, {others:?}");
    assert!(guide.contains(&format!("All together, {} files", own.len() + others.len())));
    for path in own.iter().chain(&others) {
        assert!(root().join(path).exists(), "there is no {path}");
    }
    let mut all = Vec::new();
    for name in ["wire", "devices", "drivers", "platform", "machine", "nearfar"] {
        files(&root().join("crates").join(name).join("src"), &mut all);
    }
    files(&root().join("python/src-python"), &mut all);
    let knowing = all.iter().filter(|path| fs::read_to_string(path).is_ok_and(|text| knows(&text)));
    let knowing: BTreeSet<String> = knowing
        .map(|path| path.strip_prefix(root()).expect("below the root").display().to_string())
        .collect();
    let about = ABOUT_GPUS.map(|(path, _)| path.to_owned());
    let told: BTreeSet<String> = own.iter().chain(&others).chain(&about).cloned().collect();
    let untold: Vec<_> = knowing.difference(&told).collect();
    assert!(untold.is_empty(), "a kind's name belongs into the files of the guide's table: {untold:?}");
    let is_idle = |path: &&String| !path.contains("/tests/") && !knowing.contains(*path);
    let idle: Vec<_> = about.iter().chain(&others).filter(is_idle).collect();
    assert!(idle.is_empty(), "no longer needed: {idle:?}");
}
