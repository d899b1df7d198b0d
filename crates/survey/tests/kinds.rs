//! Kinds of machines and of tools' outputs, each by a small source: what is read, and that its import can be simulated.

use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use survey::{ImportOptions, Imported, PciAddress, Survey, import};

fn read(text: &str) -> Survey {
    Survey::from_bytes("source", text.as_bytes()).unwrap()
}

fn at(address: &str) -> PciAddress {
    address.parse().unwrap()
}

/// An import whose first scenario can be loaded.
fn imported(survey: &Survey) -> Imported {
    let library = Library::built_in();
    let imported = import(survey, &library, ImportOptions { name: "box", from: None }).unwrap();
    let texts = imported.files.iter().map(|(name, text)| (format!("box/{name}"), text.clone()));
    let library = library.with_texts(texts);
    let first = imported.first.as_ref().expect("a scenario");
    let doc = Doc::<ComputerScenario>::load(&library, &format!("box/{first}")).unwrap();
    ComputerSetup::load(&library, &doc).unwrap();
    imported
}

fn has_note(imported: &Imported, part: &str) -> bool {
    imported.notes.iter().any(|note| note.contains(part))
}

/// hwloc's XML of a package for each mask, with what is in it.
fn hwloc(version: &str, packages: &[(u32, String)], rest: &str) -> String {
    let mut text =
        format!("<topology version=\"{version}\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0xff\">");
    for (number, inside) in packages {
        let mask = 0xf << (4 * number);
        text += &format!("<object type=\"Package\" os_index=\"{number}\" cpuset=\"{mask:#x}\">");
        text += "<info name=\"CPUModel\" value=\"Intel(R) Xeon(R) Gold 6252 CPU @ 2.10GHz\"/>";
        text += inside;
        for place in 0..4 {
            let cpu = 4 * number + place;
            text += &format!(
                "<object type=\"Core\" os_index=\"{place}\" cpuset=\"{0:#x}\"><object type=\"PU\" os_index=\"{cpu}\" cpuset=\"{0:#x}\"/></object>",
                1 << cpu
            );
        }
        text += "</object>";
    }
    format!("{text}</object>{rest}</topology>")
}

fn node(number: u32, mask: u32, attributes: &str) -> String {
    format!(
        "<object type=\"NUMANode\" os_index=\"{number}\" cpuset=\"{mask:#x}\" local_memory=\"17179869184\" {attributes}/>"
    )
}

/// A root port and a device behind it.
fn device(bus: u32, class: &str, ids: &str, inside: &str) -> String {
    format!(
        "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[{0:02x}-{1:02x}]\"><object type=\"Bridge\" bridge_type=\"1-1\" \
         bridge_pci=\"0000:[{1:02x}-{1:02x}]\" pci_busid=\"0000:{0:02x}:01.0\" pci_type=\"0604 [8086:2030] [0000:0000] 04\" \
         pci_link_speed=\"15.753846\"><object type=\"PCIDev\" gp_index=\"{1}\" pci_busid=\"0000:{1:02x}:00.0\" \
         pci_type=\"{class} [{ids}] [15b3:0008] 00\" pci_link_speed=\"15.753846\">{inside}</object></object></object>",
        bus,
        bus + 1
    )
}

#[test]
fn memory_near_cpus_has_none_of_its_own() {
    let cached =
        format!("<object type=\"MemCache\" cache_size=\"1073741824\">{}</object>", node(1, 0xf0, ""));
    let nic = device(0x10, "0200", "15b3:1017", "<object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/>");
    let text = hwloc(
        "2.0",
        &[(0, node(0, 0x0f, "subtype=\"DRAM\"") + &node(2, 0x0f, "subtype=\"HBM\"") + &nic), (1, cached)],
        "",
    );
    // Attached memory near all CPUs.
    let text =
        text.replacen("<object type=\"Package\"", &(node(4, 0xff, "") + "<object type=\"Package\""), 1);
    let survey = read(&text);
    let cpus = |node: u32| survey.nodes[&node].cpus.get().unwrap().to_string();
    assert_eq!([0, 1, 2, 4].map(cpus), ["0-3", "4-7", "", ""]);
    assert_eq!(survey.nodes[&2].near_cpus.get().unwrap().to_string(), "0-3");
    assert_eq!(survey.nodes[&1].cache_bytes.value(), Some(1 << 30));
    assert_eq!(survey.node_of(at("11:00.0")), Some(0), "a device is not at two nodes");
    assert!(survey.overview().contains("(HBM), no CPUs, near 0-3"), "{}", survey.overview());
    let imported = imported(&survey);
    assert!(
        has_note(&imported, "2 nodes without CPUs") && has_note(&imported, "memory-side caches"),
        "{:?}",
        imported.notes
    );
    assert!(imported.files[0].1.contains("sockets = { value = 2"), "{}", imported.files[0].1);
}

