//! Places that requests take for a while, such as those of a queue or of a small cache.

use units::Time;

/// A number of places, each with the time from which on it is free.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// The one that is free first comes first.
    free: Vec<Time>,
}

impl Slots {
    /// So many free places, and no fewer than one.
    pub(super) fn new(size: usize) -> Self {
        Self { free: vec![Time::ZERO; size.max(1)] }
    }

    /// Whether more than `places` are free at `at`.
    #[inline]
    pub(super) fn more_than(&self, places: usize, at: Time) -> bool {
        self.free.get(places).is_some_and(|&from| from <= at)
    }

    /// When a request that comes at `at` finds a place.
    #[inline]
    pub(super) fn free_at(&self, at: Time) -> Time {
        at.max(self.free[0])
    }

    /// A request takes the place that is free first, until `until`.
    #[inline]
    pub(super) fn occupy(&mut self, until: Time) {
        // Most requests end behind all others.
        let mut place = self.free.len() - 1;
        while place > 0 && self.free[place] > until {
            place -= 1;
        }
        self.free.copy_within(1..=place, 0);
        self.free[place] = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_free_place_a_request_waits() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut slots = Slots::new(2);
        slots.occupy(at(50));
        assert_eq!((slots.free_at(at(1)), slots.more_than(0, at(1))), (at(1), true));
        assert!(!slots.more_than(1, at(1)) && slots.more_than(1, at(50)) && !slots.more_than(2, at(50)));
        slots.occupy(at(40));
        assert_eq!((slots.free_at(at(1)), slots.more_than(0, at(1))), (at(40), false));
        assert_eq!((slots.free_at(at(45)), slots.more_than(0, at(45))), (at(45), true));
        slots.occupy(at(45));
        assert_eq!(slots.free_at(at(1)), at(45), "the one until 40 was taken");
    }
}
