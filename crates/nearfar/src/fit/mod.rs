//! A machine file from measured results.
//!
//! One figure after the other, each on the rows that it shows in ([`plan`]): the simulator gives those rows with the
//! figure a step lower and a step higher, a parabola through the three sums of squared relative errors says where its
//! best value lies. Rounds are repeated because figures bear on each other. The curvature says how well the rows
//! determine it. Where a figure can be one of a few values, each is tried, and how much worse the second best is says how
//! well the rows tell them apart. A figure that the rows do not determine keeps its value, and says from which relative it
//! is. Figures whose rows came out worse in the end, because they bear on others, get their values back.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use machine::{
    Determined, Diagnostics, Doc, Kind, Library, Machine, Provenance, Sockets, figures, set_number,
};
use results::compare::{CompareRow, Quantity, Rules, Summary, Target as Goal};
use results::pciebench::{ReadError, Row, Run, Setup, family, read_directory_lenient};
use thiserror::Error;

use crate::batch::{Job, Length, run_all};
use crate::bench::{Bench, Effort, Outcome};
use crate::compare::{self, choose};
use crate::progress::{Progress, Silent};
pub use plan::{Circumstances, EVERYTHING, Informs, TARGETS, Target};

/// What to fit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where machine files are found.
    pub library: Library,
    /// The machine to begin with; that of the directories' names if not given.
    pub base: Option<String>,
    /// The figures to fit; all that the rows determine if empty.
    pub figures: Vec<String>,
    /// The new machine's name.
    pub name: String,
    /// Seed of everything random.
    pub seed: u64,
}

/// Why nothing can be fitted.
#[derive(Debug, Error)]
pub enum FitError {
    /// A directory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no machine to begin with, or its file is wrong.
    #[error(transparent)]
    Machine(#[from] Diagnostics),
    /// The directories are of different machines.
    #[error("{first} and {second} are results of different machines; fit one machine at a time")]
    Different {
        /// The first directory.
        first: PathBuf,
        /// The one that differs.
        second: PathBuf,
    },
    /// A figure that the machine does not have, or that is no number.
    #[error("`{0}` is no figure with a number in this machine's file; `nearfar machines NAME` lists them")]
    NoFigure(String),
}

/// A figure fitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Its path.
    pub path: String,
    /// Its value before, as a file spells it.
    pub before: String,
    /// Its value now.
    pub after: String,
    /// How well the rows determine it.
    pub determined: Determined,
    /// One standard deviation in the figure's unit.
    pub uncertainty: Option<String>,
    /// From which files.
    pub files: Vec<String>,
    /// From how many rows.
    pub rows: usize,
    /// Whether the value was given back, because a family of files came out worse with it.
    pub given_back: bool,
}

/// A machine fitted.
#[derive(Debug)]
pub struct Fit {
    /// The machine file with the new values.
    pub machine: Doc<Machine>,
    /// Every figure that was looked at.
    pub figures: Vec<Fitted>,
    /// Errors by family before and after, directory by directory.
    pub residuals: Vec<Residuals>,
    /// Files that were left out.
    pub problems: Vec<String>,
}

/// How far off a directory is.
#[derive(Debug)]
pub struct Residuals {
    /// The directory.
    pub directory: PathBuf,
    /// With the machine that the fit began with.
    pub before: Summary,
    /// With the fitted machine.
    pub after: Summary,
}

/// Rounds over all figures.
const ROUNDS: usize = 2;
/// Rows at most for a figure: evenly spread over those that inform it.
const MOST_ROWS: usize = 36;
/// Every so many rows of a directory serve for its residuals.
const RESIDUAL_STEP: usize = 5;
/// Samples and transactions of a run while fitting.
const EFFORT: Effort = Effort { samples: 600, transactions: 4_000 };
/// A relative error beyond which a row no longer counts more: it has another cause.
const FAR: f64 = 0.15;

