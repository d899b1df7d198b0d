//! The house's rule: who may depend on whom, read from cargo's own metadata.
//!
//! A driver that cannot see the hardware model is an unmodified driver; a device that cannot see the kernel is its
//! programming interface; a report that cannot see a model cannot flatter it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each crate may depend on, directly or not. Those that are not here may see everything.
const MAY: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("settings", &[]),
    ("wire", &["units"]),
    ("engine", &["units"]),
    ("platform", &["units", "wire"]),
    ("hardware", &["units", "settings", "wire", "engine", "platform"]),
    ("devices", &["units", "wire", "engine", "platform"]),
    ("drivers", &["units", "settings", "wire", "platform"]),
    ("workloads", &["units", "settings", "wire", "platform"]),
    ("inet", &["units", "settings", "wire"]),
    ("tester", &["units", "settings", "wire", "engine", "platform", "inet"]),
    ("kernel", &["units", "settings", "wire", "engine", "inet", "platform", "hardware"]),
    ("virt", &["units", "settings", "wire", "engine", "inet", "platform", "hardware", "kernel"]),
    (
        "lending",
        &["units", "settings", "wire", "engine", "inet", "platform", "hardware", "drivers", "kernel", "virt"],
    ),
    ("machine", &["units", "settings", "files"]),
    ("results", &["units", "settings", "files"]),
    ("analytic", &["units"]),
    ("survey", &["units", "settings", "wire", "files", "machine", "analytic"]),
    (
        "place",
        &[
            "units", "settings", "wire", "engine", "inet", "platform", "hardware", "kernel", "virt", "files",
            "machine", "analytic", "survey",
        ],
    ),
    ("needs", &[]),
    ("files", &[]),
    ("vfio_user", &[]),
];

/// Crates of the workspace with those that they depend on directly, tests and benches apart.
fn direct() -> BTreeMap<String, BTreeSet<String>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path", root])
        .output()
        .expect("cargo is there, it runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    // Packages are published as `nearfar-wire` and so on; in the code they are `wire`.
    let name = |value: &serde_json::Value| {
        let name = value["name"].as_str().unwrap_or_default();
        name.strip_prefix("nearfar-").unwrap_or(name).replace('-', "_")
    };
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("dependencies");
            let normal = all.iter().filter(|d| d["kind"].is_null()).map(name);
            (name(package), normal.filter(|d| ours.contains(d)).collect())
        })
        .collect()
}

fn reachable(from: &str, direct: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&String> = direct[from].iter().collect();
    while let Some(next) = open.pop() {
        if seen.insert(next.clone()) {
            open.extend(&direct[next]);
        }
    }
    seen
}

#[test]
fn dependencies_are_one_way() {
    let direct = direct();
    assert!(direct.len() > 10, "{direct:?}");
    for (krate, may) in MAY {
        if !direct.contains_key(*krate) {
            continue;
        }
        let wrong: Vec<String> =
            reachable(krate, &direct).into_iter().filter(|d| !may.contains(&d.as_str())).collect();
        assert!(
            wrong.is_empty(),
            "`{krate}` must not depend on {wrong:?}; it may see {may:?} (see CONTRIBUTING.md)"
        );
    }
}

/// Papers use what everybody has, and nothing but the program uses them: models cannot know of a paper.
#[test]
fn papers_are_above_the_public_interface() {
    let direct = direct();
    let may = ["nearfar", "machine", "platform", "results", "units", "wire", "analytic"];
    let wrong: Vec<_> = direct["papers"].iter().filter(|name| !may.contains(&name.as_str())).collect();
    assert!(wrong.is_empty(), "`papers` must not depend on {wrong:?}; it may name {may:?}");
    let users: Vec<_> =
        direct.iter().filter(|(_, uses)| uses.contains("papers")).map(|(name, _)| name).collect();
    assert_eq!(users, ["cli"]);
}

/// What a crate puts into itself is in its package: links lead to files elsewhere in the repository.
#[test]
fn crates_include_their_own_files_alone() {
    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            match path.is_dir() {
                true => sources(&path, into),
                false => into.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
            }
        }
    }
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut count = 0;
    for one in std::fs::read_dir(crates).expect("the crates") {
        let source = one.expect("a readable folder").path().join("src");
        let mut files = Vec::new();
        sources(&source, &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("text");
            let included = ["include_str!(", "include_bytes!("];
            for rest in included.iter().flat_map(|name| text.split(name).skip(1)) {
                let literal = rest.trim_start().trim_start_matches("concat!(").trim_start().strip_prefix('"');
                let Some((path, _)) = literal.and_then(|rest| rest.split_once('"')) else { continue };
                // Folders from the file up to the crate.
                let depth = file.strip_prefix(&source).expect("below it").components().count();
                let up = path.split('/').take_while(|part| *part == "..").count();
                assert!(up <= depth, "{}: {path} is outside of the crate", file.display());
                count += 1;
            }
        }
    }
    assert!(count > 5, "files are included");
}

/// A new crate says where in the house it belongs.
#[test]
fn every_crate_has_its_place() {
    let top = ["nearfar", "papers", "live", "cli", "python", "fuzzing"];
    for krate in direct().keys() {
        let known = MAY.iter().any(|(name, _)| name == krate) || top.contains(&krate.as_str());
        assert!(known, "add `{krate}` to MAY in crates/cli/tests/dependencies.rs");
    }
}

