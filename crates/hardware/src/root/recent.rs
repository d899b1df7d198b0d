//! Lines whose reads are under way.

use units::Time;

/// Places in the table: several times the reads that one device has outstanding.
const PLACES: usize = 1024;

/// Remembers until when the last read of a line is under way.
///
/// A table with one line at each place: a line that is pushed out of it is
/// forgotten, which costs nothing but the wait.
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
    /// Notes that a read of `line` is under way until `until`.
    pub fn replace(&mut self, line: u64, until: Time) {
        self.places[Self::place(line)] = (line, until);
    }

    /// Whether a read of `line` is still under way at `now`.
    pub fn is_under_way(&self, line: u64, now: Time) -> bool {
        let (at, until) = self.places[Self::place(line)];
        at == line && until > now
    }

    fn place(line: u64) -> usize {
        (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
    }
}