/// A directory with what it is compared on.
struct Measured {
    path: PathBuf,
    setup: Option<Setup>,
    bench: Bench,
    circumstances: Circumstances,
    rows: Vec<(CompareRow, Row)>,
    /// All runs in the order in which they were measured.
    sequence: Vec<Run>,
    /// Where in that order each row comes.
    order: Vec<usize>,
}

/// Fits a machine to the directories.
///
/// # Errors
/// Directories that cannot be read, or are not of one machine.
pub fn fit(paths: &[PathBuf], options: &Options, progress: &dyn Progress) -> Result<Fit, FitError> {
    let mut problems = Vec::new();
    let mut directories = Vec::new();
    for path in paths {
        directories.push(read(path, options, &mut problems)?);
    }
    same_machine(&directories)?;
    let base = base_doc(&directories, options)?;
    let mut tried = Tried { machine: base.read()?, doc: base.clone() };
    let before = tried.machine.clone();
    let targets = targets(&before, options)?;
    progress.begin("fit", (targets.len() * ROUNDS) as u64);
    let mut fitted: Vec<Fitted> = Vec::new();
    for round in 0..ROUNDS {
        fitted.clear();
        for target in &targets {
            progress.step(&format!("round {}: {}", round + 1, target.path));
            fitted.extend(fit_one(target, &directories, &mut tried, &before));
        }
    }
    progress.end();
    let at_first: Vec<Summary> = directories.iter().map(|d| d.summary(&before, progress)).collect();
    let after = loop {
        let after: Vec<Summary> = directories.iter().map(|d| d.summary(&tried.machine, progress)).collect();
        let worse: BTreeSet<&str> = at_first.iter().zip(&after).flat_map(|(a, b)| worse(a, b)).collect();
        if worse.is_empty() || !give_back(&mut fitted, &worse, &mut tried) {
            break after;
        }
    };
    let residuals = directories.iter().zip(at_first.into_iter().zip(after));
    let residuals = residuals
        .map(|(of, (before, after))| Residuals { directory: of.path.clone(), before, after })
        .collect();
    let machine = write_down(base, &directories, &fitted, options)?;
    Ok(Fit { machine, figures: fitted, residuals, problems })
}

/// The machine as it is fitted: its file with all changes so far, and what that reads as.
struct Tried {
    doc: Doc<Machine>,
    machine: Machine,
}

impl Tried {
    fn with(&self, path: &str, text: &str) -> Option<Self> {
        let mut doc = self.doc.clone();
        doc.set(path, text).ok()?;
        let machine = doc.read().ok()?;
        Some(Self { doc, machine })
    }
}

/// How much larger an error has to be to count as worse, in percent: what other samples of the same runs make of it.
const WORSE_PCT: f64 = 0.05;

/// The families of `after` that are farther off than in `before`.
fn worse<'a>(before: &'a Summary, after: &'a Summary) -> Vec<&'a str> {
    let more = |a: Option<f64>, b: Option<f64>| matches!((a, b), (Some(a), Some(b)) if b > a + WORSE_PCT);
    let pairs = before.families.iter().zip(&after.families);
    let worse = pairs.filter(|(a, b)| more(a.median_pct, b.median_pct) || more(a.p90_pct, b.p90_pct));
    worse.map(|(a, _)| a.family.as_str()).collect()
}

/// Gives figures their values back: those fitted to files of the families `worse`, or all if none was. Whether any was
/// left that could be.
fn give_back(fitted: &mut [Fitted], worse: &BTreeSet<&str>, tried: &mut Tried) -> bool {
    let changed = |f: &Fitted| f.after != f.before;
    let of_families =
        |f: &Fitted| f.files.iter().any(|file| worse.contains(family(&format!("{file}.csv")).as_str()));
    let some = fitted.iter().any(|f| changed(f) && of_families(f));
    let mut any = false;
    for figure in fitted.iter_mut().filter(|f| changed(f) && (!some || of_families(f))) {
        if let Some(back) = tried.with(&figure.path, &figure.before) {
            *tried = back;
        }
        figure.after.clone_from(&figure.before);
        figure.given_back = true;
        any = true;
    }
    any
}

