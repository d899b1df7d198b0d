//! Machines of many kinds, made up: each is read, inspected, drawn, imported, and written for other tools, which say the same.

use std::collections::BTreeMap;

use machine::{ComputerScenario, ComputerSetup, Doc, Library, Machine};
use survey::{ImportOptions, Imported, Survey, import, pack};

/// A machine's files.
#[derive(Default)]
struct Made {
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
}

impl Made {
    fn file(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.insert(path.into(), (text.into() + "\n").into_bytes());
    }

    /// So many nodes with so many cores each, of so many threads.
    fn nodes(nodes: u32, cores: u32, threads: u32, cpu: &str) -> Self {
        let mut made = Self::default();
        let mut cpuinfo = String::new();
        for node in 0..nodes {
            let first = node * cores * threads;
            let folder = format!("/sys/devices/system/node/node{node}");
            made.file(format!("{folder}/cpulist"), format!("{first}-{}", first + cores * threads - 1));
            made.file(format!("{folder}/meminfo"), format!("Node {node} MemTotal: 134217728 kB"));
            let far = (0..nodes).map(|other| if other == node { "10" } else { "21" });
            made.file(format!("{folder}/distance"), far.collect::<Vec<_>>().join(" "));
            for place in 0..cores * threads {
                let cpu_folder = format!("/sys/devices/system/cpu/cpu{}", first + place);
                made.file(format!("{cpu_folder}/topology/core_id"), (place % cores).to_string());
                made.file(format!("{cpu_folder}/topology/physical_package_id"), node.to_string());
                let cache = format!("{cpu_folder}/cache/index3");
                made.file(format!("{cache}/level"), "3");
                made.file(format!("{cache}/type"), "Unified");
                made.file(format!("{cache}/size"), "32768K");
                made.file(format!("{cache}/ways_of_associativity"), "16");
                made.file(
                    format!("{cache}/shared_cpu_list"),
                    format!("{first}-{}", first + cores * threads - 1),
                );
                cpuinfo += &format!("processor\t: {}\nmodel name\t: {cpu}\n\n", first + place);
            }
        }
        made.file("/proc/cpuinfo", cpuinfo.trim_end());
        made.file("/proc/meminfo", format!("MemTotal: {} kB", 134_217_728 * u64::from(nodes)));
        made
    }

    /// A function below others: class, identity, and `xWIDTH` of `RATE GT/s`.
    fn function(
        &mut self,
        path: &str,
        node: i32,
        class: &str,
        [vendor, device]: [&str; 2],
        link: (&str, u32),
    ) {
        let folder = format!("/sys/devices/pci{}:00/{path}", &path[..4]);
        let name = path.rsplit('/').next().unwrap().to_owned();
        self.links.insert(
            format!("/sys/bus/pci/devices/{name}"),
            format!("../../../devices/pci{}:00/{path}", &path[..4]),
        );
        for (key, value) in [
            ("class", format!("0x{class}00")),
            ("vendor", format!("0x{vendor}")),
            ("device", format!("0x{device}")),
            ("numa_node", node.to_string()),
            ("current_link_speed", format!("{} GT/s PCIe", link.0)),
            ("max_link_speed", format!("{} GT/s PCIe", link.0)),
            ("current_link_width", link.1.to_string()),
            ("max_link_width", link.1.to_string()),
        ] {
            self.file(format!("{folder}/{key}"), value);
        }
    }

    /// What a function's link could be.
    fn could_be(&mut self, path: &str, (rate, width): (&str, u32)) {
        let folder = format!("/sys/devices/pci{}:00/{path}", &path[..4]);
        self.file(format!("{folder}/max_link_speed"), format!("{rate} GT/s PCIe"));
        self.file(format!("{folder}/max_link_width"), width.to_string());
    }

    fn survey(&self) -> Survey {
        let mut bytes = Vec::new();
        pack(&self.files, &self.links, &mut bytes).unwrap();
        Survey::from_bytes("made", &bytes).unwrap()
    }
}

