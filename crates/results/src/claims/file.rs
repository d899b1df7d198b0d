//! Claims files: a paper's claims and figures.

use super::{AnalyticPoint, Claim, ClaimResult, Evidence, Experiment, Figure, Measure, Role, Sample};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A paper's claims and figures.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimFile {
    /// The paper's short name, the first part of every id.
    pub seed: String,
    /// Citation of the paper.
    pub paper: String,
    /// Summary of what was measured.
    pub about: String,
    /// Single values that the paper states.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Figures of the paper.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// Assumptions about its programs, where the paper is silent.
    #[serde(default, rename = "assumption")]
    pub assumptions: Vec<Assumption>,
    /// Scenarios whose programs give the observed values, where nothing else is needed.
    #[serde(default, rename = "run")]
    pub runs: Vec<ScenarioRun>,
    /// Values of the figures' points: figure, then line and sample.
    #[serde(skip)]
    pub values: BTreeMap<String, Vec<(String, Sample)>>,
}

/// A quantity that the runs need but the paper does not give.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// Name used by runs.
    pub name: String,
    /// Description.
    pub quantity: String,
    /// The assumed value, in `unit`.
    pub value: f64,
    /// Unit, such as `ns`.
    pub unit: String,
    /// Reason: `assumed: ...`, `fitted by hand: ...` or, with a citation, `public: ...`.
    pub source: String,
}

/// A scenario whose programs give observed values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioRun {
    /// Name, the first part of its values' names.
    pub name: String,
    /// The scenario, as its file would be but for name, summary and seed.
    pub scenario: String,
}

/// Why a claims file is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ClaimFileError {
    /// Invalid TOML, with its position.
    #[error("{0}")]
    Toml(#[from] toml_edit::de::Error),
    /// A duplicate id, or an id that does not start with the seed.
    #[error("claim `{0}`: ids are unique and begin with the seed's name and a place")]
    Id(String),
    /// A missing reason for `follows`, or a reason for another role.
    #[error("claim `{0}`: `follows` says why where `role` is \"follows\", and nowhere else")]
    Follows(String),
    /// Neither a measure nor a reason why there is none, or both.
    #[error("claim `{0}`: it has either a `measure` or `not_modelled`, which says why it is not simulated")]
    Measure(String),
    /// A duplicate name of an assumption, or an unknown kind of source.
    #[error(
        "assumption `{0}`: names are unique, and `source` begins with \"assumed: \", \"fitted by hand: \" or \"public: \""
    )]
    Assumption(String),
    /// A measure refers to an unknown point.
    #[error("claim `{claim}`: its measure names `{name}`, which is none of its points ({points})")]
    Name {
        /// The id of the claim.
        claim: String,
        /// The name that its measure uses.
        name: String,
        /// The known points.
        points: String,
    },
    /// A malformed line of a figure's values.
    #[error(
        "values of the figures, line {0}: expected `figure,line,x,y,low,high` with numbers, low and high may be empty"
    )]
    Values(usize),
}

/// First line of a file with values of figures; `low` and `high` may be empty.
pub const VALUES_HEADER: &str = "figure,line,x,y,low,high";

/// The claims files of each paper: short name, path in the repository, text. Values of figures follow the claims.
const FILES: [(&str, &str, &str); 8] = [
    ("pcie-bench", "published/pcie-bench.toml", include_str!("../../published/pcie-bench.toml")),
    (
        "pcie-bench",
        "published/pcie-bench-figures.csv",
        include_str!("../../published/pcie-bench-figures.csv"),
    ),
    ("ioctopus", "published/ioctopus.toml", include_str!("../../published/ioctopus.toml")),
    ("kpio-wc", "published/kpio-wc.toml", include_str!("../../published/kpio-wc.toml")),
    ("device-lending", "published/device-lending.toml", include_str!("../../published/device-lending.toml")),
    (
        "device-lending",
        "published/device-lending-figures.csv",
        include_str!("../../published/device-lending-figures.csv"),
    ),
    ("numa-io", "published/numa-io.toml", include_str!("../../published/numa-io.toml")),
    ("today", "published/today.toml", include_str!("../../published/today.toml")),
];

impl ClaimFile {
    /// A paper's claims files: path in the repository and text.
    pub fn files(seed: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        FILES.into_iter().filter(move |(of, ..)| *of == seed).map(|(_, path, text)| (path, text))
    }

    /// A paper's claims, with the values of its figures if they are known.
    ///
    /// # Panics
    /// If there is no such paper, or a built-in file is malformed.
    pub fn of(seed: &str) -> Self {
        let mut texts = Self::files(seed).map(|(_, text)| text);
        let claims = texts.next().unwrap_or_else(|| panic!("`{seed}` is not among the papers"));
        let file = Self::parse(claims, texts.next().unwrap_or(VALUES_HEADER));
        file.unwrap_or_else(|error| panic!("the claims of {seed}: {error}"))
    }

    /// All observed values that its claims and figures use.
    pub fn observed(&self) -> BTreeSet<String> {
        let claims = self.claims.iter().flat_map(|claim| claim.observed.values().cloned());
        let lines = self.figures.iter().flat_map(|figure| &figure.line);
        claims.chain(lines.flat_map(|line| line.keys().into_iter().map(|(_, key)| key))).collect()
    }

