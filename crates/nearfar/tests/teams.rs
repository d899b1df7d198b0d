//! A card with a link to each socket, as one network device: from a scenario's file to what crosses between the sockets.

mod scenario;

use nearfar::computer::{self, FinishedProgram};
use nearfar::counters::{HostCounters, Window};
use nearfar::progress::Silent;
use scenario::{HEAD, cable, host, host_with_nic, load, loaded, program};

const TEAM: &str = "[[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"octo:0\", \"octo:1\"]\n";

fn octo(links: &str, nic: &str, team: &str) -> String {
    let lines = format!(
        "change_kernel.steering = {{ rfs = true, arfs = true }}\n[[host.device]]\nname = \"octo\"\nnic = \"{nic}\"\n\
         links = [{links}]\n{team}"
    );
    host("a", "dell-t430", &lines)
}

const LINKS: &str = "{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }";

fn reading(done: &[FinishedProgram], program: &str, quantity: &str) -> f64 {
    let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{}: {failure}", done.run));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

#[test]
fn a_team_is_one_device_to_programs() {
    let hosts = [HEAD, &octo(LINKS, "connectx4-octo", TEAM), &host_with_nic("b")].concat();
    let text = [
        hosts,
        cable("a", "b", ""),
        program("a", "0", "iperf -s"),
        program("a", "10", "netserver"),
        program("b", "0", "iperf -c 10.0.0.1 -t 0.0005"),
        program("b", "1", "netperf -H 10.0.0.1 -t TCP_RR -l 0.0005"),
        program("b", "2", "ping -c 2 10.0.0.1"),
    ]
    .concat();
    let done = computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    assert!(reading(&done, "iperf -c", "bandwidth") > 2_000.0);
    assert!(reading(&done, "netperf", "transactions") > 10.0);
    assert_eq!(reading(&done, "ping", "received"), 2.0);
}

/// Sixteen lanes as four links, one to each of four sockets: what is read on a socket comes through its function. Once flows have
/// their rules, nothing that has to do with the card crosses between sockets.
#[test]
fn a_card_can_be_local_to_four_sockets() {
    let functions = ["slot", "slot-socket1", "slot-socket2", "slot-socket3"];
    let links: Vec<String> =
        functions.iter().map(|slot| format!("{{ slot = \"{slot}\", lanes = 4 }}")).collect();
    let team = TEAM.replace("\"octo:1\"", "\"octo:1\", \"octo:2\", \"octo:3\"");
    let server = octo(&links.join(", "), "connectx4-octo", &team).replace("dell-t430", "dell-r840");
    let streams: String = (0..4)
        .flat_map(|socket| {
            let port = 6000 + socket;
            [
                program("a", &(6 * socket).to_string(), &format!("iperf -s -p {port}")),
                program("b", &socket.to_string(), &format!("iperf -c 10.0.0.1 -p {port} -t 0.0025")),
            ]
        })
        .collect();
    // What is counted while it runs is the streams' steady state.
    let later = program("b", "4", "stream --array-size 40000 --ntimes 8") + "start = \"2 ms\"\n";
    let text = [HEAD, &server, &host_with_nic("b"), &cable("a", "b", ""), &streams, &later].concat();
    let window = counted_while(&text, 8);
    let a = window.host("a").expect("it is there");
    let written = ["octo", "octo:1", "octo:2", "octo:3"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
    let all: u64 = written.iter().sum();
    assert!(written.iter().all(|bytes| bytes * 10 > all), "{written:?}");
    nothing_crosses(a, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
}

/// What was counted while the n-th program ran.
fn counted_while(text: &str, number: usize) -> Window {
    let counts = computer::run_counted(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let counted = counts.counted.into_iter().find(|counted| counted.program == number);
    counted.expect("it was counted").window
}

/// Nothing that has to do with a card crosses between these sockets, either way.
fn nothing_crosses(host: &HostCounters, between: &[(u16, u16)]) {
    for (from, to) in between.iter().flat_map(|&(one, other)| [(one, other), (other, one)]) {
        for cause in ["dma", "mmio-doorbell", "mmio-register", "mmio-wc", "interrupt"] {
            let bytes = host.of(&format!("socket{from}-socket{to}/bytes/{cause}"));
            assert_eq!(bytes, 0, "{from} to {to}, {cause}");
        }
    }
}

/// The same counters, for a NIC of the other socket: what [`nothing_crosses`] finds zero is counted where there is something to count.
#[test]
fn a_nic_of_the_other_socket_crosses_by_each_cause() {
    let far = "change_kernel.steering = { rfs = true, arfs = true }\n[[host.device]]\nnic = \"modern\"\nslot = \"slot-socket1\"\n";
    let programs =
        program("a", "0", "netserver") + &program("b", "0", "netperf -H 10.0.0.1 -t TCP_RR -l 0.001");
    let text =
        [HEAD, &host("a", "dell-t430", far), &host_with_nic("b"), &cable("a", "b", ""), &programs].concat();
    let window = counted_while(&text, 1);
    let a = window.host("a").expect("it is there");
    for (from, to, cause) in [(0, 1, "dma"), (1, 0, "dma"), (0, 1, "mmio-doorbell"), (1, 0, "interrupt")] {
        let bytes = a.of(&format!("socket{from}-socket{to}/bytes/{cause}"));
        assert!(bytes > 0, "{from} to {to}, {cause}");
    }
}

/// Cores of both sockets send at once: each through the function of its socket, whose rings its own core has filled from the
/// first descriptor on.
#[test]
fn cores_of_both_sockets_send_and_nothing_crosses() {
    let streams: String = [0, 1, 10, 11]
        .into_iter()
        .map(|core| {
            let port = 6000 + core;
            [
                program("b", &core.to_string(), &format!("iperf -s -p {port}")),
                program("a", &core.to_string(), &format!("iperf -c 10.0.0.2 -p {port} -t 0.0025")),
            ]
            .concat()
        })
        .collect();
    let later = program("b", "4", "stream --array-size 40000 --ntimes 8") + "start = \"2 ms\"\n";
    let hosts = [HEAD, &octo(LINKS, "connectx4-octo", TEAM), &host_with_nic("b"), &cable("a", "b", "")];
    let window = counted_while(&[&hosts.concat(), &*streams, &later].concat(), 8);
    let a = window.host("a").expect("it is there");
    let read = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-down-bytes/completion")));
    assert!(read.iter().all(|bytes| bytes * 4 > read.iter().sum()), "{read:?}");
    nothing_crosses(a, &[(0, 1)]);
}

/// Round trips, datagrams, memcached, ranks of pages and packets by pktgen, all at once on both sockets: whatever they do, nothing that
/// the card does crosses once flows have their rules, and before programs end: pktgen then reads counters of both functions.
#[test]
fn no_workload_makes_an_octo_cross() {
    let on_server = [
        ("0", "netserver -p 12001"),
        ("14", "netserver -p 12002"),
        ("1", "sockperf server -p 11001"),
        ("15", "sockperf server -p 11002"),
        ("2,16", "memcached -t 2 -m 64 -p 11211"),
        ("3,17", "pr -g 14 -k 16 -i 26"),
        ("4", "pktgen -i team0 -s 64 -n 20000"),
        ("18", "pktgen -i team0 -s 1500 -n 20000"),
    ];
    let on_client = [
        ("0", "netperf -H 10.0.0.1 -p 12001 -t TCP_RR -l 0.006"),
        ("1", "netperf -H 10.0.0.1 -p 12002 -t TCP_RR -l 0.006 -- -r 16384"),
        ("2", "sockperf ping-pong -i 10.0.0.1 -p 11001 -m 64 -t 0.006"),
        ("3", "sockperf ping-pong -i 10.0.0.1 -p 11002 -m 64 -t 0.006"),
        ("5-8", "memaslap -s 10.0.0.1:11211 -c 4 -t 6ms -X 65536 -w 4 --key 64 --set 0.5"),
    ];
    let programs = on_server.map(|(cpus, run)| program("a", cpus, run)).concat()
        + &on_client.map(|(cpus, run)| program("b", cpus, run)).concat();
    let later = program("b", "4", "stream --array-size 40000 --ntimes 8") + "start = \"5 ms\"\n";
    let server = octo(LINKS, "connectx4-octo", TEAM).replace("dell-t430", "dell-r730");
    let client = host("b", "dell-r730", "[[host.device]]\nnic = \"connectx4\"\n");
    let text = [HEAD, &server, &client, &cable("a", "b", ""), &programs, &later].concat();
    let window = counted_while(&text, on_server.len() + on_client.len());
    let a = window.host("a").expect("it is there");
    for counter in ["link-up-bytes/posted", "link-up-bytes/non-posted", "link-down-bytes/completion"] {
        let both = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/{counter}")));
        assert!(both.iter().all(|&bytes| bytes > 10_000), "{counter}: {both:?}");
    }
    nothing_crosses(a, &[(0, 1)]);
}

/// What a program sends from the page cache lies in pages of both nodes, so that a packet has fragments of both: each is read by the
/// function of its node (IOctoSG), and nothing that the card does crosses.
#[test]
fn a_file_in_both_nodes_memory_is_sent_and_nothing_crosses() {
    let drive = "[[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"\nlinks = [{ slot = \"slot\", lanes = 4 }]\n";
    let server = octo(LINKS, "connectx4-octo", TEAM).replace("dell-t430", "dell-r730") + drive;
    let send = "netperf -H 10.0.0.2 -t TCP_SENDFILE -F nvme0n1 -l 0.006 -- -m 65536 -f 524288";
    let text = [
        HEAD,
        &server,
        &host_with_nic("b"),
        &cable("a", "b", ""),
        &program("b", "0", "netserver"),
        &(program("a", "0", send) + "memory = \"interleave\"\n"),
        &(program("b", "4", "stream --array-size 40000 --ntimes 8") + "start = \"5 ms\"\n"),
    ]
    .concat();
    let window = counted_while(&text, 2);
    let a = window.host("a").expect("it is there");
    let read = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-down-bytes/completion")));
    assert!(read.iter().all(|bytes| bytes * 4 > read.iter().sum()), "{read:?}");
    nothing_crosses(a, &[(0, 1)]);
}

/// A switch at each socket leads to the card and to a drive: who takes the lanes does not matter to whom they lead.
#[test]
fn functions_behind_switches_are_as_local() {
    let switch = |name: &str, slot: &str| {
        format!("[[host.switch]]\nname = \"{name}\"\npart = \"pm8536\"\nslot = \"{slot}\"\n")
    };
    let links = "{ slot = \"sw0:1\", lanes = 8 }, { slot = \"sw1:1\", lanes = 8 }";
    let drive = "[[host.device]]\nname = \"ssd\"\ndrive = \"pm1725a\"\nslot = \"sw1:2\"\n";
    let server =
        octo(links, "connectx4-octo", TEAM) + drive + &switch("sw0", "slot") + &switch("sw1", "slot-socket1");
    let programs = [
        program("a", "0", "iperf -s -p 6000"),
        program("a", "10", "iperf -s -p 6001"),
        program("b", "0", "iperf -c 10.0.0.1 -p 6000 -t 0.0025"),
        program("b", "1", "iperf -c 10.0.0.1 -p 6001 -t 0.0025"),
        program("a", "12", "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=4 --runtime=2500us"),
        // What is counted while it runs is the streams' steady state.
        program("b", "4", "stream --array-size 40000 --ntimes 8") + "start = \"2 ms\"\n",
    ];
    let hosts = [HEAD, &server, &host_with_nic("b"), &cable("a", "b", "")].concat();
    let window = counted_while(&(hosts + &programs.concat()), 5);
    let a = window.host("a").expect("it is there");
    let written = ["octo", "octo:1", "ssd"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
    assert!(written.iter().all(|&bytes| bytes > 50_000), "{written:?}");
    nothing_crosses(a, &[(0, 1)]);
}

/// A programmable switch gives one function to the other socket and back: what its socket's cores receive crosses between the sockets
/// in the meantime, and does not any more when it is back. The stream survives both.
#[test]
fn a_function_is_given_to_the_other_socket_and_back() {
    let switch = |name: &str, slot: &str| {
        format!("[[host.switch]]\nname = \"{name}\"\npart = \"pm8536\"\nslot = \"{slot}\"\n")
    };
    let links = "{ slot = \"sw0:1\", lanes = 8, other_slots = [\"sw1:2\"] }, { slot = \"sw1:1\", lanes = 8 }";
    let server =
        octo(links, "connectx4-octo", TEAM) + &switch("sw0", "slot") + &switch("sw1", "slot-socket1");
    let assign = |at: &str, to: &str| {
        format!("[[event]]\nat = \"{at}\"\ndo = \"assign\"\nwhat = \"a:octo:0\"\nto = \"{to}\"\n")
    };
    let later = |start: &str| {
        program("b", "4", "stream --array-size 20000 --ntimes 4") + &format!("start = \"{start}\"\n")
    };
    let text = [
        HEAD,
        &server,
        &host_with_nic("b"),
        &cable("a", "b", ""),
        &program("a", "0", "netserver"),
        &program("b", "0", "netperf -H 10.0.0.1 -t TCP_RR -l 0.53"),
        // A slot waits a tenth of a second before what has come into it is used, and what was lost is sent again after two.
        &later("1 ms"),
        &later("240 ms"),
        &later("500 ms"),
        &assign("3 ms", "sw1:2"),
        &assign("250 ms", "sw0:1"),
    ]
    .concat();
    let counts = computer::run_counted(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let while_ran = |program: usize| {
        let of = counts.counted.iter().find(|counted| counted.program == program).expect("it was counted");
        let host = of.window.host("a").expect("it is there");
        let received = ["octo", "octo:1"].map(|f| host.of(&format!("{f}/link-up-bytes/posted")));
        let crossed = host.of("socket1-socket0/bytes/dma") + host.of("socket0-socket1/bytes/dma");
        (received, crossed)
    };
    for (program, is_away) in [(2, false), (3, true), (4, false)] {
        let (received, crossed) = while_ran(program);
        assert!(received.iter().sum::<u64>() > 2_000, "{program}: {received:?}");
        assert_eq!(crossed > 0, is_away, "{program}: {received:?} {crossed}");
    }
}

#[test]
fn impossible_teams_are_told_with_their_line() {
    let text = |links: &str, nic: &str, team: &str| [HEAD, &octo(links, nic, team)].concat();
    for (links, nic, team, words) in [
        (LINKS, "connectx4", TEAM, "have addresses of their own"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:2"), "has no link 2"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octa:1"), "there is no `octa:1`"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:0"), "is a member already"),
        (LINKS, "connectx4-octo", &*TEAM.replace("team0", "eth7"), "may call another device `eth7`"),
        (LINKS, "connectx4-octo", &*TEAM.replace("\"octo\"\nmembers", "\"squid\"\nmembers"), "squid"),
        ("{ slot = \"slot\", lanes = 8 }", "connectx4-octo", TEAM, "has no link 1"),
    ] {
        let said = load(&text(links, nic, team)).err().unwrap_or_else(|| panic!("{links} {team} is taken"));
        assert!(said.render(false).contains(words), "{words}: {}", said.render(false));
    }
}

const BOND: &str = "[[host.device]]\nname = \"n0\"\nnic = \"modern\"\nslot = \"slot\"\n\
     [[host.device]]\nname = \"n1\"\nnic = \"modern\"\nslot = \"slot-socket1\"\n\
     [[host.team]]\nname = \"bond0\"\nmode = \"bond-802.3ad\"\nmembers = [\"n0\", \"n1\"]\n";

fn bonded(switch: &str, members: &str) -> String {
    let hosts = [HEAD, &host("a", "dell-t430", members), &host_with_nic("b")].concat();
    let cables = [("a:0", "s:0"), ("a:1", "s:1"), ("b", "s:2")].map(|(one, other)| cable(one, other, ""));
    [hosts, format!("[[switch]]\nname = \"s\"\nqueue = \"4 MiB\"\n{switch}\n"), cables.concat()].concat()
}

/// Two NICs are one device; their switch spreads streams over both, and each keeps to the one that its hash chose.
#[test]
fn a_channel_spreads_streams_over_two_nics() {
    let streams: String = (0..6)
        .flat_map(|n| {
            let port = 6000 + n;
            [
                program("a", &n.to_string(), &format!("iperf -s -p {port}")),
                program("b", &n.to_string(), &format!("iperf -c 10.0.0.1 -p {port} -t 0.0004")),
            ]
        })
        .collect();
    let text = bonded("lag = [[0, 1]]", BOND) + &streams;
    let counts = computer::run_counted(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    for n in 0..6 {
        assert!(reading(&counts.done, &format!("iperf -c 10.0.0.1 -p {}", 6000 + n), "bandwidth") > 500.0);
    }
    let a = counts.counted[0].window.host("a").expect("it is there");
    let received = |name: &str| a.of(&format!("{name}/rx-packets"));
    assert!(received("eth0") > 50 && received("eth1") > 50, "{} {}", received("eth0"), received("eth1"));
    assert_eq!(received("bond0"), received("eth0") + received("eth1"));
}

#[test]
fn impossible_channels_are_told_with_their_line() {
    for (switch, members, words) in [
        ("lag = [[0, 1], [1, 2]]", BOND.to_owned(), "a port is in it twice"),
        ("ports = 3\nlag = [[0, 3]]", BOND.to_owned(), "a port that the switch has not"),
        ("", BOND.to_owned(), "makes one of them by `lag = [[0, 1]]`"),
        ("lag = [[0]]", BOND.to_owned(), "the cables of `bond0` do not lead to one channel"),
        ("lag = [[0, 2]]", BOND.to_owned(), "the cables of `bond0` do not lead to one channel"),
        ("lag = [[0, 1]]", BOND.replace("n1\"]", "n2\"]"), "there is no `n2`"),
        ("lag = [[0, 1]]", BOND.replace("bond-802.3ad", "bond"), "bond-802.3ad"),
    ] {
        let said = load(&bonded(switch, &members)).err().unwrap_or_else(|| panic!("{switch} is taken"));
        assert!(said.render(false).contains(words), "{words}: {}", said.render(false));
    }
}
