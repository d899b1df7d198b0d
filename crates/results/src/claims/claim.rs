//! Claims of papers, and their verdicts.

use super::measure::Names;
use super::{AnalyticPoint, Evidence, Experiment, Measure, PointSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a published value relates to the fitting of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It is contained in data that a parameter was fitted to.
    Calibration,
    /// No parameter was fitted to it.
    Prediction,
    /// It follows from other claims (the same observation again, or arithmetic on them), or is not published at all.
    Follows,
}

impl core::fmt::Display for Role {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Calibration => "calibration",
            Self::Prediction => "prediction",
            Self::Follows => "follows",
        })
    }
}

/// Direction in which a value may exceed its tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// None.
    #[default]
    Exact,
    /// It may be greater.
    AtLeast,
    /// It may be less.
    AtMost,
}

/// Result of judging a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within its tolerance.
    Within,
    /// Outside its tolerance.
    Outside,
    /// Simulated, but there is no published number to compare with.
    NotPublished,
    /// Not simulated.
    NotModelled,
}

impl core::fmt::Display for Verdict {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Within => "within",
            Self::Outside => "outside",
            Self::NotPublished => "not published",
            Self::NotModelled => "not modelled",
        })
    }
}

/// A claim of a paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// `seed/place/scenario/point`; does not change once published.
    pub id: String,
    /// Section or figure of the paper.
    pub source: String,
    /// What the value is, as a phrase.
    pub quantity: String,
    /// The unit. `%` is a change or a share: its error and tolerance are in
    /// percentage points. `yes/no` is 1 or 0.
    pub unit: String,
    /// The published value.
    pub published: Option<f64>,
    /// Direction in which it may exceed the tolerance.
    #[serde(default)]
    pub bound: Bound,
    /// Whether a parameter was fitted to it.
    pub role: Role,
    /// Tolerance in percent of the published value (in percentage points if the unit is `%`).
    pub tolerance_pct: f64,
    /// The claim as a sentence for readers who do not know the paper.
    pub text: String,
    /// A remark: an assumption or a contradiction.
    pub note: Option<String>,
    /// Id of a claim that contradicts it.
    pub contradicts: Option<String>,
    /// Why its number follows from other claims; required if `role` is `follows`, else absent.
    pub follows: Option<String>,
    /// Simulated points used, by name.
    #[serde(default)]
    pub point: BTreeMap<String, PointSpec>,
    /// Closed forms used, by name.
    #[serde(default)]
    pub analytic: BTreeMap<String, AnalyticPoint>,
    /// Observed values used, by name: `experiment/value`.
    #[serde(default)]
    pub observed: BTreeMap<String, String>,
    /// How the number is computed.
    pub measure: Measure,
}

impl Claim {
    /// The experiments that it uses.
    fn experiments(&self) -> impl Iterator<Item = Experiment> {
        self.point.values().flat_map(PointSpec::points).map(|point| point.experiment)
    }

    /// Judges the claim by the evidence.
    pub fn judge(&self, seed: &str, evidence: &Evidence) -> ClaimResult {
        let names = Names {
            points: &self.point,
            analytic: &self.analytic,
            observed: &self.observed,
            evidence,
            moved: None,
        };
        let simulated = self.measure.compute(&names);
        let mut result = ClaimResult {
            id: self.id.clone(),
            seed: seed.into(),
            source: self.source.clone(),
            quantity: self.quantity.clone(),
            unit: self.unit.clone(),
            published: self.published,
            simulated,
            half_width: self.measure.half_width(&names),
            error_pct: None,
            role: self.role,
            tolerance_pct: self.tolerance_pct,
            verdict: Verdict::NotModelled,
            text: self.text.clone(),
            note: self.note.clone(),
            contradicts: self.contradicts.clone(),
            follows: self.follows.clone(),
            relative_figures: self
                .experiments()
                .filter_map(|e| evidence.relatives.get(&e))
                .copied()
                .max()
                .unwrap_or(0),
        };
        result.judge(self.bound);
        if result.verdict == Verdict::NotModelled {
            let reason = self.observed.values().find_map(|key| evidence.reason(key));
            let parts = [reason.map(|reason| format!("Not simulated: {reason}.")), result.note.take()];
            result.note = parts.into_iter().flatten().reduce(|a, b| format!("{a} {b}"));
        }
        result
    }
}

/// A judged claim. Serialized with exactly the fields that scripts rely on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimResult {
    /// `seed/place/scenario/point`.
    pub id: String,
    /// The paper.
    pub seed: String,
    /// Section or figure of the paper.
    pub source: String,
    /// What the value is, as a phrase.
    pub quantity: String,
    /// Unit of both values, such as `ns`.
    pub unit: String,
    /// The published value.
    pub published: Option<f64>,
    /// The simulated value.
    pub simulated: Option<f64>,
    /// Half-width of the 95 % confidence interval, if known for all its runs. For yes/no: 1 if the compared values
    /// differ by less than their intervals, else 0.
    pub half_width: Option<f64>,
    /// (simulated − published) in percent of published; in percentage points if the unit is `%`.
    pub error_pct: Option<f64>,
    /// How the published value relates to fitting.
    pub role: Role,
    /// The tolerance, in the unit of the error.
    pub tolerance_pct: f64,
    /// Whether the simulated value agrees; decides the exit status of `--check`.
    pub verdict: Verdict,
    /// Number of machine parameters used that come from a related machine.
    pub relative_figures: usize,
    /// The claim as a sentence.
    #[serde(skip)]
    pub text: String,
    /// A remark.
    #[serde(skip)]
    pub note: Option<String>,
    /// Id of a claim that contradicts it.
    #[serde(skip)]
    pub contradicts: Option<String>,
    /// Why its number follows from other claims.
    #[serde(skip)]
    pub follows: Option<String>,
}

