//! pktgen, driver, NIC and link together against the analytic model of pcie-bench's section 3, and a capture of it.

use crate::scenario::{self, loaded};
use analytic::{Driver, Link, Nic, Omission, Traffic};
use hardware::ethernet::CableEnd;
use machine::ComputerSetup;
use nearfar::computer::{Computers, FinishedProgram, Observer, PacketCosts, run, run_watched};
use nearfar::progress::Silent;
use units::Bytes;

fn reading(done: &[FinishedProgram], quantity: &str) -> f64 {
    done[0].outcome.as_ref().unwrap().get(quantity).unwrap()
}

/// A run of pktgen on the ten cores of a socket, each with so many packets.
fn send(size: u32, count: u32) -> (PacketCosts, f64, f64) {
    let text = format!(
        r#"
name = "model"
summary = "pktgen on a wire faster than the slot"
switch = [{{ name = "s", ports = 2, rate = "400 Gbit/s" }}]
cable = [{{ ends = ["a", "s"] }}]
[[host]]
name = "a"
machine = "dell-t430"
[[host.device]]
nic = "modern"
change.controller.rate = {{ value = "400 Gbit/s", source = "assumed: faster than the slot" }}
[[program]]
cpus = "0-9"
run = "pktgen -s {size} -n {count} -t 10 -c 1000 -b 32"
"#
    );
    let mut costs = PacketCosts::default();
    let done = run_watched(&loaded(&text), &Silent, &mut costs).unwrap();
    (costs, reading(&done, "sent"), reading(&done, "time") * 1e3)
}

/// Ten cores send more than fits through a link that is slower than the wire.
#[test]
fn the_link_carries_what_the_model_says() {
    for size in [60u32, 124, 252, 508, 1020] {
        let (_, few, began) = send(size, 1000);
        let (costs, sent, ended) = send(size, 2500);
        let simulated = (sent - few) * f64::from(size) * 8.0 / (ended - began);
        let [up, down] = costs.of(0, sent).unwrap();
        let link = Link::new(analytic::Generation::Gen3, 8, Bytes::new(256), Bytes::new(512)).unwrap();
        let nic = Nic::modern(Driver::Dpdk);
        let packet = Bytes::new(size.into());
        let (model_up, model_down) = nic.wire_bytes(&link, Traffic::Transmit, packet);
        let own = nic.goodput(&link, Traffic::Transmit, packet, Omission::None).as_gbit_per_s_f64();
        println!(
            "{size} B: {simulated:.2} Gbit/s, model {own:.2}; from the NIC {:.1} + {:.1} B (model {model_up:.1}), to it \
             {:.1} + {:.1} + {:.1} B (model {model_down:.1})",
            up.tlp_bytes, up.dllp_bytes, down.tlp_bytes, down.dllp_bytes, down.fill_bytes
        );
        // The model's completions are as long as payloads may be; this host cuts them at 128 B.
        let model_completions = f64::from(size.div_ceil(256)) + 3.0 / 40.0;
        let uncut = down.tlp_bytes - 20.0 * (down.completions - model_completions);
        assert!((uncut / model_down - 1.0).abs() < 0.05, "{down:?}, model {model_down}");
        // The emptier direction decides nothing: requests to memory below 4 GiB have headers shorter than the model's, and
        // write-backs that time out are more.
        assert!((up.tlp_bytes / model_up - 1.0).abs() < 0.15, "{up:?}, model {model_up}");
        // With completions as they are cut and padded, and beats as the root port's transmitter fills them (a packet of 60 B
        // takes 96 B of the wire, not 80), the link is full; the model's allowance for DLLPs, of which fewer are sent, hides
        // that from 124 B on.
        let expected = link.raw_rate().as_gbit_per_s_f64() * f64::from(size) / down.total();
        assert!((simulated / expected - 1.0).abs() < 0.05, "{simulated:.2} of {expected:.2} Gbit/s");
        assert!(down.dllp_bytes / down.total() < 0.03);
    }
}

/// Ten cores that fill new packets while a slow wire empties their rings wait for the wire, not for each other's memory.
#[test]
fn a_slow_wire_is_what_ten_cores_wait_for() {
    let text = r#"
name = "slow-wire"
summary = "pktgen on a slow wire"
switch = [{ name = "s", ports = 2, rate = "400 Gbit/s" }]
cable = [{ ends = ["a", "s"], rate = "10 Gbit/s" }]
[[host]]
name = "a"
machine = "dell-t620-ivy"
[[host.device]]
nic = "modern"
[[program]]
cpus = "0-9"
run = "pktgen -s 1020 -n 600 -t 10 -b 32"
"#;
    let done = run(&loaded(text), &Silent).unwrap();
    // 6,000 frames of 1,044 B with preamble and gap take 5 ms.
    let (sent, time) = (reading(&done, "sent"), reading(&done, "time"));
    assert!(sent == 6000.0 && (4800.0..5600.0).contains(&time), "{sent} in {time} us");
}

