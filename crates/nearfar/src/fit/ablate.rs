//! Backward elimination: which free parameters of a machine the results need.
//!
//! Sets one parameter after the other to its neutral value. If no family of files gets worse by more than the noise
//! of its rows and of the seed, the parameter is dead, and stays neutral for the rest of the run. Otherwise the other
//! parameters are fitted again; if they make up for it, results show only the sum of this parameter and those that
//! moved. Progress is saved after each parameter, so that an interrupted run can continue.

use std::path::{Path, PathBuf};

use machine::{Doc, Listed, Machine, figures};
use serde_json::{Value, json};

use super::measured::MeasuredDirectory;
use super::plan::NEUTRAL;
use super::search::Tried;
use super::worse::FamilyErrors;
use super::{FitError, FitOptions, base_doc, rounds, same_machine, spelt, targets};
use crate::progress::Progress;

/// Result of ablating one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No family gets worse without it.
    Dead,
    /// No family gets worse without it once others are fitted again: results show only their sum.
    Sum,
    /// A family gets worse without it, whatever the others' values.
    Needed,
}

impl Verdict {
    const ALL: [(&'static str, Self); 3] =
        [("dead", Self::Dead), ("sum", Self::Sum), ("needed", Self::Needed)];

    /// The name in files and tables.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, verdict)| *verdict == self).map_or("", |(name, _)| name)
    }
}

/// A parameter that was set to its neutral value.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablated {
    /// The parameter's path in the machine file.
    pub path: String,
    /// Its value, as written in the file.
    pub value: String,
    /// The neutral value.
    pub neutral: String,
    /// Whether the results need it.
    pub verdict: Verdict,
    /// Fitted parameters that changed, with their new values; only kept for `Verdict::Sum`.
    pub moved: Vec<(String, String)>,
    /// Families that got worse in the end, with their directories.
    pub worse: Vec<String>,
}

/// Result of an ablation.
#[derive(Debug)]
pub struct Ablation {
    /// The parameters that were tried, in order.
    pub figures: Vec<Ablated>,
    /// Free parameters without a neutral value.
    pub untried: Vec<String>,
    /// The machine without the dead parameters and those that show only in a sum.
    pub machine: Doc<Machine>,
}

/// Ablates the free parameters of the directories' machine: those in `options`, or all. Progress is saved in `state`,
/// and read from it at the start if it exists. Only the parameters in `refit` are fitted again; if empty, those of
/// the plan.
///
/// # Errors
/// As [`super::fit`]; also if `state` belongs to other directories.
pub fn ablate(
    paths: &[PathBuf],
    options: &FitOptions,
    refit: &[String],
    state: &Path,
    progress: &dyn Progress,
) -> Result<Ablation, FitError> {
    let (mut problems, mut doubts) = (Vec::new(), Vec::new());
    let read = |path: &PathBuf| MeasuredDirectory::read(path, options, &mut problems, &mut doubts);
    let directories: Vec<MeasuredDirectory> = paths.iter().map(read).collect::<Result<_, _>>()?;
    same_machine(&directories)?;
    let base = base_doc(&directories, options)?;
    let first = base.read()?;
    let mut tried = Tried::new(base, first.clone());
    let mut done = load(state, paths)?;
    for ablated in done.iter().filter(|ablated| ablated.verdict != Verdict::Needed) {
        let sets = [(&ablated.path, &ablated.neutral)].into_iter();
        for (path, value) in sets.chain(ablated.moved.iter().map(|(path, value)| (path, value))) {
            let because = || wrong(state, format!("`{path}` cannot be {value}; remove it to begin anew"));
            tried = tried.with(path, value).ok_or_else(because)?;
        }
    }
    let free = |figure: &Listed| match options.figures.is_empty() {
        true => figure.provenance.kind.is_free(),
        false => options.figures.contains(&figure.path),
    };
    let all: Vec<Listed> = figures(&first).into_iter().filter(free).collect();
    if let Some(unknown) = options.figures.iter().find(|path| all.iter().all(|figure| figure.path != **path))
    {
        return Err(FitError::NoFigure(unknown.clone()));
    }
    // Simulation results are noisy, too: another seed tells by how much.
    let allowed = |directory: &MeasuredDirectory| {
        let of_seed = |seed: u64| directory.errors(seed, &first, None, progress);
        let (errors, again) = (of_seed(options.seed), of_seed(options.seed + 1));
        let noise = |family: &str| directory.noise_pct(family).max(errors.apart(&again, family));
        errors.clone().with_noise(noise)
    };
    let allowed: Vec<FamilyErrors> = directories.iter().map(allowed).collect();
    let farther_off = |machine: &Machine| -> Vec<String> {
        let mut found = Vec::new();
        for (directory, allowed) in directories.iter().zip(&allowed) {
            let errors = directory.errors(options.seed, machine, None, progress);
            let name = directory.path.file_name().unwrap_or_default().to_string_lossy();
            found.extend(errors.worse(allowed).into_iter().map(|family| format!("{family} of {name}")));
        }
        found
    };
    let others = FitOptions { figures: refit.to_vec(), ..options.clone() };
    let mut untried = Vec::new();
    progress.begin("figures without effect", all.len() as u64);
    for figure in &all {
        progress.step(&figure.path);
        if done.iter().any(|ablated| ablated.path == figure.path) {
            continue;
        }
        let value = spelt(&first, &figure.path);
        let without =
            neutral(figure).and_then(|neutral| Some((tried.with(&figure.path, &neutral)?, neutral)));
        let Some((mut without, neutral)) = without else {
            untried.push(figure.path.clone());
            continue;
        };
        let mut moved = Vec::new();
        let mut worse = farther_off(&without.machine);
        let mut verdict = Verdict::Dead;
        if !worse.is_empty() {
            let before = without.machine.clone();
            let mut partners = targets(&before, &directories, &others)?;
            partners.retain(|partner| partner.path != figure.path);
            let fitted = rounds(partners, &directories, &mut without, &before, progress);
            moved = fitted.into_iter().filter(|f| f.after != f.before).map(|f| (f.path, f.after)).collect();
            if !moved.is_empty() {
                worse = farther_off(&without.machine);
            }
            verdict = if worse.is_empty() { Verdict::Sum } else { Verdict::Needed };
        }
        // Cancelled runs are not evidence.
        if !progress.is_awaited() {
            return Err(FitError::Unwanted);
        }
        if verdict != Verdict::Needed {
            tried = without;
        }
        done.push(Ablated { path: figure.path.clone(), value, neutral, verdict, moved, worse });
        save(state, paths, &done)?;
    }
    progress.end();
    Ok(Ablation { figures: done, untried, machine: tried.doc })
}