/// A category of the tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TallyGroup {
    /// Predictions on a machine with its own parameters.
    Predictions,
    /// Predictions that use parameters of a related machine.
    OnRelatives,
    /// Values that a parameter was fitted to.
    Calibration,
    /// Values that follow from others.
    Following,
}

impl TallyGroup {
    /// All categories, in order of display.
    pub const ALL: [Self; 4] = [Self::Predictions, Self::OnRelatives, Self::Calibration, Self::Following];
}

/// For the claims of a category with a published value: numbers within tolerance, outside tolerance, and not
/// simulated.
pub fn tally(results: &[ClaimResult], part: TallyGroup) -> [usize; 3] {
    [Verdict::Within, Verdict::Outside, Verdict::NotModelled].map(|verdict| {
        let is_of = |r: &&ClaimResult| r.published.is_some() && r.verdict == verdict && r.part() == part;
        results.iter().filter(is_of).count()
    })
}

impl ClaimResult {
    /// The category.
    pub fn part(&self) -> TallyGroup {
        match self.role {
            Role::Prediction if self.relative_figures == 0 => TallyGroup::Predictions,
            Role::Prediction => TallyGroup::OnRelatives,
            Role::Calibration => TallyGroup::Calibration,
            Role::Follows => TallyGroup::Following,
        }
    }

    /// Computes error and verdict from the values.
    pub(super) fn judge(&mut self, bound: Bound) {
        // NaN is never within tolerance.
        self.simulated = self.simulated.filter(|value| !value.is_nan());
        let Some(simulated) = self.simulated else {
            self.verdict = Verdict::NotModelled;
            return;
        };
        let Some(published) = self.published else {
            self.verdict = Verdict::NotPublished;
            return;
        };
        self.verdict = Verdict::Within;
        let distance = simulated - published;
        let error = match (self.unit.as_str(), published) {
            ("%", _) => distance,
            (_, 0.0) if distance == 0.0 => 0.0,
            // For yes/no, a wrong yes; there is nothing to take a percentage of.
            (_, 0.0) => 100.0 * distance.signum(),
            _ => 100.0 * distance / published.abs(),
        };
        self.error_pct = Some(error);
        let excess = match bound {
            Bound::Exact => error.abs(),
            Bound::AtLeast => -error,
            Bound::AtMost => error,
        };
        // Slack for rounding: tolerances and many values are round numbers.
        if excess > self.tolerance_pct + 1e-9 {
            self.verdict = Verdict::Outside;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        unit: &str,
        published: Option<f64>,
        simulated: Option<f64>,
        bound: Bound,
    ) -> (Option<f64>, Verdict) {
        let mut result = ClaimResult {
            id: String::new(),
            seed: String::new(),
            source: String::new(),
            quantity: String::new(),
            unit: unit.into(),
            published,
            simulated,
            half_width: None,
            error_pct: None,
            role: Role::Prediction,
            tolerance_pct: 5.0,
            verdict: Verdict::NotModelled,
            text: String::new(),
            note: None,
            contradicts: None,
            follows: None,
            relative_figures: 0,
        };
        result.judge(bound);
        (result.error_pct, result.verdict)
    }

    #[test]
    fn verdicts_follow_error_and_bound() {
        use Verdict::{NotModelled, NotPublished, Outside, Within};
        assert_eq!(judged("ns", Some(100.0), Some(104.0), Bound::Exact), (Some(4.0), Within));
        assert_eq!(judged("ns", Some(100.0), Some(106.0), Bound::Exact), (Some(6.0), Outside));
        assert_eq!(judged("ns", Some(100.0), Some(106.0), Bound::AtLeast).1, Within);
        assert_eq!(judged("ns", Some(100.0), Some(94.0), Bound::AtLeast).1, Outside);
        assert_eq!(judged("ns", Some(100.0), Some(94.0), Bound::AtMost).1, Within);
        assert_eq!(judged("%", Some(-20.0), Some(-24.0), Bound::Exact), (Some(-4.0), Within));
        assert_eq!(judged("%", Some(0.0), Some(6.0), Bound::Exact).1, Outside);
        assert_eq!(judged("yes/no", Some(1.0), Some(0.0), Bound::Exact), (Some(-100.0), Outside));
        assert_eq!(judged("ns", Some(1.0), None, Bound::Exact), (None, NotModelled));
        assert_eq!(judged("ns", Some(1.0), Some(f64::NAN), Bound::Exact), (None, NotModelled));
        assert_eq!(judged("ns", None, Some(1.0), Bound::Exact), (None, NotPublished));
        assert_eq!(judged("ns", None, None, Bound::Exact), (None, NotModelled));
    }
}
