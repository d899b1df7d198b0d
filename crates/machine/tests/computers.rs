//! Scenarios with computers: what is wrong with one is said at its place.

use machine::{
    Action, ComputerScenario, ComputerSetup, DeviceFile, Doc, KernelDevices, KernelNet, Library, LinkPlace,
    MemoryPolicy, NicDriverEntry, NvmeDriverEntry, Read as _, Shape, Trigger,
};

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
    assert_eq!(setup.hosts[0].devices[0].links[0].name, "slot-socket1");
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

/// A change is recorded with its line, which says whose it is.
#[test]
fn each_host_has_its_own_changes() {
    let library = Library::built_in();
    let host = |name: &str, buses: u8| {
        let change = format!("change_kernel.pci.hpbussize = {buses}");
        format!("[[host]]\nname = \"{name}\"\nmachine = \"dell-t430\"\n{change}\n")
    };
    let text = "name = \"x\"\nsummary = \"x\"\n".to_owned() + &host("a", 2) + &host("b", 2);
    ComputerSetup::load(&library, &Doc::from_text(&library, "x.toml", &text)).unwrap();
    let changes: Vec<String> = library.used().changes.into_iter().collect();
    let change = |line: u32| format!("x.toml:{line}: machines/kernels/linux.toml: pci.hpbussize = 2");
    assert_eq!(changes, [change(10), change(6)]);
}

