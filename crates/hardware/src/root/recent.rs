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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_under_way_until_its_end() {
        let mut recent = RecentLines::default();
        let at = Time::from_ps;
        assert!(!recent.is_under_way(7, Time::ZERO));
        (0..100).for_each(|line| recent.replace(line, at(1_000 + line)));
        let is_known =
            |recent: &RecentLines, now| (0..100).filter(|&line| recent.is_under_way(line, at(now))).count();
        // Few share their place with a later one; the last is there in any case.
        assert!(is_known(&recent, 999) > 80 && recent.is_under_way(99, at(1_098)));
        assert!(!recent.is_under_way(99, at(1_099)) && !recent.is_under_way(99, at(1_100)));
        assert_eq!((is_known(&recent, 1_099), recent.is_under_way(100, Time::ZERO)), (0, false));
        recent.replace(99, at(5_000));
        assert!(recent.is_under_way(99, at(1_099)));
    }
}
