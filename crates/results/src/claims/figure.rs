//! A paper's figures as lines of points.

use super::{Bound, ClaimResult, Evidence, Experiment, Point, PointSpec, Role, Statistic, Verdict};
use crate::pciebench::{IommuMode, Sockets};
use serde::{Deserialize, Serialize};

/// What a figure's horizontal axis shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// The window, bytes.
    Window,
    /// The size of a transfer, bytes.
    Transfer,
    /// The share of transactions, percent.
    Percentile,
    /// The size of a message, bytes.
    Message,
    /// Write-combining buffers of a core.
    Buffers,
    /// The generation of the link.
    Generation,
    /// Large messages that wait.
    Waiting,
    /// The size of a program's buffer, bytes.
    Buffer,
    /// The size of an Ethernet frame, bytes.
    Frame,
    /// The share of SET requests, percent.
    SetRatio,
    /// Instances of STREAM.
    Streams,
    /// What runs beside it, numbered.
    Beside,
    /// The year.
    Year,
    /// Time, µs.
    Microseconds,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its place in ids (`fig7a`).
    pub id: String,
    /// Where it is in the paper.
    pub source: String,
    /// Its title.
    pub title: String,
    /// What it shows and how to read it, in two sentences.
    pub text: String,
    /// The horizontal axis.
    pub axis: Axis,
    /// What its lines show.
    pub quantity: String,
    /// The unit of the vertical axis (`%`: change against another set-up).
    pub unit: String,
    /// Tolerance of its points, percent (percentage points where the unit is `%`).
    pub tolerance_pct: f64,
    /// From where on the axis its lines are plateaus, if they are.
    pub plateau_from: Option<u64>,
    /// Tolerance of points of plateaus, percent; that of all others if not given.
    pub plateau_pct: Option<f64>,
    /// Whether minimum and 95th percentile are shown as bars.
    #[serde(default)]
    pub bars: bool,
    /// Whether its vertical axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// It goes beyond what the paper measured: what is assumed to do so.
    pub assumes: Option<String>,
    /// Its lines.
    pub line: Vec<FigureLine>,
}

/// A line of a figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureLine {
    /// Its part of ids.
    pub name: String,
    /// Its label.
    pub label: String,
    /// Whether a parameter has seen its values.
    pub role: Role,
    /// Its points, where they are runs of pcie-bench.
    pub point: Option<PointSpec>,
    /// Its points, where they are observed values.
    pub observed: Option<ObservedLine>,
    /// The set-up that a change is relative to; the rest of the point is the same.
    pub relative_to: Option<Reference>,
    /// Percentiles instead of one number per point.
    #[serde(default)]
    pub statistics: Vec<Statistic>,
}

/// Observed values over an axis: `key/x` for each place.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedLine {
    /// What their keys begin with.
    pub key: String,
    /// The places.
    pub at: Vec<u64>,
}

/// A set-up to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    #[serde(default)]
    sockets: Sockets,
    #[serde(default)]
    iommu: IommuMode,
}

/// A value at a place of the axis, with its range where bars are shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Bytes, or percent.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Minimum.
    pub low: Option<f64>,
    /// 95th percentile.
    pub high: Option<f64>,
}

impl FigureLine {
    /// Its observed values: place and key.
    pub fn keys(&self) -> Vec<(f64, String)> {
        let places =
            |line: &ObservedLine| line.at.iter().map(|&x| (x as f64, format!("{}/{x}", line.key))).collect();
        self.observed.as_ref().map_or_else(Vec::new, places)
    }

    /// Its points with their places on the axis and, for a change, the points it is relative to.
    pub fn points(&self, axis: Axis) -> Vec<(f64, Point, Option<Point>)> {
        let mut places = Vec::new();
        for point in self.point.iter().flat_map(PointSpec::points) {
            let run = &point.experiment.run;
            if axis == Axis::Percentile {
                for &statistic in &self.statistics {
                    places.push((percentile_of(statistic), Point { statistic, ..point.clone() }, None));
                }
                continue;
            }
            let x = if axis == Axis::Window { run.window } else { run.transfer };
            let reference = self.relative_to.map(|to| {
                let mut reference = point.clone();
                (reference.experiment.sockets, reference.experiment.iommu) = (to.sockets, to.iommu);
                reference
            });
            places.push((x.get() as f64, point, reference));
        }
        places
    }
}

