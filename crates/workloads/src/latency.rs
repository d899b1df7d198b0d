//! Collects latencies.

use units::Duration;

use crate::program::Report;

/// All latencies of a series.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_ps());
    }

    /// Reports minimum, mean, percentiles and maximum in microseconds, and all samples.
    pub fn report(&mut self, report: &mut Report, what: &str) {
        if self.0.is_empty() {
            return;
        }
        let us = |ps: u64| ps as f64 / 1e6;
        report.samples = self.0.iter().map(|&ps| us(ps)).collect();
        self.0.sort_unstable();
        let at = |share: f64| us(self.0[((self.0.len() - 1) as f64 * share).round() as usize]);
        let mean = self.0.iter().map(|&ps| us(ps)).sum::<f64>() / self.0.len() as f64;
        report.add(format!("{what} min"), "µs", at(0.0));
        report.add(format!("{what} mean"), "µs", mean);
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            report.add(format!("{what} {name}"), "µs", at(share));
        }
        report.add(format!("{what} max"), "µs", at(1.0));
    }
}