const PORT: [&str; 2] = ["8086", "352a"];
const NIC: [&str; 2] = ["15b3", "1021"];
const GPU: [&str; 2] = ["10de", "2330"];
const DRIVE: [&str; 2] = ["144d", "a808"];

/// Looks at a machine by all that there is; returns the import's relative and notes.
fn whole(made: &Made, cores: usize) -> (Survey, String, Vec<String>) {
    let survey = made.survey();
    assert_eq!(survey.cores(), cores, "{}", survey.overview());
    let findings = survey.findings();
    let drawing = survey.drawing(&findings);
    assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"));
    assert_eq!(findings.is_empty(), !drawing.contains("#c00000"), "what costs is red");
    for (xml, has_all) in [(survey.to_hwloc_xml(), true), (survey.to_nccl_xml(), false)] {
        let again =
            Survey::from_bytes("again", xml.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{xml}"));
        assert_eq!(again.cpus.keys().collect::<Vec<_>>(), survey.cpus.keys().collect::<Vec<_>>());
        let nodes = |survey: &Survey| {
            survey
                .nodes
                .values()
                .filter_map(|node| node.cpus.get().cloned())
                .filter(|cpus| !cpus.is_empty())
                .collect::<Vec<_>>()
        };
        assert_eq!(nodes(&again), nodes(&survey), "{xml}");
        for (address, function) in &again.functions {
            let own = &survey.functions[address];
            assert_eq!(
                (function.class.value(), function.device.value()),
                (own.class.value(), own.device.value())
            );
            assert_eq!(again.node_of(*address), survey.node_of(*address), "{address}: {xml}");
            let [one, other] = [function, own].map(|function| function.gb_per_s().unwrap_or_default());
            assert!((one - other).abs() < 1e-3, "{address}: {one} {other}");
        }
        if has_all {
            assert_eq!(again.functions.len(), survey.functions.len());
            assert_eq!(again.cores(), survey.cores());
            // hwloc has distances between several.
            assert!(survey.nodes.len() == 1 || again.distances == survey.distances);
            assert!(again.functions.keys().all(|address| again.above(*address) == survey.above(*address)));
        }
    }
    let library = Library::built_in();
    let imported = import(&survey, &library, ImportOptions { name: "box", from: None }).unwrap();
    // All that it writes can be loaded.
    let texts = imported.files.iter().map(|(name, text)| (format!("box/{name}"), text.clone()));
    let library = library.with_texts(texts);
    Doc::<Machine>::load(&library, "box/box.toml").unwrap().read().unwrap();
    if let Some(first) = &imported.first {
        let doc = Doc::<ComputerScenario>::load(&library, &format!("box/{first}")).unwrap();
        ComputerSetup::load(&library, &doc).unwrap();
    }
    (survey, imported.relative, imported.notes)
}

fn has(survey: &Survey, id: &str) -> bool {
    survey.findings().iter().any(|finding| finding.id.starts_with(id))
}

#[test]
fn four_sockets_with_sixteen_gpus() {
    let mut made = Made::nodes(4, 8, 2, "Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz");
    for node in 0..4 {
        let root = format!("000{node}:00:01.0");
        made.function(&root, node, "0604", PORT, ("16.0", 16));
        made.function(&format!("{root}/000{node}:01:00.0"), node, "0604", ["10b5", "c010"], ("16.0", 16));
        for place in 0..4 {
            let port = format!("{root}/000{node}:01:00.0/000{node}:02:0{place}.0");
            made.function(&port, node, "0604", ["10b5", "c010"], ("16.0", 16));
            made.function(
                &format!("{port}/000{node}:{:02x}:00.0", 16 + place),
                node,
                "0302",
                GPU,
                ("16.0", 16),
            );
        }
    }
    let (survey, relative, _) = whole(&made, 32);
    assert_eq!((survey.nodes.len(), relative.as_str()), (4, "xeon-8280"));
    assert!(has(&survey, "peers-cross-socket"), "{:?}", survey.findings());
    assert!(!has(&survey, "peers-cross-root"), "each socket's are below one switch");
}

#[test]
fn one_socket_of_another_vendor() {
    let mut made = Made::nodes(1, 16, 2, "AMD EPYC 9354P 32-Core Processor");
    made.function("0000:00:01.0", 0, "0604", ["1022", "14ab"], ("32.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("32.0", 16));
    let (_, relative, notes) = whole(&made, 16);
    assert_eq!(relative, "epyc-9224", "of the same generation");
    assert!(!notes.iter().any(|note| note.contains("number of sockets")), "{notes:?}");
    // A relative of two sockets stands for one of one.
    let library = Library::built_in();
    let imported =
        import(&made.survey(), &library, ImportOptions { name: "box", from: Some("dell-t430") }).unwrap();
    assert!(
        !imported.notes.iter().any(|note| note.contains("stays as the relative's")),
        "{:?}",
        imported.notes
    );
    let doc = Doc::<Machine>::from_text(&library, "box.toml", &imported.files[0].1);
    let host = doc.read().unwrap().host;
    assert_eq!((host.sockets.value.get(), host.core.count.value.get()), (1, 16));
}

#[test]
fn many_virtual_functions_are_one_card() {
    let mut made = Made::nodes(2, 4, 1, "Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz");
    made.function("0000:00:01.0", 0, "0604", PORT, ("8.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("8.0", 16));
    let physical = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    made.file(format!("{physical}/sriov_totalvfs"), "120");
    made.file(format!("{physical}/sriov_numvfs"), "120");
    for vf in 0..120 {
        let (device, function) = (1 + vf / 8, vf % 8);
        let path = format!("0000:00:01.0/0000:01:{device:02x}.{function}");
        made.function(&path, 0, "0200", ["15b3", "101e"], ("8.0", 16));
        made.links.insert(format!("/sys/devices/pci0000:00/{path}/physfn"), "../0000:01:00.0".into());
    }
    let survey = made.survey();
    assert_eq!(survey.functions.len(), 122);
    assert!(survey.overview().lines().count() < 12, "{}", survey.overview());
    assert!(survey.drawing(&[]).contains("120 virtual functions"));
    let imported = import(&survey, &Library::built_in(), ImportOptions { name: "box", from: None }).unwrap();
    assert_eq!((imported.relative.as_str(), imported.first.as_deref()), ("dell-t430", Some("netperf.toml")));
}

#[test]
fn persistent_memory_has_no_cpus() {
    let mut made = Made::nodes(2, 4, 2, "Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz");
    for node in [2, 3] {
        made.file(format!("/sys/devices/system/node/node{node}/cpulist"), "");
        made.file(
            format!("/sys/devices/system/node/node{node}/meminfo"),
            format!("Node {node} MemTotal: 528482304 kB"),
        );
        made.file(format!("/sys/bus/dax/devices/dax{node}.0/target_node"), node.to_string());
    }
    for node in 0..4 {
        let far = (0..4).map(|other| if other == node { "10" } else { "17" });
        made.file(format!("/sys/devices/system/node/node{node}/distance"), far.collect::<Vec<_>>().join(" "));
    }
    made.function("0000:00:01.0", 1, "0604", PORT, ("8.0", 4));
    made.function("0000:00:01.0/0000:01:00.0", 1, "0108", DRIVE, ("8.0", 4));
    let (survey, relative, notes) = whole(&made, 8);
    assert_eq!((survey.nodes.len(), relative.as_str()), (4, "xeon-8280"));
    assert!(notes.iter().any(|note| note.contains("2 nodes without CPUs")), "{notes:?}");
    let again = Survey::from_bytes("again", survey.to_hwloc_xml().as_bytes()).unwrap();
    assert_eq!(again.nodes[&2].kind.get(), survey.nodes[&2].kind.get());
}

#[test]
fn hybrid_cores_and_arm() {
    let mut made = Made::nodes(1, 8, 1, "13th Gen Intel(R) Core(TM) i7-13700");
    made.file("/sys/devices/cpu_core/cpus", "0-3");
    made.file("/sys/devices/cpu_atom/cpus", "4-7");
    made.function("0000:00:01.0", 0, "0604", PORT, ("16.0", 4));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0108", DRIVE, ("16.0", 4));
    let (survey, _, notes) = whole(&made, 8);
    assert!(survey.overview().contains("4 efficiency, 4 performance"), "{}", survey.overview());
    assert!(notes.iter().any(|note| note.contains("several kinds")), "{notes:?}");
    // An Arm server names its CPUs by numbers, and has no package of its own for each.
    let mut made = Made::nodes(2, 4, 1, "");
    made.file("/proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nBogoMIPS\t: 50.00");
    made.function("0002:00:01.0", 1, "0604", ["1def", "e100"], ("16.0", 16));
    made.function("0002:00:01.0/0002:01:00.0", 1, "0200", NIC, ("16.0", 16));
    let (survey, _, _) = whole(&made, 8);
    assert_eq!(survey.node_of("0002:01:00.0".parse().unwrap()), Some(1));
}

/// No source says anything of nodes.
#[test]
fn a_machine_without_nodes() {
    let mut made = Made::nodes(1, 2, 1, "Intel(R) Core(TM) i5-2400S CPU @ 2.50GHz");
    made.files.retain(|path, _| !path.contains("/system/node/"));
    made.function("0000:00:01.0", -1, "0604", PORT, ("5.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", -1, "0302", GPU, ("5.0", 16));
    let survey = made.survey();
    let xml = survey.to_hwloc_xml();
    let again = Survey::from_bytes("again", xml.as_bytes()).unwrap();
    assert_eq!((again.cores(), again.functions.len()), (2, 2), "{xml}");
    let imported = import(&survey, &Library::built_in(), ImportOptions { name: "box", from: None }).unwrap();
    assert_eq!(imported.relative, "i5-2400s");
}

fn imported(made: &Made) -> Imported {
    let library = Library::built_in();
    let imported = import(&made.survey(), &library, ImportOptions { name: "box", from: None }).unwrap();
    let texts = imported.files.iter().map(|(name, text)| (format!("box/{name}"), text.clone()));
    let library = library.with_texts(texts);
    for (name, _) in imported.files.iter().filter(|(_, text)| text.contains("[[host]]")) {
        let doc = Doc::<ComputerScenario>::load(&library, &format!("box/{name}")).unwrap();
        ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    imported
}

fn file<'i>(imported: &'i Imported, name: &str) -> &'i str {
    &imported.files.iter().find(|(own, _)| own == name).unwrap_or_else(|| panic!("no {name}")).1
}

fn note(imported: &Imported, part: &str) -> bool {
    imported.notes.iter().any(|note| note.contains(part))
}

const ICE_LAKE: &str = "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz";

/// The slot that asks what a device costs elsewhere is like the device's own, at the socket farthest from it.
#[test]
fn the_far_slot_is_far_from_its_own_device() {
    let mut made = Made::nodes(4, 4, 1, ICE_LAKE);
    // Two nodes of each package.
    for node in 0..4 {
        let far = (0..4).map(|other| match (node / 2 == other / 2, node == other) {
            (_, true) => "10",
            (true, _) => "12",
            _ => "21",
        });
        made.file(format!("/sys/devices/system/node/node{node}/distance"), far.collect::<Vec<_>>().join(" "));
    }
    made.function("0000:00:01.0", 0, "0604", PORT, ("16.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0302", GPU, ("16.0", 16));
    made.function("0000:80:01.0", 3, "0604", PORT, ("8.0", 8));
    made.function("0000:80:01.0/0000:81:00.0", 3, "0200", NIC, ("8.0", 8));
    made.function("0000:40:01.0", 1, "0604", PORT, ("8.0", 4));
    made.function("0000:40:01.0/0000:41:00.0", 1, "0108", DRIVE, ("8.0", 4));
    let found = imported(&made);
    let machine = file(&found, "box.toml");
    assert!(machine.contains("port.elsewhere.extends = \"at-0000-80-01-0\""), "{machine}");
    assert!(machine.contains("port.elsewhere.socket = { value = 0"), "{machine}");
    assert!(machine.contains("port.drive-elsewhere.socket = { value = 2"), "{machine}");
    let place = found.far.iter().find(|place| place.scenario == "netperf.toml").unwrap();
    assert_eq!(place.device, "0000:81:00.0".parse().unwrap());
    let command = "sweep there/netperf.toml --over host.b.device.0.slot=at-0000-80-01-0,elsewhere";
    assert_eq!(place.command("there"), command);
    // What is below a switch goes there with it.
    let mut made = Made::nodes(2, 4, 1, ICE_LAKE);
    made.function("0000:00:01.0", 1, "0604", PORT, ("16.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 1, "0604", ["10b5", "c010"], ("16.0", 16));
    for (port, bus, class, ids) in [(0, 3, "0200", NIC), (1, 4, "0302", GPU)] {
        let port = format!("0000:00:01.0/0000:01:00.0/0000:02:0{port}.0");
        made.function(&port, 1, "0604", ["10b5", "c010"], ("16.0", 16));
        made.function(&format!("{port}/0000:0{bus}:00.0"), 1, class, ids, ("16.0", 16));
    }
    let found = imported(&made);
    assert_eq!(found.far[0].key, "host.b.switch.0.slot");
    assert!(file(&found, "box.toml").contains("port.elsewhere.socket = { value = 0"));
    // One socket has no far slot.
    let mut made = Made::nodes(1, 4, 1, ICE_LAKE);
    made.function("0000:00:01.0", 0, "0604", PORT, ("16.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("16.0", 16));
    assert!(imported(&made).far.is_empty());
}

/// A link is simulated as it is now, whatever both of its ends can, and what it could be is told.
#[test]
fn links_are_as_they_are_now() {
    let mut made = Made::nodes(2, 4, 1, ICE_LAKE);
    let slow = ("8.0", 4);
    made.function("0000:00:01.0", 0, "0604", PORT, slow);
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, slow);
    // A GPU with nothing to do.
    made.function("0000:80:01.0", 1, "0604", PORT, ("2.5", 16));
    made.function("0000:80:01.0/0000:81:00.0", 1, "0302", GPU, ("2.5", 16));
    for path in ["0000:00:01.0", "0000:00:01.0/0000:01:00.0", "0000:80:01.0", "0000:80:01.0/0000:81:00.0"] {
        made.could_be(path, ("16.0", 16));
    }
    let found = imported(&made);
    let machine = file(&found, "box.toml");
    for line in [
        "port.at-0000-00-01-0.generation = { value = 3",
        "port.at-0000-00-01-0.width = { value = 4",
        "port.slot.generation = { value = 4",
        "port.slot.width = { value = 16",
    ] {
        assert!(machine.contains(line), "{line}: {machine}");
    }
    assert!(
        note(&found, "for what it could be, set port.at-0000-00-01-0.generation to 4"),
        "{:?}",
        found.notes
    );
    assert!(note(&found, "links of 0000:81:00.0 have a lower rate now"), "{:?}", found.notes);
    // Below a switch, the card's file says it.
    let mut made = Made::nodes(1, 4, 1, ICE_LAKE);
    made.function("0000:00:01.0", 0, "0604", PORT, ("16.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0604", ["10b5", "c010"], ("16.0", 16));
    for (port, link) in [(0, slow), (1, ("16.0", 16))] {
        let port_path = format!("0000:00:01.0/0000:01:00.0/0000:02:0{port}.0");
        let card = format!("{port_path}/0000:0{}:00.0", 3 + port);
        made.function(&port_path, 0, "0604", ["10b5", "c010"], link);
        made.function(&card, 0, "0200", NIC, link);
        made.could_be(&port_path, ("16.0", 16));
        made.could_be(&card, ("16.0", 16));
    }
    let found = imported(&made);
    assert!(file(&found, "nic-15b3-1021-x4g3.toml").contains("link.width = { value = 4"));
    assert!(note(&found, "link.width to 16 in nic-15b3-1021-x4g3.toml"), "{:?}", found.notes);
}

/// A port of an old generation tells as many credits as its flow control can, and the next one as many as the relative has.
#[test]
fn credits_are_those_of_the_generation() {
    let mut made = Made::nodes(2, 4, 1, "Intel(R) Xeon(R) Gold 6442Y");
    made.function("0000:00:01.0", 0, "0604", PORT, ("8.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("8.0", 16));
    made.function("0000:80:01.0", 1, "0604", PORT, ("32.0", 4));
    made.function("0000:80:01.0/0000:81:00.0", 1, "0108", DRIVE, ("32.0", 4));
    let found = imported(&made);
    assert_eq!(found.relative, "dell-r760");
    let library = Library::built_in();
    let host = Doc::<Machine>::from_text(&library, "box.toml", file(&found, "box.toml")).read().unwrap().host;
    let of = |generation| {
        let mut ports = host.port.values().filter(|port| port.count() > 0);
        ports.find(|port| port.generation.value.get() == generation).unwrap()
    };
    let (old, new) = (of(3), of(5));
    let like = &Doc::<Machine>::load(&library, "dell-r760").unwrap().read().unwrap().host.port["slot"];
    assert_eq!((old.generation.value.get(), old.credits.ph.value, old.credits.pd.value), (3, 127, 2047));
    assert_eq!((new.generation.value.get(), new.credits.ph.value), (5, like.credits.ph.value));
    assert_eq!(survey::credits_at(like, 3)[0], ("ph", 127));
}

/// What nobody has a file about is its nearest relative: CPUs by generation and vendor, GPUs by chip, switches by generation.
#[test]
fn relatives_are_near() {
    let of_cpu = |cpu: &str| {
        let mut made = Made::nodes(1, 4, 1, cpu);
        made.function("0000:00:01.0", 0, "0604", PORT, ("8.0", 16));
        made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("8.0", 16));
        imported(&made).relative
    };
    for (cpu, relative) in [
        ("Intel(R) Core(TM) i9-10980XE CPU @ 3.00GHz", "xeon-8280"),
        ("Intel(R) Xeon(R) W-2145 CPU @ 3.70GHz", "xeon-8160"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "dell-r760"),
        ("Intel(R) Core(TM) i7-6700 CPU @ 3.40GHz", "xeon-8160"),
        ("Intel(R) Core(TM) i5-3570 CPU @ 3.40GHz", "i5-2400s"),
        ("NVIDIA Grace", "grace"),
    ] {
        assert_eq!(of_cpu(cpu), relative, "{cpu}");
    }
    let mut made = Made::nodes(1, 4, 1, "");
    made.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40");
    made.function("0000:00:01.0", 0, "0604", PORT, ("16.0", 16));
    made.function("0000:00:01.0/0000:01:00.0", 0, "0200", NIC, ("16.0", 16));
    assert_eq!(imported(&made).relative, "grace");
    let mut made = Made::nodes(1, 4, 1, ICE_LAKE);
    for (place, (device, class, rate)) in [
        ("1024", "0302", "8.0"),
        ("102d", "0302", "8.0"),
        ("1db4", "0302", "8.0"),
        ("20b5", "0302", "16.0"),
        ("2684", "0300", "16.0"),
    ]
    .into_iter()
    .enumerate()
    {
        let root = format!("0000:00:0{}.0", place + 1);
        made.function(&root, 0, "0604", PORT, (rate, 16));
        made.function(&format!("{root}/0000:0{}:00.0", place + 1), 0, class, ["10de", device], (rate, 16));
    }
    let found = imported(&made);
    let relatives: Vec<(&str, bool)> =
        found.parts.iter().map(|part| (part.relative.as_str(), part.is_own)).collect();
    let expected = [
        ("k40c", true),
        ("k40c", false),
        ("h100-pcie", false),
        ("h100-pcie", false),
        ("rtx-pro-6000", false),
    ];
    assert_eq!(relatives, expected);
}

/// Of parts with the same numbers, firmware's label tells; without one, it is the part that the others extend. Drives by their numbers.
#[test]
fn parts_are_told_by_numbers_and_labels() {
    let part = |label: Option<&str>, class: &str, ids: [&str; 2]| {
        let mut made = Made::nodes(1, 4, 1, ICE_LAKE);
        made.function("0000:00:01.0", 0, "0604", PORT, ("8.0", 16));
        let path = "0000:00:01.0/0000:01:00.0";
        made.function(path, 0, class, ids, ("8.0", 4));
        if let Some(label) = label {
            made.file(format!("/sys/devices/pci0000:00/{path}/label"), label);
        }
        let parts = imported(&made).parts;
        // hwloc's XML carries it as the device's name.
        let xml = made.survey().to_hwloc_xml();
        let again = Survey::from_bytes("again", xml.as_bytes()).unwrap();
        let again =
            import(&again, &Library::built_in(), ImportOptions { name: "box", from: None }).unwrap().parts;
        assert_eq!(again[0].relative, parts[0].relative);
        (parts[0].relative.clone(), parts[0].is_own)
    };
    let own = |name: &str| (name.to_owned(), true);
    assert_eq!(part(None, "0200", ["4e46", "0001"]), own("modern"));
    assert_eq!(part(Some("kpio-fpga"), "0200", ["4e46", "0001"]), own("kpio-fpga"));
    assert_eq!(part(None, "0200", ["15b3", "1013"]), own("connectx4"));
    assert_eq!(part(Some("connectx4-octo"), "0200", ["15b3", "1013"]), own("connectx4-octo"));
    assert_eq!(part(Some("Integrated NIC 1"), "0200", ["15b3", "1013"]), own("connectx4"));
    assert_eq!(part(None, "0108", ["8086", "2700"]), own("optane-900p"));
    assert_eq!(part(None, "0108", ["8086", "2701"]), own("optane-p4800x"));
    // Another vendor's part is not the one of the label.
    assert!(!part(Some("modern"), "0200", ["8086", "1583"]).1);
}

/// All GPUs are in the scenario of peers; an Ethernet rate that nobody says is told to be assumed.
#[test]
fn scenarios_have_what_there_is() {
    let mut made = Made::nodes(2, 4, 1, ICE_LAKE);
    for gpu in 0..8 {
        let root = format!("0000:00:0{}.0", gpu + 1);
        made.function(&root, gpu / 4, "0604", PORT, ("16.0", 16));
        made.function(&format!("{root}/0000:0{}:00.0", gpu + 1), gpu / 4, "0302", GPU, ("16.0", 16));
    }
    made.function("0000:00:0a.0", 0, "0604", PORT, ("8.0", 8));
    made.function("0000:00:0a.0/0000:0a:00.0", 0, "0200", NIC, ("8.0", 8));
    let found = imported(&made);
    assert_eq!(file(&found, "p2p.toml").matches("\ngpu = ").count(), 8);
    assert!(note(&found, "no source says the Ethernet rate"), "{:?}", found.notes);
    made.links.insert(
        "/sys/class/net/eth0".into(),
        "../../devices/pci0000:00/0000:00:0a.0/0000:0a:00.0/net/eth0".into(),
    );
    let folder = "/sys/devices/pci0000:00/0000:00:0a.0/0000:0a:00.0/net/eth0";
    made.links.insert(format!("{folder}/device"), "../..".into());
    made.file(format!("{folder}/speed"), "25000");
    assert!(!note(&imported(&made), "Ethernet rate"));
}
