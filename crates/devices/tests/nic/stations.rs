//! Functions that share an address: one station with several links (IOctopus, 3.3 and 4.1).

use std::cell::Cell;

use devices::nic::{NicHandle, NicParams};
use platform::device::{FunctionIndex, Reset};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use units::Duration;
use wire::ethernet::MacAddr;
use wire::nic::TxDescriptor;
use wire::nic::registers::{counter, feature, flow, queue};

use super::bench::{Asked, Bench};
use super::driver::{Queue, enable};
use super::steering::{add_rule_by, two_functions_with};
use super::{datagram, frame, mac};

const ADD: u32 = flow::ADD | flow::SWITCH;

struct Station {
    bench: Bench,
    handles: [NicHandle; 2],
    tx: Queue,
    rx: Vec<Queue>,
}

impl Station {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut NicParams)) -> Self {
        let (mut bench, handles) = two_functions_with([mac(2), mac(2)], change);
        let tx = Queue::start(&mut bench, (0, 0, 0, true), 8, queue::TO_RING);
        let mut rx: Vec<Queue> =
            (0..2).map(|f| Queue::start(&mut bench, (1, f, 0, false), 8, queue::TO_RING)).collect();
        rx.iter_mut().for_each(|rx| rx.give(&mut bench, 240));
        Self { bench, handles, tx, rx }
    }

    fn send(&mut self, frame: &[u8]) {
        while self.tx.poll(&mut self.bench).is_some() {}
        self.tx.send(&mut self.bench, frame, 2000, TxDescriptor::default());
        self.tx.ring_doorbell(&mut self.bench);
    }

    /// Frames received by each function.
    fn arrivals(&mut self) -> [usize; 2] {
        self.bench.run_for(Duration::from_us(20));
        [0, 1].map(|f: usize| std::iter::from_fn(|| self.rx[f].receive(&mut self.bench)).count())
    }
}

#[test]
fn what_is_for_many_comes_once() {
    let mut station = Station::new();
    station.send(&frame(1, MacAddr::BROADCAST, 60, 0));
    assert_eq!(station.arrivals(), [1, 0]);
    // A station does not receive its own frames.
    let mut own = Queue::start(&mut station.bench, (1, 0, 0, true), 6, queue::TO_RING);
    own.send(&mut station.bench, &frame(2, MacAddr::BROADCAST, 60, 0), 64, TxDescriptor::default());
    own.ring_doorbell(&mut station.bench);
    assert_eq!(station.arrivals(), [0, 0]);
}

#[test]
fn no_function_needs_the_first_one() {
    let mut station = Station::new();
    // Both have a rule with number 0, and both rules count.
    assert_eq!(add_rule_by(&mut station.bench, 0, (7, 9), 0, 1, ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 1, (8, 9), 0, 1, ADD), flow::RESULT_OK);
    for port in [7, 8] {
        station.send(&datagram((port, 9), &[0; 20]));
        assert_eq!(station.arrivals(), [0, 1], "{port}");
    }
    // Each part of the table has a limited size.
    let each = 8192;
    assert_eq!(add_rule_by(&mut station.bench, 1, (9, 9), each - 1, 1, ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 1, (9, 9), each, 1, ADD), flow::RESULT_RANGE);
    // A reset removes the function's own rules, and flows without a rule go to the other function.
    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(0))));
    for (port, expected) in [(7, [0, 1]), (8, [0, 1]), (10, [0, 1])] {
        station.send(&datagram((port, 9), &[0; 20]));
        assert_eq!(station.arrivals(), expected, "{port}");
    }
    enable(&mut station.bench, 1, 0, 0);
    station.rx[0] = Queue::start(&mut station.bench, (1, 0, 0, false), 8, queue::TO_RING);
    station.rx[0].give(&mut station.bench, 64);
    // Flows without a rule stay where they are: what they have there may still be on its way.
    for port in [7, 8] {
        station.send(&datagram((port, 9), &[0; 20]));
        assert_eq!(station.arrivals(), [0, 1], "{port}");
    }
    // A rule for a stopped function is ignored.
    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(1))));
    station.send(&datagram((8, 9), &[0; 20]));
    assert_eq!(station.arrivals(), [1, 0]);
    assert_eq!(station.handles[1].counter(FunctionIndex(1), counter::RX_NO_QUEUE), 0);
}

