//! Which part of a bandwidth test counts.

use devices::dma_engine::Journal;
use units::Duration;

/// The part of a bandwidth test in which every batch takes about as long as the next.
pub(super) struct Steady {
    /// Transactions in it.
    pub transactions: u64,
    /// How long they took.
    pub time: Duration,
    /// Half-width of the 95 % confidence interval of a batch's time, relative.
    pub half_width: f64,
}

impl Steady {
    /// Leaves out the start, while the first requests fill an empty machine, and the end, while the last ones drain.
    pub fn of(journal: &Journal) -> Option<Self> {
        let ends = &journal.batch_ends;
        let (first, last) = (ends.len() / 8, ends.len() * 15 / 16);
        let time = ends.get(last)?.since(*ends.get(first)?);
        if time.is_zero() || last <= first + 2 {
            return None;
        }
        let batches: Vec<f64> = ends[first..=last].windows(2).map(|w| w[1].since(w[0]).as_ns_f64()).collect();
        let n = batches.len() as f64;
        let mean = batches.iter().sum::<f64>() / n;
        let variance = batches.iter().map(|b| (b - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half_width = 1.96 * (variance / n).sqrt() / mean;
        Some(Self { transactions: (last - first) as u64 * journal.batch, time, half_width })
    }
}
