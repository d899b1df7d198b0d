//! Steering of frames to queues and functions.

use devices::nic::NicFunctionParams;
use platform::device::{FunctionIndex, PortIndex};
use platform::ethernet::EthernetPort;
use units::Duration;
use wire::ethernet::MacAddr;
use wire::ip::Dissection;
use wire::nic::completion::{HASHED, HASHED_PORTS, STEERED};
use wire::nic::registers::{self as regs, counter, feature, flow, queue, rss};
use wire::nic::toeplitz::EXAMPLE_KEY;
use wire::nic::{Toeplitz, TxDescriptor};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::{A, B, NicParams, datagram, frame, mac, pair, pair_of};

fn add_rule(bench: &mut Bench, ports: (u16, u16), rule: u32, target: u32, command: u32) -> u32 {
    add_rule_by(bench, 0, ports, rule, target, command)
}

/// Issues a command of a function of the second device.
pub fn add_rule_by(
    bench: &mut Bench,
    function: u8,
    ports: (u16, u16),
    rule: u32,
    target: u32,
    command: u32,
) -> u32 {
    let words = [
        (flow::SOURCE, u32::from_le_bytes(A.octets())),
        (flow::DESTINATION, u32::from_le_bytes(B.octets())),
        (flow::PORTS, u32::from(ports.0) | u32::from(ports.1) << 16),
        (flow::PROTOCOL, 17),
        (flow::RULE, rule),
        (flow::TARGET, target),
        (flow::COMMAND, command),
    ];
    for (at, value) in words {
        bench.write32(1, function, at, value);
    }
    bench.read32(1, function, flow::RESULT)
}

#[test]
fn the_hash_chooses_the_queue_and_rules_go_before_it() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, feature::RSS | feature::FLOW_RULES);
    for (n, word) in EXAMPLE_KEY.chunks(4).enumerate() {
        bench.write(1, 0, regs::RSS_KEY + 4 * n as u64, word);
    }
    bench.write32(1, 0, regs::RSS_TYPES, rss::ADDRESSES | rss::UDP);
    let entries = u64::from(bench.read32(1, 0, regs::TABLES) >> 16);
    for entry in 0..entries {
        bench.write32(1, 0, regs::RSS_TABLE + 4 * entry, (entry % 4) as u32);
    }
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut queues: Vec<Queue> =
        (0..4).map(|n| Queue::start(&mut bench, (1, 0, n, false), 6, queue::TO_RING)).collect();
    for rx in &mut queues {
        rx.give(&mut bench, 64);
    }
    assert_eq!(add_rule(&mut bench, (1003, 9), 5, 2, flow::ADD), flow::RESULT_OK);
    assert_eq!(add_rule(&mut bench, (1003, 9), 5, 64, flow::ADD), flow::RESULT_RANGE);
    assert_eq!(add_rule(&mut bench, (1003, 9), 1 << 14, 2, flow::ADD), flow::RESULT_RANGE);
    let key = Toeplitz::new(&EXAMPLE_KEY);
    let mut used = [0; 4];
    for port in 1000..1050 {
        let frame = datagram((port, 9), &[0; 20]);
        tx.send(&mut bench, &frame, 2000, TxDescriptor::default());
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(20));
        while tx.poll(&mut bench).is_some() {}
        let hash = key.hash_flow(&Dissection::of(&frame).unwrap().flow, true);
        let is_steered = port == 1003;
        let queue = if is_steered { 2 } else { hash as usize & (entries as usize - 1) & 3 };
        let (_, completion) = queues[queue].receive(&mut bench).expect("at that queue");
        assert_eq!(completion.hash, hash);
        assert!(completion.has(HASHED | HASHED_PORTS));
        assert_eq!((completion.has(STEERED), completion.rule), (is_steered, if is_steered { 5 } else { 0 }));
        used[queue] += 1;
    }
    assert!(used.iter().all(|&n| n > 4), "{used:?}");
    bench.run_for(Duration::from_us(1000));
    assert_eq!(add_rule(&mut bench, (0, 0), 5, 0, flow::QUERY), flow::RESULT_OK);
    let (age, hits) = (bench.read32(1, 0, flow::AGE_US), bench.read32(1, 0, flow::HITS));
    assert!((1900..2000).contains(&age) && hits == 1, "{age} µs, {hits} hits");
    assert_eq!(add_rule(&mut bench, (0, 0), 5, 0, flow::REMOVE), flow::RESULT_OK);
    assert_eq!(add_rule(&mut bench, (0, 0), 5, 0, flow::QUERY), flow::RESULT_NONE);
}

/// A NIC with two ports and a function each.
pub fn two_ports(macs: [MacAddr; 2]) -> NicParams {
    let mut nic = NicParams::modern(macs[0]);
    let function = |(n, mac)| NicFunctionParams { pcie_port: PortIndex(0), port: EthernetPort(n), mac };
    (nic.ports, nic.functions) = (2, (0..2).zip(macs).map(function).collect());
    nic
}