fn percentile_of(statistic: Statistic) -> f64 {
    match statistic {
        Statistic::Minimum => 0.0,
        Statistic::P95 => 95.0,
        Statistic::P999 => 99.9,
        Statistic::Maximum => 100.0,
        Statistic::Median | Statistic::Average | Statistic::Goodput => 50.0,
    }
}

impl Figure {
    /// The points of a line that are known, in the order of the axis.
    pub fn samples(&self, line: &FigureLine, evidence: &Evidence) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (x, point, reference) in line.points(self.axis) {
            let Some(value) = evidence.value(&point) else {
                continue;
            };
            let other =
                |statistic| evidence.value(&Point { statistic, ..point.clone() }).filter(|_| self.bars);
            let (low, high) = (other(Statistic::Minimum), other(Statistic::P95));
            let y = match reference {
                None => value,
                Some(reference) => match evidence.value(&reference) {
                    Some(from) => 100.0 * (value - from) / from,
                    None => continue,
                },
            };
            samples.push(Sample { x, y, low, high });
        }
        for (x, key) in line.keys() {
            let sample = |y| Sample { x, y, low: None, high: None };
            samples.extend(evidence.observed(&key).map(sample));
        }
        samples
    }

    /// The tolerance of points at a place on the axis.
    fn tolerance_at(&self, x: f64) -> f64 {
        let is_plateau = self.plateau_from.is_some_and(|from| x >= from as f64);
        self.plateau_pct.filter(|_| is_plateau).unwrap_or(self.tolerance_pct)
    }

    /// Every point as a claim, with what `published` knows of it.
    pub fn judge(&self, seed: &str, published: &[(String, Sample)], evidence: &Evidence) -> Vec<ClaimResult> {
        let mut results = Vec::new();
        for line in &self.line {
            let simulated = self.samples(line, evidence);
            let runs = line.points(self.axis).into_iter().map(|(x, point, _)| {
                (x, point.experiment.run.to_string(), None, None, Some(point.experiment))
            });
            let keys = line.keys().into_iter().map(|(x, key)| {
                let reason = evidence.reason(&key).map(|reason| format!("Not simulated: {reason}."));
                let half_width = evidence.half_widths.get(&key).copied();
                (x, key, half_width, reason, None)
            });
            for (x, run, half_width, note, experiment) in runs.chain(keys) {
                let relative_figures =
                    experiment.as_ref().and_then(|e| evidence.relatives.get(e)).copied().unwrap_or(0);
                let at = |s: &&Sample| s.x == x;
                let known = published.iter().filter(|(name, _)| *name == line.name).map(|(_, s)| s).find(at);
                let mut result = ClaimResult {
                    id: format!("{seed}/{}/{}/{x}", self.id, line.name),
                    seed: seed.into(),
                    source: match experiment.filter(|_| known.is_some()) {
                        Some(Experiment { cpu, .. }) => {
                            format!("{}; value from the measured files of the {cpu}", self.source)
                        }
                        None => self.source.clone(),
                    },
                    quantity: format!("{}: {}", self.quantity, line.label),
                    unit: self.unit.clone(),
                    published: known.map(|s| s.y),
                    simulated: simulated.iter().find(at).map(|s| s.y),
                    half_width,
                    error_pct: None,
                    role: line.role,
                    tolerance_pct: self.tolerance_at(x),
                    verdict: Verdict::NotModelled,
                    text: format!("{}: {} ({run})", self.title, line.label),
                    note,
                    contradicts: None,
                    follows: None,
                    relative_figures,
                };
                result.judge(Bound::Exact);
                results.push(result);
            }
        }
        results
    }
}
