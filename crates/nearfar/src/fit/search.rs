//! Searches the value of one parameter: by parabola for a number, exhaustively for a choice.

use std::collections::BTreeMap;

use machine::{Determined, Doc, Machine, figures, set_number};

use super::measured::{EFFORT, Sample, value};
use super::spelt;
use crate::batch::{Job, Length, run_all};
use crate::bench::{Bench, Outcome};
use crate::progress::Silent;

/// Relative error above which a row's weight no longer grows: such an error has another cause.
const FAR: f64 = 0.15;
/// Relative scatter of rows caused by the card's clock alone.
pub const SCATTER: f64 = 0.005;

/// The machine during fitting: its file with all changes so far, and the parsed machine.
pub struct Tried {
    pub doc: Doc<Machine>,
    pub machine: Machine,
    /// Errors of rows with this machine, computed on demand.
    known: BTreeMap<(usize, usize), Option<f64>>,
}

/// How well the rows determine a parameter.
pub struct FittedFigure {
    pub determined: Determined,
    /// One standard deviation, as written in a file.
    pub uncertainty: Option<String>,
}

impl Tried {
    pub fn new(doc: Doc<Machine>, machine: Machine) -> Self {
        Self { doc, machine, known: BTreeMap::new() }
    }

    /// A copy with another value of a parameter; `None` if the file does not allow the value.
    pub fn with(&self, path: &str, text: &str) -> Option<Self> {
        let mut doc = self.doc.clone();
        doc.set(path, text).ok()?;
        let machine = doc.read().ok()?;
        Some(Self::new(doc, machine))
    }

