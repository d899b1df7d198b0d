//! What is said to bind does: with more of it things go faster, and with more of something else they do not.

use crate::scenario::{self, cable, host, host_with_nic, loaded, program};
use machine::{Doc, Library, Scenario, Setup};
use nearfar::computer;
use nearfar::counters::{Binding, Kind};
use nearfar::progress::Silent;
use nearfar::what_if::what_if;

/// At least so much faster with more of what binds, at most so much with more of anything else.
const FASTER: f64 = 1.04;
const SAME: f64 = 1.02;

/// What kind of resource binds a test of pcie-bench, and its bandwidth.
fn bench(test: &str, keys: &str) -> (Option<Kind>, f64) {
    let (binding, rate) = bound(test, keys);
    (binding.kind(), rate)
}

/// What binds a test of pcie-bench, and its bandwidth.
fn bound(test: &str, keys: &str) -> (Binding, f64) {
    let text = format!(
        "name = \"test\"\nsummary = \"test\"\nmachine = \"dell-t430\"\ncard = \"nfp6000\"\n{keys}\n\
         [pcie_bench]\npattern = \"rand\"\ncache = \"host-warm\"\n{test}\n"
    );
    let library = Library::built_in();
    let doc = Doc::<Scenario>::from_text(&library, "test.toml", &text);
    let setup = Setup::load(&library, &doc).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)));
    let done = nearfar::scenario::run(&setup, &Silent).unwrap();
    (done[0].outcome.window.binding(""), done[0].outcome.headline())
}

fn change(key: &str, value: &str) -> String {
    format!("{key} = {{ value = {value}, source = \"assumed: to see what it brings\" }}\n")
}

#[test]
fn of_a_card() {
    let small = "transfer = \"64 B\"\nwindow = \"1 MiB\"";
    let tags = change("change_card.link.tag_bits", "8") + &change("change_card.dma_engine.tags", "64");
    let few_tags = change("change_card.dma_engine.tags", "12");
    let more_tags = change("change_card.dma_engine.tags", "16");
    let walkers = change("change.host.iommu.walkers", "12");
    let drain = change("change_card.dma_engine.drain.per_request", "\"1 ns\"");
    // Slower than the part's, whose next limit is near.
    let slow_drain = change("change_card.dma_engine.drain.per_request", "\"8 ns\"");
    let drain_bytes = change("change_card.dma_engine.drain.per_byte", "\"0.05 ns\"");
    let wide = change("change_card.link.width", "16");
    let read = |more: &str| format!("test = \"BW_RD\"\n{more}");
    let remote = "sockets = { device = 0, memory = 1, warming = 1 }";
    let pages = "iommu = \"4k\"\ntransfer = \"64 B\"\nwindow = \"64 MiB\"";
    let large = "transfer = \"2 KiB\"\nwindow = \"1 MiB\"";
    let write = "test = \"BW_WR\"\ntransfer = \"256 B\"\nwindow = \"1 MiB\"";
    let credits =
        |kind: &str, n: u32| change(&format!("change.host.port.slot.credits.{kind}"), &n.to_string());
    let (few_data, more_data) = (credits("pd", 48), credits("pd", 64));
    // Waited for a third of the time, and nothing else is full.
    let (few_headers, more_headers) = (credits("ph", 8), credits("ph", 12));
    // As slow as would show; the machine's own are too fast to.
    let lookups = |ns: u32| change("change.host.llc.device_service", &format!("\"{ns} ns\""));
    let intake = |ns: u32| change("change.host.root_complex.intake_per_request", &format!("\"{ns} ns\""));
    let (slow_lookups, lookups) = (lookups(30), lookups(24));
    let places = |count: u32| change("change.host.iommu.read_depth", &count.to_string());
    let (few_places, more_places) = (places(3), places(4));
    let (slow_intake, intake) = (intake(30), intake(24));
    let cases: [(&str, String, &str, Kind, &str, &str); 10] = [
        ("the LLC's port", read(small), &slow_lookups, Kind::Llc, &lookups, &tags),
        ("a root port's intake", read(small), &slow_intake, Kind::RootPort, &intake, &tags),
        ("few credits for data", write.to_owned(), &few_data, Kind::Credits, &more_data, &tags),
        ("few credits for headers", write.to_owned(), &few_headers, Kind::Credits, &more_headers, &tags),
        ("few tags", read(small), &few_tags, Kind::Tags, &more_tags, &drain),
        ("small reads", read(small), &slow_drain, Kind::Device, &drain, &tags),
        ("remote reads", read(&format!("{small}\n{remote}")), "", Kind::Tags, &tags, &drain),
        ("large reads", read(large), "", Kind::Link, &(wide.clone() + &drain + &drain_bytes), &tags),
        ("misses of the IOTLB", read(pages), "", Kind::Walkers, &walkers, &tags),
        ("few places of the IOMMU", read(pages), &few_places, Kind::Translations, &more_places, &tags),
    ];
    for (name, test, keys, kind, more, other) in cases {
        let (binds, before) = bench(&test, keys);
        assert_eq!(binds, Some(kind), "{name}");
        // What is changed is changed anew.
        let (_, after) = bench(&test, more);
        assert!(after > FASTER * before, "{name}: {before:.2} Gbit/s, {after:.2} with more {}", kind.name());
        let (_, same) = bench(&test, &format!("{keys}{other}"));
        assert!(same < SAME * before, "{name}: {before:.2} Gbit/s, {same:.2} with more of something else");
    }
}

