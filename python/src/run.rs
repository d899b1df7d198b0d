//! What the program's commands do, for Python.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use machine::{Doc, Machine, Part, Sockets};
use nearfar::bench::Bench;
use nearfar::experiment::{self, Combination, Experiment};
use nearfar::fit::{self as fitting, FitOptions};
use nearfar::uncertainty::{self, Draw, Draws};
use nearfar::{compare as comparing, records, suite};
use pyo3::prelude::*;
use rayon::prelude::*;
use results::provenance::Input;
use results::{Provenance, pciebench};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::file::Library;
use crate::table::Records;
use crate::watch::watched;

/// Dotted paths with values as TOML spells them.
pub type Changes = Vec<(String, String)>;
type Callback<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// What results are made from.
pub fn made_from(command: &str, seed: u64, changes: &[(String, String)], files: &machine::Library) -> String {
    let changes = changes.iter().map(|(path, value)| format!("{path}={value}")).collect();
    text(&records::made_from(env!("CARGO_PKG_VERSION").to_owned(), command.to_owned(), seed, changes, files))
}

fn text(provenance: &Provenance) -> String {
    serde_json::to_string(provenance).unwrap_or_default()
}

/// What results of measured folders are made from.
fn made_from_folders(
    command: &str,
    seed: u64,
    changes: &Changes,
    files: &machine::Library,
    folders: &[PathBuf],
) -> String {
    let changes = changes.iter().map(|(path, value)| format!("{path}={value}")).collect();
    let mut provenance =
        records::made_from(env!("CARGO_PKG_VERSION").to_owned(), command.to_owned(), seed, changes, files);
    provenance.files.extend(folders.iter().filter_map(|folder| {
        let sha256 = files::digest_folder(folder).ok()?;
        Some(Input { kind: "measured".into(), name: folder.display().to_string(), sha256 })
    }));
    text(&provenance)
}

/// Complains of what is wrong with a scenario, the files that it names, and changes. Gives what it is for, and the texts of
/// all files that did not come with the program: a library with them finds the same elsewhere.
#[pyfunction]
pub fn check(
    py: Python<'_>,
    library: &Library,
    scenario: &str,
    changes: Changes,
) -> PyResult<(String, Changes)> {
    let files = library.files();
    let loaded = py.detach(|| Experiment::load(&files, scenario, "set", &changes));
    Ok((loaded.map_err(Failure::from)?.summary().to_owned(), files.used().texts.into_iter().collect()))
}

/// Runs a scenario: its records, and what they were made from.
#[pyfunction]
#[pyo3(signature = (library, scenario, changes, accounting, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn run(
    py: Python<'_>,
    library: &Library,
    scenario: &str,
    changes: Changes,
    accounting: bool,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Records, String)> {
    let files = library.files();
    watched(py, jobs, progress, |progress| {
        let experiment = Experiment::load(&files, scenario, "set", &changes)?;
        let done = experiment.run(accounting, progress)?;
        Ok((done.into(), made_from(command, experiment.seed(), &changes, &files)))
    })
}

/// The points of a sweep, made ready.
fn points(
    files: &machine::Library,
    scenario: &str,
    changes: &Changes,
    points: Vec<Combination>,
) -> Result<Vec<(Combination, Experiment)>, Failure> {
    // What is wrong with what all points have is told as theirs.
    if !changes.is_empty() {
        Experiment::load(files, scenario, "set", changes)?;
    }
    let load = |values: Combination| -> Result<(Combination, Experiment), Failure> {
        let experiment = experiment::load_point(files, scenario, "over", changes, &values)?;
        Ok((values, experiment))
    };
    points.into_par_iter().map(load).collect()
}

/// Runs points of a sweep: the records of each, and what they were made from.
#[pyfunction]
#[pyo3(signature = (library, scenario, changes, over, accounting, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn sweep(
    py: Python<'_>,
    library: &Library,
    scenario: &str,
    changes: Changes,
    over: Vec<Combination>,
    accounting: bool,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Vec<Records>, String)> {
    let files = library.files();
    watched(py, jobs, progress, |progress| {
        let points = points(&files, scenario, &changes, over)?;
        let seed = points.first().map_or(1, |(_, first)| first.seed());
        let all = experiment::sweep(&points, accounting, progress)?;
        Ok((all.into_iter().map(Into::into).collect(), made_from(command, seed, &changes, &files)))
    })
}