#[test]
fn a_device_near_several_nodes_is_at_their_socket() {
    let near = |number: u32| {
        let half = 0x3 << (4 * number);
        format!(
            "<object type=\"Group\" cpuset=\"{half:#x}\">{}</object><object type=\"Group\" cpuset=\"{:#x}\">{}</object>",
            node(2 * number, half, ""),
            half << 2,
            node(2 * number + 1, half << 2, "")
        )
    };
    let nic = device(0x90, "0200", "15b3:1017", "");
    let survey = read(&hwloc("2.0", &[(0, near(0)), (1, near(1) + &nic)], ""));
    assert_eq!(survey.node_of(at("91:00.0")), None);
    assert!(!survey.findings().iter().any(|finding| finding.id.starts_with("node-unknown")));
    let imported = imported(&survey);
    assert!(imported.files[0].1.contains("port.slot.socket = { value = 2"), "{}", imported.files[0].1);
}

/// Devices of the operating system have numbers for their types up to version 2, bits from version 3 on.
#[test]
fn types_of_devices_are_those_of_the_version() {
    let gpu = |types: [u32; 3]| {
        let [gpu, net, disk] = types;
        let inside = format!(
            "<object type=\"OSDev\" name=\"card0\" osdev_type=\"{gpu}\"/><object type=\"OSDev\" name=\"ib0\" osdev_type=\"{net}\"/>\
             <object type=\"OSDev\" name=\"nvme0n1\" osdev_type=\"{disk}\" subtype=\"Disk\"/>"
        );
        device(0x10, "0302", "10de:2330", &inside)
    };
    for (version, types) in [("2.0", [1, 2, 0]), ("3.0", [4, 16, 1])] {
        let survey = read(&hwloc(version, &[(0, node(0, 0x0f, "") + &gpu(types))], ""));
        let kind = |name: &str| survey.devices[name].kind.get().unwrap().as_str();
        assert_eq!((kind("card0"), kind("nvme0n1")), ("gpu", "block"), "{version}");
        assert!(survey.interfaces.contains_key("ib0"), "{version}");
    }
}

/// NVLinks are of OS devices alone, or of several kinds of objects.
#[test]
fn joins_of_gpus_are_read_in_both_forms() {
    let gpu = |bus: u32| {
        let inside = format!(
            "<object type=\"OSDev\" gp_index=\"{}\" name=\"nvml{bus}\" osdev_type=\"1\"/>",
            100 + bus
        );
        device(bus, "0302", "10de:2330", &inside)
    };
    let package = node(0, 0x0f, "") + &gpu(0x10) + &gpu(0x20);
    let values = "<u64values length=\"9\">0 450000 450000 0 </u64values>";
    for (element, indexes) in [
        ("distances2 type=\"OSDev\"", "116 132 "),
        ("distances2hetero", "OSDev:116 OSDev:132 "),
        ("distances2hetero", "PCIDev:17 PCIDev:33 "),
    ] {
        let name = element.split(' ').next().unwrap();
        let rest = format!(
            "<{element} nbobjs=\"2\" name=\"NVLinkBandwidth\" indexing=\"gp\"><indexes length=\"8\">{indexes}</indexes>{values}</{name}>"
        );
        let survey = read(&hwloc("2.0", &[(0, package.clone())], &rest));
        let pair = ("0000:11:00.0".to_owned(), "0000:21:00.0".to_owned());
        assert_eq!(survey.fabric.get(&pair).map(String::as_str), Some("450000 MB/s"), "{element}");
        assert!(!survey.findings().iter().any(|finding| finding.id.starts_with("peers-cross")), "{element}");
    }
}

