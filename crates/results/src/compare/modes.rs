//! Latency modes of a machine that occasionally stops for milliseconds: which modes exist, and their share of
//! samples.
//!
//! pcie-bench records only the mean and three percentiles of each row, not its samples. If the 99.9th percentile is
//! above a millisecond, at least a thousandth of the row's samples was stopped, and the percentile tells for how
//! long.

use crate::pciebench::LatencyStats;
use serde::Serialize;

/// Samples of at least this latency in ns were stopped; the other modes of known machines end at 20 us.
const STOPPED_NS: f64 = 1e6;
/// Tolerance for modes in percent, as for medians of such a machine.
const TOLERANCE_PCT: f64 = 25.0;
/// Minimum number of rows with a mode to tell its location.
const LEAST_ROWS: usize = 5;

/// A property of all latency rows of a directory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModeSummary {
    /// The property in words, as tables show it.
    pub property: String,
    /// Unit of both values: `ns` or `%`.
    pub unit: String,
    /// Number of latency rows used.
    pub rows: usize,
    /// Measured value.
    pub measured: f64,
    /// Simulated value.
    pub simulated: f64,
    /// 100 · (simulated − measured) / measured.
    pub error_pct: f64,
    /// Tolerance of |error|, percent, if judged.
    pub tolerance_pct: Option<f64>,
    /// Whether it is within tolerance.
    pub within: Option<bool>,
}

type Pair = (LatencyStats, LatencyStats);

fn first(row: &Pair) -> &LatencyStats {
    &row.0
}

fn second(row: &Pair) -> &LatencyStats {
    &row.1
}

/// Shares and locations of the modes of latency rows, measured and simulated, in ns.
///
/// Empty without rows. A mode's location is omitted if too few rows show it.
pub fn modes(rows: &[Pair]) -> Vec<ModeSummary> {
    let is_stopped = |stats: &LatencyStats| stats.p999 >= STOPPED_NS;
    let share = |of: fn(&Pair) -> &LatencyStats| {
        100.0 * rows.iter().filter(|row| is_stopped(of(row))).count() as f64 / rows.len().max(1) as f64
    };
    let place = |stopped: bool, of: fn(&Pair) -> &LatencyStats| {
        let mut all: Vec<f64> = rows
            .iter()
            .map(of)
            .filter(|stats| is_stopped(stats) == stopped)
            .map(|stats| stats.p999)
            .collect();
        all.sort_by(f64::total_cmp);
        (all.len() >= LEAST_ROWS).then(|| super::median(&all)).flatten()
    };
    let middle = |of: fn(&Pair) -> &LatencyStats| {
        let mut all: Vec<f64> = rows.iter().map(of).map(|stats| stats.p95).collect();
        all.sort_by(f64::total_cmp);
        super::median(&all)
    };
    // The longest of 100,000 samples shifts a mean considerably, so all rows are averaged.
    let beyond = |of: fn(&Pair) -> &LatencyStats| {
        let sum: f64 = rows.iter().map(of).map(|stats| stats.average - stats.median).sum();
        Some(sum / rows.len().max(1) as f64)
    };
    let properties = [
        ("95th percentile, median of rows", "ns", middle(first), middle(second)),
        (
            "place of the modes below 20 µs (99.9th percentile)",
            "ns",
            place(false, first),
            place(false, second),
        ),
        ("place of the mode above 1 ms (99.9th percentile)", "ns", place(true, first), place(true, second)),
        ("rows with a thousandth above 1 ms", "%", Some(share(first)), Some(share(second))),
        ("mean above median, over all rows", "ns", beyond(first), beyond(second)),
    ];
    let summary = |(property, unit, measured, simulated): (&str, &str, Option<f64>, Option<f64>)| {
        let (measured, simulated) = (measured?, simulated.unwrap_or(0.0));
        let error_pct = 100.0 * (simulated - measured) / measured;
        Some(ModeSummary {
            property: property.into(),
            unit: unit.into(),
            rows: rows.len(),
            measured,
            simulated,
            error_pct,
            tolerance_pct: Some(TOLERANCE_PCT),
            within: Some(error_pct.abs() <= TOLERANCE_PCT),
        })
    };
    if rows.is_empty() { Vec::new() } else { properties.into_iter().filter_map(summary).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(median: f64, p95: f64, p999: f64, average: f64) -> LatencyStats {
        LatencyStats { total_average: average, average, median, minimum: median, maximum: p999, p95, p999 }
    }

    #[test]
    fn shares_and_places_are_told_apart() {
        let fast = stats(400.0, 2_300.0, 11_000.0, 900.0);
        let stopped = stats(400.0, 2_300.0, 2_010_000.0, 5_000.0);
        let measured: Vec<_> = [fast; 10].into_iter().chain([stopped; 10]).collect();
        let same: Vec<_> = measured.iter().map(|&row| (row, row)).collect();
        let all = modes(&same);
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|mode| mode.within == Some(true) && mode.error_pct == 0.0));
        assert_eq!((all[1].measured, all[2].measured, all[3].measured), (11_000.0, 2_010_000.0, 50.0));
        let never: Vec<_> = measured.iter().map(|&row| (row, fast)).collect();
        let verdicts: Vec<Option<bool>> = modes(&never).iter().map(|mode| mode.within).collect();
        assert_eq!(
            verdicts,
            [Some(true), Some(true), Some(false), Some(false), Some(false)],
            "a simulation that never stops shows"
        );
        assert!(modes(&[]).is_empty());
    }
}