/// Looks at a sweep without running it: the key under which the records of each point are kept, those that are known, what
/// results will be made from, and the texts of all files that did not come with the program. Every value is tried with the
/// first of the other keys, so that what is wrong is told here; what does not fit together is told by who runs the point.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "Python takes them apart")]
pub fn look(
    py: Python<'_>,
    library: &Library,
    scenario: &str,
    changes: Changes,
    over: Vec<Combination>,
    accounting: bool,
    command: &str,
) -> PyResult<(Vec<Option<String>>, Vec<Option<Records>>, String, Changes)> {
    let files = library.files();
    watched(py, None, None, |_| {
        let first = over.first().cloned().unwrap_or_default();
        let mut tried: Vec<Combination> = vec![first.clone()];
        for (place, (key, value)) in first.iter().enumerate() {
            let mut seen = BTreeSet::from([value]);
            for point in &over {
                if seen.insert(&point[place].1) {
                    let mut one = first.clone();
                    one[place] = (key.clone(), point[place].1.clone());
                    tried.push(one);
                }
            }
        }
        let tried = points(&files, scenario, &changes, tried)?;
        let seed = tried.first().map_or(1, |(_, first)| first.seed());
        let texts: Changes = files.used().texts.into_iter().collect();
        let is_kept = tried.iter().all(|(_, experiment)| experiment.check_repeatable().is_ok());
        let common = format!("{scenario:?} {changes:?} {texts:?} {accounting}");
        let key = |point: &Combination| {
            is_kept.then(|| experiment::key(&[&common, &format!("{point:?}")])).flatten()
        };
        let keys: Vec<Option<String>> = over.par_iter().map(key).collect();
        let known = keys.par_iter().map(|key| Some(experiment::known(key.as_deref()?)?.into())).collect();
        Ok((keys, known, made_from(command, seed, &changes, &files), texts))
    })
}

/// Keeps the records of a point that was run elsewhere.
#[pyfunction]
pub fn keep(key: &str, records: &Records) {
    experiment::keep(key, records.all());
}

fn draws(spelt: &str) -> Result<Draws, Failure> {
    spelt.parse().map_err(|why| Failure::argument("uncertainty", why, "a number of runs, such as 40"))
}

/// Joins the records of runs at each point of a sweep: first with the files' own figures (`draw` 0), then with each draw.
/// Results become intervals.
#[pyfunction]
pub fn with_intervals(parts: Vec<PyRef<'_, Records>>, draws: &str) -> PyResult<Records> {
    let draws = self::draws(draws)?;
    let (mut own, mut figures) = (Vec::new(), Vec::new());
    let mut drawn: Vec<Vec<Value>> = vec![Vec::new(); draws.runs as usize];
    for (number, part) in parts.iter().enumerate() {
        let records = part.all().iter().cloned();
        match number % (drawn.len() + 1) {
            0 => {
                let (rest, of_files): (Vec<_>, Vec<_>) = records.partition(|record| {
                    !matches!(record["kind"].as_str(), Some("figure" | "no-limit" | "origins"))
                });
                own.extend(rest);
                figures.extend(of_files.into_iter().filter(|figure| figure["kind"] != "origins"));
            }
            draw => drawn[draw - 1].extend(records),
        }
    }
    let mut seen = BTreeSet::new();
    figures.retain(|figure| seen.insert(figure.to_string()));
    let intervals = uncertainty::intervals(draws, &own, &drawn, &figures);
    for (number, row) in (1..).zip(own.iter_mut().filter(|record| record["kind"] == "row")) {
        row["row"] = Value::from(number);
    }
    own.extend(figures.into_iter().chain(intervals));
    Ok(own.into())
}

/// Sockets as results of pcie-bench spell them, `s0-s1-s1`.
fn sockets(spelt: &str) -> Result<Sockets, Failure> {
    let named: pciebench::Sockets = spelt.parse().map_err(|error| {
        Failure::argument("sockets", format!("{error}"), "device, memory and program, as s0-s1-s1")
    })?;
    Ok(Sockets { device: named.device, memory: named.memory, warming: named.program })
}

fn iommu(spelt: &str) -> Result<machine::IommuMode, Failure> {
    let named = machine::IommuMode::ALL.iter().find(|(name, _)| *name == spelt);
    named.map(|&(_, mode)| mode).ok_or_else(|| {
        let problem = format!("`{spelt}` is not an IOMMU mode");
        Failure::argument("iommu", problem, "one of off, 4k, superpages")
    })
}

