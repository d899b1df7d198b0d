//! Virtual functions: the internal switch between them, the physical function and the wire; restrictions.

use devices::nic::{NicHandle, VirtualParams};
use platform::device::{FunctionIndex, Reset};
use proptest::prelude::*;
use units::Duration;
use wire::ethernet::MacAddr;
use wire::nic::TxDescriptor;
use wire::nic::descriptor::THROUGH_FUNCTION;
use wire::nic::registers::{self as regs, control, counter, feature, flow, queue};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::{NicParams, frame, mac, pair_of};

/// Functions of device 0: the physical one and two virtual ones.
const FUNCTIONS: u8 = 3;

/// A NIC with virtual functions (device 0), connected to a plain one (device 1).
fn shared() -> (Bench, [NicHandle; 2]) {
    let mut params = NicParams::modern(mac(1));
    params.virtual_functions = Some(VirtualParams { count: 2, queues: 2, vectors: 3, device: 2 });
    pair_of(params, NicParams::modern(mac(2)))
}

fn address(bench: &mut Bench, device: usize, function: u8) -> MacAddr {
    let low = bench.read32(device, function, regs::MAC).to_le_bytes();
    let high = bench.read32(device, function, regs::MAC + 4).to_le_bytes();
    MacAddr([low[0], low[1], low[2], low[3], high[0], high[1]])
}

/// One queue in each direction at every function: the shared NIC's, and last the other NIC's.
struct Ends {
    tx: Vec<Queue>,
    rx: Vec<Queue>,
    macs: Vec<MacAddr>,
}

impl Ends {
    fn new(bench: &mut Bench) -> Self {
        let places: Vec<(usize, u8)> = (0..FUNCTIONS).map(|f| (0, f)).chain([(1, 0)]).collect();
        let mut ends = Self { tx: Vec::new(), rx: Vec::new(), macs: Vec::new() };
        for (device, function) in places {
            enable(bench, device, function, feature::ALL_GROUPS);
            ends.tx.push(Queue::start(bench, (device, function, 0, true), 6, queue::TO_RING));
            let mut rx = Queue::start(bench, (device, function, 0, false), 6, queue::TO_RING);
            rx.give(bench, 64);
            ends.rx.push(rx);
            ends.macs.push(address(bench, device, function));
        }
        ends
    }

