//! Posted writes of cores on their way through a root port: how many it has room for.

use std::collections::VecDeque;

use units::Time;

use crate::memory::CoreId;

/// A root port's places for posted writes of cores, from the core's asking until the TLP has left on the wire.
#[derive(Debug, Default)]
pub(super) struct PostedPlaces {
    /// Granted, the TLP not yet at the link.
    on_the_way: u32,
    /// When those that are on the wire, or have their turn on it, will have left.
    leaving: VecDeque<Time>,
    /// Those that found no credits when last looked at.
    starved: usize,
    /// Cores that wait for a place, in the order in which they asked.
    pub waiting: VecDeque<CoreId>,
    /// When the port will be looked at again for their sake.
    pub wake: Option<Time>,
}

impl PostedPlaces {
    /// Places taken at `now`.
    pub fn taken(&mut self, now: Time) -> u32 {
        while self.leaving.front().is_some_and(|&at| at <= now) {
            self.leaving.pop_front();
        }
        self.on_the_way + (self.leaving.len() + self.starved) as u32
    }

    /// Takes a place.
    pub fn grant(&mut self) {
        self.on_the_way += 1;
    }

    /// A TLP has been handed to the link.
    pub fn handed_over(&mut self) {
        self.on_the_way -= 1;
        self.starved += 1;
    }

    /// Of those handed over, so many still lack credits; the others will have left the wire at `end`.
    pub fn starved(&mut self, now_starved: usize, end: Time) {
        for _ in now_starved..self.starved {
            self.leaving.push_back(end);
        }
        self.starved = now_starved;
    }

    /// When the next TLP will have left, if that is known.
    pub fn next_departure(&self) -> Option<Time> {
        self.leaving.front().copied()
    }
}
