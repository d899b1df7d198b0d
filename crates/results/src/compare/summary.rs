//! Medians and tails of the errors, by family of files.

use super::{CompareRow, ModeSummary, Quantity, Rules};
use crate::pciebench::Setup;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows with a larger |error|, in percent, are listed one by one.
pub const LARGE_MISS_PCT: f64 = 15.0;
/// A row whose measured and simulated values both differ by at most this share from the row before counts as a
/// repeat.
const REPEAT: f64 = 0.01;

/// Required accuracy, in percent of |error|.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Target {
    /// Maximum median.
    pub median_pct: f64,
    /// Maximum 90th percentile.
    pub p90_pct: f64,
}

impl Target {
    /// Target for directories that machine files were fitted to.
    pub const fn given(quantity: Quantity) -> Self {
        match quantity {
            Quantity::Median => Self { median_pct: 1.5, p90_pct: 4.0 },
            Quantity::Bandwidth => Self { median_pct: 2.0, p90_pct: 8.0 },
        }
    }
    /// Target for directories that no parameter was fitted to.
    pub const fn held_out(quantity: Quantity) -> Self {
        match quantity {
            Quantity::Median => Self { median_pct: 2.0, p90_pct: 6.0 },
            Quantity::Bandwidth => Self { median_pct: 3.0, p90_pct: 12.0 },
        }
    }
    /// The target of a directory, depending on whether it was held out from fitting.
    pub fn of(held_out: bool) -> fn(Quantity) -> Self {
        if held_out { Self::held_out } else { Self::given }
    }
}

/// Summary of a family of files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilySummary {
    /// The family (`lat_dma_sweep_*`).
    pub family: String,
    /// What was compared.
    pub quantity: Quantity,
    /// Total number of rows.
    pub rows: usize,
    /// Rows excluded as artefacts.
    pub artefacts: usize,
    /// Rows excluded as repeats of the row before.
    pub repeats: usize,
    /// Rows that were not simulated.
    pub not_simulated: usize,
    /// Rows included in the statistics.
    pub counted: usize,
    /// Median of |error|, percent; `None` without counted rows.
    pub median_pct: Option<f64>,
    /// 90th percentile of |error|, percent.
    pub p90_pct: Option<f64>,
    /// Maximum |error|, percent.
    pub worst_pct: Option<f64>,
    /// Median |error| of the 95th percentiles of the same rows, percent; `None` for bandwidths.
    pub p95_error_pct: Option<f64>,
    /// Median |error| of the 99.9th percentiles, percent.
    pub p999_error_pct: Option<f64>,
    /// Target for median and 90th percentile, if judged; tails are only shown.
    pub target: Option<Target>,
    /// Whether the target is met; `None` without a target or without counted rows.
    pub within: Option<bool>,
}

/// A row with a large error, and its cause.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Miss {
    /// The row, with the values that differ.
    #[serde(flatten)]
    pub row: CompareRow,
    /// The cause; `None` if unknown.
    pub cause: Option<String>,
}

/// Summary of all rows of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overall {
    /// What was compared.
    pub quantity: Quantity,
    /// Rows included in the statistics.
    pub counted: usize,
    /// Median of |error|, percent.
    pub median_pct: f64,
    /// 90th percentile of |error|, percent.
    pub p90_pct: f64,
}

impl Overall {
    /// Summarizes all counted rows of these summaries, separately for latencies and bandwidths.
    pub fn of<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> Vec<Self> {
        let mut errors: BTreeMap<Quantity, Vec<f64>> = BTreeMap::new();
        for (&quantity, some) in summaries.into_iter().flat_map(|summary| &summary.errors) {
            errors.entry(quantity).or_default().extend(some);
        }
        let overall = |(quantity, mut errors): (Quantity, Vec<f64>)| {
            errors.sort_by(f64::total_cmp);
            let (median_pct, p90_pct) = (median(&errors)?, percentile(&errors, 90.0)?);
            Some(Self { quantity, counted: errors.len(), median_pct, p90_pct })
        };
        errors.into_iter().filter_map(overall).collect()
    }

    /// The compared quantity, as a word.
    pub fn what(&self) -> &'static str {
        match self.quantity {
            Quantity::Median => "latencies",
            Quantity::Bandwidth => "bandwidths",
        }
    }
}

impl core::fmt::Display for Overall {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let what = self.what();
        let Self { counted, median_pct, p90_pct, .. } = self;
        write!(f, "{counted} {what}: median error {median_pct:.1} %, 90th percentile {p90_pct:.1} %")
    }
}