fn read(path: &Path, options: &Options, problems: &mut Vec<String>) -> Result<Measured, FitError> {
    let (directory, bad) = read_directory_lenient(path)?;
    problems.extend(bad.iter().map(ToString::to_string));
    let choose_by = compare::Options {
        library: options.library.clone(),
        machine: options.base.clone(),
        seed: options.seed,
        ..compare::Options::default()
    };
    let bench = choose(path, &choose_by)?.bench;
    let rules = Rules::pcie_bench();
    let setup = directory.setup.clone();
    let mut seen = BTreeSet::new();
    let (mut rows, mut order) = (Vec::new(), Vec::new());
    let sequence = directory.sequence();
    let places: BTreeMap<(&str, usize), usize> =
        sequence.iter().enumerate().map(|(index, &(file, row, _))| ((file, row), index)).collect();
    for file in &directory.files {
        for (index, row) in file.rows().into_iter().enumerate() {
            let compared = CompareRow::new(&file.name, index + 1, &row, None);
            // Of runs that were measured several times the first counts.
            if rules.artefact(setup.as_ref(), &compared).is_none() && seen.insert(*row.run()) {
                order.push(places[&(file.name.as_str(), index + 1)]);
                rows.push((compared, row));
            }
        }
    }
    let Sockets { device, memory, .. } = bench.sockets;
    let circumstances =
        Circumstances { remote: device != memory, iommu: bench.iommu != machine::IommuMode::Off };
    let sequence = sequence.into_iter().map(|(_, _, run)| run).collect();
    Ok(Measured { path: path.to_owned(), setup, bench, circumstances, rows, sequence, order })
}

fn same_machine(directories: &[Measured]) -> Result<(), FitError> {
    let key = |d: &Measured| d.setup.as_ref().map(|s| (s.cpu.clone(), s.chassis.clone()));
    let Some(first) = directories.first() else { return Ok(()) };
    match directories.iter().find(|d| key(d) != key(first)) {
        None => Ok(()),
        Some(other) => Err(FitError::Different { first: first.path.clone(), second: other.path.clone() }),
    }
}

fn base_doc(directories: &[Measured], options: &Options) -> Result<Doc<Machine>, Diagnostics> {
    let of_name = directories.first().map(|d| d.bench.machine.name.clone()).unwrap_or_default();
    Doc::load(&options.library, options.base.as_ref().unwrap_or(&of_name))
}

/// The figures to fit with the rows that inform them.
fn targets(machine: &Machine, options: &Options) -> Result<Vec<Wanted>, FitError> {
    let known: BTreeMap<String, Vec<&'static str>> = figures(machine)
        .into_iter()
        .filter(|figure| figure.number.is_some() || !figure.choices.is_empty())
        .map(|figure| (figure.path, figure.choices))
        .collect();
    let wanted = |path: &str, choices: &[&'static str]| {
        let target = TARGETS.iter().find(|target| target.path == path);
        let candidates = target.map_or(&[][..], |target| target.candidates);
        Wanted {
            path: path.to_owned(),
            rows: target.map_or(EVERYTHING, |target| target.rows),
            candidates: if candidates.is_empty() { choices.to_vec() } else { candidates.to_vec() },
        }
    };
    if options.figures.is_empty() {
        let all = TARGETS.iter().filter_map(|t| known.get(t.path).map(|choices| wanted(t.path, choices)));
        return Ok(all.collect());
    }
    let each = |path: &String| match known.get(path) {
        Some(choices) => Ok(wanted(path, choices)),
        None => Err(FitError::NoFigure(path.clone())),
    };
    options.figures.iter().map(each).collect()
}

/// A figure to be fitted.
struct Wanted {
    path: String,
    rows: Informs,
    /// The values to try; none if it is a number.
    candidates: Vec<&'static str>,
}