/// A NIC with two functions behind one port.
pub fn two_functions(macs: [MacAddr; 2]) -> (Bench, [devices::nic::NicHandle; 2]) {
    two_functions_with(macs, |_| {})
}

pub fn two_functions_with(
    macs: [MacAddr; 2],
    change: impl FnOnce(&mut NicParams),
) -> (Bench, [devices::nic::NicHandle; 2]) {
    let mut two = NicParams::modern(macs[0]);
    change(&mut two);
    let mut second = two.functions[0];
    second.mac = macs[1];
    two.functions.push(second);
    let (mut bench, handles) = pair_of(NicParams::modern(mac(1)), two);
    for (device, function) in [(0, 0), (1, 0), (1, 1)] {
        enable(&mut bench, device, function, 0);
    }
    (bench, handles)
}

#[test]
fn the_internal_switch_knows_its_functions() {
    let (mut bench, handles) = two_functions([mac(2), mac(3)]);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut inner = Queue::start(&mut bench, (1, 0, 0, true), 6, queue::TO_RING);
    let mut rx: Vec<Queue> =
        (0..2).map(|f| Queue::start(&mut bench, (1, f, 0, false), 6, queue::TO_RING)).collect();
    rx.iter_mut().for_each(|rx| rx.give(&mut bench, 32));
    let mut arrivals = |bench: &mut Bench| {
        bench.run_for(Duration::from_us(20));
        [0, 1].map(|f: usize| std::iter::from_fn(|| rx[f].receive(bench)).count())
    };
    for (to, expected) in [(mac(2), [1, 0]), (mac(3), [0, 1]), (mac(4), [0, 0]), (MacAddr::BROADCAST, [1, 1])]
    {
        tx.send(&mut bench, &frame(1, to, 60, 0), 64, TxDescriptor::default());
        tx.ring_doorbell(&mut bench);
        assert_eq!(arrivals(&mut bench), expected, "to {to}");
    }
    assert_eq!(handles[1].counter(FunctionIndex(0), counter::RX_FILTERED), 1);
    // From function 0 to function 1: not over the wire. Broadcast: to both.
    let before = bench.world.sent.len();
    for (to, expected, wire) in [(mac(3), [0, 1], 0), (MacAddr::BROADCAST, [0, 1], 1), (mac(2), [0, 0], 1)] {
        inner.send(&mut bench, &frame(2, to, 60, 0), 64, TxDescriptor::default());
        inner.ring_doorbell(&mut bench);
        assert_eq!(arrivals(&mut bench), expected, "to {to}");
        let _ = wire;
    }
    assert_eq!(bench.world.sent.len() - before, 2);
}

#[test]
fn functions_with_one_address_are_told_apart_by_rules() {
    let (mut bench, _) = two_functions([mac(2), mac(2)]);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx: Vec<Queue> =
        (0..2).map(|f| Queue::start(&mut bench, (1, f, 0, false), 6, queue::TO_RING)).collect();
    rx.iter_mut().for_each(|rx| rx.give(&mut bench, 32));
    assert_eq!(add_rule(&mut bench, (8, 9), 0, 1, flow::ADD | flow::SWITCH), flow::RESULT_OK);
    assert_eq!(add_rule(&mut bench, (8, 9), 0, 2, flow::ADD | flow::SWITCH), flow::RESULT_RANGE);
    for (port, expected) in [(7, [1, 0]), (8, [0, 1])] {
        tx.send(&mut bench, &datagram((port, 9), &[0; 20]), 2000, TxDescriptor::default());
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(20));
        assert_eq!([0, 1].map(|f: usize| std::iter::from_fn(|| rx[f].receive(&mut bench)).count()), expected);
    }
}

#[test]
fn ports_are_apart() {
    let params = two_ports([mac(2), mac(3)]);
    assert_eq!(
        params.functions.iter().map(|f| f.port).collect::<Vec<_>>(),
        [EthernetPort(0), EthernetPort(1)]
    );
    let (mut bench, handles) = pair_of(NicParams::modern(mac(1)), params);
    enable(&mut bench, 1, 0, 0);
    enable(&mut bench, 1, 1, 0);
    let mut second = Queue::start(&mut bench, (1, 1, 0, false), 6, queue::TO_RING);
    second.give(&mut bench, 8);
    let mut bytes = frame(1, mac(3), 60, 0);
    wire::ethernet::append_fcs(&mut bytes);
    bench.run_for(Duration::from_us(5));
    bench.inject(1, 0, &bytes);
    bench.inject(1, 1, &bytes);
    bench.run_for(Duration::from_us(5));
    assert_eq!(std::iter::from_fn(|| second.receive(&mut bench)).count(), 1);
    assert_eq!(handles[1].counter(FunctionIndex(0), counter::RX_FILTERED), 1);
}