#[test]
fn what_is_wrong_is_said_with_place_and_remedy() {
    for (from, to, place, words) in [
        (
            "slot = \"slot-socket1\"",
            "slot = \"slot9\"",
            "x.toml:12:",
            "its slots are `slot`, `slot.1`, `slot-socket1`",
        ),
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
        ("iommu = \"strict\"", "nvme_driver.queue_entries = 1", "x.toml:8:", "from 3 to 4096"),
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

/// Two hosts with NICs: what is said of the first device, and of the second.
fn with_nics(first: &str, second: &str) -> Result<ComputerSetup, String> {
    load(&format!(
        "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n{first}\n\
         [[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[host.device]]\nnic = \"modern\"\n{second}\n"
    ))
}

#[test]
fn ports_have_the_addresses_that_are_given() {
    let setup =
        with_nics("address = \"10.1.2.3/24\"\nmac = \"02:00:00:00:01:ff\"", "address = [\"10.0.0.1/8\"]")
            .unwrap();
    let port = &setup.hosts[0].devices[0].ports[0];
    assert_eq!(port.address.as_ref().unwrap().value, ("10.1.2.3".parse().unwrap(), 24));
    assert_eq!(port.mac.as_ref().unwrap().value, [2, 0, 0, 0, 1, 255]);
    let same = "address = \"10.1.2.3/24\"";
    for (first, second, place, words) in [
        ("address = \"10.1.2.3\"", "", "x.toml:8:", "such as `10.1.2.3/24`"),
        ("address = \"10.1.2.0/24\"", "", "x.toml:8:", "the first and the last address"),
        ("address = \"10.1.2.255/24\"", "", "x.toml:8:", "the first and the last address"),
        ("address = \"10.1.2.3/33\"", "", "x.toml:8:", "not an address"),
        ("address = \"224.0.0.1/24\"", "", "x.toml:8:", "no host"),
        ("address = \"10.0.0.2/24\"", "", "x.toml:8:", "none is given"),
        ("address = [\"10.1.2.3/24\", \"10.1.3.3/24\"]", "", "x.toml:8:", "2 addresses for 1 Ethernet ports"),
        (same, same, "x.toml:14:", "two ports have the address 10.1.2.3"),
        ("mac = \"03:00:00:00:00:01\"", "", "x.toml:8:", "group"),
        ("mac = \"2:0:0:0:0:1\"", "", "x.toml:8:", "six bytes"),
        ("mac = \"02:00:00:00:00:01\"", "mac = \"02:00:00:00:00:01\"", "x.toml:14:", "02:00:00:00:00:01"),
    ] {
        let said = with_nics(first, second).expect_err(first);
        assert!(said.contains(place) && said.contains(words), "{first} {second}: {said}");
    }
}

#[test]
fn programmed_io_takes_a_nic_with_queues_for_it() {
    let with = |nic: &str, kpio: &str| {
        load(&format!(
            "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n[host.nic_driver]\nkpio = \"{kpio}\"\n\
             [[host.device]]\nnic = \"{nic}\"\n"
        ))
    };
    assert!(with("kpio-fpga", "all").is_ok() && with("modern", "off").is_ok());
    let said = with("modern", "all").unwrap_err();
    assert!(said.contains("x.toml:7:") && said.contains("no NIC of host `a`"), "{said}");
}

#[test]
fn items_of_lists_are_set_by_name_and_by_number() {
    let library = Library::built_in();
    let set = |path: &str, value: &str| {
        let mut doc = Doc::<ComputerScenario>::from_text(&library, "x.toml", GOOD);
        doc.set(path, value).unwrap();
        ComputerSetup::load(&library, &doc).map_err(|diagnostics| diagnostics.to_string())
    };
    assert_eq!(set("program.0.memory", "node1").unwrap().programs[0].memory, MemoryPolicy::Bind(1));
    let changed = set("host.b.change.host.dram.size", "2 GiB").unwrap();
    assert_eq!(changed.hosts[1].machine.host.dram.size.value, units::Bytes::gib(2));
    assert_eq!(changed.hosts[0].machine.host.dram.size.value, units::Bytes::gib(1));
    for (path, words) in [
        ("host.iommu", "`host` has 2 items, none of which is `iommu`"),
        ("host.c.iommu", "`host.a`, `host.b`"),
        ("program.1", "`program.0`"),
        ("host.a.bogus", "unknown key `bogus`"),
        ("host.a.iommu", "pass-through"),
    ] {
        let error = set(path, "nonsense").unwrap_err();
        assert!(error.contains(words), "{path}: {error}");
    }
}

/// Two hosts with a cable that has a name, two programs, and an event with these lines, whose kernels have found the NICs.
fn with_event(lines: &str) -> Result<ComputerSetup, String> {
    let nic = "machine = \"dell-t430\"\n[[host.device]]\nname = \"nic\"\nnic = \"modern\"\n";
    let setup = load(&format!(
        "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\n{nic}[[host]]\nname = \"b\"\n{nic}\
         [[cable]]\nname = \"wire\"\nends = [\"a\", \"b\"]\n[[program]]\nname = \"server\"\nhost = \"b\"\nrun = \"netserver\"\n\
         [[program]]\nhost = \"a\"\nrun = \"stream\"\n[[program]]\nhost = \"a\"\nrun = \"stream\"\n[[event]]\n{lines}"
    ))?;
    let eth0 = KernelNet { name: "eth0".to_owned(), max_mtu: 9000, rx_queues: 20 };
    let found = KernelDevices { nets: vec![eth0], ..KernelDevices::default() };
    setup.check_kernel_names(&[found.clone(), found]).map_err(|diagnostics| diagnostics.to_string())?;
    Ok(setup)
}

#[test]
fn events_name_what_there_is() {
    let moved = Action::MoveTask { program: 0, cpus: vec![3, 4] };
    for what in ["server", "b:netserver"] {
        let setup =
            with_event(&format!("at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"{what}\"\nto = \"3-4\""))
                .unwrap();
        assert_eq!(
            (&setup.events[0].action, &setup.events[0].trigger),
            (&moved, &Trigger::At("1 ms".parse().unwrap()))
        );
    }
    for what in ["a:nic", "a:nic:0"] {
        let setup = with_event(&format!("at = \"1 ms\"\ndo = \"mend\"\nwhat = \"{what}\"")).unwrap();
        assert_eq!(setup.events[0].action, Action::Link { link: LinkPlace::Device(0, 0, 0), up: true });
    }
    for what in ["b:nic", "b:eth0"] {
        let setup = with_event(&format!("at = \"1 ms\"\ndo = \"plug\"\nwhat = \"{what}\"")).unwrap();
        assert_eq!(setup.events[0].action, Action::Device { device: (1, 0), present: true });
    }
    for what in ["wire", "a", "b:0", "b:eth0"] {
        let setup = with_event(&format!("when = \"a:eth0.rx_bytes > 1e3\"\ndo = \"cut\"\nwhat = \"{what}\""))
            .unwrap();
        assert_eq!(setup.events[0].action, Action::Link { link: LinkPlace::Cable(0), up: false });
        let Trigger::Counter(condition) = &setup.events[0].trigger else { panic!("a condition") };
        assert_eq!((condition.host, condition.more_than), (0, 1000.0));
    }
}

#[test]
fn what_is_wrong_with_an_event_is_said_with_place_and_remedy() {
    let event = |lines: &str| with_event(lines).expect_err(lines);
    for (lines, place, words) in [
        ("do = \"cut\"\nwhat = \"a\"", "x.toml:28:", "one moment"),
        (
            "at = \"1 ms\"\nwhen = \"a:eth0.rx_bytes > 1\"\ndo = \"cut\"\nwhat = \"a\"",
            "x.toml:30:",
            "one moment",
        ),
        ("at = \"1 ms\"\ndo = \"cu\"\nwhat = \"a\"", "x.toml:30:", "did you mean `cut`"),
        ("at = \"1 ms\"\ndo = \"cut\"\nwhat = \"a\"\nto = \"3\"", "x.toml:32:", "leave it out"),
        ("at = \"1 ms\"\ndo = \"cut\"\nwhat = \"wires\"", "x.toml:31:", "cables are called `wire`"),
        ("at = \"1 ms\"\ndo = \"cut\"\nwhat = \"a:1\"", "x.toml:31:", "a port at one of its ends"),
        ("at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"server\"", "x.toml:28:", "such as `to = "),
        (
            "at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"server\"\nto = \"20\"",
            "x.toml:32:",
            "there is no core 20",
        ),
        (
            "at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"sever\"\nto = \"2\"",
            "x.toml:31:",
            "did you mean `server`",
        ),
        ("at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"a:stream\"\nto = \"2\"", "x.toml:31:", "a `name`"),
        (
            "at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"a:netserver\"\nto = \"2\"",
            "x.toml:31:",
            "it runs `stream`",
        ),
        (
            "at = \"1 ms\"\ndo = \"move-task\"\nwhat = \"c:netserver\"\nto = \"2\"",
            "x.toml:31:",
            "the hosts are `a`, `b`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set-affinity\"\nwhat = \"a:eth1\"\nto = \"2\"",
            "x.toml:31:",
            "did you mean `eth0`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set-affinity\"\nwhat = \"a:eth0:x\"\nto = \"2\"",
            "x.toml:31:",
            "as in `a:eth0:3`",
        ),
        ("at = \"1 ms\"\ndo = \"set-affinity\"\nwhat = \"eth0\"\nto = \"2\"", "x.toml:31:", "on which host"),
        ("at = \"1 ms\"\ndo = \"cut\"\nwhat = \"a:nic:1\"", "x.toml:31:", "it has one: `nic`"),
        ("at = \"1 ms\"\ndo = \"assign\"\nwhat = \"a:nic\"", "x.toml:28:", "a slot for `assign`"),
        (
            "at = \"1 ms\"\ndo = \"assign\"\nwhat = \"a:nic\"\nto = \"sw0:1\"",
            "x.toml:32:",
            "it can be in `slot`; `other_slots`",
        ),
        (
            "at = \"1 ms\"\ndo = \"assign\"\nwhat = \"wire\"\nto = \"slot\"",
            "x.toml:31:",
            "`wire` is not a link of a device",
        ),
        ("at = \"1 ms\"\ndo = \"remove\"\nwhat = \"a:nik\"", "x.toml:31:", "did you mean `nic`"),
        ("at = \"1 ms\"\ndo = \"crash\"\nwhat = \"c\"", "x.toml:31:", "the hosts are `a`, `b`"),
        ("at = \"1 ms\"\ndo = \"reboot\"\nwhat = \"a\"", "x.toml:28:", "such as `takes = "),
        ("at = \"1 ms\"\ndo = \"reboot\"\nwhat = \"a\"\ntakes = \"1 us\"", "x.toml:32:", "1 ms or more"),
        ("at = \"1 ms\"\ndo = \"error-rate\"\nwhat = \"a\"\nrate = 0.5", "x.toml:32:", "from 0 to 1e-3"),
        ("at = \"1 ms\"\ndo = \"error-rate\"\nwhat = \"a\"", "x.toml:28:", "such as `rate = 1e-9`"),
        ("at = \"1 ms\"\ndo = \"poison\"\nwhat = \"a\"\nrate = 0.5", "x.toml:31:", "carries no TLPs"),
        ("at = \"1 ms\"\ndo = \"lose-completions\"\nwhat = \"a\"\nrate = 2", "x.toml:32:", "from 0 to 1"),
        ("at = \"1 ms\"\ndo = \"damage-headers\"\nwhat = \"a\"\nrate = 0.5", "x.toml:31:", "carries no TLPs"),
        ("at = \"1 ms\"\ndo = \"damage-headers\"\nwhat = \"a:nic\"", "x.toml:28:", "such as `rate = 1e-9`"),
        (
            "at = \"1 ms\"\ndo = \"contain\"\nwhat = \"a:nic\"",
            "x.toml:31:",
            "the host's `change.host.root_complex.containment` gives it that",
        ),
        (
            "at = \"1 ms\"\ndo = \"contain\"\nwhat = \"wire\"",
            "x.toml:31:",
            "is not a link of a device or switch",
        ),
        ("at = \"1 ms\"\ndo = \"mask\"\nwhat = \"a:eth1\"", "x.toml:31:", "did you mean `eth0`"),
        ("at = \"1 ms\"\ndo = \"unmask\"\nwhat = \"a:eth0:x\"", "x.toml:31:", "as in `a:eth0:3`"),
        ("at = \"1 ms\"\ndo = \"mask\"\nwhat = \"a:eth0\"\nrate = 1", "x.toml:32:", "leave it out"),
        ("at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.mtu\"\nvalue = \"9\"", "x.toml:32:", "from 68 to"),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.rss\"\nvalue = \"0,999\"",
            "x.toml:32:",
            "from 0 to 19",
        ),
        ("at = \"1 ms\"\ndo = \"revoke\"\nwhat = \"nic\"", "x.toml:31:", "a `[[borrow]]` names"),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.color\"\nvalue = \"9\"",
            "x.toml:31:",
            "network devices have `coalescing`",
        ),
        ("at = \"1 ms\"\ndo = \"set\"\nwhat = \"server.memory\"\nvalue = \"node7\"", "x.toml:32:", "node0"),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nic_driver.kpio\"\nvalue = \"all\"",
            "x.toml:31:",
            "with `kpio = \"off\"`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nic_driver.kpio_up_to\"\nvalue = \"64 B\"",
            "x.toml:31:",
            "set `a:nic_driver.kpio`, to",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nic_driver.adaptive\"\nvalue = \"false\"",
            "x.toml:31:",
            "as in `a:eth0.adaptive`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nvme_driver.io_timeout\"\nvalue = \"1 s\"",
            "x.toml:31:",
            "as in `a:nvme0n1.io_timeout`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nvme_driver.sgl_treshold\"\nvalue = \"0 B\"",
            "x.toml:31:",
            "did you mean `sgl_threshold`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.adaptive\"\nvalue = \"on\"",
            "x.toml:32:",
            "`true` or",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.tx_ring\"\nvalue = \"100\"",
            "x.toml:32:",
            "a power of two",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:eth0.rss\"\nvalue = \"0-3\"",
            "x.toml:32:",
            "such as `0,1`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nvme0n1.io_timeout\"\nvalue = \"1 s\"",
            "x.toml:31:",
            "there is no block device `nvme0n1`",
        ),
        (
            "at = \"1 ms\"\ndo = \"set\"\nwhat = \"a:hypervisor.placement\"\nvalue = \"numa\"",
            "x.toml:31:",
            "give the host `[host.hypervisor]`",
        ),
        ("when = \"a:eth0.rx_bytes\"\ndo = \"cut\"\nwhat = \"a\"", "x.toml:29:", "a counter and a number"),
        (
            "when = \"a:eth0.rx_bytes > many\"\ndo = \"cut\"\nwhat = \"a\"",
            "x.toml:29:",
            "a counter and a number",
        ),
        (
            "when = \"a:eth0.rx_byte > 1\"\ndo = \"cut\"\nwhat = \"a\"",
            "x.toml:29:",
            "did you mean `rx_bytes`",
        ),
        (
            "when = \"a:eth1.rx_bytes > 1\"\ndo = \"cut\"\nwhat = \"a\"",
            "x.toml:29:",
            "the host's network devices are `eth0`",
        ),
    ] {
        let said = event(lines);
        assert!(said.contains(place) && said.contains(words), "{lines}: {said}");
    }
}