    /// Parses claims and the values of figures.
    ///
    /// # Errors
    /// If the text is malformed.
    pub fn parse(claims: &str, values: &str) -> Result<Self, ClaimFileError> {
        let mut file: Self = toml_edit::de::from_str(claims)?;
        let mut ids = BTreeSet::new();
        for claim in &file.claims {
            let ours = claim.id.strip_prefix(&file.seed).is_some_and(|rest| rest.starts_with('/'));
            if !ours || !(3..=5).contains(&claim.id.split('/').count()) || !ids.insert(claim.id.clone()) {
                return Err(ClaimFileError::Id(claim.id.clone()));
            }
            if (claim.role == Role::Follows) != claim.follows.is_some() {
                return Err(ClaimFileError::Follows(claim.id.clone()));
            }
            if claim.measure.is_some() == claim.not_modelled.is_some() {
                return Err(ClaimFileError::Measure(claim.id.clone()));
            }
            for name in claim.measure.iter().flat_map(Measure::names) {
                let names = || claim.point.keys().chain(claim.analytic.keys()).chain(claim.observed.keys());
                if !names().any(|known| known == name) {
                    let points: Vec<_> = names().cloned().collect();
                    let (claim, name, points) = (claim.id.clone(), name.to_owned(), points.join(", "));
                    return Err(ClaimFileError::Name { claim, name, points });
                }
            }
        }
        let mut names = BTreeSet::new();
        for Assumption { name, source, .. } in &file.assumptions {
            let kinds = ["assumed: ", "fitted by hand: ", "public: "];
            let is_known = kinds.iter().any(|kind| source.starts_with(kind));
            if !is_known || !names.insert(name) {
                return Err(ClaimFileError::Assumption(name.clone()));
            }
        }
        let mut lines = values.lines().enumerate().map(|(i, line)| (i + 1, line));
        if lines.next().is_none_or(|(_, header)| header != VALUES_HEADER) {
            return Err(ClaimFileError::Values(1));
        }
        for (number, line) in lines {
            let (figure, name, sample) = value_line(line).ok_or(ClaimFileError::Values(number))?;
            file.values.entry(figure).or_default().push((name, sample));
        }
        Ok(file)
    }

    /// The value of an assumption.
    ///
    /// # Panics
    /// If there is no assumption with this name: these are built-in files.
    pub fn assumed(&self, name: &str) -> f64 {
        let found = self.assumptions.iter().find(|assumption| assumption.name == name);
        found.unwrap_or_else(|| panic!("published/{}.toml has no assumption `{name}`", self.seed)).value
    }

    /// All experiments that its claims and figures use, without duplicates.
    pub fn experiments(&self) -> BTreeSet<Experiment> {
        let mut experiments = BTreeSet::new();
        for claim in &self.claims {
            for spec in claim.point.values() {
                experiments.extend(spec.points().into_iter().map(|p| p.experiment));
            }
        }
        for figure in &self.figures {
            for line in &figure.line {
                for (_, point, reference) in line.points(figure.axis) {
                    experiments.insert(point.experiment);
                    experiments.extend(reference.map(|r| r.experiment));
                }
            }
        }
        experiments
    }

    /// All closed forms that its claims use.
    pub fn analytic(&self) -> BTreeSet<AnalyticPoint> {
        self.claims.iter().flat_map(|c| c.analytic.values().copied()).collect()
    }

    /// Judges the claims only.
    pub fn judge_claims(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        self.claims.iter().map(|c| c.judge(&self.seed, evidence)).collect()
    }

    /// Judges all points of all figures.
    pub fn judge_figures(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        let none = Vec::new();
        let judge = |f: &Figure| f.judge(&self.seed, self.values.get(&f.id).unwrap_or(&none), evidence);
        self.figures.iter().flat_map(judge).collect()
    }

    /// Judges claims and figures, as `nearfar reproduce --json` writes them.
    pub fn judge(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        let mut results = self.judge_claims(evidence);
        results.extend(self.judge_figures(evidence));
        results
    }

    /// What the paper shows of a line, in the file's order; empty if its values are not known.
    pub fn published(&self, figure: &Figure, line: &str) -> Vec<Sample> {
        let values = self.values.get(&figure.id).into_iter().flatten();
        values.filter(|(name, _)| name == line).map(|(_, sample)| *sample).collect()
    }

    /// The values of all figures computed from this evidence, in the format of `published/pcie-bench-figures.csv`.
    pub fn values_csv(&self, evidence: &Evidence) -> String {
        let mut text = String::from(VALUES_HEADER);
        text.push('\n');
        let optional = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.3}"));
        for figure in &self.figures {
            for line in &figure.line {
                for s in figure.samples(line, evidence) {
                    let (low, high) = (optional(s.low), optional(s.high));
                    text.push_str(&format!("{},{},{},{:.3},{low},{high}\n", figure.id, line.name, s.x, s.y));
                }
            }
        }
        text
    }
}

fn value_line(line: &str) -> Option<(String, String, Sample)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [figure, name, x, y, low, high] = fields[..] else {
        return None;
    };
    let optional = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
    let sample =
        Sample { x: x.parse().ok()?, y: y.parse().ok()?, low: optional(low)?, high: optional(high)? };
    Some((figure.into(), name.into(), sample))
}
