//! Every file of the repository reads, and all of them are in the program.

use machine::{
    ComputerScenario, ComputerSetup, Doc, Drive, Kind, Library, Machine, MeasuredNames, Nearness, Nic, Part,
    Scenario, Setup, find_card, find_machine,
};
use std::path::Path;

fn files(folder: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".toml").map(Into::into)
        })
        .collect();
    names.sort();
    names
}

#[test]
fn every_file_is_in_the_program() {
    let folders: std::collections::BTreeSet<_> = machine::KINDS.iter().map(|kind| kind.folder).collect();
    for folder in &folders {
        assert_eq!(Library::built_in().names(folder), files(folder), "{folder}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for entry in std::fs::read_dir(root.join("machines")).unwrap().map(Result::unwrap) {
        let folder = format!("machines/{}", entry.file_name().to_str().unwrap());
        assert!(
            !entry.path().is_dir() || folders.contains(folder.as_str()),
            "no kind of file has the folder {folder}: add a line to `devices!` in computer/device.rs, or to KINDS in kinds.rs"
        );
    }
}

#[test]
fn every_machine_reads_and_bears_its_name() {
    let library = Library::built_in();
    for name in library.names("machines") {
        let machine = Doc::<Machine>::load(&library, &name)
            .unwrap()
            .read()
            .unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(machine.name, name);
    }
    for name in library.names("machines/parts") {
        let part = Doc::<Part>::load(&library, &name)
            .unwrap()
            .read()
            .unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(part.name, name);
    }
}

/// Results that somebody has published, and sources name.
const PUBLIC: [&str; 7] = [
    " paper, Figure ",
    " paper, section",
    "rtx6kpro",
    "Memory Latency Checker",
    "xNVMe's experiments",
    "openucx/ucx, pull request",
    "NVIDIA, NV-Kernels, pull request",
];

/// Nobody fits a figure without results, be they a directory's or somebody's in public: what such a file takes from
/// another machine is a relative's.
#[test]
fn only_measured_machines_have_fitted_figures() {
    let library = Library::built_in();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    for name in library.names("machines") {
        let machine = Doc::<Machine>::load(&library, &name).unwrap().read().unwrap();
        let text = std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap();
        if machine.measured_as.is_none_or(|known| known.directories.is_empty()) {
            for (number, line) in text.lines().enumerate() {
                let own = line.contains("\"fitted: ")
                    || line.contains("\"fitted by hand: ")
                    || line.contains("\"measured: ");
                assert!(
                    !own || PUBLIC.iter().any(|source| line.contains(source)),
                    "machines/{name}.toml:{}: no directory lies behind {line}",
                    number + 1
                );
            }
        }
    }
}

#[test]
fn every_drive_reads_and_bears_its_name() {
    let library = Library::built_in();
    for name in library.names("machines/drives") {
        let drive = Doc::<Drive>::load(&library, &name)
            .unwrap()
            .read()
            .unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(drive.name, name);
    }
}

#[test]
fn every_nic_reads_and_bears_its_name() {
    let library = Library::built_in();
    for name in library.names("machines/nics") {
        let nic = Doc::<Nic>::load(&library, &name)
            .unwrap()
            .read()
            .unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(nic.name, name);
    }
}

#[test]
fn every_scenario_fits_its_machine_and_card() {
    let library = Library::built_in();
    for name in library.names("scenarios") {
        let computers = Doc::<ComputerScenario>::load(&library, &name).unwrap();
        if computers.has("host").unwrap() {
            let setup =
                ComputerSetup::load(&library, &computers).unwrap_or_else(|e| panic!("{}", e.render(false)));
            assert_eq!(setup.name, name);
            assert!(!setup.programs.is_empty());
            continue;
        }
        let doc = Doc::<Scenario>::load(&library, &name).unwrap();
        let setup = Setup::load(&library, &doc).unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(setup.scenario.name, name);
        assert!(!setup.scenario.pcie_bench.runs().is_empty());
    }
}

#[test]
fn a_scenario_changes_its_machine() {
    let library = Library::built_in();
    let setup = Setup::load(&library, &Doc::load(&library, "more-ddio").unwrap()).unwrap();
    assert_eq!(setup.machine.host.llc.ddio_ways.value, 4);
    assert_eq!(setup.machine.host.llc.ddio_ways.provenance.kind, Kind::Override);
}

#[test]
fn the_nearest_machine_is_found() {
    let library = Library::built_in();
    let found = |cpu, system, generation| {
        let wanted = MeasuredNames { cpu, system, generation };
        find_machine(&library, wanted).map(|(doc, near)| (doc.read().unwrap().name, near))
    };
    for (cpu, system, generation, name, nearness) in [
        ("E5-2630v4", "dell-t430", "bdw", "dell-t430", Nearness::Same),
        ("E5-2630-V4", "Dell_T430", "bdw", "dell-t430", Nearness::Same),
        ("E5-2620v3", "hp-z440", "hsw", "dell-t630", Nearness::SameCpu),
        ("E5-2637v3", "supermicro-x10", "hsw", "supermicro-e5-2637v3", Nearness::SameCpu),
        ("E5-2690v3", "hp-z440", "hsw", "dell-t630", Nearness::SameGeneration),
        // The one E3 stalls without a pattern, and stands for itself alone.
        ("E3-1226v3", "box", "hsw", "fujitsu-tx1310", Nearness::SameCpu),
        ("E3-1271v3", "box", "hsw", "i5-2400s", Nearness::Distant),
        ("E5-2660v2", "box", "ib", "dell-t620-ivy", Nearness::SameGeneration),
        ("E3-1230v2", "box", "ib", "i5-2400s", Nearness::Distant),
        ("D-1540", "box", "bdw", "dell-t430", Nearness::SameGeneration),
        ("Gold-6130", "dell-r740", "skx", "xeon-8160", Nearness::SameGeneration),
        ("Something", "box", "later", "dell-t430", Nearness::Distant),
    ] {
        assert_eq!(found(cpu, system, generation).unwrap(), (name.to_owned(), nearness), "{cpu} {system}");
    }
    assert_eq!(find_card(&library, "NFP6000-1.2GHz").unwrap().read().unwrap().name, "nfp6000");
}

/// What was read is enough to read the same where the files are not.
#[test]
fn texts_that_were_read_stand_for_their_files() {
    let folder = std::env::temp_dir().join(format!("nearfar-texts-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("machines")).unwrap();
    let mine = "name = \"mine\"\nextends = \"theirs.toml\"\nsummary = \"one of mine\"\n";
    let theirs = Doc::<Machine>::load(&Library::built_in(), "dell-t430").unwrap().text().to_owned();
    std::fs::write(folder.join("machines/mine.toml"), mine).unwrap();
    std::fs::write(folder.join("machines/theirs.toml"), theirs).unwrap();
    let library = Library::built_in().with_folder(&folder);
    let here = Doc::<Machine>::load(&library, "mine").unwrap().read().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let elsewhere = Library::built_in().with_folder(&folder).with_texts(library.used().texts);
    assert_eq!(Doc::<Machine>::load(&elsewhere, "mine").unwrap().read().unwrap(), here);
    let named = Library::built_in().with_texts([("machines/x.toml".to_owned(), "nonsense".to_owned())]);
    assert!(Doc::<Machine>::load(&named, "x").unwrap().read().is_err());
    assert!(named.names("machines").contains(&"x".to_owned()));
}