/// Errors of all rows of a directory, and what stands out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// One entry per family and quantity, by name.
    pub families: Vec<FamilySummary>,
    /// |error| of every counted row, percent.
    #[serde(skip)]
    pub errors: BTreeMap<Quantity, Vec<f64>>,
    /// Number of rows excluded by each artefact.
    pub artefacts: BTreeMap<String, usize>,
    /// Rows with an |error| above [`LARGE_MISS_PCT`], without artefacts, worst first.
    pub misses: Vec<Miss>,
    /// Latency modes of a machine that occasionally stops; empty for others.
    pub modes: Vec<ModeSummary>,
}

impl Summary {
    /// Summarizes the rows of one directory, in order of its files. `target` is [`Target::given`] or
    /// [`Target::held_out`].
    pub fn of(
        rows: &[CompareRow],
        setup: Option<&Setup>,
        rules: &Rules,
        target: impl Fn(Quantity) -> Target,
    ) -> Self {
        let mut families: BTreeMap<(String, Quantity), Tally> = BTreeMap::new();
        let mut artefacts = BTreeMap::new();
        let mut misses = Vec::new();
        let mut before: Option<&CompareRow> = None;
        for row in rows {
            let tally = families.entry((row.family(), row.quantity)).or_default();
            tally.rows += 1;
            if let Some(artefact) = rules.artefact(setup, row) {
                tally.artefacts += 1;
                *artefacts.entry(artefact.name.clone()).or_insert(0) += 1;
                continue;
            }
            let Some(error) = row.error_pct else {
                tally.not_simulated += 1;
                continue;
            };
            if error.abs() > LARGE_MISS_PCT {
                let cause = rules.cause(setup, row).map(|c| c.text.clone());
                misses.push(Miss { row: row.clone(), cause });
            }
            if before.is_some_and(|b| repeats(b, row)) {
                tally.repeats += 1;
                continue;
            }
            before = Some(row);
            tally.errors.push(error.abs());
            tally.p95.extend(row.p95.map(|tail| tail.error_pct.abs()));
            tally.p999.extend(row.p999.map(|tail| tail.error_pct.abs()));
        }
        let size = |miss: &Miss| miss.row.error_pct.unwrap_or_default().abs();
        misses.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let mut errors: BTreeMap<Quantity, Vec<f64>> = BTreeMap::new();
        for ((_, quantity), tally) in &families {
            errors.entry(*quantity).or_default().extend(&tally.errors);
        }
        let families = families
            .into_iter()
            .map(|((family, quantity), tally)| tally.summary(family, quantity, target(quantity)))
            .collect();
        Self { families, errors, artefacts, misses, modes: Vec::new() }
    }

    /// Removes the targets, for a comparison of two simulations.
    pub fn without_targets(mut self) -> Self {
        for family in &mut self.families {
            (family.target, family.within) = (None, None);
        }
        for mode in &mut self.modes {
            (mode.tolerance_pct, mode.within) = (None, None);
        }
        self
    }

    /// Whether it has any target.
    pub fn is_judged(&self) -> bool {
        self.families.iter().any(|family| family.target.is_some())
    }

    /// Whether every family with counted rows and every mode meets its target.
    pub fn within(&self) -> bool {
        let families = self.families.iter().map(|family| family.within);
        families.chain(self.modes.iter().map(|mode| mode.within)).all(|within| within != Some(false))
    }
}

/// Whether `row` repeats the last counted row `before`: same series, and both values within 1 %. A row where only the
/// simulated value changed is counted, so that a step at the wrong place shows.
fn repeats(before: &CompareRow, row: &CompareRow) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= REPEAT * a.abs();
    before.file == row.file
        && (before.test, before.pattern, before.cache) == (row.test, row.pattern, row.cache)
        && near(before.measured, row.measured)
        && matches!((before.simulated, row.simulated), (Some(a), Some(b)) if near(a, b))
}

#[derive(Default)]
struct Tally {
    rows: usize,
    artefacts: usize,
    repeats: usize,
    not_simulated: usize,
    errors: Vec<f64>,
    p95: Vec<f64>,
    p999: Vec<f64>,
}

