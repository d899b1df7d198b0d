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
