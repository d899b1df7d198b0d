//! What other tools print of real machines, and read of simulated ones: `nearfar compare`, `export`, `place`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn nearfar(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command.current_dir(folder).args(arguments).args(["--quiet", "--no-cache"]).output().unwrap()
}

fn said(folder: &Path, arguments: &[&str]) -> String {
    let output = nearfar(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn compare(arguments: &[&str]) -> Output {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzzing/corpus/tool_output");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    command
        .current_dir(folder)
        .arg("compare")
        .args(arguments)
        .args(["--quiet", "--no-cache"])
        .output()
        .unwrap()
}

fn records(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = compare(&[arguments, &["--json", "-"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each tool's numbers have simulated ones beside them, or a reason.
#[test]
fn measured_numbers_get_simulated_ones() {
    let own = records(&[
        "fio.json",
        "iperf3.json",
        "netperf-omni.txt",
        "sockperf.txt",
        "perftest.txt",
        "ntb_perf.txt",
        "--machine",
        "dell-t430",
        "--card",
        "modern",
    ]);
    // fio asks for a drive, and --card is a NIC.
    let told = own.iter().filter(|row| row["tool"] == "fio").all(|row| row["skipped"].as_str().is_some());
    assert!(told, "{own:?}");
    let with = |tool: &str, quantity: &str| {
        let row = own.iter().find(|row| row["tool"] == tool && row["quantity"] == quantity);
        row.unwrap_or_else(|| panic!("{tool} has no {quantity}"))
    };
    for (tool, quantity) in [
        ("iperf3", "received bandwidth"),
        ("netperf", "rate"),
        ("netperf", "latency p50"),
        ("sockperf", "latency p50"),
    ] {
        let row = with(tool, quantity);
        let [measured, simulated, error] = ["measured", "simulated", "error_pct"]
            .map(|key| row[key].as_f64().unwrap_or_else(|| panic!("{row}")));
        assert!((error - 100.0 * (simulated / measured - 1.0)).abs() < 1e-6, "{row}");
        assert!(!row["binds"].as_str().unwrap().is_empty(), "{row}");
    }
    for (tool, quantity, why) in
        [("perftest", "bandwidth", "RDMA"), ("ntb_perf", "rate", "nearfar lend cost")]
    {
        let row = with(tool, quantity);
        assert!(row["skipped"].as_str().unwrap().contains(why) && row["simulated"].is_null(), "{row}");
    }
}

/// A change to the machine reaches the simulated test, and a wrong one is told.
#[test]
fn the_machine_can_be_changed() {
    let drive = |set: &[&str]| {
        let own = records(&[&["fio.json", "--machine", "dell-t430", "--card", "optane-900p"], set].concat());
        let row = own.iter().find(|row| row["quantity"] == "read clat mean").unwrap();
        row["simulated"].as_f64().unwrap()
    };
    let (own, slow) = (drive(&[]), drive(&["--set", "host.core.frequency=\"1 GHz\""]));
    assert!(slow > 1.2 * own, "{own} {slow}");
    for (arguments, wanted) in [
        (&["fio.json"][..], "--machine MACHINE is needed"),
        (&["fio.json", "--machine", "no-such"], "no-such"),
        (&["iperf3-failed.json", "--machine", "dell-t430"], "Connection refused"),
        (&["fio.json", "--machine", "dell-t430", "--check"], "--check is for directories"),
        (&["fio.json", ".", "--machine", "dell-t430"], "no file"),
        (&["fio.json", "--machine", "dell-t430", "--set", "host.llc.wayz=1"], "no such parameter"),
    ] {
        let output = compare(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wanted), "{arguments:?}: {told}");
    }
}

/// A simulated machine, written for other tools and imported again, is the same machine.
#[test]
fn an_export_is_the_machine_it_was_made_of() {
    let folder = folder("export");
    said(&folder, &["export", "fio-switch", "--as", "capture", "-o", "a.tar.gz"]);
    said(&folder, &["export", "fio-switch", "-o", "a.xml"]);
    for (source, drive) in
        [("a.tar.gz", "Non-Volatile memory controller 8086:2700"), ("a.xml", "optane-900p")]
    {
        said(&folder, &["import", source, "-o", "box"]);
        let file = std::fs::read_to_string(folder.join("box/box.toml")).unwrap();
        for wanted in [
            "extends = \"dell-t430\"",
            "sockets = { value = 2,",
            "core.count = { value = 10,",
            "llc.size = { value = \"25 MiB\",",
            "dram.size = { value = \"64 GiB\",",
            "port.slot.generation = { value = 3,",
            "port.slot.width = { value = 16,",
            "port.at-0000-00-02-0.width = { value = 4,",
        ] {
            assert!(file.contains(wanted), "{source}: no `{wanted}` in\n{file}");
        }
        assert!(said(&folder, &["inspect", source]).contains(&format!("0000:05:00.0 {drive}")), "{source}");
    }
    let drive = std::fs::read_to_string(folder.join("box/drive-8086-2700-x4g3.toml")).unwrap();
    assert!(drive.contains("extends = \"optane-900p\""), "{drive}");
    // Parts with the same numbers are told by their label, in both formats.
    said(&folder, &["export", "octo", "--as", "capture", "-o", "octo.tar.gz"]);
    said(&folder, &["export", "octo", "-o", "octo.xml"]);
    for source in ["octo.tar.gz", "octo.xml"] {
        let told = said(&folder, &["import", source, "-o", "wide"]);
        assert!(told.contains("as connectx4-octo with"), "{source}: {told}");
    }
    // What was measured there is simulated with the import's own drive.
    let fio = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzzing/corpus/tool_output/fio.json");
    let fio = fio.canonicalize().unwrap();
    let told = said(&folder, &["compare", fio.to_str().unwrap(), "--machine", "box", "--json", "-"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
    let row = rows.iter().find(|row| row["quantity"] == "read clat mean").unwrap();
    assert!(row["simulated"].as_f64().is_some() && !told.contains("--card names yours"), "{row}");
    // NCCL's topology has what it is about: GPUs below their switches.
    let nccl = said(&folder, &["export", "gpu-switches", "--as", "nccl"]);
    assert_eq!((nccl.matches("<gpu ").count(), nccl.matches("class=\"0x060400\"").count()), (4, 2), "{nccl}");
    assert!(nccl.contains("link_speed=\"32.0 GT/s PCIe\" link_width=\"16\""), "{nccl}");
    let dump = said(&folder, &["export", "fio-switch", "--as", "lspci"]);
    assert!(dump.starts_with("0000:00:01.0 ") && dump.contains("\n00: 86 80"), "{}", &dump[..200]);
    let svg = folder.join("a.svg");
    said(&folder, &["inspect", "a.tar.gz", "--svg", "a.svg"]);
    assert!(std::fs::read_to_string(svg).unwrap().contains("#c00000"));
    for (arguments, wanted) in [
        (&["export", "no-such"][..], "no-such"),
        (&["export", "latency-by-size"], "a machine with a card"),
        (&["export", "octo", "--host", "z"], "there is no host `z`"),
        (&["export", "octo", "--as", "capture"], "name its file with -o"),
        (&["export", "a.xml", "--as", "lspci"], "lspci -xxxx"),
    ] {
        let output = nearfar(&folder, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wanted), "{arguments:?}: {told}");
    }
}

/// On a copy of a host: what would be written, what is, and what was.
#[test]
fn a_host_is_placed_and_set_back() {
    let folder = folder("place");
    let write = |path: &str, text: &str| {
        let path = folder.join("root").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    };
    for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
        write(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
    }
    for cpu in 0..4 {
        write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &cpu.to_string());
    }
    write("sys/class/net/eth0/device/numa_node", "1");
    for queue in 0..2 {
        write(&format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), "3");
        write(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "0");
    }
    let xps =
        || std::fs::read_to_string(folder.join("root/sys/class/net/eth0/queues/tx-1/xps_cpus")).unwrap();
    let plan = said(&folder, &["place", "--root", "root"]);
    assert!(
        plan.contains("tx-1/xps_cpus: 3 -> 0000000a") && plan.contains("2 values would be written"),
        "{plan}"
    );
    assert!(plan.contains("--apply writes them for interfaces that are named"), "{plan}");
    assert_eq!(xps(), "3\n");
    let json: serde_json::Value =
        serde_json::from_str(&said(&folder, &["place", "eth0", "--root", "root", "--json", "-"])).unwrap();
    assert_eq!((json["writes"].as_array().unwrap().len(), &json["applied"]), (2, &false.into()));
    let applied = said(&folder, &["place", "eth0", "--root", "root", "--apply"]);
    assert!(applied.contains("`nearfar place --root root --undo` sets them back"), "{applied}");
    assert_eq!(xps(), "0000000a\n");
    assert!(said(&folder, &["place", "eth0", "--root", "root", "--apply"]).contains("nothing to write"));
    assert!(said(&folder, &["place", "--root", "root", "--undo"]).contains("2 values are as they were"));
    assert_eq!(xps(), "3\n");
    assert!(said(&folder, &["place", "--unit"]).contains("Type=notify"));
    for (arguments, wanted) in [
        (&["place", "--root", "root", "--undo"][..], "nothing to undo"),
        (&["place", "--root", "root", "--apply"], "name the network interfaces"),
        (&["place", "eth7", "--root", "root"], "there are eth0"),
        (&["place", "--root", "nowhere"], "nowhere"),
    ] {
        let output = nearfar(&folder, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wanted), "{arguments:?}: {told}");
    }
}

/// Linux itself says what was written: a veth pair of four queues in a namespace of its own. Without the rights to make one, there is
/// nothing to try.
#[test]
fn queues_of_a_real_interface_are_placed_and_set_back() {
    let folder = folder("veth");
    let name = format!("nearfar-test-{}", std::process::id());
    let ip = |words: &str| {
        let words = words.replace("NS", &name);
        Command::new("ip").args(words.split(' ')).output().is_ok_and(|output| output.status.success())
    };
    let pair = "link add nfv0 netns NS numtxqueues 4 numrxqueues 4 type veth peer name nfv1 netns NS numtxqueues 4 numrxqueues 4";
    if !ip("netns add NS") || !ip(pair) {
        ip("netns del NS");
        return eprintln!("no network namespace can be made here: it is not tried");
    }
    let inside = |words: &[&str]| {
        let output = Command::new("ip").args(["netns", "exec", &name]).args(words).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let xps = || inside(&["sh", "-c", "cat /sys/class/net/nfv1/queues/tx-*/xps_cpus"]).1;
    let undo = folder.join("undo.json");
    let place = |words: &[&str]| {
        let own = [env!("CARGO_BIN_EXE_nearfar"), "place", "--undo-file", undo.to_str().unwrap()];
        inside(&[&own[..], words].concat())
    };
    let before = xps();
    let (planned, unchanged) = (place(&["nfv1"]), xps());
    let (applied, after) = (place(&["nfv1", "--apply"]), xps());
    let (undone, back) = (place(&["--undo"]), xps());
    ip("netns del NS");
    assert!(planned.0 && planned.1.contains("tx-0/xps_cpus"), "{planned:?}");
    assert_eq!(unchanged, before);
    assert!(applied.0 && applied.1.contains("values written"), "{applied:?}");
    assert!(
        after != before && after.lines().all(|mask| !mask.trim_matches(['0', ',']).is_empty()),
        "{after}"
    );
    assert!(undone.0, "{undone:?}");
    assert_eq!(back, before);
}

/// A card that is a shadow of itself: what each finding costs is simulated, and told with the machine that stands for this one.
#[test]
fn costs_of_findings_are_simulated() {
    let folder = folder("cost");
    let lspci = "00:01.0 PCI bridge [0604]: Intel [8086:6f04]\n\tNUMA node: 0\n\tBus: primary=00, secondary=01, subordinate=01\n\
                 \tCapabilities: [90] Express (v2) Root Port (Slot+), MSI 00\n\t\tDevCap:\tMaxPayload 256 bytes\n\
                 \t\tLnkCap:\tPort #0, Speed 8GT/s, Width x8, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s, Width x4\n\n\
                 01:00.0 Ethernet controller [0200]: Mellanox [15b3:1013]\n\tNUMA node: 0\n\
                 \tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\t\tDevCap:\tMaxPayload 256 bytes\n\t\t\tExtTag+\n\
                 \t\tDevCtl:\tCorrErr-\n\t\t\tRlxdOrd- ExtTag-\n\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n\
                 \t\tLnkCap:\tPort #0, Speed 8GT/s, Width x8, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s, Width x4\n";
    let cpu = |cpu: u32| {
        format!(
            "processor\t: {cpu}\nmodel name\t: Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz\nphysical id\t: {}\ncore id\t: {}\n\n",
            cpu / 10,
            cpu % 10
        )
    };
    std::fs::write(folder.join("lspci.txt"), lspci).unwrap();
    std::fs::write(folder.join("cpuinfo.txt"), (0..20).map(cpu).collect::<String>()).unwrap();
    let all = said(
        &folder,
        &["inspect", "lspci.txt", "cpuinfo.txt", "--cost", "--svg", "page.html", "--json", "-"],
    );
    let json: serde_json::Value = serde_json::from_str(&all).unwrap();
    let found = |id: &str| {
        let all = json["findings"].as_array().unwrap();
        all.iter()
            .find(|finding| finding["id"].as_str().unwrap().starts_with(id))
            .unwrap_or_else(|| panic!("{id}: {all:?}"))
            .clone()
    };
    let link = found("link-below-possible/");
    assert!(link["cost_source"].as_str().unwrap().starts_with("simulated as dell-t430"), "{link}");
    let share = link["cost_share"].as_f64().unwrap();
    assert!((0.4..0.55).contains(&share), "half of the lanes: {link}");
    assert!(found("few-tags/")["cost_share"].as_f64().unwrap() > 0.02);
    // Two sockets: what the NIC would lose at the other one.
    let far = &json["simulated"][0];
    assert!(far["change_pct"].as_f64().unwrap() < -3.0 && far["relative"] == "dell-t430", "{far}");
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.contains("<li id=\"link-below-possible/0000:01:00.0\">"),
        "{page}"
    );
}

/// Two nodes with a NIC at the second one, as lspci and numactl tell; `nodes` as the second tells them.
fn two_nodes(folder: &Path) {
    let port = |bus: u32, secondary: u32, node: u32| {
        format!(
            "{bus:02x}:01.0 PCI bridge [0604]: Intel [8086:347a]\n\tNUMA node: {node}\n\
             \tBus: primary={bus:02x}, secondary={secondary:02x}, subordinate={secondary:02x}\n\
             \tCapabilities: [90] Express (v2) Root Port (Slot+), MSI 00\n\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n\
             \t\tLnkSta:\tSpeed 8GT/s, Width x8\n\n"
        )
    };
    let card = |bus: u32, what: &str, node: &str| {
        format!(
            "{bus:02x}:00.0 {what}\n{node}\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\
             \t\tLnkCap:\tPort #0, Speed 8GT/s, Width x8, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s, Width x8\n\n"
        )
    };
    let text = port(0, 1, 0)
        + &card(1, "3D controller [0302]: NVIDIA [10de:20b5]", "\tNUMA node: 0\n")
        + &port(0x80, 0x81, 1)
        + &card(0x81, "Ethernet controller [0200]: Intel [8086:1583]", "\tNUMA node: 1\n")
        + &card(0x90, "SATA controller [0106]: Marvell [1b4b:9230]", "");
    std::fs::write(folder.join("lspci.txt"), text).unwrap();
    let numactl = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 15999 MB\nnode 1 cpus: 4 5 6 7\nnode 1 size: 15999 MB\n\
                   node distances:\nnode   0   1 \n  0:  10  21 \n  1:  21  10 \n";
    std::fs::write(folder.join("numactl.txt"), numactl).unwrap();
}

/// From a server's files to what its far NIC costs: the command that an import prints works where it was typed, and answers in a
/// sentence. What was edited since is not overwritten.
#[test]
fn an_import_says_what_to_type_and_leaves_what_was_edited() {
    let folder = folder("far");
    two_nodes(&folder);
    let import = ["import", "lspci.txt", "numactl.txt", "-o", "box 7/server.example.com"];
    let told = said(&folder, &import);
    let command =
        told.lines().find(|line| line.contains("nearfar sweep")).unwrap_or_else(|| panic!("{told}"));
    let words: Vec<&str> = command.trim().split('\'').collect();
    assert_eq!(words[1], "box 7/server.example.com", "{command}");
    let over = command.rsplit(' ').next().unwrap();
    assert_eq!(over, "host.b.device.0.slot=at-0000-80-01-0,elsewhere");
    let answer = said(&folder, &["sweep", &format!("{}/netperf.toml", words[1]), "--over", over]);
    let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        answer.contains("0.slot=elsewhere is 1.")
            && answer.contains("times slower than 0.slot=at-0000-80-01-0"),
        "{answer}"
    );
    let box_file = folder.join("box 7/server.example.com/server-example-com.toml");
    let machine = std::fs::read_to_string(&box_file).unwrap();
    assert!(machine.contains("port.elsewhere.socket = { value = 0"), "{machine}");
    // Written again, edited, and written again.
    said(&folder, &import);
    std::fs::write(&box_file, machine.clone() + "# mine\n").unwrap();
    let refused = nearfar(&folder, &import);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && told.contains("server-example-com.toml"), "{told}");
    assert!(told.contains("--force"), "{told}");
    assert!(std::fs::read_to_string(&box_file).unwrap().ends_with("# mine\n"));
    said(&folder, &[&import[..], &["--force"]].concat());
    assert_eq!(std::fs::read_to_string(&box_file).unwrap(), machine);
    let wrong = nearfar(&folder, &[&import[..], &["--name", "a b"]].concat());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--name"));
    std::fs::write(
        folder.join("one.txt"),
        "available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 7999 MB\n",
    )
    .unwrap();
    assert!(said(&folder, &["import", "one.txt", "-o", "one"]).contains("one node: no slot is far"));
}

/// A controller of disks whose node nobody knows does not cost what a NIC does; an error is told where it is known alone; many findings
/// of a kind are one.
#[test]
fn costs_are_of_their_own_devices() {
    let folder = folder("own-costs");
    two_nodes(&folder);
    let sources = ["lspci.txt", "numactl.txt"];
    let all = said(&folder, &[&["inspect"], &sources[..], &["--cost", "--json", "-"]].concat());
    let json: serde_json::Value = serde_json::from_str(&all).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let disks = findings.iter().find(|finding| finding["id"] == "node-unknown/0000:90:00.0").unwrap();
    assert!(disks["cost_share"].is_null(), "{disks}");
    let far = &json["simulated"][0];
    assert!(far["change_pct"].as_f64().unwrap() < -2.0, "{far}");
    let source = far["source"].as_str().unwrap();
    assert!(
        source.contains("with the NIC as modern") && source.contains("no error of such costs is known"),
        "{far}"
    );
    let card = |place: u32| {
        format!(
            "{place:02x}:00.0 Ethernet controller [0200]: Intel [8086:1583]\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\
             \t\tDevCap:\tMaxPayload 256 bytes\n\t\tDevCtl:\tCorrErr-\n\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes\n\
             \t\tLnkCap:\tPort #0, Speed 8GT/s, Width x{0}, ASPM L1\n\t\tLnkSta:\tSpeed 8GT/s, Width x{0}\n\n",
            if place == 9 { 16 } else { 8 }
        )
    };
    std::fs::write(folder.join("many.txt"), (1..10).map(card).collect::<String>()).unwrap();
    let told = said(&folder, &["inspect", "many.txt"]);
    assert_eq!(told.matches("[mrrs-small/").count(), 1, "{told}");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("the same, at most as costly, of 8 others: "), "{told}");
}

