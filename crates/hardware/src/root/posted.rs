//! Places of a root port for posted writes of cores.

use std::collections::VecDeque;

use units::Time;

use crate::memory::CoreId;

/// Places of a root port, held from the core's request until the TLP has left on the wire.
#[derive(Debug, Default)]
pub(super) struct PostedPlaces {
    /// Places granted for TLPs that have not reached the link.
    on_the_way: u32,
    /// When TLPs on the wire, or scheduled for it, will have left.
    leaving: VecDeque<Time>,
    /// TLPs that lacked credits when last checked.
    starved: usize,
    /// Cores that wait for a place, in request order.
    pub waiting: VecDeque<CoreId>,
    /// When the port is next checked for them.
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

    /// When the next TLP will have left, if known.
    pub fn next_departure(&self) -> Option<Time> {
        self.leaving.front().copied()
    }
}
