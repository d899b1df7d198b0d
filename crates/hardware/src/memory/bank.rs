//! A DRAM bank and its row activations.

use std::collections::VecDeque;

use units::{Duration, Time};

#[derive(Clone, Copy, Debug)]
pub(super) struct RowTimes {
    /// tRC: from opening a row to opening another one.
    pub cycle: Duration,
    /// tRCD: from opening a row to its first access.
    pub activate: Duration,
    /// tRP: from closing a row to opening another one.
    pub precharge: Duration,
    /// How long an unused row stays open.
    pub idle: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    row: u64,
    from: Time,
    /// Its last access, as far as known.
    used: Time,
}

/// Number of rows kept if the clock is never advanced.
const MOST: usize = 64;

/// A bank.
///
/// An access to a row that is open, or that will be opened before the access could open it itself, goes ahead of
/// earlier accesses to other rows: controllers prefer ready accesses, then older ones (S. Rixner et al., "Memory access
/// scheduling", ISCA 2000). A row stays open until another one is needed, but for at least the bank's cycle time.
#[derive(Clone, Debug)]
pub(super) struct Bank {
    /// In time order, at least one cycle apart.
    opened: VecDeque<Opened>,
}

impl Default for Bank {
    fn default() -> Self {
        // Enough if no program is far ahead of the clock.
        Self { opened: VecDeque::with_capacity(8) }
    }
}

impl Bank {
    /// Accesses `row` at `at`. Returns when the row is ready.
    #[inline]
    pub(super) fn access(&mut self, at: Time, row: u64, times: &RowTimes) -> Time {
        // Most accesses come after all known rows.
        let next = match self.opened.back() {
            Some(last) if last.from > at => self.opened.partition_point(|opened| opened.from <= at),
            _ => self.opened.len(),
        };
        let mut earliest = at;
        if let Some(now) = next.checked_sub(1) {
            let open = self.opened[now];
            let is_open = match self.opened.get(next) {
                Some(next) => at + times.precharge < next.from,
                None => at < open.used + times.idle,
            };
            if is_open {
                if open.row == row {
                    let ready = at.max(open.from + times.activate);
                    self.opened[now].used = open.used.max(ready);
                    return ready;
                }
                earliest += times.precharge;
            }
            earliest = earliest.max(open.from + times.cycle);
        }
        self.open(next, earliest, row, times)
    }

    /// Opens a row no earlier than `earliest` and before the `next` of the known ones, or as soon after as there is
    /// time between two of them.
    fn open(&mut self, mut next: usize, mut earliest: Time, row: u64, times: &RowTimes) -> Time {
        while let Some(other) = self.opened.get_mut(next).filter(|other| other.from < earliest + times.cycle)
        {
            if other.row == row {
                let ready = other.from + times.activate;
                other.used = other.used.max(ready);
                return ready;
            }
            earliest = other.from + times.cycle;
            next += 1;
        }
        if self.opened.len() == MOST && next > 0 {
            self.opened.pop_front();
            next -= 1;
        }
        let ready = earliest + times.activate;
        self.opened.insert(next, Opened { row, from: earliest, used: ready });
        ready
    }

    /// Discards rows that have been closed at `now`; nothing arrives before.
    pub(super) fn pass(&mut self, now: Time) {
        while self.opened.get(1).is_some_and(|next| next.from <= now) {
            self.opened.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMES: RowTimes = RowTimes {
        cycle: Duration::from_ns(46),
        activate: Duration::from_ns(14),
        precharge: Duration::from_ns(13),
        idle: Duration::from_us(1),
    };

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1000)
    }

    #[test]
    fn an_open_row_serves_whoever_needs_it_before_another_is_opened() {
        let mut bank = Bank::default();
        let mut access = |at, row| bank.access(ns(at), row, &TIMES);
        assert_eq!(access(0, 1), ns(14), "it is opened");
        assert_eq!(access(1, 1), ns(14), "and is ready for the next at the same time");
        assert_eq!(access(2, 2), ns(46 + 14), "another one has to wait for the cycle");
        assert_eq!(access(20, 1), ns(20), "meanwhile the first is open");
        assert_eq!(access(21, 2), ns(46 + 14), "and the second expected");
        assert_eq!(access(34, 1), ns(2 * 46 + 14), "until it closes for the second");
    }

    #[test]
    fn a_row_that_nobody_uses_closes() {
        let mut bank = Bank::default();
        let mut access = |at, row| bank.access(ns(at), row, &TIMES);
        access(0, 1);
        assert_eq!(access(900, 2), ns(900 + 13 + 14), "another one is open");
        assert_eq!(access(5_000, 1), ns(5_000 + 14), "none is");
    }

    #[test]
    fn an_early_arrival_uses_the_time_before_rows_that_are_opened_later() {
        let mut bank = Bank::default();
        let mut access = |at, row| bank.access(ns(at), row, &TIMES);
        access(1_000, 1);
        assert_eq!(access(0, 1), ns(14), "the same row, but long before");
        assert_eq!(access(900, 2), ns(900 + 13 + 14));
        assert_eq!(access(930, 3), ns(1_046 + 14), "no cycle is left before the first");
    }

    proptest! {
        /// Rows are opened at least a cycle apart, and no access is served before it arrives.
        #[test]
        fn cycles_never_overlap(accesses in prop::collection::vec((0u64..3_000, 0u64..5), 1..200), passed in 0u64..2_000) {
            let mut bank = Bank::default();
            for (n, (at, row)) in accesses.into_iter().enumerate() {
                let at = if n < 20 { at } else { at.max(passed) };
                prop_assert!(bank.access(ns(at), row, &TIMES) >= ns(at));
                if n == 20 {
                    bank.pass(ns(passed));
                }
                let opened = Vec::from_iter(bank.opened.iter().map(|opened| opened.from));
                prop_assert!(opened.windows(2).all(|two| two[1] >= two[0] + TIMES.cycle));
            }
        }
    }
}
