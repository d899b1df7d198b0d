//! Home agent of a node: serialises requests for a line, and keeps a directory of lines that other sockets may have
//! modified.
//!
//! The directory is that of Xeon E5 from v2 on: two bits beside each line's ECC, read and written with the line
//! (McCalpin, "Memory directories in Intel processors", 2023). Only one of its states matters and is modelled, "another
//! socket may have changed it"; sharers of a clean line are found in the caches themselves. The mark can outlive the
//! copy, as dropping a clean line is silent.

use super::slots::Slots;
use rustc_hash::FxHashMap;
use units::Time;

/// Number of lines for which requests are tracked (Intel Xeon E5 v3 uncore performance monitoring guide: its tracker
/// has 128 entries).
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
    /// Indexed by a hash of the line. An evicted line is forgotten, which only loses its wait.
    tracker: Vec<Tracked>,
    /// I/O directory cache: devices' writes from another socket that have obtained ownership and have not come back
    /// yet.
    pub(super) io_writes: Slots,
}

impl HomeAgent {
    /// Creates a home agent with `io_directory_cache` entries.
    pub(super) fn new(io_directory_cache: u16) -> Self {
        Self {
            tracker: vec![Tracked { line: u64::MAX, from: Time::ZERO, until: Time::ZERO }; TRACKED],
            io_writes: Slots::new(io_directory_cache.into()),
        }
    }

    /// When processing of a request for `line` that arrives at `at` starts: not while another request for the line is
    /// processed.
    ///
    /// Cores compute ahead of the clock: a request that starts later does not delay an earlier one.
    #[inline]
    pub(super) fn admit(&self, at: Time, line: u64) -> Time {
        let entry = &self.tracker[Self::place(line)];
        if entry.line == line && entry.from <= at { at.max(entry.until) } else { at }
    }

    /// Records that a request for `line` is being processed.
    #[inline]
    pub(super) fn work_on(&mut self, line: u64, from: Time, until: Time) {
        self.tracker[Self::place(line)] = Tracked { line, from, until };
    }

    fn place(line: u64) -> usize {
        (line ^ line >> 7) as usize % TRACKED
    }
}

/// Lines of a node that other sockets may have modified.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    /// By page of 64 lines.
    pages: FxHashMap<u64, u64>,
}

impl Directory {
    /// Whether another socket may have modified `line` according to the directory.
    #[inline]
    pub(super) fn may_be_changed(&self, line: u64) -> bool {
        !self.pages.is_empty()
            && self.pages.get(&(line / 64)).is_some_and(|lines| lines >> (line % 64) & 1 != 0)
    }

    /// Records whether another socket may have modified `line`. Returns whether the state has changed.
    pub(super) fn set_changed(&mut self, line: u64, may_be: bool) -> bool {
        let bit = 1 << (line % 64);
        if may_be {
            let lines = self.pages.entry(line / 64).or_default();
            let is_new = *lines & bit == 0;
            *lines |= bit;
            return is_new;
        }
        match self.pages.get_mut(&(line / 64)) {
            Some(lines) if *lines & bit != 0 => {
                *lines &= !bit;
                if *lines == 0 {
                    self.pages.remove(&(line / 64));
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_worked_on_by_one_request_at_a_time() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let mut home = HomeAgent::new(64);
        assert_eq!(home.admit(at(10), 7), at(10));
        home.work_on(7, at(10), at(80));
        assert_eq!(home.admit(at(20), 7), at(80));
        assert_eq!(home.admit(at(20), 8), at(20), "another line");
        assert_eq!(home.admit(at(5), 7), at(5), "it was there first");
        assert_eq!(home.admit(at(90), 7), at(90));
    }

    #[test]
    fn the_directory_remembers_single_lines() {
        let mut home = Directory::default();
        assert!(home.set_changed(70, true) && !home.set_changed(70, true));
        assert!(home.may_be_changed(70) && !home.may_be_changed(71) && !home.may_be_changed(6));
        assert!(home.set_changed(70, false) && !home.set_changed(70, false));
        assert!(!home.may_be_changed(70));
    }
}
