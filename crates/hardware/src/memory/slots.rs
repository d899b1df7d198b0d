//! Places held by requests for a time, such as queue entries or entries of a small cache.

use units::Time;

/// Occupancy of a place by a request.
#[derive(Clone, Copy, Debug, Default)]
struct Stay {
    from: Time,
    until: Time,
}

/// A number of places, each with its current or last request.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// Ordered by the time at which they become free.
    stays: Vec<Stay>,
}

impl Slots {
    /// Creates `size` free places, at least one.
    pub(super) fn new(size: usize) -> Self {
        Self { stays: vec![Stay::default(); size.max(1)] }
    }

    /// Whether more than `places` are free at `at`.
    #[inline]
    pub(super) fn more_than(&self, places: usize, at: Time) -> bool {
        self.stays.get(places).is_some_and(|stay| stay.until <= at)
    }

    /// When a request that arrives at `at` gets a place.
    #[inline]
    pub(super) fn free_at(&self, at: Time) -> Time {
        at.max(self.stays[0].until)
    }

    /// A request occupies the place that becomes free first, from `from` until `until`.
    #[inline]
    pub(super) fn occupy(&mut self, from: Time, until: Time) {
        // Most requests end after all others.
        let mut place = self.stays.len() - 1;
        while place > 0 && self.stays[place].until > until {
            place -= 1;
        }
        self.stays.copy_within(1..=place, 0);
        self.stays[place] = Stay { from, until };
    }

    /// Frees the places of requests that start after `at`.
    pub(super) fn put_off(&mut self, at: Time) {
        self.stays.iter_mut().filter(|stay| stay.from > at).for_each(|stay| *stay = Stay::default());
        self.stays.sort_by_key(|stay| stay.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_free_place_a_request_waits() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut slots = Slots::new(2);
        slots.occupy(at(0), at(50));
        assert_eq!((slots.free_at(at(1)), slots.more_than(0, at(1))), (at(1), true));
        assert!(!slots.more_than(1, at(1)) && slots.more_than(1, at(50)) && !slots.more_than(2, at(50)));
        slots.occupy(at(0), at(40));
        assert_eq!((slots.free_at(at(1)), slots.more_than(0, at(1))), (at(40), false));
        assert_eq!((slots.free_at(at(45)), slots.more_than(0, at(45))), (at(45), true));
        slots.occupy(at(0), at(45));
        assert_eq!(slots.free_at(at(1)), at(45), "the one until 40 was taken");
    }
    #[test]
    fn requests_that_are_put_off_hold_up_nobody() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut slots = Slots::new(2);
        slots.occupy(at(10), at(90));
        slots.occupy(at(5), at(50));
        slots.put_off(at(5));
        assert_eq!(slots.free_at(at(6)), at(6));
        assert!(!slots.more_than(1, at(6)), "the other had begun");
    }
}