/// The card goes while pktgen sends: what it has sent counts, and the rest has gone with it.
#[test]
fn packets_that_were_sent_before_a_card_went_are_counted() {
    let text = include_str!("../../../scenarios/pktgen.toml");
    let run_line = text.lines().find(|line| line.starts_with("run = \"pktgen")).unwrap();
    let text = text.replace(run_line, "run = \"pktgen -i eth0 -s 60 -n 30000 -c 1000 -b 32\"")
        + "[[event]]\nat = \"500 us\"\ndo = \"remove\"\nwhat = \"a:eth0\"\n";
    let done = run(&loaded(&text), &Silent).unwrap();
    let report = done.iter().find(|done| done.run.starts_with("pktgen")).unwrap().outcome.as_ref().unwrap();
    let sent = report.get("sent").unwrap();
    let notes = report.notes.join("; ");
    assert!((500.0..29_000.0).contains(&sent), "{sent}: {notes}");
    assert!(notes.contains("lost when the device was reset or removed"), "{notes}");
}

/// What a card gave up and what it dropped is shown, here nothing.
#[test]
fn ethtool_shows_what_a_card_dropped() {
    let text = include_str!("../../../scenarios/kpio-send.toml").replace("-n 10 -w 20000", "-n 500")
        + "[[program]]\ncpus = \"1\"\nstart = \"2 ms\"\nrun = \"ethtool -S eth0\"\n";
    let done = run(&loaded(&text), &Silent).unwrap();
    let shown = |name: &str| done[1].outcome.as_ref().unwrap().get(name);
    assert_eq!(shown("tx_frames_sent"), Some(500.0), "{done:?}");
    for name in ["tx_kpio_dropped", "tx_kpio_missing", "tx_kpio_waits", "rx_no_buffer", "rx_overflow"] {
        assert_eq!(shown(name), Some(0.0), "{name}: {done:?}");
    }
}

/// Each of them is shown where it happens.
#[test]
fn ethtool_shows_each_loss() {
    // To the card's other port, so that reception is hurried as well.
    let there = "pktgen -i eth0 -m 02:00:00:00:00:02 -s 1000 -n 500";
    let late = "change.host.core.combining_order = \"any\"";
    let patience = "change.kpio.patience = \"50 ns\"";
    let shown = |name: &str, host: &str, device: &str, run: &str| {
        let text = format!(
            "name = \"losses\"\nsummary = \"What is lost is shown\"\n\
             [[host]]\nname = \"a\"\nmachine = \"i5-2400s\"\n{host}\nnic_driver.kpio = \"all\"\n\
             [[host.device]]\nnic = \"kpio-fpga\"\n{device}\n\
             [[program]]\ncpus = \"0-1\"\nstart = \"100 us\"\nrun = \"{run}\"\n\
             [[program]]\ncpus = \"3\"\nstart = \"6 ms\"\nrun = \"ethtool -S eth0\"\n\
             [[program]]\ncpus = \"3\"\nstart = \"6 ms\"\nrun = \"ethtool -S eth1\"\n"
        );
        let done = nearfar::computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let port = if name.starts_with("rx") { "ethtool -S eth1" } else { "ethtool -S eth0" };
        let shown = done.iter().find(|done| done.run == port).unwrap();
        shown.outcome.as_ref().unwrap().get(name).unwrap_or_else(|| panic!("{name} in {shown:?}"))
    };
    for name in ["tx_kpio_dropped", "tx_kpio_missing", "tx_kpio_waits"] {
        assert!(shown(name, late, patience, there) > 0.0, "{name}");
        assert_eq!(shown(name, late, "", there), 0.0, "{name} with the card's patience");
    }
    let longer = there.replace("1000", "1500");
    assert_eq!(shown("tx_kpio_too_long", "", "change.kpio.lines = 16", &longer), 500.0);
    let two =
        "change.controller.tx_queues = 2\nchange.controller.rx_queues = 2\nchange.controller.vectors = 8";
    let both = format!("{there} -t 2");
    assert!(shown("tx_kpio_no_queue", "nic_driver.channels = 2", two, &both) > 0.0);
    assert!(shown("rx_overflow", "", "change.rx.memory = \"512 B\"", there) > 0.0);
    assert!(shown("rx_no_buffer", "", "change.controller.ring_entries = 16", there) > 0.0);
}

