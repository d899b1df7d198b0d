//! What a test has measured: the card's own memory, read when the test is over.

use std::collections::BTreeMap;

use units::{Duration, Time};

/// Results of the test that ran last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// Latencies as the card's clock showed them, and how often each occurred.
    pub latencies: BTreeMap<Duration, u64>,
    /// When the first transaction was begun.
    pub started: Time,
    /// When the test was over.
    pub ended: Time,
    /// Sums of the latencies of [`Journal::batch`] samples each, in the order in which they were taken.
    pub batch_latencies: Vec<Duration>,
    /// What the samples after the last full batch took together.
    pub(super) batch_latency: Duration,
    /// When each batch of [`Journal::batch`] transactions was complete.
    pub batch_ends: Vec<Time>,
    /// Transactions in a batch.
    pub batch: u64,
    /// Transactions completed.
    pub transactions: u64,
    /// Reads that brought other bytes than had been written before.
    pub corrupt: u64,
    /// Reads that ended in an error.
    pub failed: u64,
    /// Those of them whose completion did not come in time.
    pub timed_out: u64,
    /// Whether the test is over.
    pub done: bool,
}

impl Journal {
    pub(super) fn record_latency(&mut self, latency: Duration) {
        *self.latencies.entry(latency).or_default() += 1;
        self.transactions += 1;
        self.batch_latency += latency;
        if self.transactions % self.batch.max(1) == 0 {
            self.batch_latencies.push(std::mem::take(&mut self.batch_latency));
        }
    }

    /// Number of latencies recorded.
    pub fn samples(&self) -> u64 {
        self.latencies.values().sum()
    }

    /// The latency below or at which at least the share `quantile` of all samples lies; `None` without samples.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let wanted = (self.samples() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.latencies.iter().find_map(|(&latency, &count)| {
            seen += count;
            (seen >= wanted).then_some(latency)
        })
    }
}