/// A function that was reset and has a flow's rule again writes nothing of it before what the function that stood in has
/// written is in memory.
#[test]
fn a_function_that_comes_back_passes_nothing() {
    let mut station = Station::new();
    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(0))));
    station.send(&datagram((7, 9), &[0; 40]));
    assert_eq!(station.arrivals(), [0, 1]);
    enable(&mut station.bench, 1, 0, 0);
    station.rx[0] = Queue::start(&mut station.bench, (1, 0, 0, false), 8, queue::TO_RING);
    station.rx[0].give(&mut station.bench, 64);
    assert_eq!(add_rule_by(&mut station.bench, 0, (7, 9), 0, 0, ADD), flow::RESULT_OK);
    station.send(&datagram((7, 9), &[0; 40]));
    assert_eq!(station.arrivals(), [1, 0]);
    assert_eq!(fences_stand(&station.bench.world.log), Ok(1));
}

/// The flow belongs to the function whose rule came last. The other function's removal of its own rule has no effect on
/// it.
#[test]
fn a_flow_has_one_rule() {
    let mut station = Station::new();
    assert_eq!(add_rule_by(&mut station.bench, 0, (7, 9), 3, 0, ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 5, 1, ADD), flow::RESULT_OK);
    let gone = add_rule_by(&mut station.bench, 0, (0, 0), 3, 0, flow::REMOVE | flow::SWITCH);
    assert_eq!(gone, flow::RESULT_NONE);
    station.send(&datagram((7, 9), &[0; 20]));
    assert_eq!(station.arrivals(), [0, 1]);
}

/// The old function's rule goes while frames of the flow wait at its queue: those that follow wait behind them, and go to no
/// other queue of that function.
#[test]
fn a_rule_that_goes_early_reorders_nothing() {
    let mut station = Station::new();
    (0..2).for_each(|function| enable(&mut station.bench, 1, function, feature::FLOW_RULES));
    let mut old = Queue::start(&mut station.bench, (1, 0, 1, false), 8, queue::TO_RING);
    assert_eq!(add_rule_by(&mut station.bench, 0, (7, 9), 0, 1, flow::ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 0, (7, 9), 0, 0, ADD), flow::RESULT_OK);
    let mut sent = 0u32;
    let mut send = |station: &mut Station, frames| {
        for _ in 0..frames {
            sent += 1;
            station.send(&datagram((7, 9), &sent.to_be_bytes().repeat(10)));
        }
        station.bench.run_for(Duration::from_us(5));
    };
    // The queue has buffers, and the device has not read yet where.
    station.bench.world.jitter = Duration::from_ms(1000);
    old.give(&mut station.bench, 64);
    station.bench.run_for(Duration::from_ns(1));
    station.bench.world.jitter = Duration::ZERO;
    send(&mut station, 3);
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 0, 0, flow::ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 0, 1, ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 0, (0, 0), 0, 0, flow::REMOVE), flow::RESULT_OK);
    send(&mut station, 3);
    station.bench.run_for(Duration::from_ms(1001));
    send(&mut station, 3);
    let by_hash = std::iter::from_fn(|| station.rx[0].receive(&mut station.bench)).count();
    let waited = std::iter::from_fn(|| old.receive(&mut station.bench)).count();
    assert_eq!((by_hash, waited, station.arrivals()), (0, 6, [0, 3]));
}

