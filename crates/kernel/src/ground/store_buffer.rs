//! A core's store buffer for stores to memory: they retire into it and are written in order.

use std::collections::VecDeque;

use units::Time;

use crate::costs::CoreParams;

/// Bytes of a cache line.
const LINE: u64 = wire::LINE as u64;

/// Stores to one line.
#[derive(Clone, Copy, Debug)]
struct PendingLine {
    /// When they retired.
    entered: Time,
    /// When they will be written to the cache.
    written: Time,
    /// Store buffer entries that they use.
    places: u64,
}

/// Retired stores, by line.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    lines: VecDeque<PendingLine>,
    /// Entries in use.
    held: u64,
    size: u64,
    /// Bytes of the widest store.
    width: u64,
    /// When the core's last accesses began.
    begun: Time,
}

impl StoreBuffer {
    /// An empty store buffer. The number of stores per line follows from the line and store intervals.
    pub(super) fn new(core: &CoreParams) -> Self {
        let stores = core.issue.get().div_ceil(core.store_interval.get().max(1)).clamp(1, LINE);
        Self {
            lines: VecDeque::new(),
            held: 0,
            size: core.store_buffer.into(),
            width: LINE / stores,
            begun: Time::ZERO,
        }
    }

    /// Starts accesses at `at`. If that is earlier than work already computed ahead of the clock, the core was
    /// interrupted there; stores that retire later then come after the interrupt, and do not delay it.
    #[inline]
    pub(super) fn begin(&mut self, at: Time) -> bool {
        let is_interrupted = at < self.begun;
        self.begun = at;
        if is_interrupted {
            while let Some(last) = self.lines.back().filter(|last| last.entered > at) {
                self.held -= last.places;
                self.lines.pop_back();
            }
        }
        is_interrupted
    }

    /// Entries that stores of `bytes` of a line use.
    pub(super) fn places_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.width).max(1)
    }

    /// When stores that arrive at `at` have that many free entries, or an empty buffer if it is smaller.
    pub(super) fn make_room(&mut self, mut at: Time, places: u64) -> Time {
        while let Some(first) = self.lines.front()
            && (first.written <= at || self.held + places > self.size)
        {
            at = at.max(first.written);
            self.held -= first.places;
            self.lines.pop_front();
        }
        at
    }

    /// Adds stores to a line that retire at `entered` and can be written at `ready`. Their entries are in use until
    /// they are written, after all earlier stores.
    pub(super) fn enter(&mut self, entered: Time, places: u64, ready: Time) {
        let after = self.lines.back().map_or(Time::ZERO, |last| last.written);
        self.lines.push_back(PendingLine { entered, written: ready.max(after), places });
        self.held += places;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Cycles, Frequency};

    fn at(ns: u64) -> Time {
        Time::from_ps(ns * 1000)
    }

    fn buffer(store_buffer: u16, issue: u64) -> StoreBuffer {
        let haswell = CoreParams::haswell(Frequency::mhz(2000));
        StoreBuffer::new(&CoreParams { store_buffer, issue: Cycles::new(issue), ..haswell })
    }

    #[test]
    fn a_line_takes_as_many_places_as_stores() {
        let haswell = buffer(42, 2);
        assert_eq!([1, 32, 33, 64].map(|bytes| haswell.places_for(bytes)), [1, 1, 2, 2]);
        assert_eq!(buffer(36, 4).places_for(64), 4, "stores of 16 bytes");
    }

    #[test]
    fn a_store_waits_for_places_in_the_order_of_the_stores() {
        let mut buffer = buffer(4, 2);
        buffer.enter(at(0), 2, at(90));
        buffer.enter(at(0), 2, at(50));
        assert_eq!(buffer.make_room(at(1), 2), at(90), "the first one was written then");
        buffer.enter(at(0), 1, at(20));
        assert_eq!(buffer.make_room(at(90), 4), at(90), "none is written before those before it");
        assert!(buffer.lines.is_empty());
    }
    #[test]
    fn an_interrupt_does_not_wait_for_stores_ahead_of_the_clock() {
        let mut buffer = buffer(4, 2);
        assert!(!buffer.begin(at(10)));
        buffer.enter(at(10), 2, at(90));
        buffer.enter(at(60), 2, at(5000));
        assert!(buffer.begin(at(9)) && !buffer.begin(at(20)));
        assert_eq!(buffer.make_room(at(20), 4), at(20), "neither had retired");
        buffer.enter(at(20), 3, at(70));
        assert!(!buffer.begin(at(30)));
        buffer.enter(at(30), 1, at(5000));
        assert!(buffer.begin(at(25)));
        assert_eq!(buffer.make_room(at(25), 1), at(25));
        assert_eq!(buffer.make_room(at(25), 2), at(70), "the first had");
    }
}