#[test]
fn one_node_and_arm_in_hwloc() {
    let text = "<topology><object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" local_memory=\"34359738368\">\
                <object type=\"Socket\" os_index=\"0\" cpuset=\"0x3\"><info name=\"CPUImplementer\" value=\"0x41\"/>\
                <info name=\"CPUPart\" value=\"0xd4f\"/><object type=\"Core\" os_index=\"0\" cpuset=\"0x1\">\
                <object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/></object><object type=\"Core\" os_index=\"1\" cpuset=\"0x2\">\
                <object type=\"PU\" os_index=\"1\" cpuset=\"0x2\"/></object></object></object></topology>";
    let survey = read(text);
    assert_eq!(survey.machine.memory_bytes.value(), Some(32 << 30));
    assert_eq!(survey.cpu_name().as_deref(), Some("Arm part 0xd4f"));
    let imported = imported(&survey);
    assert!(has_note(&imported, "a NIC at the first node is assumed"), "{:?}", imported.notes);
    assert!(imported.files[0].1.contains("dram.size = { value = \"32 GiB\""), "{}", imported.files[0].1);
}

/// No file says which functions are virtual: what SR-IOV counts, and what is at another number of a link's bus.
#[test]
fn virtual_functions_are_told_without_sysfs() {
    let mut text = "01:00.0 Ethernet controller: Mellanox MT2892 Family [ConnectX-6 Dx]\n\
                    \t\tInitial VFs: 8, Total VFs: 8, Number of VFs: 2, Function Dependency Link: 00\n\
                    \t\tVF offset: 2, stride: 1, Device ID: 101e\n\n"
        .to_owned();
    for function in 2..5 {
        text += &format!("01:00.{function} Ethernet controller: Mellanox ConnectX Virtual Function\n\n");
    }
    let survey = read(&text);
    let physical = |address: &str| survey.functions[&at(address)].physical.value();
    assert_eq!(["01:00.2", "01:00.3"].map(physical), [Some(at("01:00.0")); 2]);
    assert_eq!(physical("01:00.4"), None, "there are two");
    let own = |name: &str, id: &str| {
        format!(
            "<object type=\"PCIDev\" pci_busid=\"0000:{name}\" pci_type=\"0200 [8086:{id}] [0000:0000] 01\" pci_link_speed=\"0\"/>"
        )
    };
    let vfs: String = (1..4).map(|device| own(&format!("11:{device:02x}.0"), "1889")).collect();
    let nic = device(0x10, "0200", "8086:1592", "").replacen(
        "</object></object></object>",
        &format!("</object>{vfs}</object></object>"),
        1,
    );
    let survey = read(&hwloc("2.0", &[(0, node(0, 0x0f, "") + &nic)], ""));
    assert_eq!(survey.functions.values().filter(|function| function.physical.get().is_some()).count(), 3);
    let imported = imported(&survey);
    let names: Vec<_> = imported.files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["box.toml", "nic-8086-1592.toml", "netperf.toml", "streams.toml"],
        "one card, no switch"
    );
}

const MATRIX: &str = "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n\
                      GPU0\t X \tPXB\tSYS\tPXB\t0-3\t0\t\tN/A\n\
                      GPU1\tPXB\t X \tSYS\tPXB\t0-3\t0\t\tN/A\n\
                      GPU2\tSYS\tSYS\t X \tSYS\t4-7\t1\t\tN/A\n\
                      NIC0\tPXB\tPXB\tSYS\t X \t\t\t\t\n\n\
                      Legend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_bond_0\n";

