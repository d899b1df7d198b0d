//! Places that requests take for a while, such as those of a queue or of a small cache.

use units::Time;

/// A number of places, each with the time from which on it is free.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    free: Vec<Time>,
}

impl Slots {
    /// So many free places, and no fewer than one.
    pub(super) fn new(size: usize) -> Self {
        Self { free: vec![Time::ZERO; size.max(1)] }
    }

    /// How many places there are.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.free.len()
    }

    /// How many of them are taken at `at`.
    #[inline]
    pub(super) fn taken(&self, at: Time) -> usize {
        self.free.iter().filter(|&&free| free > at).count()
    }

    /// The place that is free first, and when it is.
    #[inline]
    fn first(&self) -> (usize, Time) {
        let places = self.free.iter().copied().enumerate();
        places.min_by_key(|&(_, free)| free).expect("there is a place")
    }

    /// When a request that comes at `at` finds a place.
    #[inline]
    pub(super) fn free_at(&self, at: Time) -> Time {
        at.max(self.first().1)
    }

    /// A request takes the place that is free first, until `until`.
    #[inline]
    pub(super) fn occupy(&mut self, until: Time) {
        let (place, _) = self.first();
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
        assert_eq!((slots.free_at(at(1)), slots.taken(at(1))), (at(1), 1));
        slots.occupy(at(40));
        assert_eq!((slots.free_at(at(1)), slots.taken(at(1))), (at(40), 2));
        assert_eq!(slots.taken(at(50)), 0);
    }
}
