//! Network devices made of several: a card with a link to each socket, by a team or by the NIC's driver, and channels.

use crate::scenario::octo::{LINKS, TEAM, multi_pf, octo};
use crate::scenario::{AtEnd, HEAD, cable, event, host, host_with_nic, load, loaded, program};
use nearfar::computer::{self, Computers, FinishedProgram, run_watched};
use nearfar::progress::Silent;
use platform::cpu::Node;

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

/// The reader of a stream is moved every 50 us between cores of both sockets of a server, from when its receive buffer has grown to
/// its full size. What the moves cost is bounded: caches that are cold after each, and packets that wait for those of the ring that the
/// flow has left.
#[test]
fn a_storm_of_moves_costs_a_part_of_the_throughput() {
    const GROWN_US: u32 = 4_000;
    const END_US: u32 = 8_000;
    let server = octo(LINKS, "connectx4-octo", TEAM).replace("dell-t430", "dell-r730");
    let hosts = [
        HEAD,
        &server,
        &host("b", "dell-r730", "[[host.device]]\nnic = \"connectx4\"\n"),
        &cable("a", "b", ""),
        &program("a", "0", "netserver"),
    ]
    .concat();
    // Cores 0 to 13 are of the first socket.
    let move_to = |n: u32| {
        let (at, to) = (GROWN_US + 50 * n, n * 5 % 14 + if n.is_multiple_of(2) { 14 } else { 0 });
        format!("[[event]]\nat = \"{at} us\"\ndo = \"move-task\"\nwhat = \"a:netserver\"\nto = \"{to}\"\n")
    };
    let moves: String = (1..(END_US - GROWN_US) / 50).map(move_to).collect();
    let [grown, calm, storm] = [(GROWN_US, ""), (END_US, ""), (END_US, &moves)].map(|(us, events)| {
        let run =
            format!("netperf -H 10.0.0.1 -t TCP_STREAM -l {:.6} -- -m 65536 -M 65536", f64::from(us) / 1e6);
        let text = [&*hosts, &program("b", "0", &run), events].concat();
        let counts = computer::run_counted(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let a = counts.counted[0].window.host("a").expect("it is there");
        let came = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
        (reading(&counts.done, "netperf", "received"), came)
    });
    assert_eq!(calm.1[1], 0);
    assert!(storm.1.iter().all(|&bytes| bytes > 1_000_000), "{storm:?}");
    let (calm, storm) = (calm.0 - grown.0, storm.0 - grown.0);
    assert!(storm > 0.9 * calm && storm < 1.02 * calm, "{storm} of {calm}");
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

/// The driver's network device is the only one of the card, with the first link's address and the name of that link's function.
#[test]
fn a_driver_hides_the_functions() {
    let text = [
        HEAD,
        &multi_pf(LINKS, "connectx4-octo"),
        "[[host.device]]\nnic = \"modern\"\nlinks = [{ slot = \"slot-socket1\", lanes = 8 }]\n",
        &host_with_nic("b"),
        &cable("a:0", "b", ""),
        &program("a", "0", "iperf -s"),
        &program("a", "10", "netserver"),
        &program("b", "0", "iperf -c 10.0.0.1 -t 0.0005"),
        &program("b", "1", "netperf -H 10.0.0.1 -t TCP_RR -l 0.0005"),
    ]
    .concat();
    let setup = loaded(&text);
    let names: Vec<&str> =
        setup.hosts[0].interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["eth0", "eth1"]);
    let mut found = Vec::new();
    let mut at_end = AtEnd(|computers: &Computers| {
        let devices = computers.hosts()[0].kernel.net().devices();
        found = devices.iter().map(|device| (device.name().to_owned(), device.limits().rx_queues)).collect();
    });
    let done = run_watched(&setup, &Silent, &mut at_end).unwrap_or_else(|error| panic!("{error}"));
    assert!(reading(&done, "iperf -c", "bandwidth") > 2_000.0);
    assert!(reading(&done, "netperf", "transactions") > 10.0);
    let cores = setup.hosts[0].cores() as u16;
    assert_eq!(found, [("eth0".to_owned(), 2 * cores), ("eth1".to_owned(), cores)]);
}

/// A scenario is refused with these words, at a line that begins so.
fn assert_told(text: &str, words: &str, line: &str) {
    let said = load(text).err().unwrap_or_else(|| panic!("taken:\n{text}"));
    let told = said.iter().find(|one| one.to_string().contains(words));
    let told = told.unwrap_or_else(|| panic!("{words}: {}", said.render(false)));
    let at = text.lines().nth(told.line - 1).expect("a line of the scenario");
    assert!(at.starts_with(line), "{words}: {}", said.render(false));
}

#[test]
fn one_device_of_functions_that_are_none_is_told_with_its_line() {
    let both = multi_pf(LINKS, "connectx4-octo") + TEAM;
    for (host, words, line) in [
        (
            multi_pf(LINKS, "connectx4"),
            "no NIC of host `a` has functions with one address",
            "nic_driver.multi_pf",
        ),
        (both, "are one network device already", "members"),
    ] {
        assert_told(&[HEAD, &host].concat(), words, line);
    }
}

#[test]
fn impossible_teams_are_told_with_their_line() {
    let text = |links: &str, nic: &str, team: &str| [HEAD, &octo(links, nic, team)].concat();
    for (links, nic, team, words, line) in [
        (LINKS, "connectx4", TEAM, "have addresses of their own", "members"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:2"), "has no link 2", "members"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octa:1"), "there is no `octa:1`", "members"),
        (LINKS, "connectx4-octo", &*TEAM.replace("octo:1", "octo:0"), "is a member already", "members"),
        (LINKS, "connectx4-octo", &*TEAM.replace("team0", "eth7"), "may call another device `eth7`", "name"),
        (LINKS, "connectx4-octo", &*TEAM.replace("\"octo\"\nmembers", "\"squid\"\nmembers"), "squid", "mode"),
        ("{ slot = \"slot\", lanes = 8 }", "connectx4-octo", TEAM, "has no link 1", "members"),
    ] {
        assert_told(&text(links, nic, team), words, line);
    }
}

