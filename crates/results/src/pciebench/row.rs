//! Rows of the three kinds of files.

use super::Run;
use serde::{Deserialize, Serialize};
use units::Frequency;

/// Statistics of a latency test, all in the same unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyStats {
    /// Time of the whole test divided by its transactions: latency plus loop overhead (`TAvg`).
    pub total_average: f64,
    /// Mean of the samples (`Avg`).
    pub average: f64,
    /// Median of the samples (`Med`).
    pub median: f64,
    /// Least sample (`Min`).
    pub minimum: f64,
    /// Greatest sample (`Max`).
    pub maximum: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl LatencyStats {
    /// Converts to nanoseconds, with the same rounding as pcie-bench.
    fn to_ns(self, clock: Frequency) -> Self {
        let ns = |cycles: f64| cycles * 1e9 / clock.hz() as f64;
        Self {
            total_average: ns(self.total_average),
            average: ns(self.average),
            median: ns(self.median),
            minimum: ns(self.minimum),
            maximum: ns(self.maximum),
            p95: ns(self.p95),
            p999: ns(self.p999),
        }
    }

    /// The fields in the order of the columns.
    pub(super) fn columns(&self) -> [f64; 7] {
        [self.total_average, self.average, self.median, self.minimum, self.maximum, self.p95, self.p999]
    }
}

/// One row of a latency file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// What was run.
    pub run: Run,
    /// The statistics in cycles of the device's clock.
    pub cycles: LatencyStats,
    /// The statistics in nanoseconds.
    pub ns: LatencyStats,
    /// Samples above three times the 95th percentile.
    pub outliers: u64,
    /// Number of samples.
    pub samples: u64,
}

impl LatencyRow {
    /// Creates a row from statistics in cycles of the device's clock.
    pub fn from_cycles(
        run: Run,
        cycles: LatencyStats,
        clock: Frequency,
        outliers: u64,
        samples: u64,
    ) -> Self {
        Self { run, cycles, ns: cycles.to_ns(clock), outliers, samples }
    }

    /// Creates a row from all samples, in cycles of the device's clock, with pcie-bench's order statistics.
    /// `total_cycles` is the length of the whole test. `None` if `samples` is empty.
    pub fn from_samples(run: Run, samples: &mut [u64], total_cycles: u64, clock: Frequency) -> Option<Self> {
        let count = samples.len();
        if count == 0 {
            return None;
        }
        samples.sort_unstable();
        let sum: u64 = samples.iter().sum();
        let median = if count % 2 == 0 {
            (samples[count / 2] + samples[count / 2 - 1]) as f64 / 2.0
        } else {
            samples[count / 2] as f64
        };
        let p95 = percentile(samples, 95.0);
        let cycles = LatencyStats {
            total_average: (total_cycles / count as u64) as f64,
            average: sum as f64 / count as f64,
            median,
            minimum: samples[0] as f64,
            maximum: samples[count - 1] as f64,
            p95,
            p999: percentile(samples, 99.9),
        };
        let outliers = samples.iter().filter(|&&s| s as f64 > 3.0 * p95).count() as u64;
        Some(Self::from_cycles(run, cycles, clock, outliers, count as u64))
    }
}

/// Linear interpolation between the two samples nearest to `percent`.
fn percentile(sorted: &[u64], percent: f64) -> f64 {
    let index = (sorted.len() - 1) as f64 * (percent / 100.0);
    let (low, high) = (index.floor(), index.ceil());
    if low == high {
        return sorted[index as usize] as f64;
    }
    sorted[low as usize] as f64 * (high - index) + sorted[high as usize] as f64 * (index - low)
}

/// One row of a bandwidth file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BandwidthRow {
    /// What was run.
    pub run: Run,
    /// Length of the test in cycles of the device's clock.
    pub cycles: u64,
    /// Length of the test in nanoseconds.
    pub ns: f64,
    /// Payload transferred (per direction, for the read-write test).
    pub bytes: u64,
    /// Transactions (per direction, for the read-write test).
    pub transactions: u64,
    /// Goodput in Gbit/s. The file's heading says `GB/s`, but the numbers are Gbit/s.
    pub gbit_per_s: f64,
    /// Transactions per second.
    pub transactions_per_s: f64,
}

impl BandwidthRow {
    /// Creates a row from the device's counters.
    pub fn from_cycles(run: Run, cycles: u64, clock: Frequency, transactions: u64) -> Self {
        let ns = cycles as f64 * 1e9 / clock.hz() as f64;
        let bytes = run.transfer.get() * transactions;
        Self {
            run,
            cycles,
            ns,
            bytes,
            transactions,
            gbit_per_s: 8.0 * bytes as f64 / ns,
            transactions_per_s: transactions as f64 / (ns / 1e9),
        }
    }
}

