//! Fits a machine file to measured results.
//!
//! Fits one parameter at a time, on the rows that it affects ([`plan`]). The rows are simulated with the parameter
//! one step lower and one step higher; the minimum of a parabola through the three sums of squared relative errors is
//! the best value, and its curvature says how well the rows determine it. Of a parameter with a few discrete values,
//! each value is tried; the distance to the second best says how well the rows distinguish them. Rounds are repeated
//! because parameters interact.
//!
//! A parameter moves only if the rows determine it, and only by more than one standard deviation, so a well-fitted
//! machine stays as it is. Each parameter gets a statement: how it was fitted, or that the rows do not determine it,
//! or from which related machine its value comes. If a family of files is farther off in the end, since parameters
//! interact, old values are restored one by one until none is ([`worse`]).

mod ablate;
mod leave_out;
mod measured;
mod memory;
mod plan;
mod rows;
mod search;
mod statement;
mod worse;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use machine::{Determined, Diagnostics, Doc, Kind, Library, Listed, Machine, figures};
use results::compare::Summary;
use results::pciebench::ReadError;
use thiserror::Error;

use crate::compare::{self, CompareError};
use crate::progress::Progress;
pub use ablate::{Ablated, Ablation, Verdict, ablate};
pub use leave_out::{LeftOut, leave_one_out, leave_out};
use measured::{MeasuredDirectory, compared_with, samples};
pub use memory::{MemoryFigure, MemoryFit, fit_memory};
use plan::TARGETS;
use rows::Informs;
use search::{FittedFigure, Tried};
use worse::FamilyErrors;

/// FitOptions of a fit.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// Where to look for machine files.
    pub library: Library,
    /// The machine to start from; by default the one in the directories' names.
    pub base: Option<String>,
    /// The parameters to fit; if empty, all that the rows determine.
    pub figures: Vec<String>,
    /// Leave the parameters alone and only update the residuals.
    pub keep: bool,
    /// Name of the new machine.
    pub name: String,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// Why a fit is impossible.
