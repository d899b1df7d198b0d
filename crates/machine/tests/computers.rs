//! Scenarios with computers: what is wrong with one is said at its place.

use machine::{ComputerScenario, ComputerSetup, DeviceFile, Doc, Library, MemoryPolicy};

const GOOD: &str = r#"
name = "x"
summary = "x"

[[host]]
name = "a"
machine = "dell-t430"
iommu = "strict"
change.host.dram.size = "1 GiB"

[[host.device]]
slot = "slot-socket1"
drive = "optane-900p"
change.media.channels = 3

[[host]]
name = "b"
machine = "dell-t430"

[[program]]
host = "a"
cpus = "0-1,19"
run = "stream"
"#;

fn load(text: &str) -> Result<ComputerSetup, String> {
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::from_text(&library, "x.toml", text);
    ComputerSetup::load(&library, &doc).map_err(|diagnostics| diagnostics.to_string())
}

#[test]
fn a_scenario_brings_its_files_with_changes() {
    let setup = load(GOOD).unwrap();
    assert_eq!(setup.hosts[0].machine.host.dram.size.value, units::Bytes::gib(1));
    assert_eq!(setup.hosts[0].devices[0].slot, "slot-socket1");
    let DeviceFile::Drive(drive) = &setup.hosts[0].devices[0].kind else { panic!("a drive") };
    assert_eq!(drive.file.media.channels.value.get(), 3);
    assert_eq!(setup.programs[0].cpus, [0, 1, 19]);
    for (text, memory) in [
        ("local", MemoryPolicy::Local),
        ("node1", MemoryPolicy::Bind(1)),
        ("preferred node0", MemoryPolicy::Preferred(0)),
        ("interleave", MemoryPolicy::Interleave),
    ] {
        let setup = load(&GOOD.replacen("run = ", &format!("memory = \"{text}\"\nrun = "), 1)).unwrap();
        assert_eq!(setup.programs[0].memory, memory);
    }
}

#[test]
fn what_is_wrong_is_said_with_place_and_remedy() {
    for (from, to, place, words) in [
        ("slot = \"slot-socket1\"", "slot = \"slot9\"", "x.toml:12:", "its slots are `slot`, `slot-socket1`"),
        ("cpus = \"0-1,19\"", "cpus = \"0-20\"", "x.toml:22:", "there is no core 20"),
        ("host = \"a\"\n", "host = \"c\"\n", "x.toml:21:", "the hosts are `a`, `b`"),
        ("host = \"a\"\ncpus", "cpus", "x.toml:22:", "on which host"),
        ("iommu = \"strict\"", "iommu = \"on\"", "x.toml:8:", "pass-through"),
        ("name = \"b\"", "name = \"a\"", "x.toml:17:", "two hosts"),
        ("drive = \"optane-900p\"", "drive = \"optane-90p\"", "x.toml:13:", "did you mean `optane-900p`"),
        ("drive = \"optane-900p\"", "", "x.toml:11:", "one of"),
        ("drive = \"optane-900p\"", "nic = \"modern\"\nbacking = \"b.img\"", "x.toml:14:", "for drives"),
        (
            "change.media.channels = 3",
            "namespaces = [\"200 GiB\", \"200 GiB\"]",
            "x.toml:14:",
            "does not hold so much",
        ),
        ("change.media.channels = 3", "namespaces = \"1000 B\"", "x.toml:14:", "whole blocks"),
        (
            "change.media.channels = 3",
            "change.controller.memory_buffer = \"5 KiB\"",
            "x.toml:14:",
            "power of two",
        ),
        ("run = ", "memory = \"node2\"\nrun = ", "x.toml:23:", "there is no node 2"),
        ("run = ", "memory = \"far\"\nrun = ", "x.toml:23:", "`preferred node1`"),
        ("iommu = \"strict\"", "nvme_driver.queue_entries = 1", "x.toml:8:", "2 to 4096"),
        (
            "change.media.channels = 3",
            "backing = \"b.img\"\n[[host.device]]\ndrive = \"pm1725a\"\nbacking = \"b.img\"",
            "x.toml:17:",
            "a file for each drive",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = load(&text).unwrap_err();
        assert!(error.contains(place) && error.contains(words), "{from} -> {to}: {error}");
    }
}