/// A measured value and what it is compared with.
struct Sample<'a> {
    directory: &'a Measured,
    run: Run,
    /// What was measured before.
    before: &'a [Run],
    measured: f64,
    /// Means follow a figure smoothly where medians jump from tick to tick; a mean with a long tail says nothing.
    by_mean: bool,
    file: &'a str,
}

fn samples<'a>(directories: &'a [Measured], informs: &Informs) -> Vec<Sample<'a>> {
    let mut all = Vec::new();
    for directory in directories {
        for ((compared, row), &place) in directory.rows.iter().zip(&directory.order) {
            if !informs.holds(compared, directory.circumstances) {
                continue;
            }
            let (measured, by_mean) = match row {
                Row::Latency(row) if row.ns.average < 1.1 * row.ns.median => (row.ns.average, true),
                row => (row.headline(), false),
            };
            let (run, before) = (*row.run(), &directory.sequence[..place]);
            all.push(Sample { directory, run, before, measured, by_mean, file: &compared.file });
        }
    }
    let step = all.len().div_ceil(MOST_ROWS).max(1);
    all.into_iter().step_by(step).collect()
}

/// Relative errors of the samples with this machine.
fn errors(samples: &[Sample<'_>], machine: &Machine) -> Vec<Option<f64>> {
    let benches: Vec<Bench> = samples
        .iter()
        .map(|sample| Bench { machine: machine.clone(), ..sample.directory.bench.clone() })
        .collect();
    let jobs: Vec<Job<'_>> = samples
        .iter()
        .zip(&benches)
        .map(|(sample, bench)| {
            let &Sample { run, before, .. } = sample;
            Job { bench, run, before, effort: Length::Exactly(EFFORT) }
        })
        .collect();
    let error = |(sample, outcome): (&Sample<'_>, Result<Outcome, _>)| {
        let outcome = outcome.ok()?;
        let simulated = match &outcome.row {
            Row::Latency(row) if sample.by_mean => row.ns.average,
            row => row.headline(),
        };
        Some((simulated / sample.measured).ln())
    };
    samples.iter().zip(run_all(&jobs, "", &Silent)).map(error).collect()
}

/// Sum of squares, far rows counted no more than moderately far ones.
fn loss(errors: &[Option<f64>]) -> f64 {
    errors.iter().flatten().map(|e| e.abs().min(FAR).powi(2)).sum()
}

/// Fits one figure; nothing if no row informs it.
fn fit_one(wanted: &Wanted, directories: &[Measured], tried: &mut Tried, before: &Machine) -> Option<Fitted> {
    let samples = samples(directories, &wanted.rows);
    if samples.is_empty() {
        return None;
    }
    let path = wanted.path.as_str();
    let (determined, uncertainty) = match wanted.candidates.as_slice() {
        [] => fit_number(path, &samples, tried)?,
        candidates => (fit_choice(path, candidates, &samples, tried), None),
    };
    let files: BTreeSet<String> =
        samples.iter().map(|s| s.file.trim_end_matches(".csv").to_owned()).collect();
    Some(Fitted {
        path: path.to_owned(),
        before: spelt(before, path),
        after: spelt(&tried.machine, path),
        determined,
        uncertainty,
        files: files.into_iter().collect(),
        rows: samples.len(),
        given_back: false,
    })
}

/// A figure's value as a file spells it.
fn spelt(machine: &Machine, path: &str) -> String {
    let figure = figures(machine).into_iter().find(|f| f.path == path);
    figure.map(|f| f.value.trim().trim_matches('"').to_owned()).unwrap_or_default()
}

/// Tries each of the values that a figure can have; keeps the best if the rows tell it from the others.
fn fit_choice(path: &str, candidates: &[&str], samples: &[Sample<'_>], tried: &mut Tried) -> Determined {
    let now = spelt(&tried.machine, path);
    let mut found = vec![(loss(&errors(samples, &tried.machine)), None)];
    for candidate in candidates.iter().filter(|candidate| **candidate != now) {
        // What the file's other figures forbid is no candidate.
        found.extend(tried.with(path, candidate).map(|t| (loss(&errors(samples, &t.machine)), Some(t))));
    }
    found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let second = found.get(1).map(|(loss, _)| *loss);
    let (best, choice) = found.swap_remove(0);
    let determined = told_apart(best, second, samples.len());
    if let (Some(better), true) = (choice, determined != Determined::Not) {
        *tried = better;
    }
    determined
}

/// The scatter that the card's clock alone gives rows, relative.
const SCATTER: f64 = 0.005;

/// How well so many rows tell the best of several values from the second best, by their losses.
fn told_apart(best: f64, second: Option<f64>, rows: usize) -> Determined {
    let Some(second) = second else { return Determined::Not };
    // Rows count as one each only if they are independent; a quarter of the clock's scatter is no reason to prefer.
    let noise = 0.25 * rows as f64 * SCATTER * SCATTER;
    match second - best {
        gain if gain > best.max(4.0 * noise) => Determined::Well,
        gain if gain > (0.1 * best).max(noise) => Determined::Weakly,
        _ => Determined::Not,
    }
}

/// Looks for the lowest of a parabola through the losses a step below, here and a step above, and keeps it if the rows
/// determine it. Gives how well they do, and one standard deviation.
fn fit_number(path: &str, samples: &[Sample<'_>], tried: &mut Tried) -> Option<(Determined, Option<String>)> {
    let number =
        |machine: &Machine| figures(machine).into_iter().find(|f| f.path == path).and_then(|f| f.number);
    let here = number(&tried.machine)?;
    let step = step(path, here);
    let at = |value: f64| {
        let mut other = tried.machine.clone();
        set_number(&mut other, path, value).then_some(other)
    };
    let now = errors(samples, &tried.machine);
    let of = |value: f64| at(value).filter(|_| value >= 0.0).map(|m| errors(samples, &m));
    let (up, down) = (of(here + step), of(here - step));
    let centre = loss(&now);
    let best = match (&up, &down) {
        (Some(up), Some(down)) => vertex(here, step, loss(down), centre, loss(up)),
        (Some(up), None) if loss(up) < centre => here + step,
        (None, Some(down)) if loss(down) < centre => here - step,
        _ => here,
    };
    let other = up.as_ref().map(|e| (e, step)).or(down.as_ref().map(|e| (e, -step)));
    // With the value that fits best: how far off the rows are now says nothing of how well they would determine it.
    let better = at(best).map(|m| (errors(samples, &m), m)).filter(|(errors, _)| loss(errors) < centre);
    let left = better.as_ref().map_or(&now, |(errors, _)| errors);
    let deviation = other.and_then(|(other, step)| deviation(left, &now, other, step));
    let better = better.as_ref().map(|(_, machine)| machine);
    let value = better.and_then(number).unwrap_or(here);
    let determined = match deviation {
        Some(d) if d <= 0.1 * value.max(step) => Determined::Well,
        Some(d) if d <= 0.6 * value.max(step) => Determined::Weakly,
        _ => Determined::Not,
    };
    let uncertainty = deviation.and_then(|d| {
        let mut far = tried.machine.clone();
        set_number(&mut far, path, d.max(1.0).round()).then(|| spelt(&far, path))
    });
    if let (Some(better), true) = (better, determined != Determined::Not)
        && let Some(kept) = tried.with(path, &spelt(better, path))
    {
        *tried = kept;
    }
    Some((determined, uncertainty))
}

/// A step that shows in results: a tenth of the value, 3 ns for times near zero, at least one of what is counted.
fn step(path: &str, value: f64) -> f64 {
    const COUNTED: [&str; 4] = ["ways", "entries", "walkers", "held_by_others"];
    const PICOSECONDS: f64 = 3_000.0;
    let last = path.rsplit('.').next().unwrap_or(path);
    if COUNTED.iter().any(|counted| last.ends_with(counted)) || last.ends_with("depth") {
        (value / 10.0).round().max(1.0)
    } else if last == "background" {
        (value / 4.0).max(f64::from(1 << 17))
    } else {
        (value / 10.0).max(PICOSECONDS)
    }
}

/// Where a parabola through three losses is lowest, at most three steps away.
fn vertex(here: f64, step: f64, down: f64, centre: f64, up: f64) -> f64 {
    let curvature = down - 2.0 * centre + up;
    let slope = (up - down) / 2.0;
    let steps = if curvature > 1e-12 { -slope / curvature } else { -slope.signum() * 2.0 };
    let best = (here + steps.clamp(-3.0, 3.0) * step).max(0.0);
    // Tenths of a nanosecond are finer than anything that results resolve.
    let grain = if step >= 1_000.0 { 100.0 } else { 1.0 };
    (best / grain).round() * grain
}

/// One standard deviation of the figure: what the rows' own scatter about the fit, `left`, makes of their sensitivity to
/// it, which the errors `now` and a step further tell.
fn deviation(left: &[Option<f64>], now: &[Option<f64>], other: &[Option<f64>], step: f64) -> Option<f64> {
    let slopes = now.iter().zip(other).filter_map(|(a, b)| Some(((*b)? - (*a)?) / step));
    let information: f64 = slopes.map(|slope| slope * slope).sum();
    let rows = left.iter().flatten().count() as f64;
    let scatter = (loss(left) / rows).max(SCATTER * SCATTER);
    (information > 0.0).then(|| (scatter / information).sqrt())
}

impl Measured {
    /// Errors by family over some of the rows.
    fn summary(&self, machine: &Machine, progress: &dyn Progress) -> Summary {
        let bench = Bench { machine: machine.clone(), ..self.bench.clone() };
        let some: Vec<(&(CompareRow, Row), &usize)> =
            self.rows.iter().zip(&self.order).step_by(RESIDUAL_STEP).collect();
        let jobs: Vec<Job<'_>> = some
            .iter()
            .map(|((_, row), place)| {
                let (run, before) = (*row.run(), &self.sequence[..**place]);
                Job { bench: &bench, run, before, effort: Length::Exactly(EFFORT) }
            })
            .collect();
        let outcomes = run_all(&jobs, "residuals", progress);
        let rows: Vec<CompareRow> = some
            .iter()
            .zip(outcomes)
            .map(|(((compared, row), _), outcome)| {
                CompareRow::new(&compared.file, compared.row, row, outcome.ok().map(|o| o.row).as_ref())
            })
            .collect();
        let goal: fn(Quantity) -> Goal = Goal::for_setup(self.setup.as_ref(), false);
        Summary::of(&rows, self.setup.as_ref(), &Rules::pcie_bench(), goal)
    }
}

/// Puts the fitted figures into the file, each with a statement, and renames the machine.
fn write_down(
    mut doc: Doc<Machine>,
    directories: &[Measured],
    fitted: &[Fitted],
    options: &Options,
) -> Result<Doc<Machine>, Diagnostics> {
    let base = doc.read()?;
    let setup = directories.first().and_then(|d| d.setup.clone());
    let cpu = setup.as_ref().map(|s| s.cpu.trim_start_matches("Xeon-").to_owned());
    let same = base.measured_as.as_ref().map(|known| &known.cpu) == cpu.as_ref();
    let done: BTreeSet<&str> = fitted
        .iter()
        .filter(|f| f.determined != Determined::Not && !f.given_back)
        .map(|f| f.path.as_str())
        .collect();
    if !same {
        // Another machine's figures are a relative's, whatever they were fitted to there.
        for figure in figures(&base) {
            let kept = matches!(figure.provenance.kind, Kind::Fitted | Kind::FittedByHand | Kind::Measured);
            if kept && !done.contains(figure.path.as_str()) {
                let from = figure.provenance.source.split_once(':').map_or("", |(_, from)| from.trim());
                let source = format!("relative: {} ({from})", base.name);
                let provenance = Provenance { source, kind: Kind::Relative, ..figure.provenance.clone() };
                doc.set_figure(&figure.path, &figure.value, provenance)?;
            }
        }
    }
    for figure in fitted.iter().filter(|f| done.contains(f.path.as_str())) {
        let source = format!("fitted: {} rows of {}", figure.rows, figure.files.join(", "));
        let provenance = Provenance {
            source,
            kind: Kind::Fitted,
            determined: Some(figure.determined),
            uncertainty: figure.uncertainty.clone(),
        };
        doc.set_figure(&figure.path, &figure.after, provenance)?;
    }
    doc.set("name", &options.name)?;
    if let (false, Some(setup), Some(cpu)) = (same, &setup, cpu) {
        doc.set("measured_as.cpu", &cpu)?;
        doc.set("measured_as.system", &setup.chassis)?;
        doc.set("summary", &format!("{}, {cpu}, fitted from {}", setup.chassis, base.name))?;
    }
    // Their rows are no test of the machine any more: comparing them is held to closer targets.
    let mut seen = base.measured_as.map(|known| known.directories).filter(|_| same).unwrap_or_default();
    seen.extend(directories.iter().filter_map(|d| Some(d.path.file_name()?.to_string_lossy().into_owned())));
    seen.sort();
    seen.dedup();
    // Names as JSON are names as TOML.
    let names = serde_json::to_string(&seen).expect("names are text");
    doc.set("measured_as.directories", &names)?;
    doc.read()?;
    Ok(doc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parabola_is_lowest_at_its_vertex() {
        let loss = |x: f64| (x - 130.0).powi(2);
        assert_eq!(vertex(100.0, 10.0, loss(90.0), loss(100.0), loss(110.0)), 130.0);
        // Not farther than three steps, and never below zero.
        assert_eq!(vertex(10.0, 1.0, loss(9.0), loss(10.0), loss(11.0)), 13.0);
        assert_eq!(vertex(0.0, 1.0, 1.0, 2.0, 4.0), 0.0);
    }

    #[test]
    fn what_no_row_shows_is_not_determined() {
        let now = [Some(0.01), Some(-0.01)];
        assert_eq!(deviation(&now, &now, &now, 1.0), None);
        let other = [Some(0.11), Some(0.09)];
        let good = deviation(&now, &now, &other, 10.0).unwrap();
        assert!(good < 1.5, "{good}");
    }

    #[test]
    fn a_choice_has_to_be_told_from_the_second_best() {
        assert_eq!(told_apart(0.001, Some(0.01), 36), Determined::Well);
        assert_eq!(told_apart(0.01, Some(0.012), 36), Determined::Weakly);
        assert_eq!(told_apart(0.0, Some(0.0001), 36), Determined::Not, "less than the clock's scatter");
        assert_eq!(told_apart(0.01, None, 36), Determined::Not);
    }

    #[test]
    fn figures_of_the_plan_exist() {
        let library = Library::built_in();
        let of = |name: &str| Doc::<Machine>::load(&library, name).unwrap().read().unwrap();
        let machines = ["dell-t430", "dell-t620-ivy", "dell-t620-sandy"].map(of);
        let known: BTreeSet<String> = machines.iter().flat_map(figures).map(|f| f.path).collect();
        let choices: BTreeSet<String> =
            machines.iter().flat_map(figures).filter(|f| !f.choices.is_empty()).map(|f| f.path).collect();
        for target in TARGETS {
            assert!(known.contains(target.path), "{}", target.path);
            for candidate in target.candidates {
                assert!(!choices.contains(target.path), "{} has its names", target.path);
                let tried = machines.iter().any(|_| {
                    let mut doc = Doc::<Machine>::load(&library, "dell-t620-ivy").unwrap();
                    doc.set(target.path, candidate).is_ok()
                });
                assert!(tried, "{} = {candidate}", target.path);
            }
        }
    }
}
