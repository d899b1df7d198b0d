//! What the kernels of a scenario find, as a tree of attributes.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer::{Computers, SysNode, run, tree};
use nearfar::progress::Silent;
use units::Duration;

fn setup(programs: &str) -> ComputerSetup {
    let text = format!(
        r#"
name = "tree"
summary = "two hosts"
cable = [{{ ends = ["a", "b"] }}]
[[host]]
name = "a"
machine = "dell-t430"
device = [{{ nic = "modern" }}, {{ drive = "optane-900p" }}]
nic_driver = {{ channels = 4, coalescing = "20 us", coalescing_packets = 16, rss = [0, 2] }}
[[host]]
name = "b"
machine = "dell-t430"
device = [{{ nic = "82599" }}]
{programs}"#
    );
    let library = Library::built_in();
    let doc = Doc::<ComputerScenario>::from_text(&library, "tree.toml", &text);
    ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"))
}

fn get<'a>(folder: &'a SysNode, path: &str) -> &'a str {
    folder.get(path).unwrap_or_else(|| panic!("no {path} in\n{folder}"))
}

#[test]
fn devices_are_below_their_bridges_with_what_they_have() {
    let trees = tree(&setup("")).unwrap();
    assert_eq!(trees.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let (_, a) = &trees[0];
    let pci = a.folder("devices/pci0000:00").unwrap();
    let function_with = |name: &str| {
        let bridges = pci.children.iter().flat_map(|port| &port.children);
        bridges.into_iter().find(|f| f.folder(name).is_some()).unwrap_or_else(|| panic!("{pci}"))
    };
    let nic = function_with("net/eth0");
    assert_eq!((get(nic, "driver"), get(nic, "numa_node")), ("nic", "0"));
    assert_eq!((get(nic, "current_link_speed"), get(nic, "current_link_width")), ("8.0 GT/s PCIe", "8"));
    assert_eq!((get(nic, "aer_dev_correctable"), get(nic, "aer_dev_fatal")), ("0", "0"));
    assert_eq!((get(nic, "net/eth0/operstate"), get(nic, "net/eth0/mtu")), ("up", "1500"));
    assert_eq!(get(nic, "net/eth0/queues/rx-3/coalesce_frames"), "16");
    assert!(get(nic, "net/eth0/rss_indirection").starts_with("0 2 0 2"));
    // Four channels and events; each channel on the core whose sending queue it is.
    let irqs = &nic.folder("msi_irqs").unwrap().children;
    assert_eq!(irqs.len(), 5, "{nic}");
    for (n, irq) in irqs[..4].iter().enumerate() {
        assert!(get(irq, "name").ends_with(&format!("-{n}")));
        let home = get(nic, &format!("net/eth0/queues/tx-{n}/xps_cpus"));
        let core = get(irq, "smp_affinity_list");
        assert!(
            home == core || home.starts_with(&format!("{core},")) || home.starts_with(&format!("{core}-")),
            "{home} {core}"
        );
    }
    let drive = function_with("block/nvme0n1");
    assert_eq!(get(drive, "driver"), "nvme");
    assert!(get(drive, "block/nvme0n1/size").parse::<u64>().unwrap() > 500_000_000);
    let nodes = &a.folder("devices/system/node").unwrap().children;
    assert_eq!(nodes.len(), 2);
    assert_eq!((get(&nodes[1], "cpulist"), get(&nodes[1], "distance")), ("10-19", "20 10"));
}

#[test]
fn programs_change_what_the_tree_shows() {
    let done = run(
        &setup(
            r#"
[[program]]
host = "b"
run = "ethtool -C eth0 rx-usecs 7 rx-frames 3 adaptive-rx off"
[[program]]
host = "b"
run = "ethtool -X eth0 weight 3 1"
start = "10 us"
[[program]]
host = "b"
run = "ethtool -S eth0"
start = "20 us"
"#,
        ),
        &Silent,
    )
    .unwrap();
    let get = |n: usize, quantity: &str| done[n].outcome.as_ref().unwrap().get(quantity).unwrap();
    assert_eq!((get(0, "rx-1 usecs"), get(0, "rx-1 frames"), get(0, "rx-1 adaptive")), (7.0, 3.0, 0.0));
    assert_eq!((get(1, "rx-0"), get(1, "rx-1"), get(1, "rx-2")), (96.0, 32.0, 0.0));
    assert_eq!(get(2, "resets"), 0.0);
}

/// What a scenario's files say that the kernels will find is what they find: names, sizes, queues.
#[test]
fn network_devices_have_the_names_that_the_scenario_gives() {
    // A drive of the second host has a port in the first, and NICs of several ports have virtual functions.
    let mixed = "name = \"x\"\nsummary = \"x\"\n\
         [[host]]\nname = \"a\"\nmachine = \"dell-t430\"\nnic_driver.channels = 3\n\
         [[host.device]]\nnic = \"modern\"\nvfs = 2\nchange.controller.ports = 2\nslot = \"slot-socket1\"\n\
         [[host.device]]\nnic = \"82575eb\"\n[[host.device]]\ndrive = \"optane-900p\"\nnamespaces = [\"1 GiB\", \"2 GiB\"]\n\
         [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"connectx4\"\n\
         [[host.device]]\ndrive = \"pm1725a-dual\"\nlinks = [{ slot = \"slot.1\" }, { host = \"a\", slot = \"slot-socket1.1\" }]\nchange.controller.block = \"512 B\"\n";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let shipped =
        std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let shipped: Vec<String> = shipped.map(Result::unwrap).filter(|text| text.contains("[[host]]")).collect();
    assert!(shipped.len() >= 10);
    for text in shipped.iter().map(String::as_str).chain([mixed]) {
        let library = Library::built_in();
        let doc = Doc::<ComputerScenario>::from_text(&library, "found.toml", text);
        let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"));
        let computers = Computers::new(&setup).unwrap_or_else(|error| panic!("{error}"));
        computers.boot().unwrap_or_else(|error| panic!("{error}\n{text}"));
        for (number, (said, host)) in setup.hosts.iter().zip(computers.hosts()).enumerate() {
            let found = host.kernel.net().devices();
            let found: Vec<_> = found.iter().map(|one| one.name()).collect();
            let named: Vec<_> = said.interfaces.iter().map(|one| one.name.as_str()).collect();
            // A team stands for its members, and has the queues of all.
            let of_team = |name: &str| name.starts_with("team") || name.starts_with("bond");
            if named.iter().any(|name| of_team(name)) {
                assert!(named.iter().all(|name| found.contains(name)), "{text}");
                continue;
            }
            // What is borrowed later has its name already, behind those of what is there.
            let mut borrows = setup.cluster.borrows.iter();
            if borrows.any(|borrow| borrow.is_by_host(number) && borrow.from > Duration::ZERO) {
                assert!(named.starts_with(&found), "{}: {found:?}, {named:?}", said.name);
                continue;
            }
            assert_eq!(found, named, "{}: {text}", said.name);
        }
    }
}