/// A drive that comes later can have any name that drives have.
#[test]
fn names_of_drives_that_are_to_come_are_not_refused() {
    const LENT: &str = include_str!("../../../scenarios/lend-nvme.toml");
    let event = "[[event]]\nat = \"1 ms\"\ndo = \"set\"\nwhat = \"a:nvme0n1.io_timeout\"\nvalue = \"1 s\"\n";
    let setup = load(&[LENT, event].concat()).unwrap();
    let checked = |disks: Vec<(String, Option<String>)>, awaits_drives| {
        let found = KernelDevices { disks, awaits_drives, ..KernelDevices::default() };
        setup.check_kernel_names(&[found, KernelDevices::default()]).map_err(|wrong| wrong.to_string())
    };
    assert_eq!(checked(vec![("nvme0n1".to_owned(), None)], false), Ok(()));
    assert_eq!(checked(Vec::new(), true), Ok(()));
    let refused = checked(vec![("nvme1n1".to_owned(), None)], false).unwrap_err();
    assert!(refused.contains("the host's block devices are `nvme1n1`"), "{refused}");
}

/// A parameter of a driver changes under way, or is refused with where it is set.
#[test]
fn parameters_that_are_read_at_load_say_so() {
    let mut others = Vec::new();
    for (driver, shape) in
        [("nic_driver", NicDriverEntry::shape()), ("nvme_driver", NvmeDriverEntry::shape())]
    {
        let Shape::Table(keys) = shape else { panic!("parameters are a table") };
        for key in keys {
            let what = format!("a:{driver}.{}", key.name);
            let event = format!("at = \"1 ms\"\ndo = \"set\"\nwhat = \"{what}\"\nvalue = \"nothing\"");
            let said = with_event(&event).expect_err("there is no such value");
            if !said.contains(&format!("set it in `[host.{driver}]`")) {
                others.push(key.name);
            }
        }
    }
    let ethtool = ["tx_ring", "rx_ring", "coalescing", "adaptive", "coalescing_packets", "rss"];
    let kpio = ["kpio", "kpio_first_port", "kpio_last_port", "kpio_up_to"];
    assert_eq!(others, [&ethtool[..], &kpio, &["sgl_threshold", "io_timeout"]].concat());
}

