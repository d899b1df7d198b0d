//! Lines with reads in flight.

use units::Time;
use units::hash::spread;

/// Table size: several times the reads that a device has outstanding.
const PLACES: usize = 1024;

/// Remembers until when the last read of each line is in flight.
///
/// Direct mapped. An evicted line is forgotten, which only loses its wait.
#[derive(Debug)]
pub struct RecentLines {
    places: Vec<(u64, Time)>,
}

impl Default for RecentLines {
    fn default() -> Self {
        Self { places: vec![(u64::MAX, Time::ZERO); PLACES] }
    }
}

impl RecentLines {
    /// Records that a read of `line` is in flight until `until`.
    pub fn replace(&mut self, line: u64, until: Time) {
        self.places[Self::place(line)] = (line, until);
    }

    /// Whether a read of `line` is still in flight at `now`.
    pub fn is_under_way(&self, line: u64, now: Time) -> bool {
        let (at, until) = self.places[Self::place(line)];
        at == line && until > now
    }

    fn place(line: u64) -> usize {
        (spread(line) >> 54) as usize
    }
}
