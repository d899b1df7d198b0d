//! Tests of a store unit by itself: which TLPs leave, in which order, when.

use std::collections::BTreeMap;

use engine::Seed;
use platform::mmio::Store;
use proptest::prelude::*;
use units::{Duration, Time};

use super::stores::{Step, WayOut};
use super::{EvictionOrder, LINE, StoreParams, StoreUnit};
use crate::enables::enables;
use crate::memory::Cause;

const BASE: u64 = 0x1_0000_0000;

/// A TLP that left: time, address, enabled bytes.
type Left = (Time, u64, Vec<(u64, u8)>);

/// Stores (offset and length), the chunk, the lengths of the TLPs.
type Partial<'a> = (&'a [(u64, usize)], u32, &'a [usize]);

/// Ports on the core's socket, which all have room or none.
struct OneSocket {
    room: bool,
}

impl WayOut for OneSocket {
    fn has_room(&mut self, _: u8) -> bool {
        self.room
    }
    fn cross(&mut self, _: u8, _: Cause, _: u64) -> Option<Time> {
        None
    }
    fn answer(&mut self, _: u8, _: Cause, arrived: Time) -> Time {
        arrived
    }
}

struct StoreBench {
    unit: StoreUnit,
    now: Time,
    left: Vec<Left>,
}

impl StoreBench {
    fn new(params: StoreParams) -> Self {
        let rng = Seed::new(1).component("stores");
        Self { unit: StoreUnit::new(params, rng), now: Time::ZERO, left: Vec::new() }
    }

    fn store(&mut self, store: Store<'_>) {
        self.unit.push(self.now, 0, store);
        self.run_now(true);
    }

    fn combine(&mut self, offset: u64, bytes: &[u8]) {
        self.store(Store::Combining { address: BASE + offset, bytes, width: 8 });
    }

    /// Runs everything that can happen now. Returns when to look again.
    fn run_now(&mut self, room: bool) -> Option<Time> {
        loop {
            match self.unit.step(self.now, &mut OneSocket { room }) {
                Step::Leave(departure) => {
                    let request = departure.request;
                    let payload = departure.payload();
                    let bytes = (0..payload.len()).filter(|&n| enables(&request, n));
                    let bytes = bytes.map(|n| (request.address + n as u64, payload[n])).collect();
                    self.left.push((self.now, request.address, bytes));
                }
                Step::Wait { until, .. } => return until,
            }
        }
    }

