//! Kinds of machines and of tools' outputs, each by a small source: what is read, and that its import can be simulated.

use machine::{ComputerScenario, ComputerSetup, Doc, Library, Machine};
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
    let host = Doc::<Machine>::from_text(&Library::built_in(), "box.toml", &imported.files[0].1)
        .read()
        .unwrap()
        .host;
    // 4 GB/s are x16 of the first generation, or x8 of the second.
    let slot = &host.port["slot"];
    assert_eq!(slot.width.value.get() << slot.generation.value.get(), 32);
    assert!(!has_note(&imported, "is left out"), "{:?}", imported.notes);
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

/// lstopo's text of version 2: nodes stand beside what is near them, devices below the package that they are at.
#[test]
fn lstopo_of_version_2() {
    let short = "Machine (16GB total)\n\
                 \x20 Package L#0\n    NUMANode L#0 (P#0 8000MB)\n    L3 L#0 (32MB)\n\
                 \x20     L2 L#0 (1024KB) + L1d L#0 (32KB) + L1i L#0 (32KB) + Core L#0\n        PU L#0 (P#0)\n        PU L#1 (P#2)\n\
                 \x20   HostBridge\n      PCIBridge\n        PCI 17:00.0 (Ethernet)\n          Net \"eth0\"\n\
                 \x20 Package L#1\n    NUMANode L#1 (P#1 8000MB)\n\
                 \x20   L3 L#1 (32MB) + L2 L#1 (1024KB) + L1d L#1 (32KB) + Core L#1 + PU L#2 (P#1)\n\
                 \x20   HostBridge\n      PCIBridge\n        PCI 98:00.0 (NVMExp)\n          Block(Disk) \"nvme0n1\"\n";
    let survey = read(short);
    assert_eq!(
        (survey.cpus.len(), survey.cores(), survey.packages.len()),
        (3, 2, 2),
        "{}",
        survey.overview()
    );
    let node = |number: u32| survey.nodes[&number].cpus.get().unwrap().to_string();
    assert_eq!((node(0), node(1)), ("0,2".to_owned(), "1".to_owned()));
    assert_eq!(survey.nodes[&1].memory_bytes.value(), Some(8000 << 20));
    assert_eq!((survey.node_of(at("17:00.0")), survey.node_of(at("98:00.0"))), (Some(0), Some(1)));
    assert_eq!(survey.interfaces["eth0"].function.value(), Some(at("17:00.0")));
    assert!(survey.functions[&at("98:00.0")].is(survey::PciClass::is_nvme));
    let l3: Vec<_> = survey.caches.iter().filter(|((level, ..), _)| *level == 3).collect();
    assert_eq!(l3.iter().map(|(_, cache)| cache.size_bytes.value()).collect::<Vec<_>>(), [Some(32 << 20); 2]);
    imported(&survey);

    let verbose = "assuming `box.xml' is a XML file\n\
                   Machine (P#0 total=33554432KB DMIProductName=\"PowerEdge R750\")\n\
                   \x20 Package L#0 (P#0 total=16777216KB CPUModel=\"Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\")\n\
                   \x20   NUMANode L#0 (P#0 local=16777216KB total=16777216KB)\n    L3Cache L#0 (size=49152KB linesize=64 ways=12)\n\
                   \x20     Core L#0 (P#3)\n        PU L#0 (P#0)\n\
                   \x20 Package L#1 (P#1 total=16777216KB CPUModel=\"Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\")\n\
                   \x20   NUMANode L#1 (P#1 local=16777216KB total=16777216KB)\n    Core L#1 (P#0)\n      PU L#1 (P#1)\n\
                   \x20   HostBridge L#0 (buses=0000:[97-98])\n\
                   \x20     PCIBridge L#1 (busid=0000:97:02.0 id=8086:347a class=0604(PCIBridge) link=7.88GB/s buses=0000:[98-98])\n\
                   \x20       PCI L#0 (busid=0000:98:00.0 id=8086:1583 class=0200(Ethernet) link=7.88GB/s)\n          Network L#0 \"ens1\"\n\
                   depth 0:           1 Machine (type #0)\n\
                   Relative latency matrix (name NUMALatency kind 5) between 2 NUMANodes (depth -3) by logical indexes:\n\
                   \x20index     0     1\n     0    10    21\n     1    21    10\nTopology not from this system\n";
    let survey = read(verbose);
    assert_eq!(survey.machine.product.get().map(String::as_str), Some("PowerEdge R750"));
    assert_eq!(survey.cpu_name().as_deref(), Some("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz"));
    assert_eq!((survey.distances.len(), survey.distances[&(0, 1)]), (4, 21));
    let nic = &survey.functions[&at("98:00.0")];
    assert_eq!((nic.vendor.value().unwrap().0, nic.device.value().unwrap().0), (0x8086, 0x1583));
    assert_eq!((survey.node_of(at("98:00.0")), survey.parent(at("98:00.0"))), (Some(1), Some(at("97:02.0"))));
    assert_eq!(survey.cpus[&0].core.value(), Some(3));
    assert_eq!(survey.caches.values().next().unwrap().ways.value(), Some(12));
    assert!(imported(&survey).files[0].1.contains("port.slot.socket = { value = 1"));
}