/// A host with a drive of a name, and a virtual machine with these lines.
fn with_vm(host: &str, vm: &str) -> Result<ComputerSetup, String> {
    load(&format!(
        "name = \"x\"\nsummary = \"x\"\n\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\n{host}\n\n[[host.device]]\n\
         name = \"disk\"\ndrive = \"optane-900p\"\n\n[[host.vm]]\nname = \"x\"\n{vm}\n\n[[program]]\nhost = \"a/x\"\nrun = \"stream\"\n"
    ))
}

#[test]
fn a_guest_has_what_is_passed_through_and_its_host_has_it_no_more() {
    let vm = "vcpus = \"10-12\"\nmemory = \"1 GiB\"\ndevices = [\"disk\"]";
    let setup = with_vm("iommu = \"strict\"", vm).unwrap();
    let (host, guest) = (&setup.hosts[0], &setup.hosts[0].vms[0]);
    assert_eq!((&guest.vcpus[..], guest.node), (&[10, 11, 12][..], 1));
    assert_eq!(guest.devices, [machine::PassedSetup { device: 0, vf: None }]);
    assert!(host.passes(0));
    assert_eq!((setup.programs[0].host, setup.programs[0].vm), (0, Some(0)));
    for (vm, line, words) in [
        (vm.replace("10-12", "20"), "x.toml:15:", "there is no core 20"),
        (vm.replace("1 GiB", "3 MiB"), "x.toml:16:", "a multiple of 2 MiB"),
        (vm.replace("1 GiB", "1 TiB"), "x.toml:16:", "so that the host has some, too"),
        (vm.replace("\"disk\"", "\"dusk\""), "x.toml:17:", "there are `disk`"),
        (vm.replace("\"disk\"", "\"disk\", \"disk\""), "x.toml:17:", "passed through already"),
        (vm.replace("\"disk\"", "\"disk:vf0\""), "x.toml:17:", "it has no virtual functions"),
        (format!("{vm}\nnode = 2"), "x.toml:18:", "from 0 to 1"),
    ] {
        let wrong = with_vm("iommu = \"strict\"", &vm).expect_err(&vm);
        assert!(wrong.contains(line) && wrong.contains(words), "{vm}: {wrong}");
    }
    let wrong = with_vm("", vm).expect_err("without an IOMMU");
    assert!(wrong.contains("give host `a` `iommu = \"strict\"`"), "{wrong}");
    let other = GOOD.replace("host = \"a\"", "host = \"a/x\"");
    let wrong = load(&other).expect_err("no such guest");
    assert!(wrong.contains("has no virtual machine `x`") && wrong.contains("[[host.vm]]"), "{wrong}");
}