    /// Runs everything.
    fn run(&mut self) {
        while let Some(until) = self.run_now(true) {
            assert!(until > self.now, "looks again at {until} and it is {}", self.now);
            self.now = until;
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.left.iter().map(|(_, _, bytes)| bytes.len()).collect()
    }
}

#[test]
fn a_line_leaves_when_it_is_full_and_not_before() {
    let mut bench = StoreBench::new(StoreParams::ideal());
    for (n, offset) in [48, 8, 0, 40, 16, 56, 24].into_iter().enumerate() {
        bench.combine(offset, &[n as u8; 8]);
        assert!(bench.left.is_empty());
    }
    bench.combine(32, &[9; 8]);
    assert_eq!(bench.lengths(), [64]);
    assert_eq!(bench.unit.combining(), 0, "an ideal root complex accepts at once");
}

#[test]
fn a_part_of_a_line_leaves_in_the_tlps_that_its_bytes_need() {
    let cases: [Partial<'_>; 6] = [
        (&[(0, 8)], 8, &[8]),
        (&[(0, 56)], 8, &[8; 7]),
        (&[(0, 56)], 64, &[56]),
        // Quadwords with some bytes, contiguous or not.
        (&[(4, 8), (62, 2)], 8, &[4, 4, 2]),
        (&[(0, 1), (7, 1)], 8, &[2]),
        // Two runs further apart than a quadword.
        (&[(2, 20), (40, 4)], 64, &[20, 4]),
    ];
    for (stores, chunk, expected) in cases {
        let mut bench = StoreBench::new(StoreParams { partial_chunk: chunk, ..StoreParams::ideal() });
        for &(offset, length) in stores {
            bench.combine(offset, &vec![1; length]);
        }
        bench.store(Store::Barrier);
        bench.run();
        assert_eq!(bench.lengths(), expected, "{stores:?} in chunks of {chunk}");
    }
}

#[test]
fn what_drives_a_line_out() {
    let full = [7; 64];
    let causes: [(&str, Store<'_>, bool); 6] = [
        ("barrier", Store::Barrier, true),
        ("uncached store", Store::Uncached(BASE + 4096, &[1; 4]), true),
        ("flush of the line", Store::Flush(BASE + 63), true),
        ("flush of another line", Store::Flush(BASE + 64), false),
        ("direct store to the line", Store::Direct(BASE, &full), true),
        ("direct store to another line", Store::Direct(BASE + 64, &full), false),
    ];
    for (name, cause, out) in causes {
        let mut bench = StoreBench::new(StoreParams::ideal());
        bench.combine(0, &[1; 4]);
        bench.store(cause);
        bench.run();
        let has_left = bench.left.iter().any(|(_, address, bytes)| *address == BASE && bytes.len() == 4);
        assert_eq!(has_left, out, "{name}");
    }
}

#[test]
fn want_of_a_buffer_drives_one_line_out() {
    let mut bench = StoreBench::new(StoreParams { combining_buffers: 4, ..StoreParams::ideal() });
    for line in 0..4 {
        bench.combine(line * LINE, &[1; 8]);
    }
    assert!(bench.left.is_empty());
    bench.combine(4 * LINE, &[1; 8]);
    bench.run();
    assert_eq!(bench.lengths(), [8]);
    assert_eq!(bench.unit.counters().pressed_lines, 1);
    assert_eq!(bench.unit.combining(), 4);
}

#[test]
fn line_fills_take_buffers() {
    let mut bench = StoreBench::new(StoreParams { fill_buffers: 4, ..StoreParams::ideal() });
    for n in 1..=4 {
        bench.unit.line_fill(Time::ZERO, Time::ZERO + Duration::from_ns(n * 10));
    }
    bench.combine(0, &[1; 64]);
    assert!(bench.left.is_empty(), "all buffers fetch lines");
    bench.run();
    assert_eq!(bench.left[0].0, Time::ZERO + Duration::from_ns(10));
}

#[test]
fn full_lines_may_overtake_each_other_when_they_wait() {
    let orders = [EvictionOrder::AsTold, EvictionOrder::Any].map(|eviction_order| {
        let mut bench = StoreBench::new(StoreParams { eviction_order, ..StoreParams::ideal() });
        for line in 0..8 {
            let store = Store::Combining { address: BASE + line * LINE, bytes: &[1; 64], width: 8 };
            bench.unit.push(bench.now, 0, store);
        }
        bench.run_now(false);
        bench.run();
        let lines: Vec<u64> = bench.left.iter().map(|(_, address, _)| (address - BASE) / LINE).collect();
        assert_eq!(bench.unit.counters().overtakes > 0, eviction_order == EvictionOrder::Any);
        lines
    });
    assert_eq!(orders[0], (0..8).collect::<Vec<_>>());
    assert_ne!(orders[1], orders[0], "and with this seed they do");
}

/// Departures until a line leaves: at most the lines evicted before it, and as many later ones as there are buffers.
#[test]
fn no_line_is_passed_by_more_than_there_are_buffers() {
    for buffers in [1, 2, 10] {
        let mut bench = StoreBench::new(StoreParams {
            eviction_order: EvictionOrder::Any,
            combining_buffers: buffers,
            evict_interval: Duration::from_ns(1),
            ..StoreParams::ideal()
        });
        for line in 0..5_000 {
            let store = Store::Combining { address: BASE + line * LINE, bytes: &[1; 64], width: 8 };
            bench.unit.push(bench.now, 0, store);
        }
        bench.run();
        let lines: Vec<u64> = bench.left.iter().map(|(_, address, _)| (address - BASE) / LINE).collect();
        let most = (0..lines.len()).map(|at| {
            // Each line was evicted in order, at most this many positions before.
            let begin = at.saturating_sub(2 * usize::from(buffers));
            assert!(lines[..begin].iter().all(|&other| other < lines[at]), "{} at {at}", lines[at]);
            lines[begin..at].iter().filter(|&&other| other > lines[at]).count()
        });
        let most = most.max().unwrap();
        assert_eq!(most, if buffers == 1 { 0 } else { buffers.into() }, "{buffers} buffers");
    }
}

#[test]
fn uncached_stores_follow_each_other_at_the_pace_of_acceptance() {
    let (uncached_latency, accept_latency) = (Duration::from_ns(100), Duration::from_ns(30));
    let mut bench = StoreBench::new(StoreParams { uncached_latency, accept_latency, ..StoreParams::ideal() });
    for n in 0..4 {
        bench.unit.push(bench.now, 0, Store::Uncached(BASE + n * 8, &[n as u8; 8]));
    }
    assert_eq!(bench.unit.pending(), 4);
    bench.run();
    let times: Vec<u64> = bench.left.iter().map(|(at, ..)| at.as_ps() / 1000).collect();
    assert_eq!(times, [0, 100, 200, 300]);
}

/// A task has computed ahead of the clock when an interrupt handler stores and waits for its own stores, or another core for
/// the handler's.
#[test]
fn a_handler_does_not_wait_for_stores_of_later_times() {
    let latency = Duration::from_ns(50);
    let at = |ns: u64| Time::ZERO + Duration::from_ns(ns);
    let accepted = |unit: &StoreUnit, when| unit.accepted_before(unit.mark(when), |_| Duration::ZERO);
    let mut bench = StoreBench::new(StoreParams { uncached_latency: latency, ..StoreParams::ideal() });
    bench.unit.push(at(9_000), 0, Store::Uncached(BASE, &[1; 8]));
    let holds = |unit: &StoreUnit, when| unit.holds_before(unit.mark(when));
    assert!(!holds(&bench.unit, at(1_000)) && holds(&bench.unit, at(9_000)));
    bench.unit.push(at(1_000), 0, Store::Uncached(BASE + 8, &[2; 8]));
    assert!(holds(&bench.unit, at(1_000)));
    assert_eq!(accepted(&bench.unit, at(1_000)), at(1_050));
    assert_eq!(accepted(&bench.unit, Time::NEVER), at(9_050));
    // The handler's leaves first, and keeps the other from nothing.
    bench.run();
    let left: Vec<(Time, u64)> = bench.left.iter().map(|&(when, address, _)| (when, address)).collect();
    assert_eq!(left, [(at(1_000), BASE + 8), (at(9_000), BASE)]);
}

#[test]
fn buffers_not_accepted_stop_stores() {
    let accept_latency = Duration::from_ns(100);
    let mut bench =
        StoreBench::new(StoreParams { accept_latency, combining_buffers: 2, ..StoreParams::ideal() });
    for line in 0..5 {
        bench.unit.push(
            bench.now,
            0,
            Store::Combining { address: BASE + line * LINE, bytes: &[1; 64], width: 8 },
        );
    }
    bench.run();
    let times: Vec<u64> = bench.left.iter().map(|(at, ..)| at.as_ps() / 1000).collect();
    assert_eq!(times, [0, 0, 100, 100, 200]);
    assert_eq!(bench.unit.waited(bench.now), Duration::from_ns(200));
}

/// An operation of a random program.
#[derive(Clone, Debug)]
enum Op {
    Combining(u64, usize),
    Uncached(u64, usize),
    Direct(u64),
    Flush(u64),
    Barrier,
    Pause(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0u64..1024, 1usize..=64).prop_map(|(at, n)| Op::Combining(at, n.min((LINE - at % LINE) as usize))),
        2 => (0u64..1024, 1usize..=8).prop_map(|(at, n)| Op::Uncached(at, n.min((8 - at % 8) as usize))),
        1 => (0u64..16).prop_map(|line| Op::Direct(line * LINE)),
        1 => (0u64..1024).prop_map(Op::Flush),
        1 => Just(Op::Barrier),
        2 => (0u64..300).prop_map(Op::Pause),
    ]
}

fn params() -> impl Strategy<Value = StoreParams> {
    (1u16..12, 1u16..12, 3u32..7, any::<bool>(), (0u64..120, 0u64..160), 0u64..5).prop_map(
        |(fill, wc, chunk, any, (accept, uncached), gap)| StoreParams {
            fill_buffers: fill,
            combining_buffers: wc,
            partial_chunk: 1 << chunk,
            eviction_order: if any { EvictionOrder::Any } else { EvictionOrder::AsTold },
            accept_latency: Duration::from_ns(accept),
            uncached_latency: Duration::from_ns(uncached),
            evict_interval: Duration::from_ns(gap),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every stored byte arrives once, or is overwritten in a buffer by a later one; stores to one address arrive in
    /// order; nothing passes an uncached store or a barrier; no buffer is lost.
    #[test]
    fn bytes_arrive_once_and_in_the_order_that_is_promised(
        params in params(),
        ops in prop::collection::vec(op(), 1..80),
        rooms in prop::collection::vec(any::<bool>(), 1..16),
    ) {
        let mut bench = StoreBench::new(params);
        // Values at each address ascend, so a value tells when it was stored.
        let mut last = BTreeMap::<u64, u8>::new();
        let mut next = |at: u64, n: usize| -> Vec<u8> {
            (at..at + n as u64).map(|a| { let v = last.entry(a).or_default(); *v += 1; *v }).collect()
        };
        let mut arrived = BTreeMap::<u64, u8>::new();
        // Values that must have arrived before each uncached store or barrier, and those that must not.
        let mut checked = 0;
        let mut expected_uncached = Vec::new();
        let mut rooms = rooms.into_iter().cycle();
        for op in ops {
            match op {
                Op::Combining(at, n) => {
                    let bytes = next(BASE + at, n);
                    bench.unit.push(bench.now, 0, Store::Combining { address: BASE + at, bytes: &bytes, width: 8 });
                }
                Op::Uncached(at, n) => {
                    // Outside the combined range, to tell them apart.
                    let at = BASE + 0x1_0000 + at;
                    let bytes = next(at, n);
                    expected_uncached.push((at, bytes[0]));
                    bench.unit.push(bench.now, 0, Store::Uncached(at, &bytes));
                }
                Op::Direct(at) => {
                    let bytes: [u8; 64] = next(BASE + at, 64).try_into().unwrap();
                    bench.unit.push(bench.now, 0, Store::Direct(BASE + at, &bytes));
                }
                Op::Flush(at) => bench.unit.push(bench.now, 0, Store::Flush(BASE + at)),
                Op::Barrier => bench.unit.push(bench.now, 0, Store::Barrier),
                Op::Pause(ns) => {
                    let end = bench.now + Duration::from_ns(ns);
                    while let Some(until) = bench.run_now(rooms.next().unwrap()) {
                        if until >= end { break }
                        bench.now = until.max(bench.now + Duration::from_ps(1));
                    }
                    bench.now = end;
                }
            }
        }
        bench.unit.push(bench.now, 0, Store::Barrier);
        bench.run();
        prop_assert!(bench.unit.is_empty());
        prop_assert_eq!(bench.unit.pending(), 0);
        for (_, _, bytes) in &bench.left {
            for &(at, value) in bytes {
                let before = arrived.insert(at, value).unwrap_or(0);
                prop_assert!(before < value, "{at:#x} had {before} and then got {value}");
                checked += 1;
            }
        }
        prop_assert_eq!(&arrived, &last);
        prop_assert_eq!(bench.unit.counters().bytes, checked);
        let uncached: Vec<_> = bench.left.iter().filter(|(_, at, _)| *at >= BASE + 0x1_0000).map(|(.., b)| b[0]).collect();
        prop_assert_eq!(uncached, expected_uncached);
    }

    /// Stores before a barrier arrive before those after it.
    #[test]
    fn nothing_passes_a_barrier(params in params(), groups in prop::collection::vec(prop::collection::vec((0u64..1024, 1usize..=64), 1..20), 2..5)) {
        let mut bench = StoreBench::new(params);
        for (number, group) in groups.iter().enumerate() {
            for &(at, n) in group {
                let bytes = vec![number as u8; n.min((LINE - at % LINE) as usize)];
                bench.unit.push(bench.now, 0, Store::Combining { address: BASE + at, bytes: &bytes, width: 8 });
            }
            bench.unit.push(bench.now, 0, Store::Barrier);
        }
        bench.run();
        let numbers: Vec<u8> = bench.left.iter().flat_map(|(.., bytes)| bytes.iter().map(|b| b.1)).collect();
        prop_assert!(numbers.is_sorted());
    }
}