/// A text that is compressed by itself is the text.
#[test]
fn a_compressed_text_is_read() {
    use std::io::Write as _;
    let text = hwloc("2.0", &[(0, node(0, 0x0f, ""))], "");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(Survey::from_bytes("box.xml.gz", &packed).unwrap().cpus.len(), 4);
    assert!(Survey::from_bytes("box.xml.gz", &packed[..packed.len() / 2]).is_err());
}

/// NCCL writes a CPU's extended family four bits higher; a GPU has no NVLink to itself.
#[test]
fn families_and_nvlinks_of_nccl() {
    let system = |family: u32| {
        let gpu = |dev: u32| {
            format!(
                "<pci busid=\"0000:0{dev}:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2330\" link_speed=\"32.0 GT/s PCIe\" \
                 link_width=\"16\"><gpu dev=\"{dev}\"><nvlink target=\"0000:0{dev}:00.0\" count=\"2\"/></gpu></pci>"
            )
        };
        format!(
            "<system version=\"1\"><cpu numaid=\"0\" affinity=\"00ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"{family}\" \
             modelid=\"2\">{}{}</cpu></system>",
            gpu(1),
            gpu(2)
        )
    };
    for (told, family) in [(175, 25), (191, 26), (143, 23), (25, 25), (6, 6)] {
        let survey = read(&system(told));
        assert_eq!(survey.machine.cpu_family.value(), Some(family), "{told}");
        assert!(survey.fabric.is_empty());
        let again = read(&survey.to_nccl_xml());
        assert_eq!(again.machine.cpu_family.value(), Some(family));
    }
    assert!(read(&system(191)).findings().iter().any(|finding| finding.id.starts_with("peers-cross-root")));
    assert_eq!(imported(&read(&system(175))).relative, "epyc-9224");
}

/// What is looked at is what is imported: devices that a matrix names without addresses are there.
#[test]
fn a_matrix_alone_has_findings() {
    let survey = read(MATRIX);
    assert_eq!(
        survey.functions.values().filter(|function| function.is(survey::PciClass::is_accelerator)).count(),
        3
    );
    assert!(survey.overview().contains("[GPU2]"), "{}", survey.overview());
    assert!(survey.findings().iter().any(|finding| finding.id.starts_with("peers-cross-socket")));
    // With addresses from elsewhere, none are made up.
    let lspci = "17:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b5]\n";
    let directory = tempfile::tempdir().unwrap();
    let paths = [("a.txt", MATRIX), ("b.txt", lspci)].map(|(name, text)| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let both = Survey::read(&paths.each_ref().map(std::path::PathBuf::as_path)).unwrap();
    assert_eq!(both.functions.len(), 1);
}

/// A virtual machine's NIC is named, and told not to be simulated; names of interfaces are quoted for shells.
#[test]
fn a_virtual_nic_is_named() {
    let survey = read("available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 7999 MB\n");
    assert!(has_note(&imported(&survey), "the sources have no NIC"));
    let lspci = "00:03.0 Ethernet controller [0200]: Red Hat, Inc. Virtio network device [1af4:1000]\n";
    let made = imported(&read(lspci));
    assert!(has_note(&made, "Virtio network device (0000:00:03.0)"), "{:?}", made.notes);
    assert_eq!(survey::shell_word("ens1f0"), "ens1f0");
    assert_eq!(survey::shell_word("a b"), "'a b'");
    assert_eq!(survey::shell_word("it's"), "'it'\\''s'");
    assert_eq!(survey::some_of(&["a".to_owned(), "b".to_owned(), "c".to_owned()], 2), "a, b and 1 more");
}
