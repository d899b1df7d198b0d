//! A core's store buffer, as far as stores to memory are concerned: they retire into it and are written in order.

use std::collections::VecDeque;

use units::Time;

use hardware::memory::LINE;

use crate::costs::CoreParams;

/// Stores that have retired, by the line that they go to.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffer {
    /// When those to a line will have been written, and how many they are.
    lines: VecDeque<(Time, u64)>,
    /// How many all of them are.
    held: u64,
    size: u64,
    /// Bytes of the widest store.
    width: u64,
}

impl StoreBuffer {
    /// An empty one. The time from line to line says how many stores a line takes at one each interval.
    pub(super) fn new(core: &CoreParams) -> Self {
        let stores = core.issue.get().div_ceil(core.store_interval.get().max(1)).clamp(1, LINE);
        Self { lines: VecDeque::new(), held: 0, size: core.store_buffer.into(), width: LINE / stores }
    }

    /// The places that stores of so many bytes of a line take.
    pub(super) fn places_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.width).max(1)
    }

    /// When stores that come at `at` find so many places, or an empty buffer if that is smaller.
    pub(super) fn make_room(&mut self, mut at: Time, places: u64) -> Time {
        while let Some(&(written, of_line)) = self.lines.front()
            && (written <= at || self.held + places > self.size)
        {
            at = at.max(written);
            self.held -= of_line;
            self.lines.pop_front();
        }
        at
    }

    /// Stores to a line that could be written at `ready` take so many places until they are, behind all others.
    pub(super) fn enter(&mut self, places: u64, ready: Time) {
        let after = self.lines.back().map_or(Time::ZERO, |last| last.0);
        self.lines.push_back((ready.max(after), places));
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
        buffer.enter(2, at(90));
        buffer.enter(2, at(50));
        assert_eq!(buffer.make_room(at(1), 2), at(90), "the first one was written then");
        buffer.enter(1, at(20));
        assert_eq!(buffer.make_room(at(90), 4), at(90), "none is written before those before it");
        assert!(buffer.lines.is_empty());
    }
}