/// With one table of rules on the card, a rule names a queue of any function, whichever function it was made through. The card
/// looks up the function, which no rule names.
#[test]
fn a_rule_of_the_card_names_a_queue() {
    let mut station = Station::with(|nic| nic.features |= feature::GLOBAL_RULES);
    (0..2).for_each(|function| enable(&mut station.bench, 1, function, feature::FLOW_RULES));
    let add =
        |station: &mut Station, by, queue| add_rule_by(&mut station.bench, by, (7, 9), 3, queue, flow::ADD);
    assert_eq!(add(&mut station, 0, 5), flow::RESULT_RANGE, "no queue has the number");
    (0..2).for_each(|f| station.rx[f].set(&mut station.bench, queue::NUMBER, 4 + f as u32));
    // A number is one queue's.
    station.rx[0].set(&mut station.bench, queue::NUMBER, 5);
    for (by, number, expected) in [(0, 5, [0, 1]), (1, 4, [1, 0]), (0, 5, [0, 1])] {
        assert_eq!(add(&mut station, by, number), flow::RESULT_OK);
        station.send(&datagram((7, 9), &[0; 20]));
        assert_eq!(station.arrivals(), expected, "{by} {number}");
    }
    let switch = add_rule_by(&mut station.bench, 0, (8, 9), 0, 1, ADD);
    assert_eq!(switch, flow::RESULT_UNKNOWN, "there is no other table");
    // A reset takes the numbers of the function's queues, and its rules: the flow goes where others go.
    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(1))));
    station.send(&datagram((7, 9), &[0; 20]));
    assert_eq!(station.arrivals(), [1, 0]);
    assert_eq!(add(&mut station, 0, 5), flow::RESULT_RANGE);
    assert_eq!(add(&mut station, 0, 4), flow::RESULT_OK);
}

/// A flow that comes from another function goes to its queue at once, even if frames of others wait where its hash points:
/// none of them is its own.
#[test]
fn a_flow_that_comes_waits_for_no_others() {
    let mut station = Station::new();
    (0..2).for_each(|function| enable(&mut station.bench, 1, function, feature::FLOW_RULES));
    let mut own = Queue::start(&mut station.bench, (1, 1, 1, false), 8, queue::TO_RING);
    own.give(&mut station.bench, 64);
    let mut hashed = Queue::start(&mut station.bench, (1, 1, 0, false), 8, queue::TO_RING);
    station.bench.run_for(Duration::from_us(5));
    // The device has not read yet where the buffers are.
    station.bench.world.jitter = Duration::from_ms(1000);
    hashed.give(&mut station.bench, 64);
    station.bench.run_for(Duration::from_ns(1));
    station.bench.world.jitter = Duration::ZERO;
    assert_eq!(add_rule_by(&mut station.bench, 1, (8, 9), 1, 1, ADD), flow::RESULT_OK);
    station.send(&datagram((8, 9), &[0; 20]));
    station.send(&datagram((7, 9), &[0; 20]));
    assert_eq!(station.arrivals(), [1, 0], "one is elsewhere, one waits");
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 0, 1, flow::ADD), flow::RESULT_OK);
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 0, 1, ADD), flow::RESULT_OK);
    (0..3).for_each(|_| station.send(&datagram((7, 9), &[0; 20])));
    station.bench.run_for(Duration::from_us(20));
    assert_eq!(std::iter::from_fn(|| own.receive(&mut station.bench)).count(), 3);
    station.bench.run_for(Duration::from_ms(1001));
    assert_eq!(std::iter::from_fn(|| hashed.receive(&mut station.bench)).count(), 1);
}

