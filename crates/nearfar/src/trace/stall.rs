//! Finds the first long wait for credits, tags, buffers or places in a ring.

use std::collections::BTreeMap;

use machine::ComputerSetup;
use units::{Duration, Time};

use crate::computer::{Computers, readings};
use crate::counters::Waited;

/// Looks per threshold.
const LOOKS: u64 = 4;

/// A wait that lasted as long as the threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// What was waited for, in words.
    pub what: String,
    /// How long at least.
    pub waited: Duration,
    /// When it was found, counted from the start of the first program.
    pub at: Duration,
}

/// Reads counters regularly until a wait is long enough.
#[derive(Debug)]
pub(super) struct StallWatch {
    /// The shortest wait that counts.
    threshold: Duration,
    /// Start of the first program, and of the recording.
    begins: (Time, Time),
    looked: Option<Time>,
    /// By host and resource: total so far, length of the present wait, and whether it lasted all of the last period.
    waits: BTreeMap<(String, String), (u128, u128, bool)>,
    /// The first long wait.
    pub found: Option<Stall>,
    /// The longest of all, for a run without a long one.
    pub longest: Option<Stall>,
}

impl StallWatch {
    /// Looks for waits once the recording has started.
    pub fn new(threshold: Duration, begins: (Time, Time)) -> Self {
        Self { threshold, begins, looked: None, waits: BTreeMap::new(), found: None, longest: None }
    }

    /// Reads all counters if it is time; returns the time of the next look.
    pub fn look(&mut self, setup: &ComputerSetup, computers: &Computers) -> Time {
        let (now, period) = (computers.simulation().now(), self.threshold / LOOKS);
        let (origin, starts) = self.begins;
        if now < starts {
            return starts;
        }
        let due = self.looked.map_or(now, |looked| looked + period);
        if now < due || self.found.is_some() {
            return due.max(now + period);
        }
        let passed = self.looked.map_or(0, |looked| now.since(looked).as_ps());
        for (host, waits) in readings(setup, computers) {
            for Waited { words, place, ps } in waits {
                let wait = self.waits.entry((host.clone(), place)).or_insert((ps, 0, false));
                let more = ps.saturating_sub(wait.0);
                let length = if wait.2 { wait.1 + more } else { more };
                // A wait may be counted when it ends, all at once.
                *wait = (ps, length, more * 100 >= u128::from(passed) * 99 && more > 0);
                let waited = Duration::from_ps(u64::try_from(length).unwrap_or(u64::MAX));
                if waited > self.longest.as_ref().map_or(Duration::ZERO, |longest| longest.waited) {
                    let stall = Stall { what: words, waited, at: now.since(origin) };
                    if waited >= self.threshold {
                        self.found.get_or_insert(stall.clone());
                    }
                    self.longest = Some(stall);
                }
            }
        }
        self.looked = Some(now);
        now + period
    }
}
