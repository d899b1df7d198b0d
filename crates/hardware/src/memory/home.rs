//! A node's home agent: requests for one line are served one after the other.

use units::Time;

/// Requests that a home agent has in hand at most, or rather whose lines it remembers (Intel Xeon E5 v3 uncore
/// performance monitoring guide: its tracker has 128 entries).
const TRACKED: usize = 128;

/// A request for a line of the node.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    line: u64,
    from: Time,
    until: Time,
}

/// The home agent of one node.
#[derive(Clone, Debug)]
pub(super) struct HomeAgent {
    /// By a hash of the line. A line that another one pushes out is forgotten, which costs nothing but its wait.
    tracker: Vec<Tracked>,
}

impl HomeAgent {
    pub(super) fn new() -> Self {
        Self { tracker: vec![Tracked { line: u64::MAX, from: Time::ZERO, until: Time::ZERO }; TRACKED] }
    }

    /// When a request for `line` that is there at `at` is worked on: not while another one for it is.
    ///
    /// Cores compute ahead of the clock: a request that begins later holds up none that is there before it.
    #[inline]
    pub(super) fn admit(&self, at: Time, line: u64) -> Time {
        let entry = &self.tracker[Self::place(line)];
        if entry.line == line && entry.from <= at { at.max(entry.until) } else { at }
    }

    /// Notes that a request for `line` is being worked on.
    #[inline]
    pub(super) fn work_on(&mut self, line: u64, from: Time, until: Time) {
        self.tracker[Self::place(line)] = Tracked { line, from, until };
    }

    fn place(line: u64) -> usize {
        (line ^ line >> 7) as usize % TRACKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_worked_on_by_one_request_at_a_time() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut home = HomeAgent::new();
        assert_eq!(home.admit(at(10), 7), at(10));
        home.work_on(7, at(10), at(80));
        assert_eq!(home.admit(at(20), 7), at(80));
        assert_eq!(home.admit(at(20), 8), at(20), "another line");
        assert_eq!(home.admit(at(5), 7), at(5), "it was there first");
        assert_eq!(home.admit(at(90), 7), at(90));
    }
}
