//! Compares the event queue with a simple reference queue.

use engine::{EventKey, Scheduler};
use proptest::prelude::*;
use std::collections::BTreeMap;
use units::{Duration, Time};

/// An operation on a queue.
#[derive(Clone, Debug)]
enum Step {
    /// Schedule an event this many picoseconds ahead.
    At(u64),
    /// Schedule an event at the same instant as a pending one.
    Again(usize),
    Pop,
    /// Cancel one of the events scheduled so far, handled or not.
    Cancel(usize),
}

/// Delays for every level of the queue and the boundaries between levels.
fn delay() -> impl Strategy<Value = u64> {
    const TURN: u64 = 1 << 22;
    const SPAN: u64 = 1 << 34;
    prop_oneof![
        4 => 0..2_000_000u64,
        2 => 0..2_000u64,
        1 => Just(0),
        1 => TURN - 3_000..TURN + 3_000,
        1 => 0..10 * TURN,
        1 => SPAN - 2 * TURN..SPAN + 2 * TURN,
        1 => 0..4 * SPAN,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => delay().prop_map(Step::At),
        2 => any::<usize>().prop_map(Step::Again),
        8 => Just(Step::Pop),
        2 => any::<usize>().prop_map(Step::Cancel),
    ]
}

/// The queue under test, and an ordered map as reference.
#[derive(Default)]
struct Pair {
    queue: Scheduler<u64>,
    reference: BTreeMap<(u64, u64), ()>,
    keys: Vec<(u64, EventKey)>,
    now: u64,
}

impl Pair {
    fn at(&mut self, time: u64) {
        let sequence = self.keys.len() as u64;
        let key = self.queue.at_cancellable(Time::from_ps(time), sequence);
        self.keys.push((time, key));
        self.reference.insert((time, sequence), ());
    }

    fn pop(&mut self) -> Result<bool, TestCaseError> {
        let expected = self.reference.pop_first().map(|(key, ())| key);
        if let Some((time, _)) = expected {
            self.now = time;
        }
        prop_assert_eq!(self.queue.pop(), expected.map(|(_, sequence)| sequence));
        prop_assert_eq!(self.queue.now().as_ps(), self.now);
        Ok(expected.is_some())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::At(delay) => self.at(self.now + delay),
            Step::Again(which) if !self.reference.is_empty() => {
                let (&(time, _), ()) = self.reference.iter().nth(which % self.reference.len()).unwrap();
                self.at(time);
            }
            Step::Again(_) => {}
            Step::Pop => drop(self.pop()?),
            Step::Cancel(_) if self.keys.is_empty() => {}
            Step::Cancel(which) => {
                let sequence = which % self.keys.len();
                let (time, key) = self.keys[sequence];
                let pending = self.reference.remove(&(time, sequence as u64)).is_some();
                prop_assert_eq!(self.queue.cancel(key), pending.then_some(sequence as u64));
            }
        }
        prop_assert_eq!(self.queue.len(), self.reference.len());
        let next = self.reference.keys().next().map(|&(time, _)| time);
        prop_assert_eq!(self.queue.next_time().map(Time::as_ps), next);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_interleaving_gives_the_order_of_the_reference(steps in prop::collection::vec(step(), 0..300)) {
        let mut pair = Pair::default();
        for step in &steps {
            pair.step(step)?;
        }
        while pair.pop()? {}
    }
}

#[test]
fn equal_times_are_first_in_first_out_across_levels() {
    // Schedule one instant from far away, from nearer, and from close by.
    let mut queue = Scheduler::new();
    let then = Time::ZERO + Duration::from_ms(50);
    let mut scheduled = 0..;
    for back in [50, 40, 18, 17, 5, 1].map(Duration::from_ms) {
        queue.at(then - back, u32::MAX);
        queue.pop();
        for _ in 0..3 {
            queue.at(then, scheduled.next().unwrap());
        }
    }
    queue.at(then - Duration::from_ns(3), u32::MAX);
    queue.pop();
    queue.at(then, scheduled.next().unwrap());
    let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(order, (0..19).collect::<Vec<_>>());
    assert_eq!(queue.processed(), 26);
}

#[test]
fn the_end_of_time_can_be_scheduled() {
    let mut queue = Scheduler::new();
    queue.at(Time::NEVER, "end");
    queue.at(Time::from_ps(1), "begin");
    assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some("begin"), Some("end"), None]);
    assert_eq!(queue.now(), Time::NEVER);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "already")]
fn the_past_cannot_be_scheduled() {
    let mut queue = Scheduler::new();
    queue.at(Time::from_ps(10), ());
    queue.pop();
    queue.at(Time::from_ps(9), ());
}