/// A NIC, or a virtual function of one, is the guest's: the host has no network device for it.
#[test]
fn a_guest_has_network_devices_of_its_own() {
    const NICS: &str = include_str!("../../../scenarios/nic-guest.toml");
    let setup = load(NICS).unwrap();
    let names = |all: &[machine::InterfaceSetup]| {
        all.iter().map(|own| (own.name.clone(), own.port, own.address.to_string())).collect::<Vec<_>>()
    };
    let (host, eth0) = (&setup.hosts[0], || "eth0".to_owned());
    assert_eq!(names(&host.interfaces), [(eth0(), (0, 1, 0), "10.0.0.1".into())]);
    assert_eq!(names(&host.vms[0].interfaces), [(eth0(), (0, 0, 0), "10.0.128.1".into())]);
    assert_eq!(names(&host.vms[1].interfaces), [(eth0(), (0, 1, 0), "10.0.128.2".into())]);
    for (from, to, words) in [
        ("shared:vf0", "shared:vf1", "`shared:vf0` to `shared:vf0`"),
        ("shared:vf0", "shared", "it has virtual functions, which hosts enable"),
        ("[\"nic\"]", "[\"shared:vf0\"]", "passed through already"),
        ("shared:vf0\"]", "shared:vf0\"]\nuplink = \"nic\"", "which stays the host's"),
    ] {
        let changed = NICS.replace(from, to);
        assert_ne!(changed, NICS);
        let wrong = load(&changed).expect_err(to);
        assert!(wrong.contains(words), "{to}: {wrong}");
    }
}

