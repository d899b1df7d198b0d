//! Results of a test in the card's own memory, read when the test is over.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::device::DmaError;
use units::{Duration, Time};

/// How far a test has come. It is asked for before every event, so reading it needs no borrow of the journal.
#[derive(Debug, Default, PartialEq)]
pub struct TestProgress {
    transactions: Cell<u64>,
    done: Cell<bool>,
}

impl TestProgress {
    /// Transactions completed.
    #[inline]
    pub fn transactions(&self) -> u64 {
        self.transactions.get()
    }

    /// Whether the test is over.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.get()
    }
}

/// Results of the last test.
#[derive(Debug, Default, PartialEq)]
pub struct Journal {
    /// Histogram of latencies, as measured by the card's clock.
    pub latencies: BTreeMap<Duration, u64>,
    /// Start of the first transaction.
    pub started: Time,
    /// End of the test.
    pub ended: Time,
    /// Sums of the latencies of [`Journal::batch`] samples each, in the order in which they were taken.
    pub batch_latencies: Vec<Duration>,
    /// Sum of the latencies after the last full batch.
    pub(super) batch_latency: Duration,
    /// When each batch of [`Journal::batch`] transactions completed.
    pub batch_ends: Vec<Time>,
    /// Transactions per batch.
    pub batch: u64,
    /// How far the test has come; the same object for all tests of a card.
    pub progress: Rc<TestProgress>,
    /// Reads that returned other data than had been written.
    pub corrupt: u64,
    /// Reads that ended in an error.
    pub failed: u64,
    /// Failed reads due to a completion timeout.
    pub timed_out: u64,
}

impl Journal {
    /// Begins the journal of the next test.
    pub(super) fn begin(&mut self, started: Time, batch: u64) {
        let progress = Rc::clone(&self.progress);
        progress.transactions.set(0);
        progress.done.set(false);
        *self = Self { started, batch, progress, ..Self::default() };
    }

    /// The test is over.
    pub(super) fn end(&mut self, ended: Time) {
        self.ended = ended;
        self.progress.done.set(true);
    }

    /// Counts a transaction. Returns how many there are now.
    #[inline]
    fn count(&self) -> u64 {
        let transactions = self.progress.transactions() + 1;
        self.progress.transactions.set(transactions);
        transactions
    }

    /// Records a transaction of a bandwidth test that has completed `now`.
    #[inline]
    pub(super) fn record_transaction(&mut self, now: impl FnOnce() -> Time) {
        if self.count() == self.batch * (self.batch_ends.len() as u64 + 1) {
            self.batch_ends.push(now());
        }
    }

    #[cold]
    pub(super) fn record_failure(&mut self, error: DmaError) {
        self.failed += 1;
        self.timed_out += u64::from(error == DmaError::Timeout);
    }

    pub(super) fn record_latency(&mut self, latency: Duration) {
        *self.latencies.entry(latency).or_default() += 1;
        self.batch_latency += latency;
        if self.count() % self.batch.max(1) == 0 {
            self.batch_latencies.push(std::mem::take(&mut self.batch_latency));
        }
    }

    /// Number of latencies recorded.
    pub fn samples(&self) -> u64 {
        self.latencies.values().sum()
    }

    /// The smallest latency such that at least the fraction `quantile` of samples is at or below it; `None` without
    /// samples.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let wanted = (self.samples() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.latencies.iter().find_map(|(&latency, &count)| {
            seen += count;
            (seen >= wanted).then_some(latency)
        })
    }
}