/// Interrupts and the table of RX queues are the members', which events may name.
#[test]
fn events_of_what_a_team_lacks_are_told_with_their_line() {
    let text = |event: &str| [HEAD, &octo(LINKS, "connectx4-octo", TEAM), event].concat();
    let affinity = |what: &str| event("1 ms", "set-affinity", what, "to = \"1\"");
    assert_told(&text(&affinity("a:team0")), "the team `team0` has no interrupts", "what");
    let rss = event("1 ms", "set", "a:team0.rss", "value = \"0\"");
    assert_told(&text(&rss), "the team `team0` has no table of RX queues", "what");
    let rings = event("1 ms", "set", "a:team0.tx_ring", "value = \"64\"");
    assert_told(&text(&rings), "the team `team0` has no rings", "what");
    loaded(&text(&affinity("a:eth1")));
}

/// Slots to which a link can be moved are empty, and of that link alone.
#[test]
fn other_slots_that_are_taken_are_told_with_their_line() {
    for others in ["\"slot-socket1\"", "\"slot.1\", \"slot.1\"", "\"slot\""] {
        let first = format!("{{ slot = \"slot\", lanes = 8, other_slots = [{others}] }}");
        let links = format!("{first}, {{ slot = \"slot-socket1\", lanes = 8 }}");
        assert_told(&[HEAD, &octo(&links, "connectx4-octo", TEAM)].concat(), "is taken", "links");
    }
}

/// Links to slots of one socket are possible, and told.
#[test]
fn a_team_at_one_socket_is_doubted_with_its_line() {
    let text = |links: &str| [HEAD, &octo(links, "connectx4-octo", TEAM)].concat();
    let near = text("{ slot = \"slot\", lanes = 8 }, { slot = \"slot.1\", lanes = 8 }");
    let doubts = loaded(&near).doubts;
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    assert!(doubts[0].message.contains("all members of `team0` are at socket 0"), "{}", doubts[0]);
    assert!(near.lines().nth(doubts[0].line - 1).is_some_and(|line| line.starts_with("name = \"team0\"")));
    assert!(doubts[0].render(false).starts_with("warning"), "{}", doubts[0].render(false));
    assert!(loaded(&text(LINKS)).doubts.is_empty());
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
    for (switch, members, words, line) in [
        ("lag = [[0, 1], [1, 2]]", BOND.to_owned(), "a port is in it twice", "lag"),
        ("ports = 3\nlag = [[0, 3]]", BOND.to_owned(), "a port that the switch has not", "lag"),
        ("", BOND.to_owned(), "makes one of them by `lag = [[0, 1]]`", "name = \"bond0\""),
        (
            "lag = [[0]]",
            BOND.to_owned(),
            "the cables of `bond0` do not lead to one channel",
            "name = \"bond0\"",
        ),
        (
            "lag = [[0, 2]]",
            BOND.to_owned(),
            "the cables of `bond0` do not lead to one channel",
            "name = \"bond0\"",
        ),
        ("lag = [[0, 1]]", BOND.replace("n1\"]", "n2\"]"), "there is no `n2`", "members"),
        ("lag = [[0, 1]]", BOND.replace("bond-802.3ad", "bond"), "bond-802.3ad", "mode"),
    ] {
        assert_told(&bonded(switch, &members), words, line);
    }
}

