//! Every file of the repository reads, and all of them are in the program.

use machine::{
    ComputerScenario, ComputerSetup, Doc, Drive, Kind, Library, Machine, MeasuredRun, Nic, Part, Scenario,
    Setup,
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
    for folder in
        ["machines", "machines/drives", "machines/kernels", "machines/nics", "machines/parts", "scenarios"]
    {
        assert_eq!(Library::built_in().names(folder), files(folder), "add a line to BUILT_IN in library.rs");
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

/// Nobody fits a figure without results: what such a file takes from another machine is a relative's.
#[test]
fn only_measured_machines_have_fitted_figures() {
    let library = Library::built_in();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    for name in library.names("machines") {
        let machine = Doc::<Machine>::load(&library, &name).unwrap().read().unwrap();
        let text = std::fs::read_to_string(root.join(format!("{name}.toml"))).unwrap();
        if machine.measured_as.is_none_or(|known| known.directories.is_empty()) {
            for (number, line) in text.lines().enumerate() {
                let own = line.contains("\"fitted: ") || line.contains("\"measured: ");
                assert!(!own, "machines/{name}.toml:{}: no directory lies behind {line}", number + 1);
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
fn directories_of_results_find_their_machines() {
    let library = Library::built_in();
    for (directory, machine) in [
        ("nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0", "dell-t430"),
        ("nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s1-s0-s1-iommu-nosp", "dell-t430"),
        ("nfp6000-1.2GHz_hsw-Xeon-E3-1226v3_fujitsu-tx1310", "fujitsu-tx1310"),
        ("nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630-iommu", "dell-t630"),
        ("nfp6000-1.2GHz_ib-Xeon-E5-2620v2_dell-t620-s0-s1-s1", "dell-t620-ivy"),
        ("nfp6000-1.2GHz_snb-Xeon-E5-2630_dell-t620-iommu", "dell-t620-sandy"),
        ("nfp6000-1.2GHz_hsw-Xeon-E5-2637v3_supermicro-x10", "supermicro-e5-2637v3"),
    ] {
        let run =
            MeasuredRun::find(&library, directory, None).unwrap_or_else(|e| panic!("{}", e.render(false)));
        assert_eq!(run.machine.read().unwrap().name, machine, "{directory}");
        assert_eq!(run.card.read().unwrap().name, "nfp6000");
    }
    let one_socket =
        MeasuredRun::find(&library, "nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630-s0-s1-s1", None);
    assert!(one_socket.unwrap_err().to_string().contains("no socket 1"));
    assert!(MeasuredRun::find(&library, "nfp6000-1.2GHz_knl-Xeon-E7-1v1_box", None).is_err());
}
