//! Machines of many kinds, made up: each is read, inspected, drawn, imported, and written for other tools, which say the same.

use std::collections::BTreeMap;

use machine::{ComputerScenario, ComputerSetup, Doc, Library, Machine};
use survey::{ImportOptions, Survey, import, pack};

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
