//! A paper's runs: all of them, what they gave, and what its claims take of that.

use std::collections::BTreeMap;

use rayon::prelude::*;
use results::claims::{ClaimFile, Evidence};

use super::Options;
use crate::progress::Progress;

/// Values by the names that claims use.
pub(super) type Values = BTreeMap<String, f64>;

/// Behind a value's name: half its 95 % interval.
const HALF: char = '±';

/// A value, and half its 95 % interval; no number where that is not known.
pub(super) type Known = (f64, f64);

/// Names the values of a run at a `place`.
pub(super) fn named<'a>(of: &str, place: &str, known: impl IntoIterator<Item = (&'a str, Known)>) -> Values {
    let mut values = Values::new();
    for (what, known) in known {
        set_known(&mut values, &format!("{of}-{what}/{place}"), known);
    }
    values
}

/// Notes a value and half its interval.
pub(super) fn set_known(values: &mut Values, key: &str, (value, half): Known) {
    values.extend([(key.to_owned(), value), (format!("{key}{HALF}"), half)]);
}

/// Notes half the interval of a value.
pub(super) fn set_half_width(values: &mut Values, key: &str, half: f64) {
    values.insert(format!("{key}{HALF}"), half);
}

/// Half the interval of a value, where it is known.
pub(super) fn half_width(values: &Values, key: &str) -> Option<f64> {
    values.get(&format!("{key}{HALF}")).copied().filter(|half| half.is_finite())
}

/// Runs that have been made.
pub(super) struct Made {
    /// What each gave, or why it gave nothing.
    pub outcomes: Vec<Result<Values, String>>,
    /// What all of them gave.
    pub values: Values,
    /// How many gave anything.
    pub count: usize,
    /// A sentence for each that gave nothing.
    pub failed: Vec<String>,
}

impl Made {
    /// With runs that were made after these.
    pub fn and(mut self, later: Self) -> Self {
        self.outcomes.extend(later.outcomes);
        self.values.extend(later.values);
        self.count += later.count;
        self.failed.extend(later.failed);
        self
    }
}

/// Makes a paper's runs, as many at once as there are cores.
pub(super) fn make<R: Sync>(
    paper: &str,
    runs: &[R],
    progress: &dyn Progress,
    name: fn(&R) -> &str,
    make: impl Fn(&R) -> Result<Values, String> + Sync,
) -> Made {
    progress.begin(paper, runs.len() as u64);
    let outcome = |run: &R| {
        let outcome = make(run);
        progress.step(name(run));
        outcome
    };
    let outcomes: Vec<Result<Values, String>> = runs.par_iter().with_max_len(1).map(outcome).collect();
    progress.end();
    let values = outcomes.iter().flatten().flatten().map(|(key, value)| (key.clone(), *value)).collect();
    let count = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let why = |outcome: &Result<Values, String>| outcome.as_ref().err().cloned();
    let failed = runs.iter().zip(&outcomes).filter_map(|(run, outcome)| Some((name(run), why(outcome)?)));
    let failed = failed.map(|(name, reason)| format!("{name}: {reason}.")).collect();
    Made { outcomes, values, count, failed }
}

/// What claims take of values; for what is not among them, why.
pub(super) fn evidence(file: &ClaimFile, values: &Values, options: &Options) -> Evidence {
    let why = match &options.only {
        Some(part) => format!("only experiments with `{part}` were to run, or its run failed"),
        None => "its run failed".to_owned(),
    };
    let mut evidence = Evidence::default();
    for key in file.observed() {
        let value = values.get(&key).copied().ok_or_else(|| why.clone());
        evidence.half_widths.extend(half_width(values, &key).map(|half| (key.clone(), half)));
        evidence.observed.insert(key, value);
    }
    evidence
}

/// What is said beside the claims: which runs gave nothing and, of some experiments alone, what was observed.
pub(super) fn notes(failed: Vec<String>, values: &Values, options: &Options) -> Vec<String> {
    let mut notes = failed;
    if options.only.is_some() {
        notes.extend(values.iter().map(|(name, value)| format!("{name} = {value:.4}")));
    }
    notes
}
