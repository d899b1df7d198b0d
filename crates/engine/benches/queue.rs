//! The event queue beside the standard library's binary heap.
//!
//! One operation is one event popped and another scheduled at random 0 to 2 us ahead (in the
//! `far` variants, 1 in 64 up to 200 us ahead), with the given number pending. An event is 40 bytes, as
//! a TLP's is.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use engine::{Rng, Scheduler, Seed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use units::{Duration, Time};

fn main() {
    divan::main();
}

/// Operations per measured call.
const OPERATIONS: usize = 16 * DELAYS;
const DELAYS: usize = 8192;
const PENDING: [usize; 4] = [20, 200, 1_000, 10_000];

type Event = [u64; 5];

/// Delays drawn beforehand, so that the generator is not measured.
fn delays(near_ps: u64, far_ps: u64) -> Vec<Duration> {
    let mut rng: Rng = Seed::new(1).component("delays");
    let draw = |_| {
        let span = if rng.chance(1.0 / 64.0) { far_ps } else { near_ps };
        Duration::from_ps(rng.below(span))
    };
    (0..DELAYS).map(draw).collect()
}

fn wheel_with(bencher: Bencher, pending: usize, delays: &[Duration]) {
    let mut queue = Scheduler::<Event>::new();
    let mut next = delays.iter().cycle();
    for i in 0..pending {
        queue.after(*next.next().unwrap(), [i as u64; 5]);
    }
    bencher.counter(ItemsCount::new(OPERATIONS)).bench_local(move || {
        for _ in 0..OPERATIONS / DELAYS {
            for &delay in delays {
                let event = black_box(queue.pop().unwrap());
                queue.after(delay, event);
            }
        }
    });
}

fn heap_with(bencher: Bencher, pending: usize, delays: &[Duration]) {
    struct Entry(Reverse<(Time, u64)>, Event);
    impl PartialEq for Entry {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for Entry {}
    impl PartialOrd for Entry {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Entry {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            self.0.cmp(&other.0)
        }
    }
    let mut queue = BinaryHeap::new();
    let mut sequence = 0;
    let mut next = delays.iter().cycle();
    for i in 0..pending {
        queue.push(Entry(Reverse((Time::ZERO + *next.next().unwrap(), sequence)), [i as u64; 5]));
        sequence += 1;
    }
    bencher.counter(ItemsCount::new(OPERATIONS)).bench_local(move || {
        for _ in 0..OPERATIONS / DELAYS {
            for &delay in delays {
                let Entry(Reverse((now, _)), event) = black_box(queue.pop().unwrap());
                queue.push(Entry(Reverse((now + delay, sequence)), event));
                sequence += 1;
            }
        }
    });
}

#[divan::bench(args = PENDING)]
fn wheel(bencher: Bencher, pending: usize) {
    wheel_with(bencher, pending, &delays(2_000_000, 2_000_000));
}

#[divan::bench(args = PENDING)]
fn binary_heap(bencher: Bencher, pending: usize) {
    heap_with(bencher, pending, &delays(2_000_000, 2_000_000));
}

#[divan::bench(args = PENDING)]
fn wheel_far(bencher: Bencher, pending: usize) {
    wheel_with(bencher, pending, &delays(2_000_000, 200_000_000));
}

#[divan::bench(args = PENDING)]
fn binary_heap_far(bencher: Bencher, pending: usize) {
    heap_with(bencher, pending, &delays(2_000_000, 200_000_000));
}
