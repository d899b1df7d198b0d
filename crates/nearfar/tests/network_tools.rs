//! Network tools with the options that people know: what they mean is what happens.

use crate::scenario::{self, loaded, program, two_hosts};
use nearfar::computer::{self, FinishedProgram};
use nearfar::progress::Silent;
use workloads::Report;

fn run(programs: &[(&str, &str, &str)]) -> Vec<FinishedProgram> {
    let programs = programs.iter().map(|(host, cpus, run)| program(host, cpus, run));
    let text: String = [two_hosts("")].into_iter().chain(programs).collect();
    computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

/// The report of a client on `b`, with a server on `a`.
fn client(server: &str, run_line: &str) -> Report {
    let done = run(&[("a", "0-3", server), ("b", "0-3", run_line)]);
    let done = done.into_iter().find(|done| done.run == run_line).expect("it ran");
    done.outcome.unwrap_or_else(|failure| panic!("{run_line}: {failure}"))
}

fn of(report: &Report, quantity: &str) -> f64 {
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

fn text(report: &Report) -> &str {
    report.text.as_deref().unwrap_or_else(|| panic!("text of {report:?}"))
}

/// Both directions of a stream bring what was sent, and tests that end by a count end there.
#[test]
fn netperf_tests_move_what_they_say() {
    let maerts = client("netserver -D", "netperf -H 10.0.0.1 -t TCP_MAERTS -l -4M");
    assert_eq!(of(&maerts, "received"), 4_194_304.0, "{maerts:?}");
    assert!(of(&maerts, "throughput") > 3_000.0, "{maerts:?}");
    let crr = client("netserver", "netperf -H 10.0.0.1 -t TCP_CRR -l -20 -c -C");
    let rr = client("netserver", "netperf -H 10.0.0.1 -t tcp_rr -l -20 -- -r 1,1");
    assert_eq!((of(&crr, "transactions"), of(&rr, "transactions")), (20.0, 20.0));
    // A connection takes a round trip of its own.
    assert!(of(&crr, "latency mean") > 1.5 * of(&rr, "latency mean"), "{crr:?} {rr:?}");
    assert!(of(&crr, "local service demand") > 0.0 && of(&crr, "remote cpu utilization") < 100.0);
    let udp = client("netserver", "netperf -H 10.0.0.1 -t UDP_STREAM -l 0.001 -- -m 1472");
    assert!(of(&udp, "sent") > 100.0 && of(&udp, "received") <= of(&udp, "sent") * 1472.0, "{udp:?}");
    assert_eq!(of(&udp, "received") % 1472.0, 0.0);
}

#[test]
fn netperf_keeps_transactions_under_way_and_prints_what_is_asked() {
    let one = client("netserver", "netperf -H 10.0.0.1 -t TCP_RR -l 0.001");
    let line = "netperf -H 10.0.0.1 -t omni -l 0.001 -T 1,2 -- -d rr -b 8 -k THROUGHPUT,P99_LATENCY,PROTOCOL";
    let many = client("netserver", line);
    assert!(of(&many, "rate") > 3.0 * of(&one, "rate"), "{one:?} {many:?}");
    let lines: Vec<&str> = text(&many).lines().collect();
    assert_eq!(lines[0], format!("THROUGHPUT={:.2}", of(&many, "rate")));
    assert!(lines[1].starts_with("P99_LATENCY=") && lines[2] == "PROTOCOL=TCP", "{lines:?}");
    let interim = client("netserver", "netperf -H 10.0.0.1 -l 0.001 -D 0.0002 -P 0");
    assert_eq!(text(&interim).matches("Interim result: ").count(), 4, "{interim:?}");
    assert!(interim.notes.iter().any(|note| note.starts_with("-P changes nothing here")), "{interim:?}");
}

#[test]
fn netperf_repeats_until_it_is_confident() {
    let line = "netperf -H 10.0.0.1 -t TCP_RR -l 0.0005 -i 10,3 -I 95,10";
    let done = client("netserver", line);
    assert!((3.0..=10.0).contains(&of(&done, "tests")) && of(&done, "confidence width") < 10.0, "{done:?}");
}

/// The core that `-T` names does the work.
#[test]
fn netperf_runs_on_the_core_that_it_is_told() {
    let text = two_hosts("")
        + &program("a", "0", "netserver")
        + &program("b", "0", "netperf -H 10.0.0.1 -l 0.001 -T 5,7");
    let mut busiest = Vec::new();
    let mut look = scenario::AtEnd(|computers: &computer::Computers| {
        for host in computers.hosts() {
            let kernel = host.kernel.face();
            let tasks = kernel.tasks();
            let of = |name: &str| {
                let own = tasks.iter().filter(|task| task.name.starts_with(name));
                own.max_by_key(|task| task.busy).map(|task| task.cpu.0)
            };
            busiest.push(of("netserver").or(of("netperf")));
        }
    });
    let done = computer::run_watched(&loaded(&text), &Silent, &mut look).unwrap();
    assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    assert_eq!(busiest, [Some(7), Some(5)]);
    let text =
        two_hosts("") + &program("a", "0", "netserver") + &program("b", "0", "netperf -H 10.0.0.1 -T ,700");
    let done = computer::run(&loaded(&text), &Silent).unwrap();
    assert!(format!("{done:?}").contains("no core 700"), "{done:?}");
}

#[test]
fn iperf3_measures_both_directions() {
    let forward = client("iperf3 -s -D", "iperf3 -c 10.0.0.1 -t 0.001 -P 2");
    assert_eq!(of(&forward, "transfer"), of(&forward, "received"), "{forward:?}");
    let back = client("iperf3 -s", "iperf3 -c 10.0.0.1 -n 2M -R -P 2 -V");
    assert_eq!((of(&back, "transfer"), of(&back, "received")), (2_097_152.0, 2_097_152.0), "{back:?}");
    for direction in ["", " -R"] {
        let line = format!("iperf3 -c 10.0.0.1 -u -b 1G -t 0.002 -l 1000 -i 0.001{direction}");
        let udp = client("iperf3 -s", &line);
        // 250 datagrams of 1000 B in 2 ms are 1 Gbit/s.
        assert!((240.0..=251.0).contains(&(of(&udp, "transfer") / 1000.0)), "{udp:?}");
        assert!(of(&udp, "lost") <= 2.0 && of(&udp, "jitter") < 50.0, "{udp:?}");
        assert!(text(&udp).contains("[  5] 0.00") && text(&udp).contains("bits/sec"), "{}", text(&udp));
    }
    let paced = client("iperf3 -s", "iperf3 -c 10.0.0.1 -b 500M -t 0.002 -l 10K");
    assert!((400.0..=600.0).contains(&of(&paced, "bandwidth")), "{paced:?}");
}

#[test]
fn iperf3_prints_json_with_the_originals_fields() {
    for (options, sum) in [("", "sum_received"), (" -R", "sum_received"), (" -u -b 2G", "sum")] {
        let done = client("iperf3 -s", &format!("iperf3 -c 10.0.0.1 -t 0.001 -P 2 -i 0.0005 -J{options}"));
        let json: serde_json::Value = serde_json::from_str(text(&done)).unwrap();
        assert_eq!(json["start"]["test_start"]["num_streams"], 2);
        assert_eq!(json["start"]["connected"][1]["remote_host"], "10.0.0.1");
        let intervals = json["intervals"].as_array().unwrap();
        let bytes: u64 = intervals.iter().map(|one| one["sum"]["bytes"].as_u64().unwrap()).sum();
        let end = &json["end"];
        let total = if options == " -R" { &end["sum_received"] } else { &end["sum_sent"] };
        assert_eq!(total["bytes"], bytes, "{}", text(&done));
        assert!(end[sum]["bits_per_second"].as_f64().unwrap() > 1e9, "{}", text(&done));
        assert!(end["cpu_utilization_percent"]["host_total"].as_f64().unwrap() > 0.0);
        if options.starts_with(" -u") {
            assert!(end["sum"]["jitter_ms"].is_f64() && end["streams"][0]["udp"]["lost_percent"].is_f64());
        } else {
            assert_eq!(end["streams"][0]["sender"]["retransmits"], 0);
        }
    }
}

/// A small window holds a stream back, and datagrams come at their rate.
#[test]
fn iperf_keeps_to_its_window_and_its_rate() {
    let small = client("iperf -s -w 8K -D", "iperf -c 10.0.0.1 -t 0.001 -w 8K");
    let large = client("iperf -s", "iperf -c 10.0.0.1 -t 0.001 -w 416k -i 0.0005");
    assert!(of(&small, "bandwidth") < 0.7 * of(&large, "bandwidth"), "{small:?} {large:?}");
    assert_eq!(text(&large).lines().filter(|line| line.starts_with("[  3]")).count(), 4, "{}", text(&large));
    let udp = client("iperf -s -u", "iperf -c 10.0.0.1 -u -b 1G -t 0.002");
    let rate = of(&udp, "bandwidth");
    // iperf takes 1G as 2^30.
    assert!((950.0..1100.0).contains(&rate), "{udp:?}");
    assert_eq!((of(&udp, "received"), of(&udp, "lost")), (of(&udp, "transfer"), 0.0), "{udp:?}");
}

#[test]
fn sockperf_sends_at_a_rate_and_over_tcp() {
    let load = client("sockperf server", "sockperf ul -i 10.0.0.1 --mps 100000 --reply-every 10 -t 0.002");
    assert!((190.0..=205.0).contains(&of(&load, "messages")), "{load:?}");
    assert!((19.0..=21.0).contains(&of(&load, "echoes")) && of(&load, "lost") == 0.0, "{load:?}");
    let tcp = client("sockperf sr --tcp", "sockperf ping-pong --tcp -i 10.0.0.1 -t 0.0005 -m 200");
    assert!(of(&tcp, "wrong") == 0.0 && of(&tcp, "messages") > 10.0, "{tcp:?}");
    let load = client("sockperf sr --tcp", "sockperf under-load --tcp -i 10.0.0.1 -t 0.001 --reply-every 1");
    assert!(of(&load, "echoes") == of(&load, "messages") && of(&load, "wrong") == 0.0, "{load:?}");
    let most = client("sockperf server", "sockperf tp -i 10.0.0.1 -t 0.0005 -m 1400");
    assert!(of(&most, "message rate") > 200_000.0, "{most:?}");
}

#[test]
fn ping_floods_and_does_not_fragment() {
    let flood = client("netserver", "ping -f -c 50 10.0.0.1");
    assert_eq!((of(&flood, "sent"), of(&flood, "received")), (50.0, 50.0));
    let long = client("netserver", "ping -M do -s 1473 -c 3 10.0.0.1");
    assert_eq!(of(&long, "sent"), 0.0);
    assert!(long.notes[0].contains("message too long, mtu=1500"), "{long:?}");
    let fits = client("netserver", "ping -q -M do -s 1472 -c 3 -I eth0 10.0.0.1");
    assert_eq!(of(&fits, "received"), 3.0);
    let parts = client("netserver", "ping -s 1473 -c 3 10.0.0.1");
    assert_eq!(of(&parts, "received"), 3.0);
    let timed = client("netserver", "ping -w 0.0025 -i 0.001 10.0.0.1");
    assert_eq!((of(&timed, "sent"), of(&timed, "received")), (3.0, 3.0));
}

#[test]
fn ethtool_sets_rings_and_offloads() {
    let rings = client("netserver", "ethtool -G eth0 rx 1024 tx 256");
    assert_eq!((of(&rings, "rx ring"), of(&rings, "tx ring")), (1024.0, 256.0));
    let offloads = client("netserver", "ethtool -K eth0 gro off tso off");
    let on = |name| of(&offloads, name);
    assert_eq!(
        (on("generic-receive-offload"), on("tcp-segmentation-offload"), on("rx-checksumming")),
        (0.0, 0.0, 1.0)
    );
    let coalescing = client("netserver", "ethtool -C eth0 adaptive-rx off rx-usecs 3 tx-usecs 3");
    assert_eq!((of(&coalescing, "rx-0 usecs"), of(&coalescing, "rx-0 adaptive")), (3.0, 0.0));
    let link = client("netserver", "ethtool eth0");
    assert_eq!((of(&link, "link detected"), of(&link, "mtu")), (1.0, 1500.0));
}

/// Without GRO, each segment goes up the stack by itself, which costs the receiver more.
#[test]
fn gro_saves_the_receiver_time() {
    let cost = |setting: &str| {
        let programs = [
            program("a", "0", "netserver"),
            program("a", "1", setting),
            program("b", "0", "netperf -H 10.0.0.1 -l 0.002 -C") + "start = \"1 ms\"\n",
        ];
        let text = two_hosts("") + &programs.concat();
        let done = computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let done = done.iter().find(|done| done.run.starts_with("netperf")).unwrap();
        done.outcome.as_ref().unwrap().get("remote service demand").unwrap()
    };
    let (with, without) = (cost("ethtool -K eth0 gro on"), cost("ethtool -K eth0 gro off"));
    assert!(without > 1.2 * with, "{with} and {without} us/KB");
}

/// A host whose NICs belong to programs, and one that sends to it.
fn forwarder(run_line: &str, sender: &str) -> Vec<FinishedProgram> {
    let polled = "[host.nic_driver]\nuser_space = true\n[[host.device]]\nnic = \"82599\"";
    let hosts = [
        scenario::host("a", "dell-t430", polled),
        scenario::host("b", "dell-t430", "[[host.device]]\nnic = \"82599\""),
    ];
    let later = program("b", "0-1", sender) + "start = \"1 ms\"\n";
    let programs = [program("a", "0-3", run_line), later];
    let text = [scenario::HEAD, &hosts.concat(), &scenario::cable("a", "b", ""), &programs.concat()].concat();
    computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

/// Every frame that arrives goes back, at the rate of one core, and the kernel's stack never sees it.
#[test]
fn testpmd_forwards_what_a_host_sends() {
    let sender = "pktgen -i eth0 -s 60 -n 2000 -c 1000 -b 32";
    for mode in ["io", "mac", "macswap"] {
        let line = format!(
            "dpdk-testpmd -l 0,2 -n 4 -- --forward-mode={mode} --portlist=0 --rxd=512 --txd=512 --time=2 -i"
        );
        let done = forwarder(&line, sender);
        let report = done.iter().find(|done| done.run == line).unwrap().outcome.as_ref().unwrap();
        assert_eq!(
            (of(report, "port 0 rx"), of(report, "port 0 tx")),
            (2000.0, 2000.0),
            "{mode}: {report:?}"
        );
        assert!(
            report.notes.iter().any(|note| note.starts_with("--interactive changes nothing")),
            "{report:?}"
        );
    }
    let done = forwarder(
        "testpmd -l 0-2 -- --forward-mode=txonly --nb-cores=2 --rxq=2 --txq=2 --portlist=0 --time=1",
        sender,
    );
    let report = done.iter().find(|done| done.run.starts_with("testpmd")).unwrap().outcome.as_ref().unwrap();
    // 10 Gbit/s of 88 bytes with check sequence, preamble and gap are 14.2 million per second; more are on their way at the end.
    let sent = of(report, "port 0 tx");
    assert!((14_000.0..20_000.0).contains(&sent), "{report:?}");
    let done = forwarder("l2fwd -i uio0 -t 2", sender);
    let report = done.iter().find(|done| done.run.starts_with("l2fwd")).unwrap().outcome.as_ref().unwrap();
    assert_eq!(of(report, "frames"), 2000.0, "{report:?}");
    // Without a time they report what they have done when the sender ends; the last frames are on their way then.
    for (line, quantity) in [("testpmd -l 0-1 -- -i --portlist=0", "port 0 rx"), ("l2fwd -i uio0", "frames")]
    {
        let done = forwarder(line, sender);
        let report = done.iter().find(|done| done.run == line).unwrap().outcome.as_ref().unwrap();
        assert!((1900.0..=2000.0).contains(&of(report, quantity)), "{report:?}");
    }
}

/// The right values of a report: 812,744 packets of 1,514 B per second at most, and 14.88 million of 60 B.
#[test]
fn pktgen_sends_no_more_than_the_wire_carries() {
    for (options, most) in [("-s 1514 -n 300", 0.812_744), ("-s 60 -n 20000 -t 2 -c 1000 -b 32", 14.881)] {
        let nic = "[[host.device]]\nnic = \"82599\"";
        let hosts = [scenario::host("a", "dell-t430", nic), scenario::host("b", "dell-t430", nic)].concat();
        let sender = program("a", "0-1", &format!("pktgen -i eth0 {options}"));
        let text = [scenario::HEAD, &hosts, &scenario::cable("a", "b", ""), &sender].concat();
        let done = computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let rate = of(done[0].outcome.as_ref().unwrap(), "rate");
        assert!(rate <= most && rate > 0.9 * most, "{options}: {rate} M/s");
    }
}

/// A NIC that belongs to programs cannot serve guests as well.
#[test]
fn nics_of_programs_have_no_other_users() {
    let guest = "[[host.vm]]\nname = \"w\"\nvcpus = \"1\"\nmemory = \"64 MiB\"\nuplink = \"nic\"";
    let host = |driver: &str| {
        scenario::host(
            "a",
            "dell-t430",
            &format!("{driver}\n[[host.device]]\nname = \"nic\"\nnic = \"82599\"\n{guest}"),
        )
    };
    let check = |driver: &str| scenario::load(&[scenario::HEAD, &host(driver)].concat());
    assert!(check("nic_driver.user_space = false").is_ok());
    let said = check("nic_driver.user_space = true").err().unwrap().render(false);
    assert!(said.contains("test.toml:6") && said.contains("leave `user_space` out"), "{said}");
}