/// The matrix has no addresses; which devices are below one switch, and at which node, it says.
#[test]
fn a_matrix_of_paths_becomes_a_machine() {
    let survey = read(MATRIX);
    let path = |a: &str, b: &str| survey.paths[&(a.to_owned(), b.to_owned())].as_str();
    assert_eq!((path("GPU0", "GPU1"), path("GPU2", "mlx5_bond_0")), ("PXB", "SYS"));
    assert_eq!((survey.cpus.len(), survey.devices["GPU2"].node.value()), (8, Some(1)));
    let made = imported(&survey);
    assert!(has_note(&made, "the addresses are made up"), "{:?}", made.notes);
    let p2p = &made.files.iter().find(|(name, _)| name == "p2p.toml").unwrap().1;
    assert_eq!(p2p.matches("[[host.switch]]").count(), 1, "{p2p}");
    assert_eq!(p2p.matches("gpu = ").count(), 3, "{p2p}");
    assert!(!made.files[0].1.contains("measured: source, made up"), "{}", made.files[0].1);
    // Copied from a terminal, tabs are spaces.
    let spaces: String = MATRIX.split('\t').map(|cell| format!("{cell:<8}  ")).collect();
    assert_eq!(read(&spaces).paths, survey.paths);
    // No node, as in a virtual machine.
    let unknown = read(&MATRIX.replace("\t0\t\t", "\tN/A\t\t").replace("\t1\t\t", "\tN/A\t\t"));
    assert!(unknown.nodes.is_empty() && unknown.cpus.len() == 8);
    imported(&unknown);
}

#[test]
fn nodes_alone_can_be_asked_for_a_nic() {
    let mut text = "available: 2 nodes (0,8)\n".to_owned();
    for (number, cpus) in [(0, "0 1 2 3"), (8, "4 5 6 7")] {
        text += &format!(
            "node {number} cpus: {cpus}\nnode {number} size: 31999 MB\nnode {number} free: 20000 MB\n"
        );
    }
    text += "node distances:\nnode   0   8 \n  0:  10  40 \n  8:  40  10 \n";
    let survey = read(&text);
    assert_eq!(survey.distances[&(0, 8)], 40);
    let imported = imported(&survey);
    assert_eq!(imported.first.as_deref(), Some("netperf.toml"));
    let scenario = &imported.files.iter().find(|(name, _)| name == "netperf.toml").unwrap().1;
    assert!(scenario.contains("slot,elsewhere"), "{scenario}");
}

/// An old card's generation does not take the place of its slot away.
#[test]
fn a_card_of_an_old_generation_has_a_slot() {
    let nic = device(0x10, "0c06", "15b3:673c", "").replace("15.753846", "4.000000");
    let text = hwloc("2.0", &[(0, node(0, 0x0f, "") + &nic)], "")
        .replace("Intel(R) Xeon(R) Gold 6252 CPU @ 2.10GHz", "Quad-Core AMD Opteron(tm) Processor 8354");
    let imported = imported(&read(&text));
    assert!(has_note(&imported, "can have a higher rate than its card"), "{:?}", imported.notes);
}

/// A machine that stalls stands for itself alone.
#[test]
fn an_unsteady_machine_stands_for_no_other() {
    let cpu = |name: &str| {
        let lines = (0..4).map(|cpu| format!("processor\t: {cpu}\nmodel name\t: {name}\n"));
        let text: String = lines.collect();
        imported(&read(&text)).relative
    };
    assert_eq!(cpu("Intel(R) Xeon(R) CPU E3-1226 v3 @ 3.30GHz"), "fujitsu-tx1310");
    assert_eq!(cpu("Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz"), "i5-2400s");
}

/// Names that end a string, a comment, an attribute or a line, or act on a terminal.
#[test]
fn hostile_names_stay_names() {
    let evil = "&quot;x&#10;[host.evil]&#10;k = 1 &lt;script&gt;&#9;\\u0000 &#x202e;";
    let nic = device(
        0x10,
        "0200",
        "15b3:1017",
        &format!(
            "<info name=\"PCIDevice\" value=\"{evil}\"/><object type=\"OSDev\" name=\"{evil}\" osdev_type=\"2\"/>"
        ),
    );
    let text =
        hwloc("2.0", &[(0, node(0, 0x0f, "") + &nic)], "").replace("Gold 6252 CPU @ 2.10GHz", evil).replacen(
            "cpuset=\"0xff\">",
            &format!("cpuset=\"0xff\"><info name=\"DMIProductName\" value=\"{evil}\"/>"),
            1,
        );
    let survey = read(&text);
    let made = imported(&survey);
    for (name, text) in &made.files {
        assert!(!text.lines().any(|line| line.starts_with("[host.evil]")), "{name}: {text}");
    }
    let drawing = survey.drawing(&survey.findings());
    assert!(!drawing.contains("<script>"), "{drawing}");
    for xml in [drawing, survey.to_hwloc_xml(), survey.to_nccl_xml()] {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(&xml, options)
            .unwrap_or_else(|error| panic!("{error}: {xml}"));
    }
}

