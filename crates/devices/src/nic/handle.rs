//! What a test or a report sees of a NIC from outside, and the faults it can be given.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::device::FunctionIndex;
use units::Time;
use wire::nic::registers::counter;

/// Counters and faults of a NIC; shared with whoever built it.
#[derive(Clone)]
pub struct NicHandle(Rc<Inner>);

/// How full a ring has been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingFill {
    /// Whose it is.
    pub function: FunctionIndex,
    /// Its queue.
    pub queue: u8,
    /// Whether it is for sending.
    pub is_tx: bool,
    /// How many descriptors it has room for.
    pub entries: u32,
    /// Descriptors that the driver gave and that are not done, summed over the picoseconds so far.
    pub descriptor_ps: u64,
}

/// A ring's descriptors over time: the ring tells, the handle reads.
#[derive(Default)]
pub(super) struct Filled {
    entries: Cell<u32>,
    /// Descriptors in it, since when.
    inside: Cell<(u16, Time)>,
    descriptor_ps: Cell<u64>,
}

impl Filled {
    /// So many descriptors are in the ring of `entries` from `now` on.
    pub fn becomes(&self, now: Time, entries: u32, inside: u16) {
        self.descriptor_ps.set(self.until(now));
        self.inside.set((inside, now));
        self.entries.set(entries);
    }

    /// The ring is emptied.
    pub fn clear(&self) {
        self.inside.set((0, Time::ZERO));
    }

    fn until(&self, now: Time) -> u64 {
        let (inside, since) = self.inside.get();
        self.descriptor_ps.get() + u64::from(inside) * now.since(since).as_ps()
    }
}

struct Inner {
    counters: Vec<[Cell<u64>; counter::COUNT]>,
    /// By function, whether it is for sending, and queue.
    rings: RefCell<BTreeMap<(u8, bool, u8), Rc<Filled>>>,
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

    /// How full each ring has been that was ever used, up to `now`.
    pub fn rings(&self, now: Time) -> Vec<RingFill> {
        let rings = self.0.rings.borrow();
        let used = rings.iter().filter(|(_, filled)| filled.entries.get() > 0);
        let fill = |(&(function, is_tx, queue), filled): (&_, &Rc<Filled>)| RingFill {
            function: FunctionIndex(function),
            queue,
            is_tx,
            entries: filled.entries.get(),
            descriptor_ps: filled.until(now),
        };
        used.map(fill).collect()
    }

    pub(super) fn watch_ring(&self, function: u8, is_tx: bool, queue: u8, filled: &Rc<Filled>) {
        self.0.rings.borrow_mut().insert((function, is_tx, queue), Rc::clone(filled));
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