/// A step of a cumulative distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CdfPoint {
    /// Latency in cycles of the device's clock.
    pub cycles: u64,
    /// Latency in nanoseconds.
    pub ns: f64,
    /// Share of the samples with at most this latency, 0 to 1.
    pub fraction: f64,
}

/// The distribution of one run. A `*_details_cdf` file holds one per row of its `*_details` file, in the same order;
/// each starts with a point at zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cdf {
    /// The steps, in order of latency.
    pub points: Vec<CdfPoint>,
}

impl Cdf {
    /// Creates a distribution from counts per latency in cycles, in ascending order.
    pub fn from_histogram(counts: impl IntoIterator<Item = (u64, u64)>, clock: Frequency) -> Self {
        let counts: Vec<_> = counts.into_iter().collect();
        let total: u64 = counts.iter().map(|c| c.1).sum();
        let ns = |cycles: u64| cycles as f64 * 1e9 / clock.hz() as f64;
        let mut points = Vec::with_capacity(counts.len() + 1);
        if let Some(&(cycles, _)) = counts.first() {
            points.push(CdfPoint { cycles, ns: ns(cycles), fraction: 0.0 });
        }
        let mut fraction = 0.0;
        for (cycles, count) in counts {
            fraction += count as f64 / total as f64;
            points.push(CdfPoint { cycles, ns: ns(cycles), fraction });
        }
        Self { points }
    }

    /// The smallest latency in nanoseconds that at least `fraction` of the samples do not exceed.
    pub fn quantile_ns(&self, fraction: f64) -> Option<f64> {
        self.points.iter().skip(1).find(|p| p.fraction >= fraction).map(|p| p.ns)
    }
}

/// A row of a latency or bandwidth file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Row {
    /// Of a latency test.
    Latency(LatencyRow),
    /// Of a bandwidth test.
    Bandwidth(BandwidthRow),
}

impl Row {
    /// What was run: test, window, transfers.
    pub const fn run(&self) -> &Run {
        match self {
            Self::Latency(row) => &row.run,
            Self::Bandwidth(row) => &row.run,
        }
    }
    /// The main value: median in nanoseconds, or goodput in Gbit/s.
    pub const fn headline(&self) -> f64 {
        match self {
            Self::Latency(row) => row.ns.median,
            Self::Bandwidth(row) => row.gbit_per_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, Pattern, Test};
    use super::*;
    use units::Bytes;

    fn run(test: Test) -> Run {
        Run {
            test,
            pattern: Pattern::Random,
            cache: Cache::Cold,
            host_offset: 0,
            device_offset: 0,
            window: Bytes::new(8192),
            transfer: Bytes::new(64),
        }
    }

    #[test]
    fn bandwidth_is_that_of_the_measured_row() {
        // First row of bw_dma_off_rd.csv of the Sandy Bridge box.
        let row = BandwidthRow::from_cycles(run(Test::BwDmaRd), 161_103_632, Frequency::mhz(1200), 8_388_608);
        assert_eq!(row.bytes, 536_870_912);
        assert_eq!(row.gbit_per_s, 31.991586354800496);
        assert_eq!(row.transactions_per_s, 62483567.09921972);
    }

    #[test]
    fn statistics_of_samples() {
        let mut samples: Vec<u64> = (1..=100).collect();
        let row = LatencyRow::from_samples(run(Test::LatCmdRd), &mut samples, 12_345, Frequency::mhz(1000))
            .unwrap();
        assert_eq!(row.cycles.median, 50.5);
        assert_eq!(row.cycles.total_average, 123.0);
        assert!((row.cycles.p95 - 95.05).abs() < 1e-9);
        assert_eq!((row.samples, row.outliers), (100, 0));
        assert!(LatencyRow::from_samples(run(Test::LatCmdRd), &mut [], 0, Frequency::mhz(1000)).is_none());
    }

    #[test]
    fn distribution_begins_at_zero_and_ends_at_one() {
        let cdf = Cdf::from_histogram([(16, 3), (32, 1)], Frequency::mhz(1000));
        assert_eq!(cdf.points.len(), 3);
        assert_eq!(cdf.points[0].fraction, 0.0);
        assert_eq!(cdf.points[2].fraction, 1.0);
        assert_eq!(cdf.quantile_ns(0.5), Some(16.0));
        assert_eq!(cdf.quantile_ns(0.9), Some(32.0));
    }
}