/// The GPU of which an output has the name is simulated, if there is a file about it.
#[test]
fn a_printed_gpu_is_simulated() {
    let folder = folder("gpu");
    let text = "nvbandwidth Version: v0.5\n\nDevice 0: NVIDIA H100 PCIe (00000000:17:00)\n\nRunning host_to_device_memcpy_ce.\n\
                memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0\n 0     55.30\n\nSUM host_to_device_memcpy_ce 55.30\n";
    std::fs::write(folder.join("nv.txt"), text).unwrap();
    let told = said(&folder, &["compare", "nv.txt", "--machine", "dell-r760", "--json", "-"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&told).unwrap();
    assert!(rows[0]["notes"].to_string().contains("the gpu is h100-pcie"), "{}", rows[0]);
    assert!(rows[0]["error_pct"].as_f64().unwrap().abs() < 20.0, "{}", rows[0]);
}

/// What MLC measured of each node's memory and of another core's lines determines three figures; the machine with them
/// is simulated as measured.
#[test]
fn latencies_of_mlc_determine_three_figures() {
    let folder = folder("fit-mlc");
    let mlc = "Intel(R) Memory Latency Checker - v3.9\nMeasuring idle latencies (in ns)...\n\t\tNuma node\nNuma node\t     0\t     1\t\n\
               \x20      0\t  95.0\t 150.0\t\n       1\t 150.4\t  95.2\t\n\n\
               Measuring cache-to-cache transfer latency (in ns)...\nLocal Socket L2->L2 HITM latency\t45.0\n";
    std::fs::write(folder.join("mlc.txt"), mlc).unwrap();
    let text = said(&folder, &["fit", "mlc.txt", "--machine", "dell-t430", "-o", "mine.toml", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let figures = json["figures"].as_array().unwrap();
    let paths: Vec<_> = figures.iter().map(|figure| figure["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["host.dram.access", "host.interconnect.latency", "host.llc.core_snoop"]);
    for figure in figures {
        let off = figure["after_ns"].as_f64().unwrap() / figure["measured_ns"].as_f64().unwrap() - 1.0;
        assert!(off.abs() < 0.01, "{figure}");
    }
    let again = said(&folder, &["compare", "mlc.txt", "--machine", "mine.toml", "--json", "-"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&again).unwrap();
    let errors: Vec<f64> = rows.iter().filter_map(|row| row["error_pct"].as_f64()).collect();
    assert!(errors.len() == 5 && errors.iter().all(|error| error.abs() < 2.0), "{errors:?}");
    // A machine must be named, and other tools determine nothing.
    let refused = |arguments: &[&str], wanted: &str| {
        let output = nearfar(&folder, arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(wanted), "{told}");
    };
    refused(&["fit", "mlc.txt", "-o", "x.toml"], "--machine");
    std::fs::write(folder.join("stream.txt"), "STREAM version\nBest Rate MB/s\nCopy: 10000.0 0.1 0.1 0.1\n")
        .unwrap();
    refused(&["fit", "stream.txt", "--machine", "dell-t430", "-o", "x.toml"], "latencies of nodes");
}