/// Each kind of row of pcie-bench: what is said to bind it is what a sweep shows.
#[test]
fn of_every_kind_of_row() {
    let more = |kind: Kind| match kind {
        Kind::Tags => change("change_card.link.tag_bits", "8") + &change("change_card.dma_engine.tags", "64"),
        Kind::Device => [
            ("drain.per_request", "1 ns"),
            ("drain.per_byte", "0.02 ns"),
            ("memory.per_transfer", "1 ns"),
            ("memory.per_operation", "2 ns"),
            ("bus.per_byte", "0.01 ns"),
            ("transmit.overhead", "0 B"),
        ]
        .map(|(stage, value)| change(&format!("change_card.dma_engine.{stage}"), &format!("\"{value}\"")))
        .concat(),
        Kind::Buffer => change("change_card.dma_engine.read_buffer", "\"32 KiB\""),
        Kind::Link => change("change_card.link.width", "16"),
        Kind::Walkers => change("change.host.iommu.walkers", "24"),
        Kind::Translations => {
            change("change.host.iommu.read_depth", "64") + &change("change.host.iommu.write_depth", "64")
        }
        other => panic!("no row has shown {other:?} yet"),
    };
    let places = [
        ("local", "", "1 MiB"),
        ("remote", "sockets = { device = 0, memory = 1, warming = 1 }\n", "1 MiB"),
        ("IOMMU", "iommu = \"4k\"\n", "64 MiB"),
    ];
    let mut wrong = Vec::new();
    for (place, keys, window) in places {
        for test in ["LAT_RD", "LAT_WRRD", "BW_RD", "BW_WR", "BW_RDWR"] {
            for transfer in ["64 B", "512 B", "2 KiB"] {
                let row =
                    format!("test = \"{test}\"\ntransfer = \"{transfer}\"\nwindow = \"{window}\"\n{keys}");
                let (binding, before) = bound(&row, "");
                let binds = binding.kind();
                let name = format!("{place} {test} {transfer}: {binds:?}");
                match binds {
                    // Each access waits for the one before.
                    None if test.starts_with("LAT") => {}
                    None => wrong.push(name),
                    Some(kind) => {
                        // More of it, and of whatever binds at once then.
                        let (mut given, mut changes) = (vec![kind], more(kind));
                        let after = loop {
                            let (now, after) = bound(&row, &changes);
                            match now.kind().filter(|next| after < FASTER * before && !given.contains(next)) {
                                Some(next) => {
                                    given.push(next);
                                    changes += &more(next);
                                }
                                None => break after,
                            }
                        };
                        if after < FASTER * before {
                            wrong.push(format!(
                                "{name}, {before:.2} Gbit/s, {after:.2} with more of {given:?}"
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What binds the first program that is no server, and what it reached.
fn run(text: &str, quantity: &str) -> (Option<Kind>, f64) {
    let counts = computer::run_counted(&loaded(text), &Silent).unwrap();
    let counted = &counts.counted[0];
    let done = counts.done.iter().find(|done| done.number() == Some(counted.program)).unwrap();
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    println!("{}", report.notes.last().unwrap());
    (counted.window.binding(&done.host).kind(), report.get(quantity).unwrap())
}

/// pktgen through a switch, so that no receiver counts.
fn pktgen(device: &str, cpus: &str, command: &str) -> (Option<Kind>, f64) {
    let text = format!(
        "{}switch = [{{ name = \"s\", ports = 2, rate = \"400 Gbit/s\" }}]\ncable = [{{ ends = [\"a\", \"s\"] }}]\n{}{}",
        scenario::HEAD,
        host("a", "dell-t430", &format!("[[host.device]]\nnic = \"modern\"\n{device}")),
        program("a", cpus, command),
    );
    run(&text, "throughput")
}

#[test]
fn of_packets_sent() {
    let rate = |gbit: u32| change("change.controller.rate", &format!("\"{gbit} Gbit/s\""));
    let few_tags = |n: u32| change("change.controller.tags", &n.to_string());
    let slow = change("change.tx.latency", "\"20 us\"");
    let ring = |n: u32| change("change.controller.ring_entries", &n.to_string());
    let (one, many) =
        (("0", "pktgen -s 60 -n 4000 -b 32"), ("0-9", "pktgen -s 1020 -n 2500 -t 10 -c 1000 -b 32"));
    let large = ("0", "pktgen -s 1500 -n 4000 -b 32");
    type Case<'a> = (&'a str, (&'a str, &'a str), String, Kind, String, String);
    let engine = |ns: u32| change("change.tx.packet_interval", &format!("\"{ns} ns\""));
    let cases: [Case<'_>; 6] = [
        ("wire", large, rate(10), Kind::Wire, rate(20), rate(10) + &ring(8192)),
        ("link", many, rate(400), Kind::Link, String::new(), rate(400) + &ring(8192)),
        (
            "tags",
            many,
            rate(400) + &few_tags(2),
            Kind::Tags,
            rate(400) + &few_tags(3),
            rate(800) + &few_tags(2),
        ),
        (
            "ring",
            one,
            slow.clone() + &ring(16),
            Kind::Ring,
            slow.clone() + &ring(32),
            slow + &ring(16) + &rate(100),
        ),
        ("packets", one, engine(1000), Kind::Device, engine(800), engine(1000) + &ring(8192)),
        ("core", one, String::new(), Kind::Core, String::new(), rate(100)),
    ];
    for (name, (cpus, command), device, kind, more, other) in cases {
        let (binds, before) = pktgen(&device, cpus, command);
        assert_eq!(binds, Some(kind), "{name}");
        if !more.is_empty() {
            let (_, after) = pktgen(&more, cpus, command);
            assert!(after > FASTER * before, "{name}: {before:.0} Mbit/s, {after:.0} with more");
        }
        let (_, same) = pktgen(&other, cpus, command);
        assert!(same < SAME * before, "{name}: {before:.0} Mbit/s, {same:.0} with more of something else");
    }
}

/// What works inside a drive: the channels of its media for large accesses, its controller for small ones.
#[test]
fn of_a_drive() {
    let channels = change("change.media.channel_rate", "\"0.45 GB/s\"");
    let interval = change("change.controller.command_interval", "\"1.6 us\"");
    let rate = |options: &str, device: &str| {
        let drive = format!("[[host.device]]\ndrive = \"optane-900p\"\n{device}");
        let line = format!("fio --filename=/dev/nvme0n1 --rw=randread --numjobs=4 {options}");
        let text = [scenario::HEAD, &host("a", "dell-t430", &drive), &program("a", "0-3", &line)].concat();
        run(&text, "read bw")
    };
    let (small, large) =
        ("--bs=4k --ioengine=libaio --iodepth=16 --runtime=2ms", "--bs=64k --iodepth=2 --runtime=4ms");
    for (options, more, other) in [(small, &interval, &channels), (large, &channels, &interval)] {
        let (binds, before) = rate(options, "");
        assert_eq!(binds, Some(Kind::Device), "{options}");
        let (_, after) = rate(options, more);
        assert!(after > FASTER * before, "{options}: {before:.0}, {after:.0} with more");
        let (_, same) = rate(options, other);
        assert!(same < SAME * before, "{options}: {before:.0}, {same:.0} with more of something else");
    }
}

/// All that binds the programs of a scenario, one sentence for each part of each.
fn sentences(text: &str) -> Vec<Binding> {
    let counts = computer::run_counted(&loaded(text), &Silent).unwrap();
    counts.done.iter().for_each(|done| assert!(done.failure().is_none(), "{:?}", done.failure()));
    counts.counted.iter().map(|counted| counted.window.binding(counts.host_of(counted.program))).collect()
}

/// Jobs that run after each other are told what binds each; reads at the same time are told together.
#[test]
fn of_groups_of_jobs() {
    let line = "fio --filename=/dev/nvme0n1 --ioengine=libaio --runtime=1ms --time_based --name=small --rw=randread --bs=4k \
                --iodepth=32 --numjobs=2 --name=large --stonewall --rw=read --bs=128k --iodepth=8 --name=one --new_group --rw=read \
                --bs=128k --iodepth=8 --name=slow --stonewall --rw=randread --bs=4k";
    let drive = "[[host.device]]\ndrive = \"optane-900p\"";
    let text = [scenario::HEAD, &host("a", "dell-t430", drive), &program("a", "0-3", line)].concat();
    let all = sentences(&text);
    let told: Vec<(&str, Option<&str>)> =
        all.iter().map(|one| (&*one.part, one.what.as_ref().map(|(_, what)| what.place.as_str()))).collect();
    let wanted =
        [("small", Some("drive0/commands")), ("large, one", Some("drive0/channels")), ("slow", None)];
    assert_eq!(told, wanted, "{all:?}");
    assert!(all[0].to_string().starts_with("what binds: small: a's drive0 itself"), "{}", all[0]);
}

/// At a few requests in flight, a core goes idle between them: a faster one would wait as long. What requests meet at binds before
/// the core and the stage before it are full.
#[test]
fn of_a_few_requests_in_flight() {
    let rate = |depth: u32, change: &str| {
        let drive = format!("[[host.device]]\ndrive = \"optane-900p\"\n{change}");
        let line = format!(
            "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth={depth} --runtime=2ms"
        );
        let text = [scenario::HEAD, &host("a", "dell-t430", &drive), &program("a", "0", &line)].concat();
        let counts = computer::run_counted(&loaded(&text), &Silent).unwrap();
        let report = counts.done[0].outcome.as_ref().unwrap();
        (counts.counted[0].window.binding("a"), report.get("read iops").unwrap())
    };
    let more = change("change.media.channel_rate", "\"0.407 GB/s\"");
    for (depth, place) in
        [(3, None), (5, Some("drive0/channels")), (6, Some("drive0/channels")), (8, Some("drive0/commands"))]
    {
        let (binding, before) = rate(depth, "");
        assert_eq!(binding.what.as_ref().map(|(_, what)| &*what.place), place, "{depth}: {binding}");
        let (_, after) = rate(depth, &more);
        let helps = after > 1.015 * before;
        assert_eq!(
            helps,
            place == Some("drive0/channels"),
            "{depth}: {before:.0}, {after:.0} with faster channels"
        );
    }
}

/// Requests that wait for an entry of the drive's queue are bound by it, unless the drive has no time for more.
#[test]
fn of_a_queue_of_few_entries() {
    let entries = |n: u32| {
        let drive = format!(
            "nvme_driver.queue_entries = {n}\n[[host.device]]\nname = \"d\"\ndrive = \"optane-900p\""
        );
        let line =
            "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=64 --runtime=2ms";
        let text = [scenario::HEAD, &host("a", "dell-t430", &drive), &program("a", "0", line)].concat();
        let setup = loaded(&text);
        let counts = computer::run_counted(&setup, &Silent).unwrap();
        let all = what_if(&setup, &counts, &Silent);
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!(one.holds(), Some(true), "{}: {:?}", one.binding, one.gains);
        one.binding.to_string()
    };
    let few = entries(4);
    assert!(few.starts_with("what binds: a's d, its submission ring 0, full "), "{few}");
    let many = entries(32);
    assert!(many.starts_with("what binds: a's d itself, its "), "{many}");
}

/// A copy between two GPUs is bound while it is measured, whatever the program does before and after; of many, each is told.
#[test]
fn of_copies_one_after_the_other() {
    let gpus = |run: &str| {
        include_str!("../../../scenarios/gpu-switches.toml")
            .replace("p2pBandwidthLatencyTest --bytes=512k --all", run)
    };
    for run in ["p2pBandwidthLatencyTest --flows=0-1", "gpu-copy --from=0 --to=1 --bytes=8m --count=2"] {
        let all = sentences(&gpus(run));
        assert!(matches!(all[0].kind(), Some(Kind::Device | Kind::Link)), "{run}: {}", all[0]);
    }
    let all = sentences(&gpus("nvbandwidth -t device_to_device_memcpy_write_ce"));
    let of: std::collections::BTreeSet<&str> =
        all[0].phases.iter().map(|phase| phase.resource.place.split('/').next().unwrap()).collect();
    assert_eq!(of.into_iter().collect::<Vec<_>>(), ["gpu0", "gpu1", "gpu2", "gpu3"], "{}", all[0]);
}

/// Repeated tests have a server each, on other cores.
#[test]
fn of_repeated_tests() {
    let hosts = scenario::two_hosts("");
    let free = |host: &str, run: &str| format!("[[program]]\nhost = \"{host}\"\nrun = \"{run}\"\n");
    let client = free("a", "netperf -H b -t TCP_STREAM -l 0.002 -i 5,3 -I 95,5");
    let all = sentences(&[&hosts, &*free("b", "netserver"), &client].concat());
    assert_eq!(all[0].kind(), Some(Kind::Core), "{}", all[0]);
    assert_eq!(all[0].what.as_ref().map(|(host, _)| &**host), Some("b"), "{}", all[0]);
}

/// A core that polls waits for what it polls: the GPU's engine that reads, or its tags.
#[test]
fn of_a_gpu_with_a_core_that_polls() {
    let copy = |device: &str| {
        let gpu = format!("[[host.device]]\ngpu = \"k420\"\n{device}");
        let line = "bandwidthTest --device=0 --htod --mode=range --start=4m --end=4m";
        let text = [scenario::HEAD, &host("a", "dolphin-e5-2603v4", &gpu), &program("a", "0", line)].concat();
        run(&text, "host to device 4194304 B")
    };
    let engine = |key: &str, value: &str| change(&format!("change.copy_engine.{key}"), value);
    let few = |n: u32| engine("tags", &n.to_string());
    let interval = |ns: u32| engine("read_interval", &format!("\"{ns} ns\""));
    let cases = [
        (Kind::Device, interval(60), interval(50), interval(60) + &few(70)),
        (Kind::Tags, few(6), few(8), few(6) + &interval(36)),
    ];
    for (kind, device, more, other) in cases {
        let (binds, before) = copy(&device);
        assert_eq!(binds, Some(kind));
        let (_, after) = copy(&more);
        assert!(after > FASTER * before, "{kind:?}: {before:.0}, {after:.0} with more");
        let (_, same) = copy(&other);
        assert!(same < SAME * before, "{kind:?}: {before:.0}, {same:.0} with more of something else");
    }
}

/// A vCPU that polls is no more what binds than a core that does.
#[test]
fn of_a_gpu_of_a_guest_that_polls() {
    let gpu = "iommu = \"strict\"\n[[host.device]]\nname = \"gpu\"\ngpu = \"k420\"\n";
    let few = change("change.copy_engine.tags", "6");
    let vm = "[[host.vm]]\nname = \"x\"\nvcpus = \"2\"\nmemory = \"1 GiB\"\ndevices = [\"gpu\"]\n";
    let line = "bandwidthTest --device=0 --htod --mode=range --start=1m --end=1m";
    let a = host("a", "dolphin-e5-2603v4", &[gpu, &few, vm].concat());
    let text = [scenario::HEAD, &a, &program("a/x", "0", line)].concat();
    assert_eq!(run(&text, "host to device 1048576 B").0, Some(Kind::Tags));
}

/// STREAM on the cores of socket 0, of memory of the other socket and of its own.
#[test]
fn of_memory() {
    // A quarter of the machine's LLC, so that a quarter of the arrays exceeds it as much.
    let llc = change("change.host.llc.size", "\"6400 KiB\"");
    let stream = |memory: &str, change: &str| {
        let text = [
            scenario::HEAD,
            &host("a", "dell-t430", &(llc.clone() + change)),
            &program("a", "0-9", "stream --array-size 1000000 --ntimes 2 --only read"),
            &format!("memory = \"{memory}\"\n"),
        ];
        run(&text.concat(), "read")
    };
    let interconnect = |rate: u32| change("change.host.interconnect.bandwidth", &format!("\"{rate} GB/s\""));
    let dram = |rate: u32| change("change.host.dram.channel_bandwidth", &format!("\"{rate} GB/s\""));
    let cases = [
        (
            "interconnect",
            "node1",
            interconnect(10),
            Kind::Interconnect,
            interconnect(12),
            interconnect(10) + &dram(20),
        ),
        ("DRAM", "node0", dram(5), Kind::Dram, dram(6), dram(5) + &interconnect(40)),
    ];
    for (name, memory, few, kind, more, other) in cases {
        let (binds, before) = stream(memory, &few);
        assert_eq!(binds, Some(kind), "{name}");
        let (_, after) = stream(memory, &more);
        assert!(after > FASTER * before, "{name}: {before:.0} MB/s, {after:.0} with more");
        let (_, same) = stream(memory, &other);
        assert!(same < SAME * before, "{name}: {before:.0} MB/s, {same:.0} with more of something else");
    }
}

/// A core that waits for memory is busy, yet neither is it what binds nor does a faster one help.
#[test]
fn of_cores_that_wait_for_lines() {
    // As above.
    let llc = change("change.host.llc.size", "\"8960 KiB\"");
    let done = |(line, cores, memory): (&str, &str, &str), what: &str, change: &str| {
        let a = host("a", "dell-r730", &(llc.clone() + change));
        let memory = format!("memory = \"{memory}\"\n");
        run(&[scenario::HEAD, &a, &program("a", cores, line), &memory].concat(), what)
    };
    let stream = "stream --array-size 500000 --ntimes 2";
    let of = |key: &str, value: &str| change(&format!("change.host.{key}"), value);
    let (dram, queue) = (of("dram.channel_bandwidth", "\"25.6 GB/s\""), of("prefetch.super_queue", "20"));
    let faster = of("core.frequency", "\"3 GHz\"");
    let cases = [
        ("all cores", (stream, "0-13", "node0"), Kind::Dram, &dram),
        ("one core", (stream, "0", "node0"), Kind::Lines, &queue),
    ];
    for (name, program, kind, more) in cases {
        let (binds, before) = done(program, "triad", "");
        assert_eq!(binds, Some(kind), "{name}");
        let (_, after) = done(program, "triad", more);
        assert!(after > FASTER * before, "{name}: {before:.0} MB/s, {after:.0} with more");
        let (_, same) = done(program, "triad", &faster);
        assert!(same < SAME * before, "{name}: {before:.0} MB/s, {same:.0} with faster cores");
    }
    let chase = ("lat_mem_rd -t 16 2048", "0", "node0");
    let (binds, before) = done(chase, "latency", "");
    assert_eq!(binds, None, "loads that need the one before");
    let (_, same) = done(chase, "latency", &faster);
    assert!(same * SAME > before, "{before} ns, {same} with a faster core");
    let (binds, _) = done(("lat_mem_rd 1 64", "0", "node0"), "latency", "");
    assert_ne!(binds, Some(Kind::Lines), "what the core's own caches hold");
}

#[test]
fn of_a_stream() {
    let text = |lines: &str| {
        [
            scenario::HEAD,
            &host("a", "dell-t430", &format!("[[host.device]]\nnic = \"modern\"\n{lines}")),
            &host_with_nic("b"),
            &cable("a", "b", ""),
            &program("b", "0", "netserver"),
            &program("a", "0", "netperf -H 10.0.0.2 -t TCP_STREAM -l 0.006"),
        ]
        .concat()
    };
    let (binds, _) = run(&text(""), "throughput");
    assert_eq!(binds, Some(Kind::Core));
    // Transactions wait for each other, and for nothing that is full.
    let (binds, _) = run(&text("").replace("TCP_STREAM", "TCP_RR"), "transactions");
    assert_eq!(binds, None);
}

/// A load of memory at random waits for row and channel, of the other socket's for the interconnect, too, and one of what an L1 holds
/// for neither.
#[test]
fn loads_that_wait_for_each_other_show_where_memory_is() {
    let latency = |line: &str, memory: &str| {
        let text = [
            scenario::HEAD,
            &host("a", "dell-t430", ""),
            &program("a", "0", line),
            &format!("memory = \"{memory}\"\n"),
        ];
        let done = computer::run(&loaded(&text.concat()), &Silent).unwrap();
        done[0].outcome.as_ref().unwrap().get("latency").unwrap()
    };
    let [local, remote] = ["node0", "node1"].map(|node| latency("lat_mem_rd -t 64 2048", node));
    assert!((80.0..100.0).contains(&local), "{local} ns");
    assert!(
        (45.0..65.0).contains(&(remote - local)),
        "{remote} ns, {local} of them without the interconnect"
    );
    let near = latency("lat_mem_rd 1 4096", "node0");
    assert!(near < 25.0, "{near} ns from the caches");
}
