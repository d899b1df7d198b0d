//! Nothing public is there for tests alone: the compiler warns of what is private and unused, this test of the rest.
//!
//! Names are counted, not resolved: an item that shares its name with another one is not found while that is used. What is
//! found is unused for certain.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What the program does not name, and why it is there.
const FOR_OTHERS: &[(&str, &[&str])] = &[
    (
        "tests and experiments in Rust make something fail with it",
        &[
            "add_spurious_interrupts",
            "flip_owners",
            "insert_path",
            "lose_interrupts",
            "remove_path",
            "set_hung",
            "spoil_completions",
        ],
    ),
    (
        "tests look inside with it",
        &[
            "check_coherence",
            "dma_counters",
            "dma_faults",
            "is_abandoned",
            "memory_fallbacks",
            "pci_text",
            "read_completion_boundary",
            "reads_in_flight",
            "requests_under_way",
            "resident",
            "switch_counters",
            "tags_in_use",
            "transmit_one",
        ],
    ),
    (
        "registers and instructions that a driver may use, though ours do not",
        &[
            "CONTROL_POWER_OFF",
            "TO_REGISTER",
            "VIRTUAL_DEVICE",
            "clear_invalidation_queue_error",
            "invalidation_queue_error",
            "invalidation_queue_head",
            "mfence",
        ],
    ),
    (
        "the library's counterpart to what the program uses",
        &["emit_dllp", "emit_tlp", "quantile_ns", "values_csv", "wire_len"],
    ),
];

/// Words of a file's code outside tests, comments and re-exports left out.
struct File {
    path: PathBuf,
    code: Vec<String>,
}

fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Words in the order in which they stand, without comments.
fn words(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<String> = Vec::new();
    let mut rest = code.as_str();
    while let Some(start) = rest.find(|c| is_word(c) || c == ';') {
        let length = rest[start..].find(|c| !is_word(c)).unwrap_or(rest.len() - start).max(1);
        words.push(rest[start..start + length].to_owned());
        rest = &rest[start + length..];
    }
    words
}

/// Leaves out what is only exported again.
fn without_exports(words: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "use" && kept.last().is_some_and(|last| last == "pub") {
            words.by_ref().find(|word| word == ";");
        } else if word != ";" {
            kept.push(word);
        }
    }
    kept
}

fn files() -> Vec<File> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut paths = Vec::new();
    rust_files(&root.join("crates"), &mut paths);
    rust_files(&root.join("python/src"), &mut paths);
    rust_files(&root.join("fuzz/fuzz_targets"), &mut paths);
    let file = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a file of the repository");
        let path = path.strip_prefix(root).expect("below the root").to_owned();
        let is_code = path
            .components()
            .skip(1)
            .take(2)
            .any(|part| ["src", "fuzz_targets"].map(AsRef::as_ref).contains(&part.as_os_str()));
        let is_test = !is_code
            || path.ends_with("tests.rs")
            || path.components().any(|part| part.as_os_str() == "tests");
        let end = if is_test { 0 } else { text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len()) };
        File { path, code: without_exports(words(&text[..end])) }
    };
    paths.into_iter().map(file).collect()
}

/// The names of public items, with their kinds.
fn public(code: &[String]) -> impl Iterator<Item = (&str, &str)> {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    code.iter().enumerate().filter(|(_, word)| *word == "pub").filter_map(move |(at, _)| {
        // `pub const fn name`, `pub async fn name`.
        let behind = &code[at + 1..];
        let place = behind.iter().take(3).rposition(|word| KINDS.contains(&word.as_str()))?;
        let modifiers = ["const", "async", "unsafe"];
        let is_item = behind[..place].iter().all(|word| modifiers.contains(&word.as_str()));
        is_item.then(|| Some((behind[place].as_str(), behind.get(place + 1)?.as_str())))?
    })
}

#[test]
fn every_public_item_has_a_user() {
    let files = files();
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for word in files.iter().flat_map(|file| &file.code) {
        *named.entry(word).or_default() += 1;
    }
    let mut defined: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for file in &files {
        public(&file.code).for_each(|(_, name)| defined.entry(name).or_default().push(&file.path));
    }
    assert!(defined.len() > 1_000, "public items are found");
    let is_unused = |(name, places): &(&&str, &Vec<&Path>)| named[**name] <= places.len();
    let mut unused: BTreeMap<_, _> = defined.iter().filter(is_unused).collect();
    for name in FOR_OTHERS.iter().flat_map(|(_, names)| *names) {
        assert!(unused.remove(name).is_some(), "{name} is used, or is gone: take it out of the list");
    }
    assert!(unused.is_empty(), "public and named by no more than tests, take it out: {unused:#?}");
}