/// Runs pcie-bench on a machine: every row, what it was made from, and what the card could not do.
#[pyfunction]
#[pyo3(signature = (library, machine, card, placed, changes, card_changes, files, short, folder, seed, draw, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn bench(
    py: Python<'_>,
    library: &Library,
    machine: &str,
    card: &str,
    placed: (String, String),
    changes: Changes,
    card_changes: Changes,
    files: Option<String>,
    short: bool,
    folder: Option<PathBuf>,
    seed: u64,
    draw: Option<&str>,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Records, String, Vec<String>)> {
    let mut from = library.files();
    let draw: Option<Draw> = draw.and_then(|draw| draw.parse().ok());
    if let Some(draw) = draw {
        from = from.redrawn(Arc::new(draw));
    }
    watched(py, jobs, progress, |progress| {
        let mut machine_doc = Doc::<Machine>::load(&from, machine)?;
        let mut card_doc = Doc::<Part>::load(&from, card)?;
        comparing::apply(&mut machine_doc, "set", &changes)?;
        comparing::apply(&mut card_doc, "card_set", &card_changes)?;
        let bench = Bench {
            machine: machine_doc.read()?,
            card: card_doc.read()?,
            sockets: sockets(&placed.0)?,
            iommu: iommu(&placed.1)?,
            seed,
        };
        comparing::check(machine, &bench)?;
        let mut plan = suite::plan(short);
        plan.retain(|file| files.as_ref().is_none_or(|part| file.name.contains(part.as_str())));
        if plan.is_empty() {
            let names: Vec<String> = suite::plan(true).into_iter().map(|file| file.name).collect();
            let part = files.unwrap_or_default();
            let message = format!("no file has `{part}` in its name");
            return Err(Failure::argument("files", message, format!("there are {}", names.join(", "))));
        }
        let done = suite::measure(&bench, &plan, progress)?;
        let all = changes.iter().chain(&card_changes).cloned().collect::<Vec<_>>();
        let provenance = made_from(command, seed, &all, &from);
        if let Some(folder) = folder {
            let cannot = |error: &dyn std::fmt::Display| {
                Failure::Run(format!("`{}` cannot be written: {error}", folder.display()))
            };
            for file in &done.files {
                let text = pciebench::to_csv(&file.contents, file.line_ending);
                files::write(&folder.join(&file.name), text.as_bytes()).map_err(|error| cannot(&error))?;
            }
            files::write(&folder.join(suite::PROVENANCE), provenance.as_bytes())
                .map_err(|error| cannot(&error))?;
        }
        let skipped = done.skipped.iter().map(|one| format!("{}: {}", one.file, one.reason)).collect();
        let mut records = records::of_suite(&done);
        if draw.is_none_or(Draw::is_none) {
            records.extend(done.origins.records());
        }
        Ok((records.into(), provenance, skipped))
    })
}

/// Compares a folder of measured results: every row, families with their errors and targets, what it was made from, notes,
/// and problems.
#[pyfunction]
#[pyo3(signature = (library, folder, machine, card, placed, changes, card_changes, files, sample, held_out, uncertainty, seed, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
#[expect(clippy::type_complexity, reason = "Python takes them apart")]
pub fn compare(
    py: Python<'_>,
    library: &Library,
    folder: PathBuf,
    machine: Option<String>,
    card: Option<String>,
    placed: (Option<String>, Option<String>),
    changes: Changes,
    card_changes: Changes,
    files: Option<String>,
    sample: Option<usize>,
    held_out: bool,
    uncertainty: Option<&str>,
    seed: u64,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Records, Records, String, Vec<String>, Vec<String>)> {
    let from = library.files();
    let uncertainty = uncertainty.map(draws).transpose()?;
    watched(py, jobs, progress, |progress| {
        let options = comparing::CompareOptions {
            library: from.clone(),
            machine,
            card,
            sockets: placed.0.as_deref().map(sockets).transpose()?,
            iommu: placed.1.as_deref().map(iommu).transpose()?,
            set: changes.clone(),
            card_set: card_changes,
            files,
            sample,
            held_out,
            uncertainty,
            seed,
            ..comparing::CompareOptions::default()
        };
        let done = comparing::compare(&folder, &options, progress)?;
        let families = done.summary.families.iter().filter_map(|family| {
            let mut record = serde_json::to_value(family).ok()?;
            record["directory"] = done.path.display().to_string().into();
            record["machine"] = done.machine.clone().into();
            Some(record)
        });
        let families: Vec<Value> = families.collect();
        let provenance = made_from_folders(command, seed, &changes, &from, &[folder]);
        Ok((records::of_comparison(&done).into(), families.into(), provenance, done.notes, done.problems))
    })
}

