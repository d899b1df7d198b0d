//! A directory of measured results, for fitting: its rows in order of measurement, and the simulated value of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use machine::{IommuMode, Machine, Sockets};
use results::compare::{CompareRow, Rules, Summary, Target as Goal, median};
use results::pciebench::{Row, Run, Setup, family, read_directory_lenient};

use super::rows::{Circumstances, Informs};
use super::search::SCATTER;
use super::{FitError, FitOptions};
use crate::batch::{Job, Length, run_all};
use crate::bench::{Bench, Effort};
use crate::compare::{self, choose};
use crate::progress::Progress;

/// Samples and transactions per run during fitting.
pub const EFFORT: Effort = Effort { samples: 400, transactions: 2_500 };
/// Maximum number of rows per parameter, spread evenly over the rows that inform it.
const MOST_ROWS: usize = 18;
/// Every `STEP`th row of a directory is used to check whether a family got worse.
const STEP: usize = 5;

/// A measured directory and its simulation setup.
pub struct MeasuredDirectory {
    pub path: PathBuf,
    pub setup: Option<Setup>,
    pub bench: Bench,
    circumstances: Circumstances,
    rows: Vec<(CompareRow, Row)>,
    /// All runs in order of measurement.
    sequence: Vec<Run>,
    /// Index of each row in that order.
    order: Vec<usize>,
    /// Repeatability by family of files: difference between rows of one run, in percent.
    repeats: BTreeMap<String, Vec<f64>>,
}

/// A measured value and its comparison.
pub struct Sample<'a> {
    pub directory: &'a MeasuredDirectory,
    /// Indices of its directory and row: identical for every parameter that the row informs.
    pub key: (usize, usize),
    pub run: Run,
    /// Runs of the same directory before it, which decide what is in the caches.
    pub before: &'a [Run],
    pub measured: f64,
    /// Compare means rather than medians: medians jump from clock tick to clock tick, means change smoothly. Not for
    /// means with a long tail.
    pub by_mean: bool,
    pub file: &'a str,
}

/// The rows that inform a parameter, or an even selection of them.
pub fn samples<'a>(directories: &'a [MeasuredDirectory], informs: &Informs) -> Vec<Sample<'a>> {
    let mut all = Vec::new();
    for (number, directory) in directories.iter().enumerate() {
        for (index, ((compared, row), &place)) in directory.rows.iter().zip(&directory.order).enumerate() {
            if !informs.holds(compared, directory.circumstances) {
                continue;
            }
            let (measured, by_mean) = match row {
                Row::Latency(row) if row.ns.average < 1.1 * row.ns.median => (row.ns.average, true),
                row => (row.headline(), false),
            };
            let (run, before) = (*row.run(), &directory.sequence[..place]);
            let (key, file) = ((number, index), compared.file.as_str());
            all.push(Sample { directory, key, run, before, measured, by_mean, file });
        }
    }
    let step = all.len().div_ceil(MOST_ROWS).max(1);
    all.into_iter().step_by(step).collect()
}

impl MeasuredDirectory {
    /// Reads a directory. Unreadable files go to `problems`, truncated ones to `doubts`.
    pub fn read(
        path: &Path,
        options: &FitOptions,
        problems: &mut Vec<String>,
        doubts: &mut Vec<String>,
    ) -> Result<Self, FitError> {
        let (directory, bad) = read_directory_lenient(path)?;
        problems.extend(bad.iter().map(ToString::to_string));
        doubts.extend(directory.cut_short());
        let bench = choose(path, &compared_with(options))?.bench;
        let rules = Rules::pcie_bench();
        let setup = directory.setup.clone();
        let mut seen: BTreeMap<Run, f64> = BTreeMap::new();
        let mut repeats: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let (mut rows, mut order) = (Vec::new(), Vec::new());
        let sequence = directory.sequence();
        let places: BTreeMap<(&str, usize), usize> =
            sequence.iter().enumerate().map(|(index, &(file, row, _))| ((file, row), index)).collect();
        for file in &directory.files {
            for (index, row) in file.rows().into_iter().enumerate() {
                let compared = CompareRow::new(&file.name, index + 1, &row, None);
                if rules.artefact(setup.as_ref(), &compared).is_some() {
                    continue;
                }
                // Of repeated runs, the first counts.
                if let Some(first) = seen.get(row.run()) {
                    let apart = 100.0 * (row.headline() - first).abs() / first;
                    repeats.entry(family(&file.name)).or_default().push(apart);
                    continue;
                }
                seen.insert(*row.run(), row.headline());
                order.push(places[&(file.name.as_str(), index + 1)]);
                rows.push((compared, row));
            }
        }
        let Sockets { device, memory, .. } = bench.sockets;
        let circumstances = Circumstances { remote: device != memory, iommu: bench.iommu != IommuMode::Off };
        let sequence = sequence.into_iter().map(|(_, _, run)| run).collect();
        Ok(Self { path: path.to_owned(), setup, bench, circumstances, rows, sequence, order, repeats })
    }

    /// Median difference between rows of the same run in files of a family, in percent; over all families if this one
    /// has no repeated runs. For latencies, at least the scatter of the clock: rows that agree to the tick hide it.
    pub fn noise_pct(&self, family: &str) -> f64 {
        let least = if family.starts_with("lat_") { 100.0 * SCATTER } else { 0.0 };
        let mut apart = match self.repeats.get(family) {
            Some(own) => own.clone(),
            None => self.repeats.values().flatten().copied().collect(),
        };
        apart.sort_by(f64::total_cmp);
        median(&apart).unwrap_or(0.0).max(least)
    }

    /// Errors by family, over a selection of the rows.
    pub fn summary(&self, machine: &Machine, progress: &dyn Progress) -> Summary {
        self.summary_by(self.bench.seed, machine, progress)
    }

    /// As [`summary`](Self::summary), with another seed.
    pub fn summary_by(&self, seed: u64, machine: &Machine, progress: &dyn Progress) -> Summary {
        let bench = Bench { machine: machine.clone(), seed, ..self.bench.clone() };
        let some: Vec<(&(CompareRow, Row), &usize)> =
            self.rows.iter().zip(&self.order).step_by(STEP).collect();
        let jobs: Vec<Job<'_>> = some
            .iter()
            .map(|((_, row), place)| {
                let (run, before) = (*row.run(), &self.sequence[..**place]);
                Job { bench: &bench, run, before, effort: Length::Exactly(EFFORT) }
            })
            .collect();
        let outcomes = run_all(&jobs, "families", progress);
        let rows: Vec<CompareRow> = some
            .iter()
            .zip(outcomes)
            .map(|(((compared, row), _), outcome)| {
                CompareRow::new(&compared.file, compared.row, row, outcome.ok().map(|o| o.row).as_ref())
            })
            .collect();
        Summary::of(&rows, self.setup.as_ref(), &Rules::pcie_bench(), Goal::given)
    }
}

/// The options of `nearfar compare` that simulate what is fitted.
pub fn compared_with(options: &FitOptions) -> compare::CompareOptions {
    compare::CompareOptions {
        library: options.library.clone(),
        machine: options.base.clone(),
        seed: options.seed,
        ..compare::CompareOptions::default()
    }
}
