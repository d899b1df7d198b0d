//! External view of a NIC for tests and reports: counters, ring fill levels, fault injection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use engine::WaitTime;
use platform::device::FunctionIndex;
use units::{Duration, Time};
use wire::nic::registers::counter;

use super::ring::QueueId;

/// Handle to a NIC's counters and faults, shared with whoever built the NIC.
#[derive(Clone)]
pub struct NicHandle(Rc<Inner>);

/// Fill level of a ring over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingFill {
    /// The function that the ring belongs to.
    pub function: FunctionIndex,
    /// Queue number.
    pub queue: u8,
    /// TX if true, RX if false.
    pub is_tx: bool,
    /// Capacity in descriptors.
    pub entries: u32,
    /// Descriptors posted by the driver and not completed, integrated over time in nanoseconds.
    pub descriptor_ns: u64,
}

/// Fill level of a ring: written by the ring, read by the handle.
#[derive(Default)]
pub(super) struct Filled {
    entries: Cell<u32>,
    /// Current number of descriptors, and since when.
    inside: Cell<(u16, Time)>,
    descriptor_ps: Cell<u128>,
}

impl Filled {
    /// The ring of `entries` holds `inside` descriptors from `now` on.
    pub fn becomes(&self, now: Time, entries: u32, inside: u16) {
        self.descriptor_ps.set(self.until(now));
        self.inside.set((inside, now));
        self.entries.set(entries);
    }

    /// The ring is emptied.
    pub fn clear(&self) {
        self.inside.set((0, Time::ZERO));
    }

    fn until(&self, now: Time) -> u128 {
        let (inside, since) = self.inside.get();
        self.descriptor_ps.get() + u128::from(inside) * u128::from(now.since(since).as_ps())
    }
}

/// What a function has counted in one of its registers.
#[derive(Default)]
struct RegisterTotal {
    total: Cell<u64>,
    /// Total at the function's last reset.
    at_reset: Cell<u64>,
}

struct Inner {
    counters: Vec<[RegisterTotal; counter::COUNT]>,
    /// By function, direction (true for TX) and queue.
    rings: RefCell<BTreeMap<(u8, bool, u8), Rc<Filled>>>,
    /// Time in which coalescing holds an interrupt back.
    held_back: Cell<WaitTime>,
    hung: Cell<bool>,
    lost_interrupts: Cell<u32>,
    spurious_interrupts: Cell<u32>,
    malformed_completions: Cell<u32>,
    wrong_owners: Cell<u32>,
}

impl NicHandle {
    pub(super) fn new(functions: usize) -> Self {
        Self(Rc::new(Inner {
            counters: (0..functions).map(|_| Default::default()).collect(),
            rings: RefCell::default(),
            held_back: Cell::default(),
            hung: Cell::new(false),
            lost_interrupts: Cell::new(0),
            spurious_interrupts: Cell::new(0),
            malformed_completions: Cell::new(0),
            wrong_owners: Cell::new(0),
        }))
    }

    /// What a function has counted since the NIC was built, also before its resets; one of [`counter`].
    pub fn counter(&self, function: FunctionIndex, which: usize) -> u64 {
        self.of(function.0, which).map_or(0, |counter| counter.total.get())
    }

    /// What a function has counted since its last reset: the value of its register.
    pub(super) fn register(&self, function: u8, which: usize) -> u64 {
        self.of(function, which).map_or(0, |counter| counter.total.get() - counter.at_reset.get())
    }

    fn of(&self, function: u8, which: usize) -> Option<&RegisterTotal> {
        self.0.counters.get(usize::from(function))?.get(which)
    }

    #[inline]
    pub(super) fn add(&self, function: u8, which: usize, amount: u64) {
        let total = &self.0.counters[usize::from(function)][which].total;
        total.set(total.get() + amount);
    }

    /// Fill levels, up to `now`, of all rings that were ever used.
    pub fn rings(&self, now: Time) -> Vec<RingFill> {
        let rings = self.0.rings.borrow();
        let used = rings.iter().filter(|(_, filled)| filled.entries.get() > 0);
        let fill = |(&(function, is_tx, queue), filled): (&_, &Rc<Filled>)| RingFill {
            function: FunctionIndex(function),
            queue,
            is_tx,
            entries: filled.entries.get(),
            descriptor_ns: (filled.until(now) / 1_000) as u64,
        };
        used.map(fill).collect()
    }

    /// Time up to `now` in which coalescing held an interrupt back.
    pub fn interrupts_held_back(&self, now: Time) -> Duration {
        self.0.held_back.get().until(now)
    }

    /// An interrupt is held back until `due`, or until [another time](Self::holds_back_no_longer).
    pub(super) fn holds_back(&self, now: Time, due: Time) {
        let mut held = self.0.held_back.get();
        held.pass(now, due);
        self.0.held_back.set(held);
    }

    /// An interrupt is sent before it is due.
    pub(super) fn holds_back_no_longer(&self, now: Time) {
        let mut held = self.0.held_back.get();
        held.cancel(now);
        self.0.held_back.set(held);
    }

    pub(super) fn watch_ring(&self, of: QueueId, filled: &Rc<Filled>) {
        let QueueId { function, number, is_tx } = of;
        self.0.rings.borrow_mut().insert((function, is_tx, number), Rc::clone(filled));
    }

    /// A function is reset: its registers count from zero.
    pub(super) fn clear(&self, function: u8) {
        let counters = &self.0.counters[usize::from(function)];
        counters.iter().for_each(|counter| counter.at_reset.set(counter.total.get()));
    }

    /// Makes the firmware hang or resume. While it hangs, doorbells and frames are ignored, and registers keep their
    /// values.
    pub fn set_hung(&self, hung: bool) {
        self.0.hung.set(hung);
    }

    /// Drops the next `n` interrupts.
    pub fn lose_interrupts(&self, n: u32) {
        self.0.lost_interrupts.set(n);
    }

    /// Raises a spurious interrupt at each of the next `n` completion writes.
    pub fn add_spurious_interrupts(&self, n: u32) {
        self.0.spurious_interrupts.set(n);
    }

    /// Replaces the next `n` completions with garbage, except for their owner bits.
    pub fn spoil_completions(&self, n: u32) {
        self.0.malformed_completions.set(n);
    }

    /// Writes the next `n` completions with the wrong owner bit, so that they look like those of the ring's previous
    /// round.
    pub fn flip_owners(&self, n: u32) {
        self.0.wrong_owners.set(n);
    }

    pub(super) fn flips_owner(&self) -> bool {
        take(&self.0.wrong_owners)
    }

    pub(super) fn is_hung(&self) -> bool {
        self.0.hung.get()
    }

    pub(super) fn loses_interrupt(&self) -> bool {
        take(&self.0.lost_interrupts)
    }

    pub(super) fn has_spurious_interrupt(&self) -> bool {
        take(&self.0.spurious_interrupts)
    }

    pub(super) fn spoils_completion(&self) -> bool {
        take(&self.0.malformed_completions)
    }
}

fn take(left: &Cell<u32>) -> bool {
    let n = left.get();
    left.set(n.saturating_sub(1));
    n > 0
}