/// What is wrong with virtual NICs and generators is told at its line.
#[test]
fn a_virtual_nic_has_an_uplink_that_sorts_by_address() {
    const L2FWD: &str = include_str!("../../../scenarios/l2fwd.toml");
    let setup = load(L2FWD).unwrap();
    let (nic, interface) = setup.hosts[0].vms[0].virtual_nic().expect("a virtual NIC");
    assert_eq!((nic.uplink, nic.polled), (0, true));
    assert_eq!(setup.generators[0].to, [(nic.mac, interface.address)]);
    let line = |words: &str| {
        let at = L2FWD.lines().position(|line| line == words).expect(words) + 1;
        format!("x.toml:{at}:")
    };
    for (from, to, words) in [
        ("uplink = \"nic\"", "uplink = \"nik\"", "there are `nic`"),
        ("polled = true", "address = \"10.0.0.0/16\"", "not for hosts"),
        ("to = [\"a/x\"]", "to = [\"a/y\"]", "`[[host.vm]]` with `uplink`"),
        ("load = 0.05", "load = 2.0", "from 0 to 1"),
    ] {
        let said = load(&L2FWD.replace(from, to)).expect_err(to);
        assert!(said.contains(&line(from)) && said.contains(words), "{to}: {said}");
    }
    let said = load(&L2FWD.replace("\"82599\"", "\"modern\"")).expect_err("no addresses");
    assert!(said.contains("controller.addresses") && said.contains(&line("uplink = \"nic\"")), "{said}");
    let said =
        load(&L2FWD.replace("[host.nic_driver]", "[host.hypervisor]\nperiod = \"1 us\"\n[host.nic_driver]"));
    assert!(said.expect_err("too often").contains("100 us at least"));
}

