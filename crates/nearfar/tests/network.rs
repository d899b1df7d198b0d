//! Programs of two computers talk over a cable, from files to figures.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use crate::scenario::{self, HEAD, cable, host, host_with_nic, loaded, program};
use machine::ComputerSetup;
use nearfar::computer::{self, Computers, FinishedProgram};
use nearfar::progress::Silent;
use platform::block::Segment;
use platform::cpu::{CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::{Pages, Policy};
use platform::sync::Completion;
use units::HostPhysical;

/// Two hosts with a cable between them, one with a drive besides.
fn hosts(lines_of_cable: &str) -> String {
    let a =
        host("a", "dell-t430", "[[host.device]]\nnic = \"modern\"\n[[host.device]]\ndrive = \"optane-900p\"");
    [HEAD, &a, &host_with_nic("b"), &cable("a", "b", lines_of_cable)].concat()
}

fn setup(programs: &[(&str, &str)]) -> ComputerSetup {
    setup_of(hosts(""), programs)
}

fn setup_of(text: String, programs: &[(&str, &str)]) -> ComputerSetup {
    let programs = programs.iter().map(|(host, run)| program(host, "0-3", run));
    loaded(&[text].into_iter().chain(programs).collect::<String>())
}

fn run(programs: &[(&str, &str)]) -> Vec<FinishedProgram> {
    computer::run(&setup(programs), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn reading(done: &[FinishedProgram], program: &str, quantity: &str) -> f64 {
    let done = done.iter().find(|done| done.run.starts_with(program)).expect("it ran");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    report.get(quantity).unwrap_or_else(|| panic!("{quantity} of {report:?}"))
}

/// One program at a time, so that each can be held against the wire and against the others.
#[test]
fn programs_measure_what_the_wire_lets_through() {
    // Of each frame of 1,538 bytes on a wire of 40 Gbit/s, 1,448 are a stream's.
    const WIRE_MBIT_PER_S: f64 = 40_000.0 * 1_448.0 / 1_538.0;
    let alone = |server: &str, command: &str| run(&[("b", server), ("a", command)]);
    let stream = alone("netserver", "netperf -H 10.0.0.2 -l 0.002 -- -m 65536");
    let of = |quantity| reading(&stream, "netperf", quantity);
    let (rate, received, time) = (of("throughput"), of("received"), of("time"));
    assert!(
        (rate * time / (8.0 * received) - 1.0).abs() < 1e-3,
        "{rate} Mbit/s, {received} bytes in {time} us"
    );
    let two = reading(&alone("iperf -s", "iperf -c 10.0.0.2 -t 0.002 -P 2"), "iperf", "bandwidth");
    assert!((0.85..=1.0).contains(&(two / WIRE_MBIT_PER_S)), "two streams fill the wire: {two} Mbit/s");
    assert!((0.8..0.9).contains(&(rate / two)), "one core does less than two: {rate} of {two} Mbit/s");
    let ping = run(&[("a", "ping -c 3 10.0.0.2")]);
    assert_eq!(reading(&ping, "ping", "received"), 3.0);
    let echo = reading(&ping, "ping", "round trip min");
    let datagrams = alone("netserver", "netperf -H 10.0.0.2 -t UDP_RR -l 0.0005");
    let transaction = reading(&datagrams, "netperf", "latency mean");
    // Both cross the same drivers, NICs and wire; one is answered by the kernel, the other by a program that is woken.
    assert!(
        (0.95..1.1).contains(&(echo / transaction)),
        "{echo} us of an echo, {transaction} us of a transaction"
    );
}

/// A host's own address: segments are nearly as long as the buffer, and windows are told from another core than
/// acknowledgements.
#[test]
fn programs_of_one_host_talk_without_waiting_for_timers() {
    let programs = [
        ("2", "iperf -s"),
        ("4", "netserver"),
        ("6", "iperf -c 127.0.0.1 -t 0.0005"),
        ("8", "netperf -H 10.0.0.1 -t TCP_RR -l 0.0005 -- -r 65536,1"),
    ];
    let programs = programs.map(|(cpu, run)| program("a", cpu, run)).concat();
    let done = computer::run(&loaded(&(hosts("") + &programs)), &Silent).unwrap();
    let time = reading(&done, "iperf", "time");
    assert!(time < 1_000.0, "{time} us");
    let longest = reading(&done, "netperf", "latency max");
    assert!(longest < 200.0, "{longest} us");
}

#[test]
fn transactions_take_as_long_as_their_latency_says() {
    for test in ["TCP_RR", "UDP_RR"] {
        let command = format!("netperf -H 10.0.0.2 -t {test} -l 0.0005 -- -r 64,128");
        let done = run(&[("b", "netserver"), ("a", &command)]);
        let (rate, mean) = (reading(&done, "netperf", "rate"), reading(&done, "netperf", "latency mean"));
        assert!((0.8..1.05).contains(&(rate * mean / 1e6)), "{test}: {rate}/s of {mean} us");
    }
}

#[test]
fn the_same_scenario_gives_the_same_figures() {
    let once = || {
        let done = run(&[("b", "netserver"), ("a", "netperf -H 10.0.0.2 -l 0.0002")]);
        done.into_iter().map(|done| (done.took, done.outcome)).collect::<Vec<_>>()
    };
    assert_eq!(once(), once());
}

/// A lost datagram ends the transactions, not the run.
#[test]
fn datagrams_that_are_lost_are_counted() {
    let mut lost = 0.0;
    for seed in 1..=6 {
        let text = format!("seed = {seed}\n{}", hosts("loss = 0.05"));
        let command = "netperf -H 10.0.0.2 -t UDP_RR -l 0.001";
        let setup = setup_of(text, &[("b", "netserver"), ("a", command), ("a", "ping -c 1 10.0.0.2")]);
        let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
        let transactions = reading(&done, "netperf", "transactions");
        assert!(transactions * reading(&done, "netperf", "latency mean") <= 1020.0);
        lost += reading(&done, "netperf", "lost");
    }
    assert!((3.0..=6.0).contains(&lost), "one for each test, as none goes on after: {lost}");
}

/// What has ended is told, and who waits for what never happens is named.
#[test]
fn a_program_that_hangs_is_named() {
    // An iperf server does not answer what netperf asks.
    let done = run(&[("b", "iperf -s"), ("a", "netperf -H 10.0.0.2 -p 5001"), ("a", "ping -c 1 10.0.0.2")]);
    assert_eq!(done.iter().filter(|done| !done.run.starts_with("link")).count(), 2);
    let failure = done[0].outcome.as_ref().unwrap_err().to_string();
    assert!(done[0].run.starts_with("netperf") && failure.contains("hangs"), "{failure}");
    assert_eq!(reading(&done, "ping", "received"), 1.0);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let done = run(&[("a", "netperf -H 10.0.0.2 -l 0.001")]);
    let failure = done[0].outcome.as_ref().unwrap_err().to_string();
    assert!(failure.contains("10.0.0.2") && failure.contains("refused"), "{failure}");
}

/// A file's pages go out from the page cache of either node, and arrive as they were written.
#[test]
fn sendfile_sends_what_was_written() {
    const LENGTH: usize = 150_000;
    const AT: u64 = 8192 + 512;
    for node in [0, 1] {
        let computers = Computers::new(&setup(&[])).unwrap();
        computers.boot().unwrap();
        let [a, b] = computers.hosts() else { panic!("two hosts") };
        let content: Vec<u8> = (0..LENGTH).map(|n| (n * 31 % 251) as u8).collect();
        let (received, told) = (Completion::new(), Completion::new());
        let (end, face) = (received.clone(), b.kernel.face());
        let port = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 80);
        b.kernel.spawn(TaskParams::named("server"), move |cpu| {
            Box::pin(async move {
                let stream = face.network().listen(&cpu, port, 1).unwrap().accept(&cpu).await.unwrap();
                let pages = face.alloc_pages(&cpu, 3, Policy::Local).unwrap();
                let into = Segment { at: pages.start, length: 32_768 };
                let mut all = Vec::new();
                loop {
                    let taken = stream.recv(&cpu, into).await.unwrap() as usize;
                    if taken == 0 {
                        break end.complete(all);
                    }
                    let at = all.len();
                    all.resize(at + taken, 0);
                    cpu.load(pages.start, &mut all[at..]);
                }
            })
        });
        let (face, sent) = (a.kernel.face(), content.clone());
        let ended = told.clone();
        // The other core's node, so that nothing comes from there by chance.
        let core = CpuId(if node == 0 { 10 } else { 0 });
        let params = TaskParams { policy: Policy::Bind(Node(node)), ..TaskParams::named("client").on(core) };
        let (hw, host) = (computers.simulation().handle(), a.host);
        a.kernel.spawn(params, move |cpu| {
            Box::pin(async move {
                let file = face.open_block("nvme0n1").unwrap();
                let pages = face.alloc_pages(&cpu, Pages::order_for(LENGTH as u64), Policy::Local).unwrap();
                cpu.store(pages.start, &sent);
                let from = [Segment { at: pages.start, length: LENGTH as u32 }];
                file.write(&cpu, AT, &from).await.unwrap();
                let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 80);
                let stream = face.network().connect(&cpu, to).await.unwrap();
                stream.sendfile(&cpu, &*file, AT, LENGTH as u64).await.unwrap();
                stream.shutdown(&cpu);
                // Those that were written and those that were read around them are where the task's memory is.
                let range = file.cached(&cpu, 0, AT + LENGTH as u64, Policy::Task).await.unwrap();
                for segment in &range.segments {
                    let at = HostPhysical::new(segment.at.0);
                    let home = hw.with(|fabric, _| fabric.host(host).memory.node_of(at));
                    assert_eq!(home.map(|home| home.0), Some(node));
                }
                ended.complete(Rc::clone(&stream));
            })
        });
        let all = computers.simulation().block_on(async move {
            told.wait().await;
            received.wait().await
        });
        assert!(all.unwrap() == content, "from node {node}");
    }
}

#[test]
fn netperf_sends_a_file() {
    let sent = |file: u64| {
        let command =
            format!("netperf -H 10.0.0.2 -t TCP_SENDFILE -F nvme0n1 -l 0.0008 -- -m 65536 -f {file}");
        let done = run(&[("b", "netserver"), ("a", &command)]);
        reading(&done, "netperf", "throughput")
    };
    // A file of two pieces is in the cache after the first round; a large one comes from the drive all the time.
    let (cached, read) = (sent(131_072), sent(1 << 30));
    assert!(cached > read && read > 500.0, "{cached:.0} Mbit/s from the cache, {read:.0} from the drive");
}

#[test]
fn virtual_functions_talk_inside_the_nic_and_over_the_wire() {
    let load = |change: &dyn Fn(String) -> String| {
        scenario::load(&change(include_str!("../../../scenarios/ping-vfs.toml").to_owned()))
    };
    let setup = load(&|text| text).unwrap_or_else(|error| panic!("{error}"));
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    let ping = |n: usize, quantity: &str| done[n].outcome.as_ref().ok()?.get(quantity);
    for n in 0..2 {
        assert_eq!(ping(n, "received"), Some(10.0), "{done:?}");
    }
    // Inside, a frame takes what both halves of the NIC take of one on the wire, and shares a link with the answer: a short
    // cable saves as little as it costs. The first echoes find cold caches.
    let [inside, outside] = [0, 1].map(|n| ping(n, "round trip min").unwrap_or_default());
    assert!((0.95..1.05).contains(&(inside / outside)), "{done:?}");
    let error = load(&|text| text.replace("vfs = 2", "vfs = 17")).unwrap_err().to_string();
    assert!(error.contains("17 virtual functions") && error.contains("at most 16"), "{error}");
    let error = load(&|text| text.replace("\"eth2\"", "\"eth3\"")).unwrap_err().to_string();
    assert!(
        error.contains("no network device `eth3`") && error.contains("`eth0`, `eth1`, `eth2`"),
        "{error}"
    );
}

/// Hosts answer where the scenario has put them.
#[test]
fn devices_have_the_addresses_that_the_scenario_gives() {
    let text = hosts("").replacen("nic = \"modern\"", "nic = \"modern\"\naddress = \"192.168.7.9/29\"", 1);
    let at = text.rfind("nic = \"modern\"").unwrap();
    let (before, after) = text.split_at(at);
    let text = format!("{before}address = \"192.168.7.10/29\"\nmac = \"02:aa:00:00:00:01\"\n{after}");
    let setup = setup_of(text, &[("a", "ping -c 2 192.168.7.10")]);
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reading(&done, "ping", "received"), 2.0);
}