/// Frames that a cable damages, and frames for another address, are dropped by the NIC that gets them, and shown.
#[test]
fn ethtool_shows_what_the_receiver_dropped() {
    let hosts = scenario::two_hosts("corruption = 0.05");
    let shown = |name: &str, mac: &str| {
        let text = format!(
            "{hosts}[[program]]\nhost = \"a\"\nrun = \"pktgen -m {mac} -s 60 -n 2000\"\n\
             [[program]]\nhost = \"b\"\nstart = \"2 ms\"\nrun = \"ethtool -S eth0\"\n"
        );
        let done = nearfar::computer::run(&loaded(&text), &Silent).unwrap_or_else(|error| panic!("{error}"));
        let shown = done.iter().find(|done| done.run.starts_with("ethtool")).unwrap();
        shown.outcome.as_ref().unwrap().get(name).unwrap_or_else(|| panic!("{name} in {shown:?}"))
    };
    let damaged = shown("rx_crc_errors", "ff:ff:ff:ff:ff:ff");
    assert!((50.0..200.0).contains(&damaged), "{damaged} of 2000 are damaged at 5 %");
    assert!(shown("rx_filtered", "02:00:00:00:00:99") > 1_500.0);
}

/// The looped card carries a ping and a stream between its interfaces, by programmed I/O alone.
#[test]
fn the_looped_card_carries_ping_and_stream() {
    let done = run(&loaded(include_str!("../../../scenarios/kpio-ping.toml")), &Silent).unwrap();
    let ping = done.iter().find(|done| done.run.starts_with("ping")).unwrap();
    assert_eq!(ping.outcome.as_ref().unwrap().get("received"), Some(5.0), "{done:?}");
    let stream = done.iter().find(|done| done.run.starts_with("iperf -c")).unwrap();
    assert!(stream.outcome.as_ref().unwrap().get("bandwidth").unwrap() > 1000.0, "{done:?}");
}

/// TCP brings all of a stream through a card that gives lines up before they come.
#[test]
fn tcp_recovers_what_a_card_dropped() {
    let text = include_str!("../../../scenarios/kpio-ping.toml")
        .replace("[host.nic_driver]", "change.host.core.combining_order = \"any\"\n[host.nic_driver]")
        .replace("[[host.device]]", "[[host.device]]\nchange.kpio.patience = \"1 us\"");
    let text = text + "[[program]]\ncpus = \"2\"\nstart = \"2 s\"\nrun = \"ethtool -S eth0\"\n";
    let done = run(&loaded(&text), &Silent).unwrap();
    let of = |program: &str, name: &str| {
        let done = done.iter().find(|done| done.run.starts_with(program)).unwrap();
        done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}")).get(name)
    };
    assert!(of("ethtool", "tx_kpio_dropped").unwrap() > 0.0, "{done:?}");
    // It ends when the other side has taken everything in.
    assert!(of("iperf -c", "bandwidth").unwrap() > 0.0, "{done:?}");
}

/// What was written into a card is counted when it has left, in both formats.
#[test]
fn pktgen_waits_for_what_a_card_still_has() {
    for format in ["signature", "framed"] {
        let text = include_str!("../../../scenarios/kpio-send.toml")
            .replace("\"signature\"", &format!("{format:?}"))
            .replace("-n 10 -w 20000", "-n 500");
        let done = run(&loaded(&text), &Silent).unwrap();
        assert_eq!(reading(&done, "sent"), 500.0, "{done:?}");
        let notes = done[0].outcome.as_ref().unwrap().notes.join("; ");
        assert!(!notes.contains("not sent"), "{notes}");
        let rate = 500.0 / reading(&done, "time");
        assert!((reading(&done, "rate") / rate - 1.0).abs() < 1e-6, "{done:?}");
    }
}

