//! Strictly ordered writes: how many of them a port lets be on their way.
//!
//! Homes on several dies, or another root, take writes in whatever order they get to them. A port keeps the order of those
//! that must not pass others by letting only so many be under way; relaxed ones are as many as buffers hold.

use units::{Duration, Time};

use super::stack::WritePlaces;

/// Places of strictly ordered writes, if these are limited.
pub(super) struct OrderedWrites {
    places: Option<WritePlaces>,
}

impl OrderedWrites {
    pub fn new(places: Option<usize>) -> Self {
        Self { places: places.map(WritePlaces::new) }
    }

    /// When a write that could leave at `at` finds a place.
    pub fn leaves(&mut self, at: Time) -> Time {
        self.places.as_mut().map_or(at, |places| places.free_at(at))
    }

    /// It keeps its place until it is where all can see it, at `ordered`.
    pub fn occupy(&mut self, ordered: Time) {
        if let Some(places) = &mut self.places {
            places.occupy(ordered);
        }
    }

    /// How long writes have waited for places until `now`; `None` if these are not limited.
    pub fn waited(&self, now: Time) -> Option<Duration> {
        self.places.as_ref().map(|places| places.waited(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_until_the_oldest_is_seen() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut writes = OrderedWrites::new(Some(2));
        for (now, leaves) in [(0, 0), (1, 1), (2, 100), (3, 101)] {
            assert_eq!(writes.leaves(at(now)), at(leaves));
            writes.occupy(at(leaves + 100));
        }
        assert_eq!(
            [50, 200].map(|now| writes.waited(at(now))),
            [48, 99].map(|ns| Some(Duration::from_ns(ns)))
        );
        let mut free = OrderedWrites::new(None);
        free.occupy(at(100));
        assert_eq!((free.leaves(at(3)), free.waited(at(9))), (at(3), None));
    }
}
