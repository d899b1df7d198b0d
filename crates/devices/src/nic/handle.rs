//! What a test or a report sees of a NIC from outside, and the faults it can be given.

use std::cell::Cell;
use std::rc::Rc;

use platform::device::FunctionIndex;
use wire::nic::registers::counter;

/// Counters and faults of a NIC; shared with whoever built it.
#[derive(Clone)]
pub struct NicHandle(Rc<Inner>);

struct Inner {
    counters: Vec<[Cell<u64>; counter::COUNT]>,
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
            hung: Cell::new(false),
            lost_interrupts: Cell::new(0),
            spurious_interrupts: Cell::new(0),
            malformed_completions: Cell::new(0),
            wrong_owners: Cell::new(0),
        }))
    }

    /// A counter of a function, one of [`counter`].
    pub fn counter(&self, function: FunctionIndex, which: usize) -> u64 {
        self.0.counters.get(usize::from(function.0)).and_then(|c| c.get(which)).map_or(0, Cell::get)
    }

    #[inline]
    pub(super) fn add(&self, function: u8, which: usize, amount: u64) {
        let counter = &self.0.counters[usize::from(function)][which];
        counter.set(counter.get() + amount);
    }

    pub(super) fn clear(&self, function: u8) {
        self.0.counters[usize::from(function)].iter().for_each(|c| c.set(0));
    }

    /// Lets the firmware hang, or go on: doorbells and frames are ignored, registers read as they were.
    pub fn set_hung(&self, hung: bool) {
        self.0.hung.set(hung);
    }

    /// Loses the next `n` interrupts.
    pub fn lose_interrupts(&self, n: u32) {
        self.0.lost_interrupts.set(n);
    }

    /// Raises an interrupt too many at each of the next `n` completion writes.
    pub fn add_spurious_interrupts(&self, n: u32) {
        self.0.spurious_interrupts.set(n);
    }

    /// Writes nonsense in place of the next `n` completions; their owner bits are right.
    pub fn spoil_completions(&self, n: u32) {
        self.0.malformed_completions.set(n);
    }

    /// Writes the next `n` completions with the wrong owner bit: they look like those of the ring's last round.
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