/// A member that is absent when its host boots joins the team when it comes, and the team appears with the first one; each has the
/// name of its place all the same.
#[test]
fn absent_members_join_their_team_later() {
    let late = |device: &str| format!("[[host.device]]\nplugged = false\nname = \"{device}\"");
    let present = |device: &str| format!("[[host.device]]\nname = \"{device}\"");
    let bond = |absent: &[&str]| {
        absent.iter().fold(BOND.to_owned(), |text, device| text.replace(&present(device), &late(device)))
    };
    let ping = program("b", "0", "ping -c 80 -i 0.004 -W 0.001 10.0.0.1");
    // A slot waits a tenth of a second before what has come into it is used, and who asks for an address asks again after a second.
    for (absent, start) in [(&["n0"][..], "0 ms"), (&["n1"], "0 ms"), (&["n0", "n1"], "160 ms")] {
        let plugs = absent.iter().map(|device| event("20 ms", "plug", &format!("a:{device}"), ""));
        let start = format!("start = \"{start}\"\n");
        let text = [bonded("lag = [[0, 1]]", &bond(absent)), ping.clone(), start, plugs.collect()].concat();
        let mut places = Vec::new();
        let mut at_end = AtEnd(|computers: &Computers| {
            let kernel = &computers.hosts()[0].kernel;
            let irqs = |name| kernel.interrupts_of(name).len();
            places = ["eth0", "eth1"]
                .iter()
                .map(|name| {
                    let device = kernel.net().device(name).expect("it is there");
                    (device.has_carrier(), irqs(name) > 1, device.driver().and_then(|own| own.node_of(0)))
                })
                .collect();
        });
        let done =
            run_watched(&loaded(&text), &Silent, &mut at_end).unwrap_or_else(|error| panic!("{error}"));
        assert!(reading(&done, "ping", "received") > 20.0, "{absent:?}: {done:?}");
        assert_eq!(places, [(true, true, Some(Node(0))), (true, true, Some(Node(1)))], "{absent:?}");
    }
}

/// A function behind a cut link, or a card that is out, does not keep a host from booting; its team is complete again later.
#[test]
fn a_host_boots_without_functions_of_its_team() {
    let ping = program("b", "0", "ping -c 100 -i 0.004 -W 0.001 10.0.0.1");
    for (gone, back, what) in [("cut", "mend", "a:octo:0"), ("remove", "plug", "a:octo")] {
        let events = [
            event("10 ms", gone, what, ""),
            event("20 ms", "reboot", "a", "takes = \"1 ms\""),
            event("60 ms", back, what, ""),
        ];
        let hosts = [HEAD, &octo(LINKS, "connectx4-octo", TEAM), &host_with_nic("b")].concat();
        let text = [hosts, cable("a", "b", ""), ping.clone(), events.concat()].concat();
        let mut usable = Vec::new();
        let mut at_end = AtEnd(|computers: &Computers| {
            let net = computers.hosts()[0].kernel.net();
            usable = ["eth0", "eth1", "team0"]
                .map(|name| net.device(name).is_some_and(|d| d.has_carrier()))
                .to_vec();
        });
        let done =
            run_watched(&loaded(&text), &Silent, &mut at_end).unwrap_or_else(|error| panic!("{error}"));
        assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
        let least = if gone == "cut" { 70.0 } else { 30.0 };
        assert!(reading(&done, "ping", "received") > least, "{what}: {done:?}");
        assert_eq!(usable, [true; 3], "{what}");
    }
}
