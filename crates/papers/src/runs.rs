//! A paper's runs, their values, and the evidence for its claims.

use std::collections::{BTreeMap, BTreeSet};

use machine::Kind;
use nearfar::Progress;
use nearfar::origins::Origins;
use rayon::prelude::*;
use results::claims::{ClaimFile, Evidence};

use super::Options;

/// Values by the names that claims use.
pub(super) type Values = BTreeMap<String, f64>;

/// Suffix of a value's name for the half-width of its 95 % interval.
const HALF: char = '±';

/// A value and the half-width of its 95 % interval; NaN if unknown.
pub(super) type Known = (f64, f64);

/// Names the values of a run at a `place`.
pub(super) fn named<'a>(of: &str, place: &str, known: impl IntoIterator<Item = (&'a str, Known)>) -> Values {
    let mut values = Values::new();
    for (what, known) in known {
        set_known(&mut values, &format!("{of}-{what}/{place}"), known);
    }
    values
}

/// Stores a value and its half-width.
pub(super) fn set_known(values: &mut Values, key: &str, (value, half): Known) {
    values.extend([(key.to_owned(), value), (format!("{key}{HALF}"), half)]);
}

/// Stores a value's half-width.
pub(super) fn set_half_width(values: &mut Values, key: &str, half: f64) {
    values.insert(format!("{key}{HALF}"), half);
}

/// A value's half-width, if known.
pub(super) fn half_width(values: &Values, key: &str) -> Option<f64> {
    values.get(&format!("{key}{HALF}")).copied().filter(|half| half.is_finite())
}

/// Completed runs.
pub(super) struct Made {
    /// Values of each run, or why it failed.
    pub outcomes: Vec<Result<Values, String>>,
    /// Values of all runs.
    pub values: Values,
    /// Number of successful runs.
    pub count: usize,
    /// A sentence for each failed run.
    pub failed: Vec<String>,
    /// The figures in use in each run.
    pub rests: Vec<(String, Origins)>,
}

impl Made {
    /// Adds later runs.
    pub fn and(mut self, later: Self) -> Self {
        self.outcomes.extend(later.outcomes);
        self.values.extend(later.values);
        self.count += later.count;
        self.failed.extend(later.failed);
        self.rests.extend(later.rests);
        self
    }
}

/// A function that makes a run with a `T`.
type Make<T> = dyn Fn(&T) -> Result<Values, String> + Sync + Send;

/// A run of a paper, made with a `T`.
pub(super) struct NamedRun<T> {
    pub name: String,
    pub run: Box<Make<T>>,
}

/// A mean and the half-width of its 95 % interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    pub value: f64,
    pub half: f64,
}

impl Mean {
    /// The mean of samples; `student` is Student's t for their number.
    pub fn of(samples: &[f64], student: f64) -> Self {
        let n = samples.len() as f64;
        let value = samples.iter().sum::<f64>() / n;
        let variance =
            samples.iter().map(|sample| (sample - value).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        Self { value, half: student * (variance / n).sqrt() }
    }
}

/// Executes a paper's runs, in parallel on all cores.
pub(super) fn make<R: Sync>(
    (paper, options): (&str, &Options),
    runs: &[R],
    progress: &dyn Progress,
    name: fn(&R) -> &str,
    make: impl Fn(&R, &Options) -> Result<Values, String> + Sync,
) -> Made {
    progress.begin(paper, runs.len() as u64);
    let outcome = |run: &R| {
        let options = options.of_run();
        let outcome = make(run, &options);
        progress.step(name(run));
        (outcome, (name(run).to_owned(), options.basis.origins()))
    };
    let (outcomes, rests): (Vec<Result<Values, String>>, Vec<_>) =
        runs.par_iter().with_max_len(1).map(outcome).unzip();
    progress.end();
    let values = outcomes.iter().flatten().flatten().map(|(key, value)| (key.clone(), *value)).collect();
    let count = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let why = |outcome: &Result<Values, String>| outcome.as_ref().err().cloned();
    let failed = runs.iter().zip(&outcomes).filter_map(|(run, outcome)| Some((name(run), why(outcome)?)));
    let failed = failed.map(|(name, reason)| format!("{name}: {reason}.")).collect();
    Made { outcomes, values, count, failed, rests }
}

/// Evidence for the claims; for missing values, the reason.
pub(super) fn evidence(
    file: &ClaimFile,
    values: &Values,
    made: &Made,
    gives: impl Fn(&str, &str) -> bool,
    options: &Options,
) -> Evidence {
    let why = match options.only.is_empty() {
        false => {
            format!("`{}` selects no experiment that gives it, or its run failed", options.only.join(","))
        }
        true => "its run failed".to_owned(),
    };
    let mut evidence = Evidence::default();
    for key in file.observed() {
        let value = values.get(&key).copied().ok_or_else(|| why.clone());
        evidence.half_widths.extend(half_width(values, &key).map(|half| (key.clone(), half)));
        evidence.observed.insert(key, value);
    }
    count_relatives(&mut evidence, made, gives);
    evidence
}

/// States, for each observed value, how many figures of relatives the runs rest on that give it. `gives` says whether a
/// run gives a value.
pub(super) fn count_relatives(evidence: &mut Evidence, made: &Made, gives: impl Fn(&str, &str) -> bool) {
    for key in evidence.observed.keys() {
        let own = made.rests.iter().filter(|(run, _)| gives(run, key));
        let figures: BTreeSet<_> = own.flat_map(|(_, origins)| origins.of_kind(Kind::Relative)).collect();
        evidence.relatives_of.insert(key.clone(), figures.len());
    }
}

/// If only some experiments were run, their values.
pub(super) fn told(values: &Values, options: &Options) -> Vec<String> {
    let own = values.iter().filter(|(name, _)| !options.only.is_empty() && !name.ends_with(HALF));
    own.map(|(name, value)| format!("{name} = {value:.4}")).collect()
}