/// A host whose slots are one of x4 and, two of them at most, wider ones; the device has no `slot`.
fn in_slots(slots: &str, device: &str) -> Result<ComputerSetup, String> {
    load(&format!(
        "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"xeon-8160\"\n{slots}\n[[host.device]]\n{device}\n"
    ))
}

#[test]
fn a_device_without_a_slot_takes_one_that_fits_it() {
    // The bays come first by name; they have four lanes.
    for (device, slot) in [("drive = \"optane-900p\"", "bay"), ("nic = \"connectx4\"", "slot")] {
        let setup = in_slots("", device).unwrap();
        assert_eq!(setup.hosts[0].devices[0].links[0].name, slot, "{device}");
        assert!(setup.doubts.is_empty(), "{device}");
    }
}

#[test]
fn where_no_slot_fits_the_widest_is_taken_and_told() {
    let narrow = "change.host.port.slot.width = 8\nchange.host.port.slot-socket1.generation = 2";
    let setup = in_slots(narrow, "nic = \"connectx4\"").unwrap();
    assert_eq!(setup.hosts[0].devices[0].links[0].name, "slot");
    let told = setup.doubts.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(
        told.contains("no free slot of xeon-8160 has Gen3 x16: this is in `slot`, which has Gen3 x8"),
        "{told}"
    );
    // Named, it is meant.
    let setup = in_slots(narrow, "nic = \"connectx4\"\nslot = \"slot\"").unwrap();
    assert!(setup.doubts.is_empty());
}

/// A machine that extends the T430, with these further lines.
fn machine(lines: &str) -> Result<machine::Machine, String> {
    let text = format!("name = \"x\"\nsummary = \"x\"\nextends = \"dell-t430\"\n{lines}\n");
    let doc = Doc::<machine::Machine>::from_text(&Library::built_in(), "x.toml", &text);
    doc.read().map_err(|wrong| wrong.to_string())
}