/// Zero-length reads through a function, and writes through either, in order of completions and requests.
fn fences_stand(log: &[Asked]) -> Result<usize, String> {
    let (mut last, mut open, mut crossings) = (None, [false; 2], 0);
    for asked in log {
        match *asked {
            Asked::Answered(1, function, 0) => open[usize::from(function)] = true,
            // Frames; completions are shorter.
            Asked::Write(1, function, bytes) if bytes >= 60 => {
                if let Some(old) = last.filter(|&old| old != function) {
                    crossings += 1;
                    if !std::mem::take(&mut open[usize::from(old)]) {
                        return Err(format!("function {function} wrote before {old} was fenced"));
                    }
                }
                open = [false; 2];
                last = Some(function);
            }
            _ => {}
        }
    }
    Ok(crossings)
}

/// A flow that moves between functions under load: nothing is lost, and no function writes a frame before all writes of the
/// other, including completions, are in memory.
#[test]
fn no_function_passes_another() {
    let moves = proptest::collection::vec((1usize..20, 0u64..4000), 2..12);
    let crossings = Cell::new(0);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() });
    let all = runner.run(&(moves, any::<u64>()), |(moves, seed)| {
        let mut station = Station::new();
        station.bench.seed(seed);
        station.bench.world.jitter = Duration::from_ns(900);
        let (mut sent, mut seen) = (0u32, [Vec::new(), Vec::new()]);
        for (n, (frames, pause)) in moves.into_iter().enumerate() {
            let target = (n % 2) as u8;
            prop_assert_eq!(
                add_rule_by(&mut station.bench, target, (7, 9), 0, target.into(), ADD),
                flow::RESULT_OK
            );
            for _ in 0..frames {
                sent += 1;
                station.send(&datagram((7, 9), &sent.to_be_bytes().repeat(10)));
            }
            station.bench.run_for(Duration::from_ns(pause));
        }
        station.bench.run_for(Duration::from_us(50));
        for (rx, seen) in station.rx.iter_mut().zip(&mut seen) {
            while let Some((frame, _)) = rx.receive(&mut station.bench) {
                let number: [u8; 4] = frame[42..46].try_into().unwrap();
                seen.push(u32::from_be_bytes(number));
            }
            prop_assert!(seen.is_sorted());
        }
        let mut all = seen.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (1..=sent).collect::<Vec<_>>());
        let own = fences_stand(&station.bench.world.log).map_err(TestCaseError::fail)?;
        crossings.set(crossings.get() + own);
        Ok(())
    });
    all.unwrap_or_else(|failed| panic!("{failed}"));
    assert!(crossings.get() > 32, "{} crossings", crossings.get());
}

/// A frame that waits for a function is released when that function is reset.
#[test]
fn a_reset_ends_the_wait() {
    let mut station = Station::new();
    station.send(&datagram((7, 9), &[1; 40]));
    assert_eq!(station.arrivals(), [1, 0]);
    station.bench.world.jitter = Duration::from_ms(1000);
    assert_eq!(add_rule_by(&mut station.bench, 1, (7, 9), 0, 1, ADD), flow::RESULT_OK);
    station.bench.world.jitter = Duration::ZERO;
    station.send(&datagram((7, 9), &[2; 40]));
    // The frame is in the device, and the read through the old function has not completed.
    while !station.bench.world.log.contains(&Asked::Read(1, 0, 0)) {
        station.bench.run_for(Duration::from_ns(10));
    }
    let before = station.bench.world.log.len();
    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(0))));
    let wrote = |asked: &Asked| matches!(asked, Asked::Write(1, 1, 60..));
    assert!(station.bench.world.log[before..].iter().any(wrote));
}

/// Something that makes no sense, or comes at the wrong time.
#[derive(Clone, Debug)]
enum Nonsense {
    /// A frame to the station, or to all, whose content is anything.
    Frame {
        to_all: bool,
        content: Vec<u8>,
    },
    /// A sound datagram with bytes changed behind its addresses.
    Changed {
        port: u16,
        at: Vec<(u8, u8)>,
    },
    /// A command about rules with any numbers.
    Command {
        function: u8,
        port: u16,
        rule: u32,
        target: u32,
        command: u32,
    },
    /// Any number for a queue.
    Number {
        function: u8,
        number: u32,
    },
    Reset {
        function: u8,
    },
}