fn options(
    library: &machine::Library,
    base: Option<String>,
    figures: Vec<String>,
    name: &str,
    seed: u64,
) -> FitOptions {
    FitOptions { library: library.clone(), base, figures, keep: false, name: name.to_owned(), seed }
}

/// Fits a machine to folders of measured results: its file's text, figures, residuals, what it was made from, warnings.
#[pyfunction]
#[pyo3(signature = (library, folders, base, figures, name, seed, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn fit(
    py: Python<'_>,
    library: &Library,
    folders: Vec<PathBuf>,
    base: Option<String>,
    figures: Vec<String>,
    name: &str,
    seed: u64,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(String, Records, Records, String, Vec<String>)> {
    let from = library.files();
    watched(py, jobs, progress, |progress| {
        let options = options(&from, base, figures, name, seed);
        let done = fitting::fit(&folders, &options, progress)?;
        if !progress.is_awaited() {
            return Err(Failure::Unwanted);
        }
        let figures: Vec<Value> = done
            .figures
            .iter()
            .map(|f| {
                json!({ "kind": "fitted", "path": f.path, "before": f.before, "after": f.after,
                        "determined": f.determined.as_str(), "uncertainty": f.uncertainty, "rows": f.rows,
                        "files": f.files.join(" "), "given_back": f.given_back })
            })
            .collect();
        let mut residuals = Vec::new();
        for one in &done.residuals {
            for family in &one.after.families {
                let mut record = serde_json::to_value(family).unwrap_or_default();
                record["directory"] = one.directory.display().to_string().into();
                residuals.push(record);
            }
        }
        let provenance = made_from_folders(command, seed, &Changes::new(), &from, &folders);
        let warnings = done.doubts.into_iter().chain(done.problems).collect();
        Ok((done.machine.to_text()?, figures.into(), residuals.into(), provenance, warnings))
    })
}

/// Tries a machine's figures without effect, going on from `state`: what was found, the machine without what nothing shows,
/// and what it was made from.
#[pyfunction]
#[pyo3(signature = (library, folders, base, figures, refit, state, seed, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn ablate(
    py: Python<'_>,
    library: &Library,
    folders: Vec<PathBuf>,
    base: Option<String>,
    figures: Vec<String>,
    refit: Vec<String>,
    state: PathBuf,
    seed: u64,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Records, String, String)> {
    let from = library.files();
    watched(py, jobs, progress, |progress| {
        let options = options(&from, base, figures, "ablated", seed);
        let done = fitting::ablate(&folders, &options, &refit, &state, progress)?;
        let figures: Vec<Value> = done
            .figures
            .iter()
            .map(|f| {
                json!({ "kind": "ablated", "path": f.path, "value": f.value, "neutral": f.neutral,
                        "verdict": f.verdict.as_str(), "moved": f.moved, "worse": f.worse.join("; ") })
            })
            .collect();
        let provenance = made_from_folders(command, seed, &Changes::new(), &from, &folders);
        Ok((figures.into(), done.machine.to_text()?, provenance))
    })
}

/// Fits to the other folders and compares with the one: families with their errors, and what they were made from.
#[pyfunction]
#[pyo3(signature = (library, folder, folders, sample, seed, command, jobs=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
pub fn leave_out(
    py: Python<'_>,
    library: &Library,
    folder: PathBuf,
    folders: Vec<PathBuf>,
    sample: Option<usize>,
    seed: u64,
    command: &str,
    jobs: Option<usize>,
    progress: Callback<'_, '_>,
) -> PyResult<(Records, String)> {
    let from = library.files();
    watched(py, jobs, progress, |progress| {
        let options = options(&from, None, Vec::new(), "fitted", seed);
        let done = fitting::leave_out(&folder, &folders, &options, sample, progress)?;
        if !progress.is_awaited() {
            return Err(Failure::Unwanted);
        }
        let record = |family| {
            let mut record = serde_json::to_value(family).unwrap_or_default();
            record["directory"] = done.directory.display().to_string().into();
            record["relative"] = done.relative.clone().into();
            record["of_relative"] = done.of_relative.join(" ").into();
            record
        };
        let families: Vec<Value> = done.summary.families.iter().map(record).collect();
        Ok((families.into(), made_from_folders(command, seed, &Changes::new(), &from, &folders)))
    })
}