#[derive(Debug, Error)]
pub enum FitError {
    /// The caller no longer waits for the result.
    #[error("the fit was given up: nobody waits for it any more")]
    Unwanted,
    /// A directory cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The start machine is missing or its file is invalid.
    #[error(transparent)]
    Machine(#[from] Diagnostics),
    /// The directories are of different machines.
    #[error("{first} and {second} are results of different machines; fit one machine at a time")]
    Different {
        /// The first directory.
        first: PathBuf,
        /// The directory that differs.
        second: PathBuf,
    },
    /// The machine has no such parameter, or it is not a number.
    #[error("`{0}` is not a numeric figure in this machine's file; `nearfar machines NAME` lists them")]
    NoFigure(String),
    /// The fitted machine cannot be compared with a directory.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Leaving one out needs at least two directories.
    #[error("leaving one directory out takes two or more of one machine")]
    OneDirectory,
    /// An output of a tool determines nothing.
    #[error("{file}: {why}")]
    Output {
        /// The output.
        file: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
    /// The saved state of an ablation cannot be used.
    #[error("{file} cannot be gone on with: {why}")]
    State {
        /// The state file.
        file: PathBuf,
        /// The reason, and what to do.
        why: String,
    },
}

/// A fitted parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The parameter's path in the machine file.
    pub path: String,
    /// The old value, as written in the file.
    pub before: String,
    /// The new value.
    pub after: String,
    /// How well the rows determine it.
    pub determined: Determined,
    /// One standard deviation, in the parameter's unit.
    pub uncertainty: Option<String>,
    /// Files of the rows used.
    pub files: Vec<String>,
    /// Number of rows used.
    pub rows: usize,
    /// What the rows have in common, besides their files.
    pub common: String,
    /// The fitted value, if it was discarded because a family of files got worse.
    pub given_back: Option<String>,
}

/// Result of a fit.
#[derive(Debug)]
pub struct Fit {
    /// The machine file with the new values.
    pub machine: Doc<Machine>,
    /// All parameters that were examined.
    pub figures: Vec<Fitted>,
    /// Errors by family, one entry per directory.
    pub residuals: Vec<Residuals>,
    /// Files that were skipped.
    pub problems: Vec<String>,
    /// Files that were used although they are truncated.
    pub doubts: Vec<String>,
}

/// Errors of a directory.
#[derive(Debug)]
pub struct Residuals {
    /// Directory of the measured files.
    pub directory: PathBuf,
    /// Errors of a selection of its rows with the start machine; `None` if the machine did not change.
    pub before: Option<Summary>,
    /// Errors of all its rows with the fitted machine, as `nearfar compare` reports them.
    pub after: Summary,
}

/// Number of rounds. The first covers all parameters, each later one those that the round before changed.
const ROUNDS: usize = 3;

/// Fits a machine to the directories.
///
/// # Errors
/// If directories cannot be read or are not of one machine.
pub fn fit(paths: &[PathBuf], options: &FitOptions, progress: &dyn Progress) -> Result<Fit, FitError> {
    let (mut problems, mut doubts) = (Vec::new(), Vec::new());
    let mut directories = Vec::new();
    for path in paths {
        directories.push(MeasuredDirectory::read(path, options, &mut problems, &mut doubts)?);
    }
    same_machine(&directories)?;
    let base = base_doc(&directories, options)?;
    let before = base.read()?;
    let mut tried = Tried::new(base.clone(), before.clone());
    let mut figures = Vec::new();
    if !options.keep {
        figures = search(&directories, &mut tried, &before, options, progress)?;
    }
    give_back_what_is_worse(&directories, &mut figures, &mut tried, &before, progress);
    let set = figures.iter().filter(|f| f.after != f.before);
    let set: Vec<(String, String)> = set.map(|f| (f.path.clone(), f.after.clone())).collect();
    let at_first = |directory: &MeasuredDirectory| directory.summary(&before, progress);
    let at_first: Vec<Option<Summary>> =
        directories.iter().map(|directory| (!set.is_empty()).then(|| at_first(directory))).collect();
    let with = compare::CompareOptions { set, ..compared_with(options) };
    let mut residuals = Vec::new();
    for (directory, before) in directories.iter().zip(at_first) {
        let after = compare::compare(&directory.path, &with, progress)?.summary;
        residuals.push(Residuals { directory: directory.path.clone(), before, after });
    }
    let mut machine = statement::write_down(base, &directories, &figures, options)?;
    statement::write_residuals(&mut machine, &residuals)?;
    Ok(Fit { machine, figures, residuals, problems, doubts })
}

/// Fits all parameters, in rounds, until none changes.
fn search(
    directories: &[MeasuredDirectory],
    tried: &mut Tried,
    before: &Machine,
    options: &FitOptions,
    progress: &dyn Progress,
) -> Result<Vec<Fitted>, FitError> {
    let targets = targets(before, directories, options)?;
    Ok(rounds(targets, directories, tried, before, progress))
}

/// Fits these parameters, in rounds, until none changes.
fn rounds(
    mut targets: Vec<FitTarget>,
    directories: &[MeasuredDirectory],
    tried: &mut Tried,
    before: &Machine,
    progress: &dyn Progress,
) -> Vec<Fitted> {
    let mut fitted: BTreeMap<String, Fitted> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for round in 1..=ROUNDS {
        progress.begin(&format!("round {round}"), targets.len() as u64);
        let mut changed: Vec<FitTarget> = Vec::new();
        for target in targets {
            progress.step(&target.path);
            let Some(found) = fit_one(&target, directories, tried, before) else { continue };
            let was = fitted.get(&target.path).map_or(&found.before, |earlier| &earlier.after);
            let moved = *was != found.after;
            if round == 1 {
                order.push(target.path.clone());
            }
            fitted.insert(target.path.clone(), found);
            if moved {
                changed.push(target);
            }
        }
        progress.end();
        if changed.is_empty() {
            break;
        }
        targets = changed;
    }
    order.iter().filter_map(|path| fitted.remove(path)).collect()
}

/// Restores parameters until no family of files has a larger error than before the fit.
fn give_back_what_is_worse(
    directories: &[MeasuredDirectory],
    fitted: &mut [Fitted],
    tried: &mut Tried,
    before: &Machine,
    progress: &dyn Progress,
) {
    if tried.machine == *before {
        return;
    }
    let errors = |directory: &MeasuredDirectory, machine: &Machine, only: Option<&BTreeSet<String>>| {
        directory.errors(directory.bench.seed, machine, only, progress)
    };
    let allowed = |directory: &MeasuredDirectory| {
        errors(directory, before, None).with_noise(|family| directory.noise_pct(family))
    };
    let allowed: Vec<FamilyErrors> = directories.iter().map(allowed).collect();
    worse::give_back(fitted, tried, &allowed, |machine, only| {
        let of = |(index, directory)| errors(directory, machine, only.map(|only| &only[index]));
        directories.iter().enumerate().map(of).collect()
    });
}

fn same_machine(directories: &[MeasuredDirectory]) -> Result<(), FitError> {
    let key = |d: &MeasuredDirectory| d.setup.as_ref().map(|s| (s.cpu.clone(), s.chassis.clone()));
    let Some(first) = directories.first() else { return Ok(()) };
    match directories.iter().find(|d| key(d) != key(first)) {
        None => Ok(()),
        Some(other) => Err(FitError::Different { first: first.path.clone(), second: other.path.clone() }),
    }
}

fn base_doc(directories: &[MeasuredDirectory], options: &FitOptions) -> Result<Doc<Machine>, Diagnostics> {
    let of_name = directories.first().map(|d| d.bench.machine.name.clone()).unwrap_or_default();
    Doc::load(&options.library, options.base.as_ref().unwrap_or(&of_name))
}

/// A parameter to fit.
#[derive(Clone)]
struct FitTarget {
    path: String,
    rows: Informs,
    /// The values to try; empty for a number.
    candidates: Vec<&'static str>,
}

/// The parameters to fit and the rows that inform them: the requested ones, or those of the plan. Parameters stated
/// by a data sheet or by the machine itself are fitted only on request.
fn targets(
    machine: &Machine,
    directories: &[MeasuredDirectory],
    options: &FitOptions,
) -> Result<Vec<FitTarget>, FitError> {
    let known: BTreeMap<String, Listed> = figures(machine)
        .into_iter()
        .filter(|figure| figure.number.is_some() || !figure.choices.is_empty())
        .map(|figure| (figure.path.clone(), figure))
        .collect();
    let wanted = |figure: &Listed| {
        let target = TARGETS.iter().find(|target| target.path == figure.path);
        let candidates = target.map_or(&[][..], |target| target.candidates);
        FitTarget {
            path: figure.path.clone(),
            rows: target.map_or(Informs::ALL, |target| target.rows),
            candidates: if candidates.is_empty() { figure.choices.clone() } else { candidates.to_vec() },
        }
    };
    if options.figures.is_empty() {
        let own = directories.first().is_some_and(|d| is_of(machine, d));
        let stated = |f: &&Listed| {
            !own || !matches!(f.provenance.kind, Kind::Measured | Kind::Datasheet | Kind::Specification)
        };
        let all = TARGETS.iter().filter_map(|t| known.get(t.path)).filter(stated);
        return Ok(all.map(wanted).collect());
    }
    let each = |path: &String| match known.get(path) {
        Some(figure) => Ok(wanted(figure)),
        None => Err(FitError::NoFigure(path.clone())),
    };
    options.figures.iter().map(each).collect()
}

/// Whether a machine file describes the CPU of a directory.
fn is_of(machine: &Machine, directory: &MeasuredDirectory) -> bool {
    let cpu = directory.setup.as_ref().map(|setup| setup.cpu.trim_start_matches("Xeon-"));
    machine.measured_as.as_ref().map(|known| known.cpu.as_str()) == cpu
}

/// Fits one parameter; `None` if no row informs it.
fn fit_one(
    wanted: &FitTarget,
    directories: &[MeasuredDirectory],
    tried: &mut Tried,
    before: &Machine,
) -> Option<Fitted> {
    let samples = samples(directories, &wanted.rows);
    if samples.is_empty() {
        return None;
    }
    let path = wanted.path.as_str();
    let FittedFigure { determined, uncertainty } = match wanted.candidates.as_slice() {
        [] => tried.fit_number(path, &samples)?,
        candidates => tried.fit_choice(path, candidates, &samples),
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
        common: wanted.rows.to_string(),
        given_back: None,
    })
}

/// A parameter's value as written in a file.
fn spelt(machine: &Machine, path: &str) -> String {
    let figure = figures(machine).into_iter().find(|f| f.path == path);
    figure.map(|f| f.value.trim().trim_matches('"').to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::plan::BY_HAND;
    use super::*;

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

    #[test]
    fn every_figure_that_was_adjusted_is_in_the_plan_or_says_why_not() {
        let library = Library::built_in();
        for name in library.names("machines") {
            let machine = Doc::<Machine>::load(&library, &name).unwrap().read().unwrap();
            for figure in figures(&machine) {
                let adjusted = figure.provenance.kind.is_free();
                let planned = TARGETS.iter().any(|target| target.path == figure.path);
                let explained = BY_HAND.iter().any(|(path, _)| figure.path.starts_with(path));
                assert!(!adjusted || planned != explained, "{name}: {}", figure.path);
            }
        }
    }
}