impl Tally {
    fn summary(mut self, family: String, quantity: Quantity, target: Target) -> FamilySummary {
        for errors in [&mut self.errors, &mut self.p95, &mut self.p999] {
            errors.sort_by(f64::total_cmp);
        }
        let median_pct = median(&self.errors);
        let p90_pct = percentile(&self.errors, 90.0);
        let keeps = |value: Option<f64>, bound: f64| value.is_some_and(|v| v <= bound);
        let within = keeps(median_pct, target.median_pct) && keeps(p90_pct, target.p90_pct);
        let nothing_counts = self.errors.is_empty() && self.not_simulated == 0;
        FamilySummary {
            family,
            quantity,
            rows: self.rows,
            artefacts: self.artefacts,
            repeats: self.repeats,
            not_simulated: self.not_simulated,
            counted: self.errors.len(),
            median_pct,
            p90_pct,
            worst_pct: self.errors.last().copied(),
            p95_error_pct: median(&self.p95),
            p999_error_pct: median(&self.p999),
            target: Some(target),
            within: (!nothing_counts).then_some(self.not_simulated == 0 && within),
        }
    }
}

/// The median of ascending values.
pub fn median(ascending: &[f64]) -> Option<f64> {
    percentile(ascending, 50.0)
}

/// A percentile of ascending values, with linear interpolation.
pub fn percentile(ascending: &[f64], percent: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let index = last as f64 * percent / 100.0;
    let (low, high) = (index.floor() as usize, index.ceil() as usize);
    Some(ascending[low] + (ascending[high] - ascending[low]) * (index - low as f64))
}

#[cfg(test)]
mod tests {
    use super::super::Criterion;
    use super::*;
    use crate::compare::{Artefact, Tail};
    use crate::pciebench::{Cache, Pattern, Test};

    fn row(window_bytes: u64, measured: f64, simulated: f64) -> CompareRow {
        CompareRow {
            file: "lat_dma_sweep_rd_rnd_64.csv".into(),
            row: 1,
            test: Test::LatDmaRd,
            pattern: Pattern::Random,
            cache: Cache::Cold,
            window_bytes,
            transfer_bytes: 64,
            host_offset: 0,
            device_offset: 0,
            quantity: Quantity::Median,
            unit: "ns".into(),
            measured,
            simulated: Some(simulated),
            error_pct: Some(100.0 * (simulated - measured) / measured),
            p95: None,
            p999: Some(Tail { measured: 900.0, simulated: 990.0, error_pct: 10.0 }),
        }
    }

    #[test]
    fn tails_are_summed_up_beside_the_median() {
        let rows = [row(1, 600.0, 606.0), row(2, 700.0, 707.0)];
        let family = &Summary::of(&rows, None, &Rules::default(), Target::given).families[0];
        assert_eq!((family.p95_error_pct, family.p999_error_pct), (None, Some(10.0)));
        assert_eq!(family.within, Some(true), "shown, not judged");
    }

    #[test]
    fn repeats_are_counted_once_and_steps_always() {
        let rows = [row(1, 600.0, 606.0), row(2, 600.0, 606.0), row(3, 604.0, 606.0), row(4, 604.0, 650.0)];
        let summary = Summary::of(&rows, None, &Rules::default(), Target::given);
        let family = &summary.families[0];
        assert_eq!((family.rows, family.repeats, family.counted), (4, 2, 2));
        assert!((family.worst_pct.unwrap() - 7.615).abs() < 0.01);
        assert!(family.within == Some(false) && summary.misses.is_empty());
    }

    #[test]
    fn artefacts_are_left_out_by_name_and_misses_listed() {
        let criterion = Criterion { window_at_most: Some(4096), ..Criterion::default() };
        let artefact = Artefact { name: "small".into(), evidence: "seen".into(), any_of: vec![criterion] };
        let rules = Rules { artefact: vec![artefact], cause: Vec::new() };
        let rows = [row(4096, 500.0, 700.0), row(8192, 500.0, 600.0), row(16384, 500.0, 502.0)];
        let summary = Summary::of(&rows, None, &rules, Target::given);
        assert_eq!(summary.artefacts["small"], 1);
        assert_eq!(summary.misses.len(), 1);
        assert_eq!(summary.misses[0].row.window_bytes, 8192);
        assert_eq!(summary.families[0].counted, 2);
    }

    #[test]
    fn a_family_of_artefacts_alone_has_no_verdict() {
        let artefact =
            Artefact { name: "all".into(), evidence: "seen".into(), any_of: vec![Criterion::default()] };
        let rules = Rules { artefact: vec![artefact], cause: Vec::new() };
        let summary = Summary::of(&[row(4096, 500.0, 700.0)], None, &rules, Target::given);
        assert_eq!((summary.families[0].counted, summary.families[0].within), (0, None));
    }

    #[test]
    fn a_row_that_was_not_simulated_is_no_success() {
        let mut missing = row(1, 600.0, 600.0);
        (missing.simulated, missing.error_pct) = (None, None);
        assert!(!Summary::of(&[missing], None, &Rules::default(), Target::given).within());
    }
}
