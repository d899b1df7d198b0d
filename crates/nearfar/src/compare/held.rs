//! Rows as intervals, by simulations with drawn figures, and how many measured ones they hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use machine::Diagnostics;
use results::compare::{CompareRow, Quantity};
use results::pciebench::Run;

use super::{Chosen, CompareOptions, choose};
use crate::batch::{Job, Length, run_all};
use crate::bench::Outcome;
use crate::progress::Progress;
use crate::uncertainty::{Draws, MISSED_BANDWIDTH, MISSED_LATENCY, Spread, missing};

/// How many measured rows lie within their simulated interval from 5 to 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldRows {
    /// Rows within.
    pub within: usize,
    /// All counted rows with an interval.
    pub rows: usize,
}

impl HeldRows {
    /// Counts a row.
    fn count(&mut self, is_within: bool) {
        self.rows += 1;
        self.within += usize::from(is_within);
    }

    /// Adds other rows.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.within += other.within;
    }

    /// Share of the rows that lie within (per cent); `None` without rows.
    pub fn percent(&self) -> Option<f64> {
        (self.rows > 0).then(|| 100.0 * self.within as f64 / self.rows as f64)
    }
}

/// The intervals of these runs; each is given with the number of earlier runs in `before`.
pub(super) fn intervals(
    path: &Path,
    options: &CompareOptions,
    draws: Draws,
    (runs, before): (&[(Run, usize)], &[Run]),
    progress: &dyn Progress,
) -> Result<Vec<Option<Spread>>, Diagnostics> {
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); runs.len()];
    for draw in draws.all() {
        let library = options.library.redrawn(Arc::new(draw));
        let options = CompareOptions { library, ..options.clone() };
        let Chosen { bench, .. } = choose(path, &options)?;
        let job =
            |&(run, history)| Job { bench: &bench, run, before: &before[..history], effort: Length::Steady };
        let jobs: Vec<Job<'_>> = runs.iter().map(job).collect();
        let outcomes = run_all(&jobs, &format!("draw {draw} of {}", super::short(path)), progress);
        for ((values, outcome), (run, _)) in values.iter_mut().zip(outcomes).zip(runs) {
            let share = if run.test.is_latency() { MISSED_LATENCY } else { MISSED_BANDWIDTH };
            let drawn = |outcome: Outcome| missing(draw, &format!("{run:?}"), outcome.headline(), share);
            values.extend(outcome.ok().map(drawn));
        }
    }
    Ok(values.iter().map(|values| Spread::of(values)).collect())
}

/// Whether a row's measured value lies within its interval; files have rounded values.
pub fn holds(row: &CompareRow, interval: &Spread) -> bool {
    const ROUNDED: f64 = 1e-4;
    let off = row.measured.abs() * ROUNDED;
    (interval.low - off..=interval.high + off).contains(&row.measured)
}

/// How many measured rows are held, by family, and of all latencies and all bandwidths.
pub(super) fn count<'a>(
    rows: impl Iterator<Item = (&'a CompareRow, &'a Spread)>,
) -> (BTreeMap<String, HeldRows>, [HeldRows; 2]) {
    let (mut families, mut all) = (BTreeMap::<String, HeldRows>::new(), [HeldRows::default(); 2]);
    for (row, interval) in rows {
        let is_within = holds(row, interval);
        families.entry(row.family()).or_default().count(is_within);
        all[usize::from(row.quantity == Quantity::Bandwidth)].count(is_within);
    }
    (families, all)
}