    /// Sends a frame from one of them. Returns the number of frames that each received.
    fn send(&mut self, bench: &mut Bench, from: usize, source: MacAddr, to: MacAddr) -> Vec<usize> {
        let mut bytes = frame(0, to, 80, from as u32);
        bytes[6..12].copy_from_slice(&source.0);
        self.tx[from].send(bench, &bytes, 2000, TxDescriptor::default());
        self.tx[from].ring_doorbell(bench);
        bench.run_for(Duration::from_us(20));
        while self.tx[from].poll(bench).is_some() {}
        let mut counts = Vec::new();
        for rx in &mut self.rx {
            let mut count = 0;
            while let Some((received, _)) = rx.receive(bench) {
                assert!(received == bytes, "a frame arrives as it was sent");
                count += 1;
            }
            rx.give(bench, count);
            counts.push(count.into());
        }
        counts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Each frame arrives exactly where it is addressed: at one function, at all but its sender, or at the wire. The
    /// wire only sees frames for addresses outside or for all.
    #[test]
    fn the_switch_joins_functions_and_wire(ways in proptest::collection::vec((0usize..4, 0usize..6), 1..20)) {
        let (mut bench, _) = shared();
        let mut ends = Ends::new(&mut bench);
        prop_assert_eq!(ends.macs.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        for (from, to) in ways {
            let (source, sent) = (ends.macs[from], bench.world.sent.len());
            let destination = match to {
                4 => MacAddr::BROADCAST,
                5 => MacAddr([1, 0, 0x5e, 0, 0, 9]),
                to => ends.macs[to],
            };
            let expected: Vec<usize> =
                (0..4).map(|end| usize::from(end != from && (to >= 4 || end == to))).collect();
            let counts = ends.send(&mut bench, from, source, destination);
            let on_wire = bench.world.sent.len() - sent;
            prop_assert_eq!(counts, expected, "from {} to {}", from, to);
            let stays_inside = from < 3 && to < 3 && from != to;
            prop_assert_eq!(on_wire, usize::from(!stays_inside));
        }
    }
}

#[test]
fn a_virtual_function_has_less_and_no_say() {
    let (mut bench, handles) = shared();
    let mut ends = Ends::new(&mut bench);
    assert_eq!(bench.read32(0, 1, regs::QUEUES), 2 | 2 << 16);
    assert_eq!(bench.read32(0, 1, regs::LIMITS) & 0xffff, 3);
    // No promiscuous mode, no other address, no rules of the internal switch.
    enable(&mut bench, 0, 1, feature::PROMISCUOUS | feature::ALL_GROUPS);
    assert_eq!(bench.read32(0, 1, regs::ENABLED), feature::ALL_GROUPS);
    let (own, other) = (ends.macs[1], ends.macs[2]);
    bench.write(0, 1, regs::MAC, &[9; 8]);
    assert_eq!(address(&mut bench, 0, 1), own);
    bench.write32(0, 1, flow::COMMAND, flow::CLEAR | flow::SWITCH);
    assert_eq!(bench.read32(0, 1, flow::RESULT), flow::RESULT_UNKNOWN);
    let (wire, physical) = (ends.macs[3], ends.macs[0]);
    assert_eq!(ends.send(&mut bench, 3, wire, other), [0, 0, 1, 0]);
    // No foreign source address.
    assert_eq!(ends.send(&mut bench, 1, physical, wire), [0; 4]);
    assert_eq!(handles[0].counter(FunctionIndex(1), counter::TX_SPOOFED), 1);
    // No reads through another function: the fragment names the physical function, whose requester ID has access to
    // other memory.
    let errors = handles[0].counter(FunctionIndex(1), counter::TX_ERRORS);
    let head = TxDescriptor { flags: THROUGH_FUNCTION, function: 0, ..TxDescriptor::default() };
    let bytes = frame(0, wire, 80, 0);
    ends.tx[1].send(&mut bench, &bytes, 2000, head);
    ends.tx[1].ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(20));
    assert_eq!(handles[0].counter(FunctionIndex(1), counter::TX_ERRORS), errors + 1);
}

#[test]
fn a_function_in_loopback_hears_itself_and_nobody_else() {
    let (mut bench, handles) = shared();
    let mut ends = Ends::new(&mut bench);
    let (own, other, all) = (ends.macs[1], ends.macs[2], MacAddr::BROADCAST);
    bench.write32(0, 1, regs::CONTROL, control::ENABLE | control::LOOPBACK);
    assert_eq!(bench.read32(0, 1, regs::CONTROL), control::ENABLE | control::LOOPBACK);
    let on_wire = bench.world.sent.len();
    for to in [own, other, all, ends.macs[3]] {
        assert_eq!(ends.send(&mut bench, 1, own, to), [0, 1, 0, 0], "to {to}");
    }
    assert_eq!(bench.world.sent.len(), on_wire);
    // Nobody reaches it.
    assert_eq!(ends.send(&mut bench, 2, other, own), [0, 0, 0, 0]);
    assert_eq!(ends.send(&mut bench, 3, ends.macs[3], own), [0, 0, 0, 0]);
    assert_eq!(ends.send(&mut bench, 0, ends.macs[0], all), [0, 0, 1, 1]);
    assert_eq!(handles[0].counter(FunctionIndex(1), counter::TX_FRAMES), 4);
    bench.write32(0, 1, regs::CONTROL, control::ENABLE);
    assert_eq!(ends.send(&mut bench, 2, other, own), [0, 1, 0, 0]);
    assert_eq!(ends.send(&mut bench, 1, own, own), [0, 0, 0, 0]);
}

#[test]
fn the_reset_of_one_is_nothing_to_the_others() {
    let (mut bench, _) = shared();
    let mut ends = Ends::new(&mut bench);
    bench.with(0, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(1))));
    let macs = ends.macs.clone();
    assert_eq!(ends.send(&mut bench, 0, macs[0], macs[2]), [0, 0, 1, 0]);
    assert_eq!(ends.send(&mut bench, 2, macs[2], macs[3]), [0, 0, 0, 1]);
    // Its address is no longer known, so the frame goes to the wire.
    let sent = bench.world.sent.len();
    assert_eq!(ends.send(&mut bench, 0, macs[0], macs[1]), [0; 4]);
    assert_eq!(bench.world.sent.len(), sent + 1);
    // It restarts with its former address.
    enable(&mut bench, 0, 1, 0);
    ends.rx[1] = Queue::start(&mut bench, (0, 1, 0, false), 6, queue::TO_RING);
    ends.rx[1].give(&mut bench, 8);
    assert_eq!(ends.send(&mut bench, 3, macs[3], macs[1]), [0, 1, 0, 0]);
}
