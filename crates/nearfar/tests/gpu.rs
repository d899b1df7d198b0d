//! Programs on hosts with GPUs, from files to figures.

use crate::scenario::{self, HEAD, event, host, loaded};
use nearfar::computer::{self, ComputerError, FinishedProgram};
use nearfar::peers::{self, PeerOptions};
use nearfar::progress::Silent;

const MACHINE: &str = "dolphin-e5-2603v4";

/// A host with two GPUs below so many switches, and programs one after the other.
fn text(iommu: &str, switches: usize, programs: &[&str]) -> String {
    let mut text = HEAD.to_owned() + &host("a", MACHINE, &format!("iommu = \"{iommu}\""));
    for n in 0..switches {
        text += &format!(
            "[[host.switch]]\nname = \"sw{n}\"\npart = \"dolphin-board\"\nslot = \"{}\"\n",
            ["slot", "slot.1"][n]
        );
    }
    for n in 0..2 {
        let (switch, port) = if switches == 1 { (0, n + 1) } else { (n, 1) };
        text +=
            &format!("[[host.device]]\nname = \"gpu{n}\"\ngpu = \"k420\"\nslot = \"sw{switch}:{port}\"\n");
    }
    for (n, program) in programs.iter().enumerate() {
        text += &format!("[[program]]\ncpus = \"0\"\nstart = \"{} ms\"\nrun = \"{program}\"\n", 4 * n);
    }
    text
}

fn run(text: &str) -> Vec<FinishedProgram> {
    computer::run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

/// Every byte comes by every way, with addresses translated and without, below one switch and through the root.
#[test]
fn copies_bring_every_byte_by_every_way() {
    let programs = [
        "bandwidthTest --mode=range --start=1k --end=16k --verify",
        "gpu-copy --bytes=70000 --count=2 --verify",
        "gpu-copy --bytes=70000 --count=2 --through=read --verify",
        "gpu-copy --bytes=1100000 --count=1 --through=ram --verify",
    ];
    for (iommu, switches) in [("off", 1), ("off", 2), ("strict", 1), ("lazy", 2)] {
        for (done, program) in run(&text(iommu, switches, &programs)).iter().zip(programs) {
            let report =
                done.outcome.as_ref().unwrap_or_else(|failure| panic!("{iommu} {program}: {failure}"));
            assert!(
                report.readings.iter().all(|reading| reading.value > 0.0),
                "{iommu} {program}: {report:?}"
            );
        }
    }
}

/// Peers reach no more than the aperture, which the kernel resizes as far as it is asked to and the address space suffices.
#[test]
fn a_peer_reaches_as_much_as_the_aperture_is_resized_to() {
    let with = |lines: &str| {
        let text = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../scenarios/resizable-bar.toml"
        ));
        let text: Vec<_> = text.unwrap().lines().map(str::to_owned).collect();
        let kept = text.iter().filter(|line| !line.starts_with("change_kernel"));
        let kept: Vec<&str> = kept.map(String::as_str).collect();
        let head = "machine = \"dolphin-e5-2603v4\"";
        run(&kept.join("\n").replace(head, &format!("{head}\n{lines}"))).remove(0).outcome
    };
    assert!(with("").is_err(), "16 MiB are within reach");
    assert!(with("change_kernel.pci.resizable_bars = \"16 MiB\"").is_err());
    for lines in [
        "change_kernel.pci.resizable_bars = \"32 MiB\"",
        "change_kernel.pci.resizable_bars = \"16 GiB\"",
        "change_kernel.pci.resizable_bars = \"16 GiB\"\nchange_kernel.pci.mmio_high = \"1 GiB\"",
    ] {
        assert!(with(lines).is_ok(), "{lines}");
    }
}

/// With its IOMMU on a host sends requests between devices by its root, whatever switch is above both.
#[test]
fn an_iommu_makes_a_ping_pong_go_by_the_root() {
    let round_trip = |iommu, switches| {
        let done = run(&text(iommu, switches, &["gpu-pingpong --count=100"])).remove(0);
        done.outcome.unwrap().get("round trip").unwrap()
    };
    let (switch, root, translated) = (round_trip("off", 1), round_trip("off", 2), round_trip("strict", 1));
    assert!(root > switch + 0.2 && translated > switch + 0.2, "{switch} {root} {translated}");
}

