//! What crosses between a host's sockets for its card: nothing at all if the card has a function at each socket and these are one
//! network device; for every other organisation something of each cause, if a program is remote from its NIC.

use crate::scenario::octo::{LINKS, TEAM, multi_pf, octo};
use crate::scenario::{HEAD, cable, host, host_with_nic, loaded, program};
use nearfar::computer;
use nearfar::counters::{HostCounters, Window};
use nearfar::progress::Silent;

/// Causes that a card has.
const CAUSES: [&str; 5] = ["dma", "mmio-doorbell", "mmio-register", "mmio-wc", "interrupt"];

/// Bytes between these sockets that have to do with a card, either way, by cause. Causes without any are left out.
fn crossings(host: &HostCounters, between: &[(u16, u16)]) -> Vec<(&'static str, u64)> {
    let ways = || between.iter().flat_map(|&(one, other)| [(one, other), (other, one)]);
    let of =
        |cause| ways().map(|(from, to)| host.of(&format!("socket{from}-socket{to}/bytes/{cause}"))).sum();
    CAUSES.map(|cause| (cause, of(cause))).into_iter().filter(|&(_, bytes)| bytes > 0).collect()
}

/// Whether nothing that has to do with a card crosses between these sockets.
fn nothing_crosses(host: &HostCounters, between: &[(u16, u16)]) -> Result<(), String> {
    match &crossings(host, between)[..] {
        [] => Ok(()),
        some => Err(format!("{some:?}")),
    }
}