/// Two subnets at one cable: each host finds the other's by a route, one at its link, the other by a gateway. What no route leads to
/// is refused at once.
#[test]
fn routes_lead_from_one_subnet_to_another() {
    let nic = |address: &str, routes: &str| {
        format!("[[host.device]]\nnic = \"modern\"\naddress = \"{address}\"\n{routes}")
    };
    let near = "[[host.route]]\nto = \"10.2.0.0/24\"\ndevice = \"eth0\"\n";
    let far = "[[host.route]]\nto = \"10.1.0.1/32\"\ndevice = \"eth0\"\n\
               [[host.route]]\nto = \"10.0.0.0/8\"\ngateway = \"10.1.0.1\"\n";
    let hosts = |near: &str, far: &str| {
        let a = host("a", "dell-t430", &nic("10.1.0.1/24", near));
        let b = host("b", "dell-t430", &nic("10.2.0.1/24", far));
        [HEAD, &a, &b, &cable("a", "b", "")].concat()
    };
    let ping = ("a", "ping -c 3 10.2.0.1");
    let done = computer::run(&setup_of(hosts(near, far), &[ping]), &Silent).unwrap();
    assert_eq!(reading(&done, "ping", "received"), 3.0, "{done:?}");
    for (routes, run) in [("", ping), (near, ("a", "ping -c 3 10.3.0.1"))] {
        let done = computer::run(&setup_of(hosts(routes, far), &[run]), &Silent).unwrap();
        let failure = done[0].outcome.as_ref().expect_err("no route leads there").to_string();
        assert!(failure.contains("no route to host"), "{failure}");
    }
}