/// The other GPU's kernel would poll for the one that has gone forever.
#[test]
fn a_ping_pong_ends_when_either_gpu_goes() {
    for gpu in ["gpu0", "gpu1"] {
        let cut = event("500 us", "cut", &format!("a:{gpu}"), "");
        let done = run(&(text("off", 1, &["gpu-pingpong --count=1000"]) + &cut)).remove(0);
        let failure = done.outcome.unwrap_err().to_string();
        assert!(failure.contains("the GPU has gone"), "{gpu}: {failure}");
    }
}

#[test]
fn the_same_scenario_gives_the_same_figures() {
    let once = || {
        let programs = ["gpu-copy --bytes=64k --count=3", "gpu-pingpong --count=50 --memory=ram"];
        run(&text("lazy", 2, &programs)).into_iter().map(|done| (done.took, done.outcome)).collect::<Vec<_>>()
    };
    assert_eq!(once(), once());
}

/// A drive that is a program's own has no name in the kernel, and answers sooner than through it.
#[test]
fn a_drive_answers_a_program_of_its_own_sooner_than_the_kernel() {
    let with = |lines: &str, command: &str| {
        let drive = format!("{lines}\n[[host.device]]\ndrive = \"optane-900p\"");
        let text = [HEAD, &host("a", MACHINE, &drive), &scenario::program("a", "0", command)].concat();
        computer::run(&scenario::load(&text)?, &Silent).map(|mut done| done.remove(0).outcome.unwrap())
    };
    let own = "[host.nvme_driver]\nuser_space = true";
    let user = with(own, "nvm-latency --count=200").unwrap().get("latency mean").unwrap();
    let fio = "fio --rw=randread --bs=4k --runtime=2ms";
    let kernel = with("", fio).unwrap().get("read clat mean").unwrap();
    assert!((6.0..8.0).contains(&user) && kernel > user + 0.5, "{user} {kernel}");
    for (lines, command, told) in [
        (own, fio, "there is no block device"),
        ("", "nvm-latency", "there is no controller 0 for programs"),
        (own, "nvm-latency --controller 1", "there is no controller 1 for programs"),
        (own, "gpu-copy", "there is no GPU 0"),
    ] {
        let error: ComputerError = with(lines, command).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
}

/// A GPU that is plugged in for the first time works if the kernel has left room for it. If not, its event says so.
#[test]
fn a_gpu_that_comes_late_needs_room() {
    let text = |gpu: &str, room: &str| {
        let lines = format!(
            "change_kernel.pci.hpmmiosize = \"{room}\"\n[[host.device]]\nname = \"gpu\"\ngpu = \"{gpu}\"\nslot = \"slot\"\n\
             plugged = false"
        );
        let run = "bandwidthTest --mode=range --start=64k --end=64k --verify";
        let program = format!("[[program]]\ncpus = \"0\"\nstart = \"200 ms\"\nrun = \"{run}\"\n");
        let plug = "[[event]]\nat = \"1 ms\"\ndo = \"plug\"\nwhat = \"a:gpu\"\n";
        [HEAD, &host("a", "dell-t430", &lines), &program, plug].concat()
    };
    for gpu in ["k420", "k40c"] {
        for (room, fits) in [("512 MiB", true), ("2 MiB", false)] {
            let counts = computer::run_counted(&loaded(&text(gpu, room)), &Silent).unwrap();
            let of = |run: &str| counts.done.iter().find(|done| done.run.starts_with(run)).unwrap();
            assert_eq!(of("bandwidthTest").outcome.is_ok(), fits, "{gpu}: {counts:?}");
            let notes = &of("plug").outcome.as_ref().unwrap().notes;
            let says = |line: &str| line.contains("no space for BAR");
            assert_eq!(notes.iter().any(|note| says(note)), !fits, "{gpu}: {notes:?}");
            let warned = counts.warnings.iter().any(|warning| warning.at_ps.is_some() && says(&warning.line));
            assert_eq!(warned, !fits, "{gpu}: {:?}", counts.warnings);
        }
    }
}

/// Readings of a shipped scenario's one program.
fn shipped(text: &str) -> impl Fn(&str) -> f64 + use<> {
    let report = run(text).remove(0).outcome.unwrap_or_else(|failure| panic!("{failure}"));
    move |name| report.get(name).unwrap_or_else(|| panic!("no `{name}`: {report:?}"))
}

fn near(what: &str, simulated: f64, measured: f64) {
    let error = simulated / measured - 1.0;
    println!("{what}: {simulated:.2}, measured {measured:.2} ({:+.1} %)", 100.0 * error);
    assert!(error.abs() < 0.05, "{what}: {simulated:.2} instead of {measured:.2}");
}

/// Gen5 GPUs below two switches, at one quadrant of the I/O die and at two (rtx6kpro, `../shared/measured/today`, R3).
#[test]
fn quadrants_limit_what_gpus_and_memory_exchange() {
    let text = include_str!("../../../scenarios/gpu-switches.toml");
    let two = text.replace("slot = \"slot.1\"", "slot = \"slot-b\"");
    for (name, text, [reads, writes]) in [("one", text, [73.09, 72.89]), ("two", &two, [114.10, 112.77])] {
        let get = shipped(text);
        near("below a switch", get("gpu0 to gpu1"), 56.26);
        near("between switches", get("gpu0 to gpu2"), 56.26);
        near(&format!("memory to all through {name}"), get("host to all 4 GPUs"), reads);
        near(&format!("all to memory through {name}"), get("all 4 GPUs to host"), writes);
    }
}

/// GPUs of two sockets take one of the links between these (R7).
#[test]
fn peers_of_two_sockets_share_a_link() {
    let get = shipped(include_str!("../../../scenarios/gpu-sockets.toml"));
    near("within a socket", get("gpu0 to gpu1"), 56.1);
    near("between sockets", get("gpu0 to gpu2"), 50.6);
    near("both ways between sockets", get("gpu0 and gpu2, both ways"), 99.0);
}

/// Both tools measure the same copies; flows that share a way share its rate, whose tests add them up.
#[test]
fn tools_agree_on_copies_that_run_alone_and_at_once() {
    let switches = include_str!("../../../scenarios/gpu-switches.toml");
    let with = |line: &str| shipped(&switches.replace("p2pBandwidthLatencyTest --bytes=512k --all", line));
    let flows = with(
        "p2pBandwidthLatencyTest --bytes=256k --flows=0-2 --flows=0-2,1-3 --flows=0-1,2-3 --flows=host-0 --flows=1-host",
    );
    let [alone, shared, apart] = ["0-2", "0-2,1-3", "0-1,2-3"].map(|set| flows(&format!("flows {set}")));
    assert!((shared / alone - 1.0).abs() < 0.03, "one uplink: {alone} {shared}");
    assert!((apart / alone - 2.0).abs() < 0.06, "two switches: {alone} {apart}");
    let ce = |name: &str| with(&format!("nvbandwidth -b 1 -t {name}"));
    let agree = |name: &str, test: f64, other: f64| {
        assert!((test / other - 1.0).abs() < 0.02, "{name}: {test} {other}")
    };
    agree(
        "in",
        ce("host_to_device_memcpy_ce")("host_to_device_memcpy_ce: host to gpu0"),
        flows("flows host-0"),
    );
    agree(
        "out",
        ce("device_to_host_memcpy_ce")("device_to_host_memcpy_ce: gpu1 to host"),
        flows("flows 1-host"),
    );
    let pairs = ce("device_to_device_memcpy_write_ce");
    agree("peer", pairs("device_to_device_memcpy_write_ce: gpu0 to gpu2"), alone);
    // All four read from memory through one quadrant: a fourth of what it carries for each.
    let all = ce("host_to_all_memcpy_ce");
    let each = [0, 1, 2, 3].map(|gpu| all(&format!("host_to_all_memcpy_ce: host to gpu{gpu}")));
    agree("all", each.iter().sum(), 73.0);
    // A load passes two more switches and the root there and back.
    let loads = ce("device_to_device_latency_sm");
    let [near, far] = [1, 2].map(|gpu| loads(&format!("device_to_device_latency_sm: gpu{gpu} from gpu0")));
    assert!(near > 400.0 && far > near + 400.0, "{near} {far}");
}

#[test]
fn options_of_gpu_tools_name_what_is_wrong() {
    let switches = include_str!("../../../scenarios/gpu-switches.toml");
    for (line, words) in [
        ("p2pBandwidthLatencyTest --flows=0-4", "there is no GPU 4"),
        ("p2pBandwidthLatencyTest --flows=0-0", "copies between two ends"),
        ("p2pBandwidthLatencyTest --flows=host-host", "copies between two ends"),
        ("nvbandwidth -t host_to_device_memcpy_sm", "host_to_device_memcpy_ce"),
        ("nvbandwidth -p nothing", "no test's name begins with nothing"),
    ] {
        let text = switches.replace("p2pBandwidthLatencyTest --bytes=512k --all", line);
        let error = computer::run(&loaded(&text), &Silent).unwrap_err().to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
}

/// A machine, also of a file that extends another, gets a GPU in each slot, of which several may have one name; what the
/// rates rest on is told.
#[test]
fn a_machine_has_gpus_in_all_slots() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers-of-a-machine");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("box.toml");
    std::fs::write(&file, "name = \"box\"\nsummary = \"A box\"\nextends = \"dell-t430\"\n").unwrap();
    let options = PeerOptions { gpu: "k420".into(), bytes: 4096, reads: false };
    let library = machine::Library::built_in();
    let name = file.to_str().unwrap();
    let matrix = peers::matrix(&library, name, "--set", &[], &options, &Silent).unwrap();
    assert_eq!((matrix.gpus, matrix.cells.len()), (4, 12));
    assert!(matrix.failed.is_empty() && matrix.cells.iter().all(|cell| cell.one_way.is_some()));
    assert!(matrix.origins.to_string().contains("figures"), "{}", matrix.origins);
    let (drawn, page) = (matrix.heat_map(), matrix.page());
    let svg = roxmltree::Document::parse(&drawn).unwrap();
    let told: Vec<_> = svg.descendants().filter(|node| node.has_tag_name("title")).collect();
    let fastest = matrix.cells.iter().filter_map(|cell| cell.one_way).fold(0.0, f64::max);
    assert_eq!(told.len(), 12 + 12 + 12 + 3 * 2 * 4);
    let fast = |cell: &peers::MemoryCell| cell.from_memory > Some(1.0) && cell.to_memory > Some(1.0);
    assert!(matrix.memories.len() == 8 && matrix.memories.iter().all(fast));
    let loads = [0, 1].map(|node| matrix.memory(node, 0).unwrap().load.unwrap());
    assert!(loads[0] + 20.0 < loads[1], "the second GPU's node is a socket away: {loads:?}");
    let far = matrix.cells.iter().find(|cell| matrix.places[cell.from].node != matrix.places[cell.to].node);
    assert!(far.is_some_and(|cell| cell.hops.len() == 3), "{far:?}");
    assert!(
        drawn.contains(&format!("{fastest:.2}"))
            && page.contains(drawn[drawn.find("<svg").unwrap()..].trim_end())
    );
    let nothing = peers::matrix(&library, "nothing", "--set", &[], &options, &Silent).unwrap_err();
    assert!(nothing.to_string().contains("nothing"), "{nothing}");
}

/// A drive reads into a GPU's memory itself, and so no faster than the GPU's link is.
#[test]
fn a_drive_reads_into_a_gpus_memory() {
    let rate = |lanes: u32, more: &str| {
        let lines = format!(
            "[host.nvme_driver]\nuser_space = true\n[[host.device]]\ngpu = \"h100-pcie\"\nlinks = [{{ slot = \"slot\", lanes = {lanes} }}]\n\
             [[host.device]]\ndrive = \"pm1753\"\nslot = \"bay\"\nchange.media.read = \"0 ns\"\n"
        );
        let command = format!("spdk_nvme_perf -q 64 -o 4096 -w randread -t 0.00005{more}");
        let text = [HEAD, &host("a", "dell-r760", &lines), &scenario::program("a", "0", &command)].concat();
        run(&text).remove(0).outcome.unwrap().get("throughput").unwrap()
    };
    let (memory, gpu, narrow) = (rate(1, ""), rate(16, " --gpu=0"), rate(1, " --gpu=0"));
    assert!(memory > 8.0 && gpu > 8.0, "{memory} {gpu} GB/s by four lanes");
    assert!((3.0..4.0).contains(&narrow), "{narrow} GB/s by one lane of 32 GT/s");
}

/// Two GPUs in slots of a machine, of which the first writes in order; and these lines of the host.
fn one_in_order(machine: &str, slots: [&str; 2], lines: &str, program: &str) -> FinishedProgram {
    let gpu =
        |slot: &str, more: &str| format!("[[host.device]]\ngpu = \"h100-pcie\"\nslot = \"{slot}\"\n{more}");
    let gpus = gpu(slots[0], "change.link.relaxed_ordering = false\n") + &gpu(slots[1], "");
    let text = [HEAD, &host("a", machine, lines), &gpus, &scenario::program("a", "0", program)].concat();
    run(&text).remove(0)
}

/// Writes that keep their order wait at roots that hold few of them; relaxed ones do not, nor do reads.
#[test]
fn strictly_ordered_writes_wait_at_the_root() {
    let test = "p2pBandwidthLatencyTest --bytes=256k --flows=0-host --flows=1-host --flows=host-0 --flows=0-1 --flows=1-0";
    let rates = |machine, slots, lines: &str| {
        let report = one_in_order(machine, slots, lines, test).outcome.unwrap();
        ["0-host", "1-host", "host-0", "0-1", "1-0"].map(|flow| report.get(&format!("flows {flow}")).unwrap())
    };
    let zen = rates("epyc-9575f", ["slot", "slot-b"], "");
    let fewer = rates("epyc-9575f", ["slot", "slot-b"], "change.host.root_complex.ordered_writes = 9");
    let emerald = rates("xeon-8592", ["slot", "slot.1"], "");
    assert!((zen[0] / fewer[0] - 17.0 / 9.0).abs() < 0.1, "{zen:?} {fewer:?}");
    assert!(zen[0] < 20.0 && zen[1..].iter().all(|&rate| rate > 40.0), "{zen:?}");
    assert!(emerald[3] < 20.0 && [0, 1, 2, 4].iter().all(|&n| emerald[n] > 40.0), "{emerald:?}");
}

/// Sums of a ring take as long as each link carries what passes it, whatever the number of GPUs.
#[test]
fn a_ring_of_gpus_sums_at_the_rate_of_its_links() {
    let switches = include_str!("../../../scenarios/gpu-switches.toml");
    let bus = |line: &str, bytes: u64| {
        let get = shipped(&switches.replace("p2pBandwidthLatencyTest --bytes=512k --all", line));
        let [time, rate, bus] =
            ["time", "algorithm bandwidth", "bus bandwidth"].map(|what| get(&format!("{bytes} B: {what}")));
        assert!((time * rate * 1e3 / bytes as f64 - 1.0).abs() < 1e-6, "{time} {rate}");
        bus
    };
    let [two, four] = [2, 4].map(|gpus| bus(&format!("all_reduce_perf -b 8m -g {gpus}"), 8 << 20));
    // One pair copies 56.4 GB/s; starting and the first slices take some of it.
    assert!((45.0..56.4).contains(&two) && (45.0..56.4).contains(&four), "{two} {four}");
    assert!(bus("all_reduce_perf -b 64k -e 8m -f 128 -n 2", 64 << 10) < four);
}

/// Drives are busy with a core's queues until the core is; with another core for another drive, both give what one does.
#[test]
fn polled_queues_keep_drives_busy() {
    let iops = |drives: usize, cpus: &str, bytes: u64| {
        // Nothing has been written, so nothing is read from flash.
        let drive = "[[host.device]]\ndrive = \"pm1753\"\nchange.media.read = \"0 ns\"\n".repeat(drives);
        let own = host("a", "dell-r760", "[host.nvme_driver]\nuser_space = true\n");
        let command = format!("spdk_nvme_perf -q 128 -o {bytes} -w randread -t 0.00005");
        let text = [HEAD, &own, &drive, &scenario::program("a", cpus, &command)].concat();
        let report = run(&text).remove(0).outcome.unwrap();
        (report.get("iops").unwrap(), report.get("throughput").unwrap())
    };
    let (one, _) = iops(1, "0", 512);
    let (two, _) = iops(2, "0-1", 512);
    assert!((one / 3.86e6 - 1.0).abs() < 0.05 && (two / one - 2.0).abs() < 0.05, "{one} {two}");
    // As many queues of one drive as cores.
    let (shared, _) = iops(1, "0-1", 512);
    assert!((shared / one - 1.0).abs() < 0.05, "{shared} {one}");
    let (_, large) = iops(1, "0", 4 << 10);
    assert!((12.0..14.8).contains(&large), "{large}");
}