/// The files of the crates, by their paths from `crates/`.
fn files() -> Vec<(String, String)> {
    fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("a readable folder").path();
            match path.is_dir() {
                true => walk(&path, into),
                false => into.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
            }
        }
    }
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut found = Vec::new();
    for one in std::fs::read_dir(crates).expect("the crates") {
        walk(&one.expect("a readable folder").path().join("src"), &mut found);
    }
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("text");
        (path.strip_prefix(crates).expect("below it").to_string_lossy().into_owned(), text)
    };
    found.into_iter().map(read).collect()
}

/// The methods in blocks that begin with this line, as far as its `{`.
fn methods(text: &str, begin: &str) -> BTreeSet<String> {
    let bodies = text.split(begin).skip(1).filter_map(|rest| rest.split("\n}").next());
    let lines = bodies.flat_map(str::lines).filter_map(|line| line.strip_prefix("    fn "));
    lines.filter_map(|line| line.split(['(', '<']).next()).map(str::to_owned).collect()
}

/// A team above the functions of a card needs no interface of the kernel for itself (IOctopus, 4.2: "does not change any kernel
/// APIs"): whatever it implements, another driver or stacked device implements too, and whatever it calls, others call. Its
/// helpers, which it shares with the NIC's driver, count as its own.
#[test]
fn a_team_has_no_interface_of_its_own() {
    let all = files();
    let is_team = |path: &str| {
        path.starts_with("drivers/src/team/")
            || ["drivers/src/flows.rs", "drivers/src/members.rs"].contains(&path)
    };
    let provides = |path: &str| path.starts_with("kernel/") || path.starts_with("platform/");
    let team: String = all.iter().filter(|(path, _)| is_team(path)).map(|(_, text)| text.as_str()).collect();
    let others = || all.iter().filter(|(path, _)| !is_team(path) && !provides(path)).map(|(_, text)| text);
    let mut only = Vec::new();
    for interface in ["NetDriver", "NetUpper"] {
        let begin = format!("impl {interface} for ");
        let own = methods(&team, &begin);
        assert!(own.len() >= 5, "{interface}: {own:?}");
        let theirs: BTreeSet<String> = others().flat_map(|text| methods(text, &begin)).collect();
        only.extend(own.difference(&theirs).map(|method| format!("{interface}::{method}")));
    }
    let calls = |text: &str, method: &str| text.contains(&format!(".{method}("));
    // The names of what it has of each interface; others call methods of an interface where they name it. Those of drivers are
    // there for the kernel to call.
    for (file, interface, holders, least) in [
        ("platform/src/packet.rs", "PacketDevice", &["device()", "device"][..], 6),
        ("platform/src/net.rs", "NetCore", &["core"], 4),
        ("platform/src/net.rs", "NetDriver", &["driver", "driver()?", "adapter"], 10),
        ("platform/src/kernel.rs", "Kernel", &["kernel"], 4),
    ] {
        let text = &all.iter().find(|(path, _)| path == file).expect("it is there").1;
        let is_called = |method: &String| holders.iter().any(|of| team.contains(&format!("{of}.{method}(")));
        let called: Vec<String> =
            methods(text, &format!("pub trait {interface}")).into_iter().filter(is_called).collect();
        assert!(called.len() >= least, "{interface}: {called:?}");
        let kernel = all.iter().filter(|(path, _)| path.starts_with("kernel/") && interface == "NetDriver");
        let callers = || others().chain(kernel.clone().map(|(_, text)| text));
        let is_used = |method: &String| callers().any(|text| text.contains(interface) && calls(text, method));
        only.extend(
            called.iter().filter(|method| !is_used(method)).map(|method| format!("{interface}::{method}")),
        );
    }
    assert!(only.is_empty(), "only a team needs {only:?}");
}

/// The tests of a crate are few programs, each of which is linked once: `tests/main.rs` and the like name the files that they have.
#[test]
fn every_test_file_is_in_a_test_program() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut count = 0;
    for one in std::fs::read_dir(crates).expect("the crates") {
        let folder = one.expect("a readable folder").path();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        if !manifest.contains("autotests = false") {
            continue;
        }
        let tests = folder.join("tests");
        let programs: Vec<_> =
            manifest.split("path = \"tests/").skip(1).map(|rest| rest.split('"').next()).collect();
        let roots: Vec<_> = programs
            .iter()
            .flatten()
            .map(|path| std::fs::read_to_string(tests.join(path)).expect("a test program of the manifest"))
            .collect();
        for entry in std::fs::read_dir(&tests).expect("tests") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let is_file = path.extension().is_some_and(|end| end == "rs");
            if programs.contains(&Some(&format!("{name}.rs"))) || !(is_file || path.join("mod.rs").exists()) {
                continue;
            }
            let is_named = roots.iter().any(|root| root.contains(&format!("mod {name};")));
            assert!(is_named, "{}: add `mod {name};` to main.rs beside it", path.display());
            count += 1;
        }
    }
    assert!(count > 80, "tests are found");
}
