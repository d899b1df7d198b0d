//! A directory of measured results, for fitting: its rows in order of measurement, and the simulated value of each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use machine::{IommuMode, Machine, Sockets};
use results::compare::{CompareRow, Rules, Summary, Target as Goal, median};
use results::pciebench::{Row, Run, Setup, family, read_directory_lenient};

use super::rows::{Circumstances, Informs};
use super::search::SCATTER;
use super::worse::FamilyErrors;
use super::{FitError, FitOptions};
use crate::batch::{Job, Length, run_all};
use crate::bench::{Bench, Effort};
use crate::compare::{self, choose, spread};
use crate::progress::Progress;

/// Samples and transactions per run during fitting.
pub const EFFORT: Effort = Effort { samples: 400, transactions: 2_500 };
/// Rows of each family of files, about, of those that inform a parameter.
const FITTED_ROWS: usize = 18;
/// Rows of each family, about, that tell whether it got worse.
const CHECKED_ROWS: usize = 30;
/// Least noise of bandwidths, in percent: the spread between other samples of the same runs.
const NOISE_PCT: f64 = 0.05;

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
    /// Indices of the rows that tell whether a family got worse.
    checked: Vec<usize>,
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
    /// Compare means rather than medians.
    pub by_mean: bool,
    pub file: &'a str,
}

/// Whether to compare a row's means rather than its medians: medians jump from clock tick to clock tick, means change
/// smoothly. Not for means with a long tail.
fn shows_in_mean(measured: &Row) -> bool {
    matches!(measured, Row::Latency(row) if row.ns.average < 1.1 * row.ns.median)
}

/// The value of a row that is compared.
pub fn value(row: &Row, by_mean: bool) -> f64 {
    match row {
        Row::Latency(row) if by_mean => row.ns.average,
        row => row.headline(),
    }
}

/// The rows that inform a parameter, or a selection of them from each family of files.
pub fn samples<'a>(directories: &'a [MeasuredDirectory], informs: &Informs) -> Vec<Sample<'a>> {
    let mut families: BTreeMap<String, Vec<Sample<'a>>> = BTreeMap::new();
    for (number, directory) in directories.iter().enumerate() {
        for (index, ((compared, row), &place)) in directory.rows.iter().zip(&directory.order).enumerate() {
            if !informs.holds(compared, directory.circumstances) {
                continue;
            }
            let by_mean = shows_in_mean(row);
            let measured = value(row, by_mean);
            let (run, before) = (*row.run(), &directory.sequence[..place]);
            let (key, file) = ((number, index), compared.file.as_str());
            let sample = Sample { directory, key, run, before, measured, by_mean, file };
            families.entry(compared.family()).or_default().push(sample);
        }
    }
    families.into_values().flat_map(|rows| spread(rows, FITTED_ROWS)).collect()
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
        let mut families: BTreeMap<String, Vec<usize>> = BTreeMap::new();
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
                families.entry(family(&file.name)).or_default().push(rows.len());
                order.push(places[&(file.name.as_str(), index + 1)]);
                rows.push((compared, row));
            }
        }
        let Sockets { device, memory, .. } = bench.sockets;
        let circumstances = Circumstances { remote: device != memory, iommu: bench.iommu != IommuMode::Off };
        let sequence = sequence.into_iter().map(|(_, _, run)| run).collect();
        let mut checked: Vec<usize> =
            families.into_values().flat_map(|rows| spread(rows, CHECKED_ROWS)).collect();
        checked.sort_unstable();
        Ok(Self {
            path: path.to_owned(),
            setup,
            bench,
            circumstances,
            rows,
            sequence,
            order,
            checked,
            repeats,
        })
    }

    /// Median difference between rows of the same run in files of a family, in percent; over all families if this one
    /// has no repeated runs. For latencies, at least the scatter of the clock: rows that agree to the tick hide it.
    pub fn noise_pct(&self, family: &str) -> f64 {
        let least = if family.starts_with("lat_") { 100.0 * SCATTER } else { NOISE_PCT };
        let mut apart = match self.repeats.get(family) {
            Some(own) => own.clone(),
            None => self.repeats.values().flatten().copied().collect(),
        };
        apart.sort_by(f64::total_cmp);
        median(&apart).unwrap_or(0.0).max(least)
    }

    /// Errors by family as they are reported, over a selection of the rows.
    pub fn summary(&self, machine: &Machine, progress: &dyn Progress) -> Summary {
        let outcomes = self.simulated(self.bench.seed, machine, None, progress);
        let rows: Vec<CompareRow> = outcomes
            .iter()
            .map(|((compared, row), simulated)| {
                CompareRow::new(&compared.file, compared.row, row, simulated.as_ref())
            })
            .collect();
        Summary::of(&rows, self.setup.as_ref(), &Rules::pcie_bench(), Goal::given)
    }

    /// Errors by family, of some families or all, that do not depend on single ticks; over the same rows.
    pub fn errors(
        &self,
        seed: u64,
        machine: &Machine,
        only: Option<&BTreeSet<String>>,
        progress: &dyn Progress,
    ) -> FamilyErrors {
        let error = |((compared, row), simulated): (&(CompareRow, Row), Option<Row>)| {
            let by_mean = shows_in_mean(row);
            let (simulated, measured) = (value(&simulated?, by_mean), value(row, by_mean));
            Some((compared.family(), 100.0 * (simulated - measured) / measured))
        };
        FamilyErrors::of(self.simulated(seed, machine, only, progress).into_iter().filter_map(error))
    }

    /// The rows that tell whether a family got worse, each with its simulation.
    fn simulated(
        &self,
        seed: u64,
        machine: &Machine,
        only: Option<&BTreeSet<String>>,
        progress: &dyn Progress,
    ) -> Vec<(&(CompareRow, Row), Option<Row>)> {
        let bench = Bench { machine: machine.clone(), seed, ..self.bench.clone() };
        let is_asked = |&index: &usize| only.is_none_or(|only| only.contains(&self.rows[index].0.family()));
        let asked: Vec<usize> = self.checked.iter().copied().filter(is_asked).collect();
        let job = |&index: &usize| {
            let (run, before) = (*self.rows[index].1.run(), &self.sequence[..self.order[index]]);
            Job { bench: &bench, run, before, effort: Length::Exactly(EFFORT) }
        };
        let jobs: Vec<Job<'_>> = asked.iter().map(job).collect();
        let rows =
            run_all(&jobs, "families", progress).into_iter().map(|outcome| outcome.ok().map(|o| o.row));
        asked.iter().map(|&index| &self.rows[index]).zip(rows).collect()
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
