//! Results of a test in the card's own memory, read when the test is over.

use std::collections::BTreeMap;

use units::{Duration, Time};

/// Results of the last test.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Transactions completed.
    pub transactions: u64,
    /// Reads that returned other data than had been written.
    pub corrupt: u64,
    /// Reads that ended in an error.
    pub failed: u64,
    /// Failed reads due to a completion timeout.
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