fn nonsense() -> impl Strategy<Value = Nonsense> {
    let number = || prop_oneof![0u32..4, 8190u32..8194, Just(u32::MAX), any::<u32>()];
    let command = prop_oneof![
        (0u32..8, any::<bool>())
            .prop_map(|(command, switch)| command | if switch { flow::SWITCH } else { 0 }),
        any::<u32>(),
    ];
    prop_oneof![
        3 => (any::<bool>(), prop::collection::vec(any::<u8>(), 46..1500))
            .prop_map(|(to_all, content)| Nonsense::Frame { to_all, content }),
        3 => (7u16..10, prop::collection::vec((12u8..60, any::<u8>()), 1..6))
            .prop_map(|(port, at)| Nonsense::Changed { port, at }),
        3 => (0u8..2, 7u16..10, number(), number(), command).prop_map(
            |(function, port, rule, target, command)| Nonsense::Command { function, port, rule, target, command }
        ),
        2 => (0u8..2, number()).prop_map(|(function, number)| Nonsense::Number { function, number }),
        1 => (0u8..2).prop_map(|function| Nonsense::Reset { function }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is sent to the station, and whatever its drivers write: sound frames of a flow reach one function, once.
    #[test]
    fn nonsense_does_not_keep_frames_away(happens in prop::collection::vec(nonsense(), 1..40), global in any::<bool>()) {
        let mut station = Station::with(|nic| nic.features |= if global { feature::GLOBAL_RULES } else { 0 });
        let start = |bench: &mut Bench, function: u8| {
            enable(bench, 1, function, feature::FLOW_RULES);
            let mut rx = Queue::start(bench, (1, function, 0, false), 8, queue::TO_RING);
            rx.give(bench, 240);
            rx
        };
        for what in happens {
            match what {
                Nonsense::Frame { to_all, content } => {
                    let to = if to_all { MacAddr::BROADCAST } else { mac(2) };
                    station.send(&[&to.0[..], &mac(1).0, &content].concat());
                }
                Nonsense::Changed { port, at } => {
                    let mut frame = datagram((port, 9), &[0; 40]);
                    at.into_iter().for_each(|(at, with)| frame[usize::from(at)] = with);
                    station.send(&frame);
                }
                Nonsense::Command { function, port, rule, target, command } => {
                    add_rule_by(&mut station.bench, function, (port, 9), rule, target, command);
                }
                Nonsense::Number { function, number } => {
                    station.rx[usize::from(function)].set(&mut station.bench, queue::NUMBER, number);
                }
                Nonsense::Reset { function } => {
                    let index = FunctionIndex(function);
                    station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(index)));
                }
            }
        }
        station.bench.run_for(Duration::from_us(100));
        // Drivers reset both functions, as after an error, and begin again.
        for function in 0..2 {
            station.bench.with(1, |device, bus| device.reset(bus, Reset::Function(FunctionIndex(function))));
            station.rx[usize::from(function)] = start(&mut station.bench, function);
        }
        for (port, function) in [(7, 1), (8, 0)] {
            let add = |station: &mut Station, target, command| {
                add_rule_by(&mut station.bench, function, (port, 9), 0, target, command)
            };
            if global {
                station.rx[usize::from(function)].set(&mut station.bench, queue::NUMBER, function.into());
                prop_assert_eq!(add(&mut station, function.into(), flow::ADD), flow::RESULT_OK);
            } else {
                prop_assert_eq!(add(&mut station, 0, flow::ADD), flow::RESULT_OK);
                prop_assert_eq!(add(&mut station, function.into(), ADD), flow::RESULT_OK);
            }
            station.send(&datagram((port, 9), &[0; 20]));
            let mut expected = [0, 0];
            expected[usize::from(function)] = 1;
            prop_assert_eq!(station.arrivals(), expected, "{}", port);
        }
    }
}
