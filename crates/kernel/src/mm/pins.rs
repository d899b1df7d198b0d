//! Pinned memory, which cannot move until its request ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use platform::block::Segment;
use platform::memory::PhysAddr;

/// Handle of a request's pinned memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Pin(u64);

/// All pinned memory by request (Linux: `pin_user_pages`).
#[derive(Default)]
pub(crate) struct Pins {
    held: RefCell<BTreeMap<Pin, Vec<Segment>>>,
    next: Cell<u64>,
}

impl Pins {
    /// Pins memory until [`unpin`](Self::unpin).
    pub fn pin(&self, memory: &[Segment]) -> Pin {
        let pin = Pin(self.next.replace(self.next.get() + 1));
        self.held.borrow_mut().insert(pin, memory.to_vec());
        pin
    }

    /// Unpins memory.
    pub fn unpin(&self, pin: Pin) {
        self.held.borrow_mut().remove(&pin);
    }

    /// Whether any byte of a range is pinned.
    pub fn hold(&self, at: PhysAddr, length: u64) -> bool {
        let meets = |s: &Segment| s.at.0 < at.0 + length && at.0 < s.at.0 + u64::from(s.length);
        self.held.borrow().values().flatten().any(meets)
    }
}
