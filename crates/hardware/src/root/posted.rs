//! Places of a root port for posted writes of cores.

use std::collections::VecDeque;

use units::Time;

use crate::memory::CoreId;

/// Places of a root port, held from the core's request until the TLP has left on the wire.
#[derive(Debug)]
pub(super) struct PostedPlaces {
    most: u32,
    /// Places granted for TLPs that have not reached the link.
    on_the_way: u32,
    /// When TLPs on the wire, or scheduled for it, will have left.
    leaving: VecDeque<Time>,
    /// TLPs that lacked credits when last checked.
    starved: usize,
    /// Cores that wait for a place, in request order.
    waiting: VecDeque<CoreId>,
    /// When the port is next checked for them.
    look: Option<Time>,
}

impl PostedPlaces {
    /// `most` free places.
    pub fn new(most: u32) -> Self {
        let (leaving, waiting) = (VecDeque::new(), VecDeque::new());
        Self { most, on_the_way: 0, leaving, starved: 0, waiting, look: None }
    }

    /// Whether a place is free at `now`.
    pub fn has_free(&mut self, now: Time) -> bool {
        while self.leaving.front().is_some_and(|&at| at <= now) {
            self.leaving.pop_front();
        }
        self.on_the_way + ((self.leaving.len() + self.starved) as u32) < self.most
    }

    /// Takes a place.
    pub fn grant(&mut self) {
        self.on_the_way += 1;
    }

    /// A TLP has been handed over to the link.
    pub fn handed_over(&mut self) {
        self.on_the_way -= 1;
        self.starved += 1;
    }

    /// `now_starved` of the TLPs handed over still lack credits; the others will have left the wire at `end`.
    pub fn starved(&mut self, now_starved: usize, end: Time) {
        for _ in now_starved..self.starved {
            self.leaving.push_back(end);
        }
        self.starved = now_starved;
    }

    /// A core waits for a place.
    pub fn wait(&mut self, core: CoreId) {
        if !self.waiting.contains(&core) {
            self.waiting.push_back(core);
        }
    }

    /// Number of cores that wait for a place, which is now checked for them.
    pub fn waiting(&mut self, now: Time) -> usize {
        self.look.take_if(|look| *look <= now);
        self.waiting.len()
    }

    /// The next core that waited, if a place is free.
    pub fn next_waiting(&mut self, now: Time) -> Option<CoreId> {
        if self.has_free(now) { self.waiting.pop_front() } else { None }
    }

    /// When a core that waits has to be checked for, if that is known and earlier than what was returned before.
    pub fn next_look(&mut self, now: Time) -> Option<Time> {
        let next = self.leaving.front().copied().filter(|&at| at > now && !self.waiting.is_empty())?;
        if self.look.is_some_and(|look| look <= next) {
            return None;
        }
        self.look = Some(next);
        self.look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1_000)
    }

    #[test]
    fn a_place_is_taken_until_its_packet_has_left() {
        let mut places = PostedPlaces::new(3);
        (0..2).for_each(|_| places.grant());
        assert!(places.has_free(ns(0)));
        places.grant();
        assert!(!places.has_free(ns(0)), "all are on the way");
        (0..2).for_each(|_| places.handed_over());
        assert!(!places.has_free(ns(0)), "they lack credits");
        places.starved(1, ns(10));
        assert!(!places.has_free(ns(9)), "one is on the wire");
        assert!(places.has_free(ns(10)) && places.has_free(ns(5)));
        places.grant();
        places.handed_over();
        places.starved(0, ns(30));
        assert!(!places.has_free(ns(29)));
        // Two leave at once.
        assert!(places.has_free(ns(30)));
        (0..2).for_each(|_| places.grant());
        assert!(!places.has_free(ns(30)));
    }

    #[test]
    fn cores_wait_in_turn_and_are_looked_at_when_one_leaves() {
        let mut places = PostedPlaces::new(2);
        (0..2).for_each(|_| places.grant());
        (0..2).for_each(|_| places.handed_over());
        places.starved(1, ns(10));
        places.starved(0, ns(20));
        assert_eq!(places.next_look(ns(0)), None, "nobody waits");
        [3, 5, 3].into_iter().for_each(|core| places.wait(CoreId(core)));
        assert_eq!(places.waiting(ns(0)), 2);
        assert_eq!((places.next_look(ns(0)), places.next_look(ns(0))), (Some(ns(10)), None));
        assert_eq!(places.next_waiting(ns(9)), None);
        assert_eq!(places.next_waiting(ns(10)), Some(CoreId(3)));
        places.grant();
        assert_eq!(
            (places.next_waiting(ns(10)), places.next_look(ns(10))),
            (None, None),
            "not before it was looked"
        );
        assert_eq!(places.waiting(ns(9)), 1);
        assert_eq!(places.next_look(ns(10)), None, "that look is still due");
        assert_eq!(places.waiting(ns(10)), 1);
        assert_eq!((places.next_look(ns(20)), places.next_look(ns(10))), (None, Some(ns(20))));
        assert_eq!((places.next_waiting(ns(20)), places.next_waiting(ns(20))), (Some(CoreId(5)), None));
    }
}