/// What was counted while the n-th program ran.
fn counted_while(text: &str, number: usize) -> Window {
    let counts = computer::run_counted(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"));
    let counted = counts.counted.into_iter().find(|counted| counted.program == number);
    counted.expect("it was counted").window
}

/// A program elsewhere that ends later: what is counted while it runs is the others' steady state.
fn counting(start: &str) -> String {
    program("b", "4", "stream --array-size 40000 --ntimes 8") + &format!("start = \"{start}\"\n")
}

/// The card as one network device: by a team, and by the driver.
fn one_device(links: &str) -> [(&'static str, String); 2] {
    [("team0", octo(links, "connectx4-octo", TEAM)), ("eth0", multi_pf(links, "connectx4-octo"))]
}

/// Sixteen lanes as four links, one to each of four sockets: what is read on a socket comes through its function. Once flows have
/// their rules, nothing that has to do with the card crosses between sockets.
#[test]
fn a_card_can_be_local_to_four_sockets() {
    let functions = ["slot", "slot-socket1", "slot-socket2", "slot-socket3"];
    let links = functions.map(|slot| format!("{{ slot = \"{slot}\", lanes = 4 }}")).join(", ");
    let team = TEAM.replace("\"octo:1\"", "\"octo:1\", \"octo:2\", \"octo:3\"");
    for server in [octo(&links, "connectx4-octo", &team), multi_pf(&links, "connectx4-octo")] {
        let server = server.replace("dell-t430", "dell-r840");
        let streams: String = (0..4)
            .flat_map(|socket| {
                let port = 6000 + socket;
                [
                    program("a", &(6 * socket).to_string(), &format!("iperf -s -p {port}")),
                    program("b", &socket.to_string(), &format!("iperf -c 10.0.0.1 -p {port} -t 0.0025")),
                ]
            })
            .collect();
        let text =
            [HEAD, &server, &host_with_nic("b"), &cable("a", "b", ""), &streams, &counting("2 ms")].concat();
        let window = counted_while(&text, 8);
        let a = window.host("a").expect("it is there");
        let written =
            ["octo", "octo:1", "octo:2", "octo:3"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
        let all: u64 = written.iter().sum();
        assert!(written.iter().all(|bytes| bytes * 10 > all), "{written:?}");
        assert_eq!(nothing_crosses(a, &[(0, 1), (1, 2), (2, 3), (3, 0)]), Ok(()));
    }
}

/// Cores of both sockets send at once: each through the function of its socket, whose rings its own core has filled from the
/// first descriptor on. Page-table walks of an IOMMU count apart.
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
    for iommu in ["off", "strict"] {
        for (device, server) in one_device(LINKS) {
            let server = server.replacen("machine", &format!("iommu = \"{iommu}\"\nmachine"), 1);
            let hosts = [HEAD, &server, &host_with_nic("b"), &cable("a", "b", "")].concat();
            let window = counted_while(&[&hosts, &*streams, &counting("2 ms")].concat(), 8);
            let a = window.host("a").expect("it is there");
            let read = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-down-bytes/completion")));
            assert!(
                read.iter().all(|bytes| bytes * 4 > read.iter().sum()),
                "{device}, IOMMU {iommu}: {read:?}"
            );
            assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{device}, IOMMU {iommu}");
        }
    }
}

/// Round trips, datagrams, memcached, ranks of pages and packets by pktgen, all at once on both sockets, on a host whose network
/// device is `device`; `more` runs besides. What was counted once flows have their rules, and before programs end: pktgen then reads
/// counters of both functions.
fn every_workload(device: &str, server: &str, more: &str) -> Window {
    let pktgen = format!("pktgen -i {device} -s 64 -n 25000");
    let on_server = [
        ("0", "netserver -p 12001"),
        ("14", "netserver -p 12002"),
        ("1", "sockperf server -p 11001"),
        ("15", "sockperf server -p 11002"),
        ("2,16", "memcached -t 2 -m 64 -p 11211"),
        ("3,17", "pr -g 14 -k 16 -i 26"),
        ("4,18", &*pktgen),
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
    let server = server.replace("dell-t430", "dell-r730");
    let client = host("b", "dell-r730", "[[host.device]]\nnic = \"connectx4\"\n");
    let text = [HEAD, &server, &client, &cable("a", "b", ""), &programs, &counting("5 ms"), more].concat();
    counted_while(&text, on_server.len() + on_client.len())
}

/// Whatever programs do, nothing that the card does crosses.
#[test]
fn no_workload_makes_an_octo_cross() {
    for (device, server) in one_device(LINKS) {
        let window = every_workload(device, &server, "");
        let a = window.host("a").expect("it is there");
        for counter in ["link-up-bytes/posted", "link-up-bytes/non-posted", "link-down-bytes/completion"] {
            let both = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/{counter}")));
            assert!(both.iter().all(|&bytes| bytes > 10_000), "{counter}: {both:?}");
        }
        assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{device}");
    }
}

/// Frames are lost, so that timers send what nobody has acknowledged: from the core that set them, through the function of its socket.
#[test]
fn what_timers_send_does_not_cross() {
    let trips: String = [0, 1, 14, 15]
        .into_iter()
        .map(|core| {
            let port = 12_001 + core;
            let trip = format!("netperf -H 10.0.0.1 -p {port} -t TCP_RR -l 0.5 -- -r 16384");
            program("a", &core.to_string(), &format!("netserver -p {port}"))
                + &program("b", &core.to_string(), &trip)
        })
        .collect();
    let client = host("b", "dell-r730", "[[host.device]]\nnic = \"connectx4\"\n");
    let waiting = program("b", "4", "ping -c 5 -i 0.1 10.0.0.2") + "start = \"5 ms\"\n";
    for (device, server) in one_device(LINKS) {
        let server = server.replace("dell-t430", "dell-r730");
        let cable = cable("a", "b", "loss = 0.03");
        let window = counted_while(&[HEAD, &server, &client, &cable, &trips, &waiting].concat(), 8);
        let a = window.host("a").expect("it is there");
        let sent = a.of("kernel/tcp/timeouts") + a.of("kernel/tcp/tail-probes");
        assert!(sent > 4, "{device}: {sent} in {}", window.length);
        // Each interrupt of a core's timer is a sleep or an expiry, of which each of four exchanges has one in two milliseconds.
        let expired = a.of("kernel/interrupts/timer") as f64;
        assert!(expired < 4.0 * window.length.as_s_f64() * 1e3, "{device}: {expired} in {}", window.length);
        assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{device}");
    }
}

/// The same workloads, but the pktgen of socket 0 is moved to socket 1, with its queue: its doorbells now go to the other socket's
/// function, and are not zero.
#[test]
fn doorbells_to_the_other_function_are_found() {
    let moved = "[[event]]\nat = \"5.05 ms\"\ndo = \"move-task\"\nwhat = \"a:pktgen\"\nto = \"20\"\n";
    for (device, server) in one_device(LINKS) {
        let window = every_workload(device, &server, moved);
        let a = window.host("a").expect("it is there");
        let found = nothing_crosses(a, &[(0, 1)]).expect_err("the doorbells cross");
        assert!(found.contains("mmio-doorbell"), "{device}: {found}");
    }
}

/// A program that is remote from its NIC, in every other organisation: data, requests and completions of DMA, doorbells, register
/// accesses (pktgen reads counters at its end) and interrupts cross. That they are counted is what makes zero mean something.
#[test]
fn every_other_organisation_crosses_by_each_cause() {
    let steered = "change_kernel.steering = { rfs = true, arfs = true }\n";
    let nic = |name: &str, slot: &str| {
        format!("[[host.device]]\nname = \"{name}\"\nnic = \"modern\"\nslot = \"{slot}\"\n")
    };
    let remote = |policy: &str| {
        let change = match policy {
            "" => String::new(),
            policy => format!("change.host.interconnect.remote_write = \"{policy}\"\n"),
        };
        host("a", "dell-t430", &(change + steered + &nic("n", "slot-socket1")))
    };
    let two_netdevs =
        format!("{steered}[[host.device]]\nname = \"n\"\nnic = \"connectx4\"\nlinks = [{LINKS}]\n");
    let bond = [steered, &nic("n0", "slot"), &nic("n1", "slot-socket1")].concat()
        + "[[host.team]]\nname = \"bond0\"\nmode = \"bond-802.3ad\"\nmembers = [\"n0\", \"n1\"]\n";
    let to_switch = "[[switch]]\nname = \"s\"\nqueue = \"4 MiB\"\nlag = [[0, 1]]\n".to_owned()
        + &[("a:0", "s:0"), ("a:1", "s:1"), ("b", "s:2")].map(|(one, other)| cable(one, other, "")).concat();
    let direct = cable("a", "b", "");
    // Cores of socket 0, and of socket 1 where it is the one that is remote; of a channel, a hash chooses the NIC.
    for (name, server, cables, device, cores) in [
        ("remote", remote(""), &direct, "eth0", [0, 1]),
        ("remote-ddio-home", remote("allocate-at-home-socket"), &direct, "eth0", [0, 1]),
        ("remote-ddio-device", remote("allocate-at-device-socket"), &direct, "eth0", [0, 1]),
        ("two-netdevs", host("a", "dell-t430", &two_netdevs), &direct, "eth0", [10, 11]),
        ("bond", host("a", "dell-t430", &bond), &to_switch, "bond0", [0, 10]),
    ] {
        let pairs: String = (0..2)
            .flat_map(|n: usize| {
                let port = 12_001 + n;
                [
                    program("a", &cores[n].to_string(), &format!("netserver -p {port}")),
                    program(
                        "b",
                        &n.to_string(),
                        &format!("netperf -H 10.0.0.1 -p {port} -t TCP_RR -l 0.0015"),
                    ),
                ]
            })
            .collect();
        let pktgen = cores.map(|core| {
            let run = format!("pktgen -i {device} -s 64 -n 1500");
            program("a", &(core + 2).to_string(), &run) + "start = \"1 ms\"\n"
        });
        let text = [HEAD, &server, &host_with_nic("b"), cables, &pairs, &pktgen.concat()].concat();
        let window = counted_while(&text, 4);
        let crossings = crossings(window.host("a").expect("it is there"), &[(0, 1)]);
        let found: Vec<&str> = crossings.iter().map(|&(cause, _)| cause).collect();
        assert_eq!(found, ["dma", "mmio-doorbell", "mmio-register", "interrupt"], "{name}: {crossings:?}");
    }
}

/// A file of the page cache, in pages of both nodes, sent by a program on a host with these lines: what was counted.
fn sends_a_file(server: &str) -> Window {
    let drive = "[[host.device]]\nname = \"ssd\"\ndrive = \"optane-900p\"\nlinks = [{ slot = \"slot\", lanes = 4 }]\n";
    let send = "netperf -H 10.0.0.2 -t TCP_SENDFILE -F nvme0n1 -l 0.006 -- -m 65536 -f 524288";
    let text = [
        HEAD,
        &server.replace("dell-t430", "dell-r730"),
        drive,
        &host_with_nic("b"),
        &cable("a", "b", ""),
        &program("b", "0", "netserver"),
        &(program("a", "0", send) + "memory = \"interleave\"\n"),
        &counting("5 ms"),
    ]
    .concat();
    counted_while(&text, 2)
}

/// A packet from the page cache has fragments of both nodes: each is read by the function of its node (IOctoSG), and nothing that the
/// card does crosses. A NIC at one socket, whichever it is, reads across what its socket's caches do not have.
#[test]
fn a_file_in_both_nodes_memory_is_sent_and_nothing_crosses() {
    for (device, server) in one_device(LINKS) {
        let window = sends_a_file(&server);
        let a = window.host("a").expect("it is there");
        let read = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-down-bytes/completion")));
        assert!(read.iter().all(|bytes| bytes * 4 > read.iter().sum()), "{device}: {read:?}");
        assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{device}");
    }
    for slot in ["slot", "slot-socket1"] {
        let nic = format!(
            "[[host.device]]\nname = \"n\"\nnic = \"modern\"\nlinks = [{{ slot = \"{slot}\", lanes = 8 }}]\n"
        );
        let window = sends_a_file(&host("a", "dell-t430", &nic));
        let a = window.host("a").expect("it is there");
        let read = a.of("n/link-down-bytes/completion");
        let crossed: u64 =
            crossings(a, &[(0, 1)]).iter().find(|(cause, _)| *cause == "dma").map_or(0, |dma| dma.1);
        assert!(read > 100_000 && crossed > 10_000, "{slot}: {read} {crossed}");
    }
}

/// A switch at each socket leads to the card and to a drive: who takes the lanes does not matter to whom they lead.
#[test]
fn functions_behind_switches_are_as_local() {
    let switch = |name: &str, slot: &str| {
        format!("[[host.switch]]\nname = \"{name}\"\npart = \"pm8536\"\nslot = \"{slot}\"\n")
    };
    let links = "{ slot = \"sw0:1\", lanes = 8 }, { slot = \"sw1:1\", lanes = 8 }";
    let drive = "[[host.device]]\nname = \"ssd\"\ndrive = \"pm1725a\"\nslot = \"sw1:2\"\n";
    for (device, server) in one_device(links) {
        let server = server + drive + &switch("sw0", "slot") + &switch("sw1", "slot-socket1");
        let programs = [
            program("a", "0", "iperf -s -p 6000"),
            program("a", "10", "iperf -s -p 6001"),
            program("b", "0", "iperf -c 10.0.0.1 -p 6000 -t 0.0025"),
            program("b", "1", "iperf -c 10.0.0.1 -p 6001 -t 0.0025"),
            program(
                "a",
                "12",
                "fio --filename=/dev/nvme0n1 --rw=randread --bs=4k --ioengine=libaio --iodepth=4 --runtime=2500us",
            ),
            counting("2 ms"),
        ];
        let hosts = [HEAD, &server, &host_with_nic("b"), &cable("a", "b", "")].concat();
        let window = counted_while(&(hosts + &programs.concat()), 5);
        let a = window.host("a").expect("it is there");
        let written = ["octo", "octo:1", "ssd"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
        assert!(written.iter().all(|&bytes| bytes > 50_000), "{device}: {written:?}");
        assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{device}");
    }
}

/// Streams to these ports and cores of a host `a`: programs there, and a source at a switch for each.
fn read_streams(cores: &[u16], ms: u32) -> String {
    let mut text = "[[switch]]\nname = \"s\"\nqueue = \"4 MiB\"\n".to_owned() + &cable("a", "s", "");
    for (n, core) in cores.iter().enumerate() {
        let port = 6000 + n;
        text += &format!(
            "[[source]]\nname = \"t{n}\"\nto = \"10.0.0.1:{port}\"\naddress = \"10.0.0.{}\"\ntime = \"{ms} ms\"\n",
            100 + n
        );
        text += &cable(&format!("t{n}"), "s", "");
        text += &program("a", &core.to_string(), &format!("iperf -s -p {port} -l 65536"));
    }
    text
}

/// A card in a riser that leads to both sockets, with as many lanes at each, and its team.
fn in_riser(lanes: u32, change: &str) -> String {
    let links = LINKS.replace("lanes = 8", &format!("lanes = {lanes}"));
    let lines = format!(
        "change_kernel.steering = {{ rfs = true, arfs = true }}\n[[host.riser]]\nname = \"riser\"\nlinks = [{links}]\n\
         [[host.device]]\nname = \"octo\"\nnic = \"connectx4-octo\"\nslot = \"riser\"\n{change}\n{TEAM}"
    );
    host("a", "dell-r730", &lines)
}

/// A riser splits a card's lanes over the sockets, and an extender gives each of them sixteen: all of a card of 32. Most streams are read
/// on one socket, whose function then carries more than eight lanes can, or as much as these.
#[test]
fn a_card_in_a_riser_or_at_an_extender_is_as_local() {
    // Gen3 x8: 8 GT/s on each lane, coded 128b/130b.
    let eight_lanes = 8.0 * 8.0 * 128.0 / 130.0;
    for (lanes, change, is_wide) in [(8, "", false), (16, "change.link.width = 32", true)] {
        let streams = read_streams(&[0, 1, 2, 3, 4, 5, 14, 15], 8);
        let counting = counting("4 ms").replace("\"b\"", "\"c\"");
        let text =
            [HEAD, &in_riser(lanes, change), &host("c", "dell-t430", ""), &streams, &counting].concat();
        let window = counted_while(&text, 8);
        let a = window.host("a").expect("it is there");
        let written = ["octo", "octo:1"].map(|f| a.of(&format!("{f}/link-up-bytes/posted")));
        let gbit = written.map(|bytes| bytes as f64 * 8.0 / window.length.as_ns_f64());
        assert!(gbit[1] > 10.0, "{lanes}: {gbit:?}");
        assert_eq!(gbit[0] > eight_lanes, is_wide, "{lanes}: {gbit:?}");
        assert_eq!(nothing_crosses(a, &[(0, 1)]), Ok(()), "{lanes}");
    }
}

/// A drive with a port at each socket, as one block device: nothing crosses, whichever socket reads, be they two or four. One with a
/// port at the first socket alone is remote from all others.
#[test]
fn a_drive_can_be_local_to_four_sockets() {
    let slots = ["slot", "slot-socket1", "slot-socket2", "slot-socket3"];
    let drive = |drive: &str, slots: &[&str]| {
        let links: Vec<String> = slots.iter().map(|slot| format!("{{ slot = \"{slot}\" }}")).collect();
        format!(
            "[host.nvme_driver]\nmultipath = true\n[[host.device]]\nname = \"ssd\"\ndrive = \"{drive}\"\nlinks = [{}]\n",
            links.join(", ")
        )
    };
    let reading = |machine: &str, drive: &str, sockets: u16, cores: u16| {
        let run = "fio --rw=randrw --bs=4k --ioengine=libaio --iodepth=8 --runtime=2ms";
        let programs: String = (0..sockets).map(|n| program("a", &(n * cores).to_string(), run)).collect();
        let text =
            [HEAD, &host("a", machine, drive), &host("b", "dell-t430", ""), &programs, &counting("1 ms")];
        counted_while(&text.concat(), sockets.into())
    };
    for (machine, name, sockets, cores, between) in [
        ("dell-t430", "pm1725a-dual", 2, 10, &[(0, 1)][..]),
        ("dell-r840", "pm1725a-quad", 4, 6, &[(0, 1), (1, 2), (2, 3), (3, 0)]),
    ] {
        let window = reading(machine, &drive(name, &slots[..sockets.into()]), sockets, cores);
        let a = window.host("a").expect("it is there");
        for n in 0..sockets {
            let port = if n == 0 { "ssd".to_owned() } else { format!("ssd:{n}") };
            assert!(a.of(&format!("{port}/link-up-bytes/posted")) > 50_000, "{name}, {port}");
        }
        assert_eq!(nothing_crosses(a, between), Ok(()), "{name}");
        let window = reading(machine, &drive(name, &slots[..1]), sockets, cores);
        let crossings = crossings(window.host("a").expect("it is there"), between);
        let found: Vec<&str> = crossings.iter().map(|&(cause, _)| cause).collect();
        assert_eq!(found, ["dma", "mmio-doorbell", "interrupt"], "{name}: {crossings:?}");
    }
}