    /// Relative errors of the samples.
    fn errors(&mut self, samples: &[Sample<'_>]) -> Vec<Option<f64>> {
        let missing: Vec<&Sample<'_>> = samples.iter().filter(|s| !self.known.contains_key(&s.key)).collect();
        let found = errors(&missing, &self.machine);
        self.known.extend(missing.iter().map(|s| s.key).zip(found));
        samples.iter().map(|s| self.known[&s.key]).collect()
    }

    /// Tries each possible value of a parameter; keeps the best if the rows distinguish it from the others.
    pub fn fit_choice(&mut self, path: &str, candidates: &[&str], samples: &[Sample<'_>]) -> FittedFigure {
        let now = spelt(&self.machine, path);
        let mut found = vec![(loss(&self.errors(samples)), None)];
        for candidate in candidates.iter().filter(|candidate| **candidate != now) {
            // Values that the file's other parameters rule out are skipped.
            found.extend(self.with(path, candidate).map(|mut t| (loss(&t.errors(samples)), Some(t))));
        }
        found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let second = found.get(1).map(|(loss, _)| *loss);
        let (best, choice) = found.swap_remove(0);
        let determined = told_apart(best, second, samples.len());
        if let (Some(better), true) = (choice, determined != Determined::Not) {
            *self = better;
        }
        FittedFigure { determined, uncertainty: None }
    }

    /// Computes the minimum of a parabola through the losses one step below, here and one step above. Moves there if
    /// the rows determine it and it is more than one standard deviation away. `None` if the parameter is not a
    /// number.
    pub fn fit_number(&mut self, path: &str, samples: &[Sample<'_>]) -> Option<FittedFigure> {
        let number =
            |machine: &Machine| figures(machine).into_iter().find(|f| f.path == path).and_then(|f| f.number);
        let here = number(&self.machine)?;
        let step = step(path, here);
        let machine = self.machine.clone();
        let at = |value: f64| {
            let mut other = machine.clone();
            set_number(&mut other, path, value).then_some(other)
        };
        let all: Vec<&Sample<'_>> = samples.iter().collect();
        let of = |value: f64| at(value).filter(|_| value >= 0.0).map(|m| errors(&all, &m));
        let now = self.errors(samples);
        let (up, down) = (of(here + step), of(here - step));
        let centre = loss(&now);
        let best = match (&up, &down) {
            (Some(up), Some(down)) => vertex(here, step, loss(down), centre, loss(up)),
            (Some(up), None) if loss(up) < centre => here + step,
            (None, Some(down)) if loss(down) < centre => here - step,
            _ => here,
        };
        let other = up.as_ref().map(|e| (e, step)).or(down.as_ref().map(|e| (e, -step)));
        // Use the best value: the current errors do not tell how well the rows would determine it.
        let better = at(best)
            .filter(|_| best != here)
            .map(|m| (errors(&all, &m), m))
            .filter(|(errors, _)| loss(errors) < centre);
        let left = better.as_ref().map_or(&now, |(errors, _)| errors);
        let deviation = other.and_then(|(other, step)| deviation(left, &now, other, step));
        let value = better.as_ref().and_then(|(_, machine)| number(machine)).unwrap_or(here);
        let determined = match deviation {
            Some(d) if d <= 0.1 * value.max(step) => Determined::Well,
            Some(d) if d <= 0.6 * value.max(step) => Determined::Weakly,
            _ => Determined::Not,
        };
        let uncertainty = deviation.filter(|_| determined != Determined::Not).and_then(|d| {
            let mut far = self.machine.clone();
            set_number(&mut far, path, rounded(d).max(1.0)).then(|| spelt(&far, path))
        });
        let farther = deviation.is_some_and(|d| (value - here).abs() > d);
        if let (Some((_, better)), true) = (&better, farther && determined != Determined::Not)
            && let Some(kept) = self.with(path, &spelt(better, path))
        {
            *self = kept;
        }
        Some(FittedFigure { determined, uncertainty })
    }
}

/// Relative errors of the samples with this machine.
fn errors(samples: &[&Sample<'_>], machine: &Machine) -> Vec<Option<f64>> {
    let benches: Vec<Bench> = samples
        .iter()
        .map(|sample| Bench { machine: machine.clone(), ..sample.directory.bench.clone() })
        .collect();
    let jobs: Vec<Job<'_>> = samples
        .iter()
        .zip(&benches)
        .map(|(sample, bench)| {
            let &&Sample { run, before, .. } = sample;
            Job { bench, run, before, effort: Length::Exactly(EFFORT) }
        })
        .collect();
    let error = |(sample, outcome): (&&Sample<'_>, Result<Outcome, _>)| {
        let outcome = outcome.ok()?;
        Some((value(&outcome.row, sample.by_mean) / sample.measured).ln())
    };
    samples.iter().zip(run_all(&jobs, "", &Silent)).map(error).collect()
}

/// Robust sum of squares: outliers count no more than moderate errors.
fn loss(errors: &[Option<f64>]) -> f64 {
    errors.iter().flatten().map(|e| e.abs().min(FAR).powi(2)).sum()
}

/// How well this many rows distinguish the best of several values from the second best, by their losses.
fn told_apart(best: f64, second: Option<f64>, rows: usize) -> Determined {
    let Some(second) = second else { return Determined::Not };
    // The rows are not fully independent; a quarter of the clock's scatter must not decide.
    let noise = 0.25 * rows as f64 * SCATTER * SCATTER;
    match second - best {
        gain if gain > best.max(4.0 * noise) => Determined::Well,
        gain if gain > (0.1 * best).max(noise) => Determined::Weakly,
        _ => Determined::Not,
    }
}

/// Rounds to two digits, enough for an uncertainty.
fn rounded(value: f64) -> f64 {
    let grain = 10f64.powf(value.max(1.0).log10().floor() - 1.0);
    (value / grain).round() * grain
}

/// A step with a visible effect: a tenth of the value, 3 ns for times near zero, at least one for counts.
fn step(path: &str, value: f64) -> f64 {
    const COUNTED: [&str; 4] = ["ways", "entries", "walkers", "held_by_others"];
    const PICOSECONDS: f64 = 3_000.0;
    let last = path.rsplit('.').next().unwrap_or(path);
    if COUNTED.iter().any(|counted| last.ends_with(counted)) || last.ends_with("depth") {
        (value / 10.0).round().max(1.0)
    } else {
        (value / 10.0).max(PICOSECONDS)
    }
}

/// The minimum of a parabola through three losses, at most three steps away.
fn vertex(here: f64, step: f64, down: f64, centre: f64, up: f64) -> f64 {
    let curvature = down - 2.0 * centre + up;
    let slope = (up - down) / 2.0;
    let steps = if curvature > 1e-12 { -slope / curvature } else { -slope.signum() * 2.0 };
    let best = (here + steps.clamp(-3.0, 3.0) * step).max(0.0);
    // Results do not resolve less than a tenth of a nanosecond.
    let grain = if step >= 1_000.0 { 100.0 } else { 1.0 };
    (best / grain).round() * grain
}

/// One standard deviation of the parameter, from the rows' scatter about the fit (`left`) and their sensitivity (the
/// errors `now` and one step further).
fn deviation(left: &[Option<f64>], now: &[Option<f64>], other: &[Option<f64>], step: f64) -> Option<f64> {
    let slopes = now.iter().zip(other).filter_map(|(a, b)| Some(((*b)? - (*a)?) / step));
    let information: f64 = slopes.map(|slope| slope * slope).sum();
    let rows = left.iter().flatten().count() as f64;
    let scatter = (loss(left) / rows).max(SCATTER * SCATTER);
    (information > 0.0).then(|| (scatter / information).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parabola_is_lowest_at_its_vertex() {
        let loss = |x: f64| (x - 130.0).powi(2);
        assert_eq!(vertex(100.0, 10.0, loss(90.0), loss(100.0), loss(110.0)), 130.0);
        // At most three steps, and never below zero.
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
}