#[test]
fn a_slot_extends_a_slot_of_its_machine() {
    let source = "source = \"assumed: a bay\"";
    let own = machine(&format!(
        "[host.port.bay]\nextends = \"slot\"\n{source}\nwidth = 4\n[host.port.bay.credits]\n{source}\nph = 32\n\
         [host.port.rear]\nextends = \"bay\"\n{source}\nsocket = 1"
    ))
    .unwrap();
    let (slot, bay, rear) = (&own.host.port["slot"], &own.host.port["bay"], &own.host.port["rear"]);
    assert_eq!((bay.width.value.get(), bay.generation.value), (4, slot.generation.value));
    assert_eq!((bay.credits.ph.value, bay.credits.pd.value), (32, slot.credits.pd.value));
    assert_eq!((rear.socket.value, rear.width.value.get(), rear.credits.ph.value), (1, 4, 32));
    // How many there are is each one's own.
    assert_eq!((slot.count(), bay.count()), (2, 1));
    let wrong = machine("[host.port.bay]\nextends = \"slott\"").unwrap_err();
    assert!(wrong.contains("x.toml:5:") && wrong.contains("did you mean `slot`?"), "{wrong}");
    let round =
        machine("[host.port.bay]\nextends = \"rear\"\n[host.port.rear]\nextends = \"bay\"").unwrap_err();
    assert!(round.contains("circle"), "{round}");
}

#[test]
fn a_machine_may_lack_a_slot_of_the_one_that_it_extends() {
    let own = machine("[host.port.slot-socket1]\nslots = { value = 0, source = \"assumed: none\" }").unwrap();
    assert_eq!(own.host.port.keys().collect::<Vec<_>>(), ["slot"]);
}

#[test]
fn a_live_host_is_not_asked_for_what_its_own_linux_decides() {
    let live = |more: &str| {
        load(&format!(
            "name = \"x\"\nsummary = \"x\"\n[[host]]\nname = \"a\"\nmachine = \"dell-t430\"\nlive = true\n\
             [[host.device]]\nname = \"d\"\ndrive = \"optane-900p\"\n{more}"
        ))
    };
    let event = |deed: &str, what: &str| {
        live(&format!("[[event]]\nat = \"1 ms\"\ndo = \"{deed}\"\nwhat = \"{what}\""))
    };
    live("").unwrap();
    event("remove", "a:d").unwrap();
    for deed in ["power-off", "crash"] {
        let error = event(deed, "a").unwrap_err();
        assert!(error.contains("x.toml:13:") && error.contains("whose own Linux decides that"), "{error}");
    }
    let error =
        live("[[host]]\nname = \"b\"\nmachine = \"dell-t430\"\n[[borrow]]\nfunction = \"a:d\"\nby = \"b\"\n")
            .unwrap_err();
    assert!(error.contains("neither lends nor borrows"), "{error}");
}

#[test]
fn links_within_a_package_join_nodes_too() {
    let four = |near: &str| {
        machine(&format!(
            "[host]\nsockets = {{ value = 4, source = \"assumed: two of two nodes\" }}\n[host.interconnect]\n\
             links = {{ value = [[0, 2]], source = \"assumed: one\" }}\n{near}"
        ))
    };
    let figure =
        |key: &str, value: &str| format!("{key} = {{ value = {value}, source = \"assumed: some\" }}\n");
    let near = |links: &str| {
        "[host.interconnect.near]\n".to_owned()
            + &figure("links", links)
            + &figure("bandwidth", "\"100 GB/s\"")
            + &figure("latency", "\"5 ns\"")
    };
    let host = four(&near("[[0, 1], [2, 3]]")).unwrap().host;
    let links: Vec<_> = host
        .interconnect
        .iter()
        .flat_map(|all| all.all_links())
        .map(|(pair, _, latency)| (pair.to_vec(), latency))
        .collect();
    assert_eq!(links.len(), 3);
    assert!(links[0].1 > links[1].1 && links[1].0 == [0, 1], "{links:?}");
    assert!(four("").unwrap_err().contains("cannot be reached"));
    assert!(four(&near("[[0, 4]]")).unwrap_err().contains("there is no socket 4"));
}
