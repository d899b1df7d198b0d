//! Claims files: a paper's claims and figures.

use super::{AnalyticPoint, Claim, ClaimResult, Evidence, Experiment, Figure, Role, Sample};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a paper claims.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimFile {
    /// The paper's short name, first part of every id.
    pub seed: String,
    /// The paper.
    pub paper: String,
    /// What was measured, in a few plain sentences.
    pub about: String,
    /// Its claims.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Its figures.
    #[serde(default, rename = "figure")]
    pub figures: Vec<Figure>,
    /// What its programs are taken to do where the paper does not say it.
    #[serde(default, rename = "assumption")]
    pub assumptions: Vec<Assumption>,
    /// Values of the figures' points: figure, then line and sample.
    #[serde(skip)]
    pub values: BTreeMap<String, Vec<(String, Sample)>>,
}

/// A quantity that the paper does not give, and that the runs need.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// What runs call it.
    pub name: String,
    /// What it is.
    pub quantity: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// Why: `assumed: ...` or `fitted by hand: ...`.
    pub source: String,
}

/// Why a claims file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClaimFileError {
    /// Not the expected TOML; says where.
    #[error("{0}")]
    Toml(#[from] toml_edit::de::Error),
    /// Two claims with one id, or an id outside the seed.
    #[error("claim `{0}`: ids are unique and begin with the seed's name and a place")]
    Id(String),
    /// A role of which the reason is missing, or a reason for another role.
    #[error("claim `{0}`: `follows` says why where `role` is \"follows\", and nowhere else")]
    Follows(String),
    /// Two assumptions with one name, or one whose source is of no known kind.
    #[error(
        "assumption `{0}`: names are unique, and `source` begins with \"assumed: \" or \"fitted by hand: \""
    )]
    Assumption(String),
    /// A name in a measure that no point has.
    #[error("claim `{claim}`: its measure names `{name}`, which is none of its points ({points})")]
    Name {
        /// The claim.
        claim: String,
        /// The name.
        name: String,
        /// What there is.
        points: String,
    },
    /// A line of a figure's values that cannot be read.
    #[error(
        "values of the figures, line {0}: expected `figure,line,x,y,low,high` with numbers, low and high may be empty"
    )]
    Values(usize),
}

/// How the values of figures begin.
pub const VALUES_HEADER: &str = "figure,line,x,y,low,high";

/// The files of each paper's claims: its short name, the path in the repository, the text.
const FILES: [(&str, &str, &str); 7] = [
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
];

impl ClaimFile {
    /// The files that a paper's claims and figures are in: path in the repository and text.
    pub fn files(seed: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
        FILES.into_iter().filter(move |(of, ..)| *of == seed).map(|(_, path, text)| (path, text))
    }

    /// pcie-bench's claims, from `published/pcie-bench.toml` and `published/pcie-bench-figures.csv`.
    ///
    /// # Panics
    /// If these files, which are part of the program, are malformed.
    pub fn pcie_bench() -> Self {
        Self::parse(FILES[0].2, FILES[1].2).expect("published/pcie-bench.* are well-formed")
    }

    /// kPIO+WC's claims, from `published/kpio-wc.toml`. No values of its figures are known.
    ///
    /// # Panics
    /// If that file, which is part of the program, is malformed.
    pub fn kpio_wc() -> Self {
        Self::parse(FILES[3].2, VALUES_HEADER).expect("published/kpio-wc.toml is well-formed")
    }

    /// The claims of the NUMA I/O slides, from `published/numa-io.toml`. No values of their figures are known.
    ///
    /// # Panics
    /// If that file, which is part of the program, is malformed.
    pub fn numa_io() -> Self {
        Self::parse(FILES[6].2, VALUES_HEADER).expect("published/numa-io.toml is well-formed")
    }

    /// IOctopus's claims, from `published/ioctopus.toml`. No values of its figures are known.
    ///
    /// # Panics
    /// If that file, which is part of the program, is malformed.
    pub fn ioctopus() -> Self {
        Self::parse(FILES[2].2, VALUES_HEADER).expect("published/ioctopus.toml is well-formed")
    }

    /// Device Lending's claims, from `published/device-lending.toml` and `published/device-lending-figures.csv`.
    ///
    /// # Panics
    /// If these files, which are part of the program, are malformed.
    pub fn device_lending() -> Self {
        Self::parse(FILES[4].2, FILES[5].2).expect("published/device-lending.* are well-formed")
    }

    /// Every observed value that its claims and figures rest on.
    pub fn observed(&self) -> BTreeSet<String> {
        let claims = self.claims.iter().flat_map(|claim| claim.observed.values().cloned());
        let lines = self.figures.iter().flat_map(|figure| &figure.line);
        claims.chain(lines.flat_map(|line| line.keys().into_iter().map(|(_, key)| key))).collect()
    }

    /// Reads claims and the values of figures.
    ///
    /// # Errors
    /// Text that does not fit.
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
            for name in claim.measure.names() {
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
            let is_known = ["assumed: ", "fitted by hand: "].iter().any(|kind| source.starts_with(kind));
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
    /// If there is none of that name: these files are part of the program.
    pub fn assumed(&self, name: &str) -> f64 {
        let found = self.assumptions.iter().find(|assumption| assumption.name == name);
        found.unwrap_or_else(|| panic!("published/{}.toml has no assumption `{name}`", self.seed)).value
    }

    /// Every experiment that its claims and figures rest on, each once.
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

    /// Every closed form that its claims rest on.
    pub fn analytic(&self) -> BTreeSet<AnalyticPoint> {
        self.claims.iter().flat_map(|c| c.analytic.values().copied()).collect()
    }

    /// Judges the claims alone.
    pub fn judge_claims(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        self.claims.iter().map(|c| c.judge(&self.seed, evidence)).collect()
    }

    /// Judges every point of every figure.
    pub fn judge_figures(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        let none = Vec::new();
        let judge = |f: &Figure| f.judge(&self.seed, self.values.get(&f.id).unwrap_or(&none), evidence);
        self.figures.iter().flat_map(judge).collect()
    }

    /// Judges claims and figures: what `nearfar reproduce --json` writes.
    pub fn judge(&self, evidence: &Evidence) -> Vec<ClaimResult> {
        let mut results = self.judge_claims(evidence);
        results.extend(self.judge_figures(evidence));
        results
    }

    /// The published samples of a line.
    pub fn published(&self, figure: &Figure, line: &str) -> Vec<Sample> {
        let values = self.values.get(&figure.id).into_iter().flatten();
        values.filter(|(name, _)| name == line).map(|(_, sample)| *sample).collect()
    }

    /// The values of all figures by this evidence, in the form of
    /// `published/pcie-bench-figures.csv`.
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
