//! The steady part of a bandwidth test, and confidence intervals by batches.

use devices::dma_engine::Journal;
use units::{Duration, Time};

/// The card's batches are merged until fewer than twice as many are left, since short batches depend on their
/// neighbours.
const BATCHES: usize = 64;

/// Number of batches to merge into one.
fn joined(count: usize) -> usize {
    (count / BATCHES).max(1)
}

/// The part of a bandwidth test in which all batches take about the same time.
pub(super) struct Steady {
    /// Transactions in this part.
    pub transactions: u64,
    pub time: Duration,
    /// Relative half-width of the 95 % confidence interval of a batch's time.
    pub half_width: f64,
}

impl Steady {
    /// Excludes the start, while the first requests fill an empty machine, and the end, while the last ones drain.
    pub fn of(journal: &Journal) -> Option<Self> {
        let joined = joined(journal.batch_ends.len());
        let ends: Vec<Time> = journal.batch_ends.iter().skip(joined - 1).step_by(joined).copied().collect();
        let (first, last) = (ends.len() / 8, ends.len() * 15 / 16);
        let time = ends.get(last)?.since(*ends.get(first)?);
        if time.is_zero() || last <= first + 2 {
            return None;
        }
        let batches: Vec<f64> = ends[first..=last].windows(2).map(|w| w[1].since(w[0]).as_ns_f64()).collect();
        let half_width = relative_half_width(&batches)?;
        let transactions = ((last - first) * joined) as u64 * journal.batch;
        Some(Self { transactions, time, half_width })
    }
}

/// Relative half-width of the 95 % confidence interval of a latency test's mean. Computed from batches, since
/// consecutive samples are not independent. `None` with fewer than two batches.
pub(super) fn latency_half_width(journal: &Journal) -> Option<f64> {
    let sums = journal.batch_latencies.chunks_exact(joined(journal.batch_latencies.len()));
    let batches: Vec<f64> = sums.map(|sums| sums.iter().map(|sum| sum.as_ns_f64()).sum()).collect();
    relative_half_width(&batches)
}

/// Relative half-width of the 95 % confidence interval of the mean of batches.
///
/// It takes batches for independent, as [`engine::steady::half_width`] does not. It also decides how long a run is, and
/// machine files were fitted to runs of that length.
fn relative_half_width(batches: &[f64]) -> Option<f64> {
    let n = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / n;
    if batches.len() < 2 || mean <= 0.0 {
        return None;
    }
    let variance = batches.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // The normal distribution's 97.5th percentile; there are dozens of batches.
    Some(1.96 * (variance / n).sqrt() / mean)
}
