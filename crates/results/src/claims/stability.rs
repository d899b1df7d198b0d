//! Claims over repetitions: with other seeds, and with figures that are off by little.

use super::{ClaimResult, Verdict};
use serde::Serialize;

/// What repetitions of the runs behind a claim gave, the first run included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stability {
    /// Runs that gave a value.
    pub runs: usize,
    /// The least value.
    pub low: Option<f64>,
    /// The greatest value.
    pub high: Option<f64>,
    /// Whether one run is within the tolerance and another outside.
    pub flips: bool,
    /// Two values about which the runs lie, with none between: what was measured hangs on a phase.
    pub states: Option<[f64; 2]>,
}

/// Gap between two states, in parts of the spread within them.
const APART: f64 = 2.0;
/// The least gap that matters: a share of the greatest value, and points of a percentage.
const LEAST_SHARE: f64 = 0.03;
const LEAST_POINTS: f64 = 1.0;
/// Number of runs from which two states are told from scatter.
const ENOUGH: usize = 4;

impl Stability {
    /// Of the same claim in all runs.
    pub fn of(runs: &[&ClaimResult]) -> Self {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| run.simulated).collect();
        values.sort_by(f64::total_cmp);
        let is = |verdict| runs.iter().any(|run| run.verdict == verdict);
        // A yes or no has no states besides its verdicts; scatter that the runs tell of themselves is none.
        let unit = runs.first().map_or("", |run| &run.unit);
        let greatest = values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let least_gap = if unit == "%" { LEAST_POINTS } else { LEAST_SHARE * greatest };
        let half = runs.iter().filter_map(|run| run.half_width).fold(0.0, f64::max);
        Self {
            runs: values.len(),
            low: values.first().copied(),
            high: values.last().copied(),
            flips: is(Verdict::Within) && is(Verdict::Outside),
            states: two_states(&values, half, least_gap).filter(|_| unit != "yes/no"),
        }
    }
}

/// The means of the values on both sides of the widest gap, if that is wider than what scatters on its sides.
fn two_states(sorted: &[f64], half_width: f64, least_gap: f64) -> Option<[f64; 2]> {
    if sorted.len() < ENOUGH {
        return None;
    }
    let gap = |at: &usize| sorted[*at] - sorted[at - 1];
    let at = (1..sorted.len()).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let (below, above) = sorted.split_at(at);
    let spread = |side: &[f64]| side[side.len() - 1] - side[0];
    let scatter = spread(below) + spread(above) + 2.0 * half_width;
    let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len() as f64;
    let is_wide = gap(&at) > APART * scatter && gap(&at) > least_gap;
    is_wide.then(|| [mean(below), mean(above)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_states_are_told_from_scatter() {
        let states = |values: &[f64], half| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            two_states(&values, half, 0.3)
        };
        assert_eq!(
            states(&[7.92, 10.97, 10.96, 7.92, 10.97], 0.0).map(|s| s.map(|v| v.round())),
            Some([8.0, 11.0])
        );
        // One of five in the other state.
        assert!(states(&[7.92, 10.97, 10.96, 10.96, 10.97], 0.0).is_some());
        assert_eq!(states(&[10.1, 10.5, 9.6, 10.9, 9.9], 0.0), None);
        // Its own interval explains the gap.
        assert_eq!(states(&[7.92, 10.97, 10.96, 7.92, 10.97], 1.0), None);
        // Apart, but by nothing that matters.
        assert_eq!(states(&[10.0, 10.0, 10.1, 10.1], 0.0), None);
        assert_eq!(states(&[7.0, 11.0, 7.0], 0.0), None);
    }
}
