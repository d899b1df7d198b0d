//! Home of one node's memory: serialises requests for a line, reads and writes its DRAM, and keeps a directory of lines
//! that other sockets may have modified.
//!
//! The directory is that of Xeon E5 from v2 on: two bits beside each line's ECC, read and written with the line
//! (McCalpin, "Memory directories in Intel processors", 2023). Only one of its states matters and is modelled, "another
//! socket may have changed it"; sharers of a clean line are found in the caches themselves. The mark can outlive the
//! copy, as dropping a clean line is silent.

use super::LINE;
use super::access::Intent;
use super::counters::{ByCause, Cause};
use super::dram::Dram;
use super::params::{InterconnectParams, SnoopMode};
use super::slots::Slots;
use rustc_hash::FxHashMap;
use units::{Duration, Time};

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

/// The home agent of one node, with its DRAM.
#[derive(Debug)]
pub(super) struct Home {
    dram: Dram,
    /// Indexed by a hash of the line. An evicted line is forgotten, which only loses its wait.
    tracker: Vec<Tracked>,
    /// I/O directory cache: devices' writes from another socket that have obtained ownership and have not come back
    /// yet.
    io_writes: Slots,
    directory: Directory,
    snoop: SnoopMode,
    /// Bytes read from DRAM, and written.
    read: ByCause,
    written: ByCause,
}

impl Home {
    pub(super) fn new(params: &InterconnectParams, dram: Dram, directory: Directory) -> Self {
        Self {
            dram,
            tracker: vec![Tracked { line: u64::MAX, from: Time::ZERO, until: Time::ZERO }; TRACKED],
            io_writes: Slots::new(params.io_directory_cache.into()),
            directory,
            snoop: params.snoop,
            read: ByCause::default(),
            written: ByCause::default(),
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

    /// How long the channels of its DRAM were busy up to `now`, all together.
    pub(super) fn busy(&self, now: Time) -> Duration {
        self.dram.busy(now)
    }

    /// Reads a line from DRAM. Returns when it is there.
    #[inline]
    pub(super) fn read(&mut self, at: Time, line: u64, cause: Cause) -> Time {
        self.read.add(cause, LINE);
        self.dram.read(at, line)
    }

    /// Writes a line to DRAM. Returns when it has been accepted.
    #[inline]
    pub(super) fn write<const TIMED: bool>(&mut self, at: Time, line: u64, cause: Cause) -> Time {
        if !TIMED {
            return at;
        }
        self.written.add(cause, LINE);
        self.dram.write(at, line)
    }

    /// Whether an entry of the I/O directory cache is free at `at`.
    pub(super) fn tracks_io_write(&self, at: Time) -> bool {
        self.io_writes.free_at(at) == at
    }

    /// Writes a device's line, whose ownership was granted at `granted`, to DRAM. Returns when it has been accepted.
    pub(super) fn write_granted(&mut self, granted: Time, at: Time, line: u64) -> Time {
        let accepted = self.write::<true>(at, line, Cause::Dma);
        self.io_writes.occupy(granted, accepted);
        accepted
    }

    /// Whether another socket may have modified `line`, as far as the home knows.
    #[inline]
    pub(super) fn may_be_changed(&self, line: u64) -> bool {
        !self.keeps_directory() || self.directory.may_be_changed(line)
    }

    /// Without a directory, any line may be elsewhere.
    fn keeps_directory(&self) -> bool {
        self.snoop != SnoopMode::Broadcast
    }

    /// Whether the directory is read and written with the lines.
    fn directory_in_memory(&self) -> bool {
        self.snoop != SnoopMode::ProbeFilter
    }

    /// Whether it reads `line` before it asks the sockets that may have modified it.
    #[inline]
    pub(super) fn reads_before_asking(&self, line: u64) -> bool {
        self.snoop == SnoopMode::DirectoryFirst && self.directory.may_be_changed(line)
    }

    /// Whether it reads a line from memory only if the caches of its own socket do not have it: since Skylake-SP, the home is the
    /// slice that looks them up.
    pub(super) fn looks_up_first(&self) -> bool {
        self.snoop == SnoopMode::DirectoryFirst
    }

    /// When the directory's state of `line` is known, read at `at`.
    pub(super) fn read_directory(&mut self, at: Time, line: u64) -> Time {
        if self.directory_in_memory() { self.read(at, line, Cause::Directory) } else { at }
    }

    /// Records whether another socket may have modified `line`. Returns whether directory state has changed.
    #[inline]
    pub(super) fn set_changed(&mut self, line: u64, may_be: bool) -> bool {
        self.keeps_directory() && self.directory.set_changed(line, may_be)
    }

    /// Writes the directory state of a line that was obtained at `at`, by another socket if `is_remote`, if it has
    /// changed.
    ///
    /// A line that another socket may write is marked, even if it was only read, since the only reader gets it
    /// exclusively. The mark is cleared when the home's own socket has snooped all others, which also writes the whole
    /// line.
    #[inline]
    pub(super) fn keep_directory<const TIMED: bool>(
        &mut self,
        at: Time,
        line: u64,
        is_remote: bool,
        intent: Intent,
    ) {
        if intent != Intent::Observe && self.set_changed(line, is_remote) && self.directory_in_memory() {
            self.write::<TIMED>(at, line, Cause::Directory);
        }
    }

    /// Forgets which lines other sockets may have modified: their caches are empty.
    pub(super) fn clear(&mut self) {
        self.directory = Directory::default();
    }

    pub(super) fn into_directory(self) -> Directory {
        self.directory
    }

    /// Bytes read from DRAM, and written.
    pub(super) fn traffic(&self) -> (ByCause, ByCause) {
        (self.read, self.written)
    }

    /// Discards state that only matters before `now`.
    pub(super) fn pass(&mut self, now: Time) {
        self.dram.pass(now);
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
    use super::super::params::MemoryParams;
    use super::*;
    use engine::Seed;

    #[test]
    fn a_line_is_worked_on_by_one_request_at_a_time() {
        let at = |ns: u64| Time::from_ps(ns * 1000);
        let params = MemoryParams::example();
        let dram = Dram::new(&params.sockets[0].dram, Seed::new(1).component("dram"));
        let mut home = Home::new(&params.interconnect, dram, Directory::default());
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
