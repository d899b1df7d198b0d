//! Claims of papers, and their verdicts.

use super::measure::Names;
use super::{AnalyticPoint, Evidence, Experiment, Measure, PointSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a published value relates to the fitting of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The interval of the simulated value has values within the tolerance and values outside.
    Undetermined,
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
            Self::Undetermined => "undetermined",
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
    /// The statement of which it is a point, without the seed; by default its id without a number at the end.
    pub statement: Option<String>,
    /// Why no result of the simulated mechanism could contradict it, short of a fault.
    pub structural: Option<String>,
    /// What of its number is not the paper's: a threshold for a word such as "most".
    pub ours: Option<String>,
    /// Why it is not simulated; it has no measure then.
    pub not_modelled: Option<String>,
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
    pub measure: Option<Measure>,
}

impl Claim {
    /// The experiments that it uses.
    fn experiments(&self) -> impl Iterator<Item = Experiment> {
        self.point.values().flat_map(PointSpec::points).map(|point| point.experiment)
    }

    /// The statement of which it is a point: several that differ only in a size at the end of their ids are one.
    pub fn statement(&self) -> &str {
        let own = self.id.split_once('/').map_or(&*self.id, |(_, rest)| rest);
        let default = match own.rsplit_once('/') {
            Some((all, point)) if point.bytes().all(|digit| digit.is_ascii_digit()) => all,
            _ => own,
        };
        self.statement.as_deref().unwrap_or(default)
    }

    /// How many figures of related machines the runs rest on that give its values.
    fn relative_figures(&self, evidence: &Evidence) -> usize {
        let points = self.experiments().filter_map(|experiment| evidence.relatives.get(&experiment));
        let observed = self.observed.values().filter_map(|key| evidence.relatives_of.get(key));
        points.chain(observed).copied().max().unwrap_or(0)
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
        let measure = self.measure.as_ref();
        let mut result = ClaimResult {
            id: self.id.clone(),
            seed: seed.into(),
            source: self.source.clone(),
            quantity: self.quantity.clone(),
            unit: self.unit.clone(),
            published: self.published,
            simulated: measure.and_then(|measure| measure.compute(&names)),
            half_width: measure.and_then(|measure| measure.half_width(&names)),
            error_pct: None,
            role: self.role,
            tolerance_pct: self.tolerance_pct,
            verdict: Verdict::NotModelled,
            text: self.text.clone(),
            note: self.note.clone(),
            contradicts: self.contradicts.clone(),
            follows: self.follows.clone(),
            relative_figures: self.relative_figures(evidence),
            statement: self.statement().into(),
            structural: self.structural.is_some(),
            ours: self.ours.clone(),
        };
        result.judge(self.bound);
        if result.verdict == Verdict::NotModelled {
            let failed = || self.observed.values().find_map(|key| evidence.reason(key));
            let reason = self.not_modelled.as_deref().or_else(failed);
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
    /// Number of figures used that come from a related machine or part.
    pub relative_figures: usize,
    /// The statement of which it is a point.
    pub statement: String,
    /// Whether no result of the simulated mechanism could contradict it.
    pub structural: bool,
    /// What of its number is not the paper's.
    pub ours: Option<String>,
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
        self.error_pct = Some(self.error_of(simulated, published));
        let half = self.half_width.filter(|half| half.is_finite()).unwrap_or(0.0);
        let errors = [simulated - half, simulated + half].map(|value| self.error_of(value, published));
        // Of a yes or no, the half-width says whether the interval has both.
        self.verdict = match self.unit.as_str() {
            "yes/no" if half > 0.0 => Verdict::Undetermined,
            "yes/no" => self.verdict_of([self.error_pct.unwrap_or_default(); 2], bound),
            _ => self.verdict_of(errors, bound),
        };
    }

    /// The error of a value, in the unit of the tolerance.
    fn error_of(&self, value: f64, published: f64) -> f64 {
        let distance = value - published;
        match (self.unit.as_str(), published) {
            ("%", _) => distance,
            (_, 0.0) if distance == 0.0 => 0.0,
            // For yes/no, a wrong yes; there is nothing to take a percentage of.
            (_, 0.0) => 100.0 * distance.signum(),
            _ => 100.0 * distance / published.abs(),
        }
    }

    /// The verdict of all errors between the least and the greatest.
    fn verdict_of(&self, [least, most]: [f64; 2], bound: Bound) -> Verdict {
        // Slack for rounding: tolerances and many values are round numbers.
        let tolerance = self.tolerance_pct + 1e-9;
        let (above, below) = match bound {
            Bound::Exact => (tolerance, -tolerance),
            Bound::AtLeast => (f64::INFINITY, -tolerance),
            Bound::AtMost => (tolerance, f64::NEG_INFINITY),
        };
        match () {
            () if below <= least && most <= above => Verdict::Within,
            () if most < below || above < least => Verdict::Outside,
            () => Verdict::Undetermined,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged_within(
        unit: &str,
        published: Option<f64>,
        simulated: Option<f64>,
        half_width: Option<f64>,
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
            half_width,
            error_pct: None,
            role: Role::Prediction,
            tolerance_pct: 5.0,
            verdict: Verdict::NotModelled,
            text: String::new(),
            note: None,
            contradicts: None,
            follows: None,
            relative_figures: 0,
            statement: String::new(),
            structural: false,
            ours: None,
        };
        result.judge(bound);
        (result.error_pct, result.verdict)
    }

    fn judged(
        unit: &str,
        published: Option<f64>,
        simulated: Option<f64>,
        bound: Bound,
    ) -> (Option<f64>, Verdict) {
        judged_within(unit, published, simulated, None, bound)
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

    #[test]
    fn an_interval_across_the_edge_determines_nothing() {
        use Verdict::{Outside, Undetermined, Within};
        let of = |unit, published, simulated, half, bound| {
            judged_within(unit, Some(published), Some(simulated), Some(half), bound).1
        };
        assert_eq!(of("ns", 100.0, 104.0, 0.9, Bound::Exact), Within);
        assert_eq!(of("ns", 100.0, 104.0, 1.1, Bound::Exact), Undetermined);
        assert_eq!(of("ns", 100.0, 106.0, 1.1, Bound::Exact), Undetermined);
        assert_eq!(of("ns", 100.0, 106.0, 0.9, Bound::Exact), Outside);
        // Wider than the tolerance on both sides.
        assert_eq!(of("ns", 100.0, 100.0, 20.0, Bound::Exact), Undetermined);
        assert_eq!(of("ns", 100.0, 100.0, 20.0, Bound::AtLeast), Undetermined);
        assert_eq!(of("ns", 100.0, 130.0, 20.0, Bound::AtLeast), Within);
        assert_eq!(of("%", -20.0, -24.0, 2.0, Bound::Exact), Undetermined);
        assert_eq!(of("yes/no", 1.0, 1.0, 1.0, Bound::Exact), Undetermined);
        assert_eq!(of("yes/no", 1.0, 0.0, 0.0, Bound::Exact), Outside);
        assert_eq!(of("ns", 100.0, 104.0, f64::NAN, Bound::Exact), Within);
    }
}