/// The parameter's neutral value; `None` if it has that already or none exists.
fn neutral(figure: &Listed) -> Option<String> {
    let value = figure.value.trim().trim_matches('"');
    let known = NEUTRAL.iter().find(|(path, _)| *path == figure.path).map(|(_, value)| (*value).to_owned());
    let neutral = known.or_else(|| match value.split_once(' ') {
        _ if value == "true" => Some("false".to_owned()),
        Some((number, unit)) if number.parse::<f64>().is_ok() => Some(format!("0 {unit}")),
        _ => None,
    })?;
    let number = |text: &str| text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    (neutral != value && (number(&neutral).is_none() || number(&neutral) != number(value))).then_some(neutral)
}

fn wrong(file: &Path, why: String) -> FitError {
    FitError::State { file: file.to_owned(), why }
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

fn save(file: &Path, paths: &[PathBuf], done: &[Ablated]) -> Result<(), FitError> {
    let figures: Vec<Value> = done
        .iter()
        .map(|a| {
            json!({ "path": a.path, "value": a.value, "neutral": a.neutral, "verdict": a.verdict.as_str(),
                    "moved": a.moved, "worse": a.worse })
        })
        .collect();
    let text = json!({ "directories": names(paths), "figures": figures }).to_string();
    files::write(file, text.as_bytes()).map_err(|error| wrong(file, format!("it cannot be written: {error}")))
}

fn load(file: &Path, paths: &[PathBuf]) -> Result<Vec<Ablated>, FitError> {
    let text = match files::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong(file, format!("it cannot be read: {error}"))),
    };
    let state: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(file, format!("it is no JSON ({error}); remove it to begin anew")))?;
    if state["directories"] != json!(names(paths)) {
        return Err(wrong(file, "it is of other directories; name another file".to_owned()));
    }
    let of = |figure: &Value| -> Option<Ablated> {
        let text = |key: &str| figure[key].as_str().map(ToOwned::to_owned);
        let verdict = Verdict::ALL.iter().find(|(name, _)| figure["verdict"] == *name)?.1;
        let pair = |pair: &Value| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
        let moved = figure["moved"].as_array()?.iter().map(pair).collect::<Option<_>>()?;
        let family = |family: &Value| family.as_str().map(ToOwned::to_owned);
        let worse = figure["worse"].as_array()?.iter().map(family).collect::<Option<_>>()?;
        Some(Ablated {
            path: text("path")?,
            value: text("value")?,
            neutral: text("neutral")?,
            verdict,
            moved,
            worse,
        })
    };
    let figures = state["figures"].as_array().and_then(|all| all.iter().map(of).collect());
    figures.ok_or_else(|| wrong(file, "a figure in it lacks something; remove it to begin anew".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::Library;

    #[test]
    fn figures_have_a_value_without_effect_or_none() {
        let machine = Doc::<Machine>::load(&Library::built_in(), "dell-t620-sandy").unwrap().read().unwrap();
        let of = |path: &str| {
            let figure = figures(&machine).into_iter().find(|figure| figure.path == path).unwrap();
            neutral(&figure)
        };
        assert_eq!(of("host.dram.access").as_deref(), Some("0 ns"));
        assert_eq!(of("host.port.slot.mrrs_bytes").as_deref(), Some("512"));
        assert_eq!(of("host.iommu.same_page_shares_place").as_deref(), Some("false"));
        assert_eq!(of("host.llc.replacement"), None, "one of several, none of them nothing");
    }
}
