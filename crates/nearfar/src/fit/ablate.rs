//! Backward: which of a machine's free figures results need.
//!
//! One figure after the other is set to the value with which it has no effect. If no family of files is farther off then by
//! more than its rows' own noise, and than what another seed makes of it, nothing shows the figure: it is dead, and stays without effect while the next ones are
//! tried. Otherwise the other figures are fitted anew: if that makes up for it, the figure and those that moved show only as a
//! sum. What has been found is written to a file after each figure, and a run that was ended goes on from there.

use std::path::{Path, PathBuf};

use machine::{Doc, Listed, Machine, figures};
use results::compare::Summary;
use serde_json::{Value, json};

use super::measured::MeasuredDirectory;
use super::plan::NEUTRAL;
use super::search::Tried;
use super::{FitError, Options, WORSE_PCT, base_doc, rounds, same_machine, spelt, targets, worse};
use crate::progress::Progress;

/// What ablation found of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No family is farther off without it.
    Dead,
    /// No family is farther off without it once others are fitted anew: they show as a sum.
    Sum,
    /// A family is farther off without it, whatever the others are.
    Needed,
}

impl Verdict {
    const ALL: [(&'static str, Self); 3] =
        [("dead", Self::Dead), ("sum", Self::Sum), ("needed", Self::Needed)];

    /// As files and tables spell it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, verdict)| *verdict == self).map_or("", |(name, _)| name)
    }
}

/// A figure tried without effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablated {
    /// The figure's path in the machine file.
    pub path: String,
    /// Its value, as a file spells it.
    pub value: String,
    /// The value without effect.
    pub neutral: String,
    /// What that did.
    pub verdict: Verdict,
    /// Figures that were fitted anew and have other values now, with these; kept where the verdict is a sum.
    pub moved: Vec<(String, String)>,
    /// Families farther off in the end, each with its directory.
    pub worse: Vec<String>,
}

/// What ablation found.
#[derive(Debug)]
pub struct Ablation {
    /// Every figure that was tried, in the order in which they were.
    pub figures: Vec<Ablated>,
    /// Free figures that have no value without effect.
    pub untried: Vec<String>,
    /// The machine without what is dead or shows in a sum.
    pub machine: Doc<Machine>,
}

/// Tries the free figures of the directories' machine, those that `options` names or all. `state` is written after each
/// figure, and read at first if it is there. `refit` are the figures fitted anew: those of the plan if empty.
///
/// # Errors
/// As [`super::fit`]; a state of other directories.
pub fn ablate(
    paths: &[PathBuf],
    options: &Options,
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
    let summaries = |machine: &Machine| -> Vec<Summary> {
        directories.iter().map(|directory| directory.summary(machine, progress)).collect()
    };
    let at_first = summaries(&first);
    let again: Vec<Summary> = directories
        .iter()
        .map(|directory| directory.summary_by(options.seed + 1, &first, progress))
        .collect();
    let farther_off = |machine: &Machine| -> Vec<String> {
        let after = summaries(machine);
        let mut found = Vec::new();
        for (((directory, a), b), again) in directories.iter().zip(&at_first).zip(&after).zip(&again) {
            let noise =
                |family: &str| directory.noise_pct(family).max(apart(a, again, family)).max(WORSE_PCT);
            let name = directory.path.file_name().unwrap_or_default().to_string_lossy();
            found.extend(worse(a, b, noise).into_iter().map(|family| format!("{family} of {name}")));
        }
        found
    };
    let others = Options { figures: refit.to_vec(), ..options.clone() };
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
        // Runs that were given up show nothing.
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

/// How far apart two runs of the same machine put a family, percent: what is simulated has its noise, too.
fn apart(a: &Summary, b: &Summary, family: &str) -> f64 {
    let pairs = a.families.iter().zip(&b.families).filter(|(a, _)| a.family == family);
    let errors = pairs.flat_map(|(a, b)| [(a.median_pct, b.median_pct), (a.p90_pct, b.p90_pct)]);
    errors.filter_map(|(a, b)| Some((a? - b?).abs())).fold(0.0, f64::max)
}

/// The value with which a figure has no effect; nothing if it has it already, or there is none.
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
    let text = match std::fs::read_to_string(file) {
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