#[test]
fn coalescing_is_read_and_imported() {
    let text = "Coalesce parameters for eth0:\nAdaptive RX: off  TX: n/a\nstats-block-usecs: n/a\n\nrx-usecs: 8\nrx-frames: 32\ntx-usecs: 16\ntx-frames: 64\n";
    let nic = device(0x10, "0200", "15b3:1017", "<object type=\"OSDev\" name=\"eth0\" osdev_type=\"2\"/>");
    let mut folder = Vec::new();
    let hwloc = hwloc("2.0", &[(0, node(0, 0x0f, "") + &nic)], "");
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("a.xml", hwloc.as_str()), ("b.txt", text)] {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        folder.push(path);
    }
    let paths: Vec<_> = folder.iter().map(std::path::PathBuf::as_path).collect();
    let survey = Survey::read(&paths).unwrap();
    let own = &survey.interfaces["eth0"];
    assert_eq!(
        (own.rx_usecs.value(), own.rx_frames.value(), own.adaptive_rx.value()),
        (Some(8), Some(32), Some(false))
    );
    let imported = imported(&survey);
    let scenario = &imported.files.iter().find(|(name, _)| name == "netperf.toml").unwrap().1;
    assert!(
        scenario.contains("coalescing = \"8 us\", adaptive = false, coalescing_packets = 32"),
        "{scenario}"
    );
}

/// What lspci prints for machines, and trees with names alone.
#[test]
fn other_forms_of_lspci() {
    let mm = "01:00.0 \"Ethernet controller [0200]\" \"Intel Corporation [8086]\" \"82599ES [10fb]\" -r01 -p00 \"Intel\" \"X520\"\n\
              02:00.0 \"0108\" \"144d\" \"a80a\" \"\" \"\"\n";
    let vmm = "Slot:\t01:00.0\nClass:\tEthernet controller [0200]\nVendor:\tIntel Corporation [8086]\nDevice:\t82599ES [10fb]\n\
               NUMANode:\t1\n\nSlot:\t02:00.0\nClass:\tNon-Volatile memory controller\nVendor:\t144d\nDevice:\ta80a\n";
    for text in [mm, vmm] {
        let survey = read(text);
        let (nic, drive) = (&survey.functions[&at("01:00.0")], &survey.functions[&at("02:00.0")]);
        assert_eq!(nic.name.get().map(String::as_str), Some("Intel Corporation 82599ES"), "{text}");
        let ids = |function: &survey::PciFunction| {
            [
                function.class.value().unwrap().0,
                function.vendor.value().unwrap().0,
                function.device.value().unwrap().0,
            ]
        };
        assert_eq!((ids(nic), ids(drive)), ([0x0200, 0x8086, 0x10fb], [0x0108, 0x144d, 0xa80a]), "{text}");
        imported(&survey);
    }
    let tree = "-[0000:00]-+-00.0  Intel Corporation Sky Lake-E DMI3 Registers\n           \\-01.0-[01-03]----00.0-[02-03]--+-00.0-[03]----00.0  NVIDIA Corporation GA100 [A100 PCIe 40GB]\n";
    let survey = read(tree);
    assert!(survey.is_accelerator(at("03:00.0")) && !survey.is_device(at("00:00.0")));
    // A console's controller is no GPU, a card without a known link may be one.
    let one = read(
        "03:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [10de:2204]\n04:00.0 VGA compatible controller [0300]: ASPEED [1a03:2000]\n",
    );
    assert!(one.is_accelerator(at("03:00.0")) && !one.is_accelerator(at("04:00.0")));
}