#[test]
fn a_scenario_captures_what_its_ports_see() {
    let folder = tempfile::tempdir().unwrap();
    let file = "capture.pcapng";
    let text = format!(
        r#"
name = "captured"
summary = "pktgen through a switch, captured at three ports"
switch = [{{ name = "s" }}]
cable = [{{ ends = ["a", "s"] }}, {{ ends = ["s", "b:1"] }}]
capture = [{{ port = "a", file = {file:?} }}, {{ port = "s:1", file = {file:?} }}, {{ port = "b:1", file = {file:?} }}]
[[host]]
name = "a"
machine = "dell-t430"
device = [{{ nic = "connectx4" }}]
[[host]]
name = "b"
machine = "dell-t430"
device = [{{ nic = "82599" }}]
[[program]]
host = "a"
run = "pktgen -n 10 -s 100 -m 02:00:00:01:00:02"
"#
    );
    let setup = ComputerSetup { folder: files::Folder::new(folder.path()), ..loaded(&text) };
    let done = run(&setup, &Silent).unwrap();
    let notes = &done[0].outcome.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("DLLPs")), "{notes:?}");
    let path = folder.path().join(file);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header of pcapng");
    // The next run replaces it, and nothing that others wrote.
    run(&setup, &Silent).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    std::fs::write(&path, "mine").unwrap();
    let refused = run(&setup, &Silent).unwrap_err().to_string();
    assert!(refused.contains("not a capture that nearfar wrote"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

/// One host with a NIC, with these lines for it and its driver, and a command.
fn alone(cable: &str, lines: &str, command: &str) -> Vec<FinishedProgram> {
    let machine = if lines.contains("fpga") { "i5-2400s" } else { "dell-t430" };
    let text = format!(
        r#"
name = "alone"
summary = "pktgen"
switch = [{{ name = "s", ports = 2 }}]
{cable}
[[host]]
name = "a"
machine = "{machine}"
{lines}
[[program]]
cpus = "0-3"
run = "{command}"
"#
    );
    run(&loaded(&text), &Silent).unwrap()
}

const CABLE: &str = r#"cable = [{ ends = ["a", "s"] }]"#;

#[test]
fn what_limits_is_named_and_possible() {
    let kpio = "device = [{ nic = \"kpio-fpga\" }]\nnic_driver = { kpio = \"all\" }";
    let slow = r#"
[[host.device]]
nic = "modern"
change.controller.ring_entries = { value = 16, source = "assumed: short" }
change.tx.latency = { value = "20 us", source = "assumed: long" }"#;
    let cases = [
        ("wire", "device = [{ nic = \"82599\" }]", "pktgen -s 1500 -n 2000", "binds: the Ethernet of a"),
        ("core", "device = [{ nic = \"modern\" }]", "pktgen -n 2000", "binds: a's core0"),
        ("queue", slow, "pktgen -n 1000", "binds: a's eth0, its tx ring 0"),
        ("lines", kpio, "pktgen -s 252 -n 2000 -t 4", ""),
    ];
    for (name, lines, command, expected) in cases {
        // The paper's card is looped.
        let done = alone(if name == "lines" { "" } else { CABLE }, lines, command);
        let notes = done[0].outcome.as_ref().unwrap().notes.join("\n");
        println!("{name}: {:?}\n{notes}", done[0].outcome);
        assert!(notes.contains(expected), "{name}: {notes}");
        assert_eq!(notes.contains("the closed form (`nearfar model`)"), name != "lines", "{name}: {notes}");
        // The raw rate of the slot's link, Gen3 x8.
        let carried = notes.split(" Gbit/s of such packets").next().unwrap().split(' ').next_back().unwrap();
        assert!(carried.parse::<f64>().unwrap() < 63.0, "{name}: {notes}");
    }
}

/// Frames on the first cable.
#[derive(Default)]
struct OnTheWire(u64);

impl Observer for OnTheWire {
    fn booted(&mut self, _: &Computers) {}
    fn has_enough(&self) -> bool {
        false
    }
    fn ended(&mut self, computers: &Computers) {
        let cable = computers.cables[0];
        self.0 = computers
            .simulation()
            .with(|fabric, _| fabric.wires.ethernet.sent(CableEnd { cable, end: 0 }).frames);
    }
}

/// Cores that share a sending queue ring its doorbell in the order in which they hold its lock, although each core's uncached
/// stores take their time to leave.
#[test]
fn cores_that_share_a_queue_lose_no_frame() {
    for (threads, burst) in [(1, 1), (2, 1), (4, 1), (3, 8)] {
        let text = format!(
            r#"
name = "shared"
summary = "pktgen on several cores, one sending queue"
switch = [{{ name = "s", ports = 2 }}]
cable = [{{ ends = ["a", "s"] }}]
[[host]]
name = "a"
machine = "dell-t430"
[[host.device]]
nic = "modern"
change.controller.tx_queues = {{ value = 1, source = "assumed: fewer than cores" }}
change.controller.rx_queues = {{ value = 1, source = "assumed: fewer than cores" }}
[[program]]
cpus = "0-3"
run = "pktgen -s 1400 -n 500 -t {threads} -b {burst}"
"#
        );
        let mut wire = OnTheWire::default();
        let done = run_watched(&loaded(&text), &Silent, &mut wire).unwrap();
        assert_eq!(wire.0, 500 * threads, "{threads} threads, {:?}", done[0].outcome);
    }
}
