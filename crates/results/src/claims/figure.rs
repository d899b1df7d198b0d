//! Figures of a paper, as lines of points.

use super::{Bound, ClaimResult, Evidence, Experiment, Point, PointSpec, Role, Statistic, Verdict};
use crate::pciebench::{IommuMode, Sockets};
use serde::{Deserialize, Serialize};

/// Quantity on a figure's horizontal axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// The window, bytes.
    Window,
    /// The size of a transfer, bytes.
    Transfer,
    /// Percentage of transactions.
    Percentile,
    /// The size of a message, bytes.
    Message,
    /// Number of a core's write-combining buffers.
    Buffers,
    /// PCIe generation of the link.
    Generation,
    /// Number of waiting large messages.
    Waiting,
    /// Size of a program's buffer, bytes.
    Buffer,
    /// Size of an Ethernet frame, bytes.
    Frame,
    /// Percentage of SET requests.
    SetRatio,
    /// Number of STREAM instances.
    Streams,
    /// The workload beside: 0 nothing, 1 netperf, 2 memcached.
    Beside,
    /// Runs without an axis: 0 one core sends without TSO, 1 all cores receive, 2 send, 3 send without TSO, 4 a file of
    /// both nodes is sent, 5 and 6 the cores of one socket receive by 8 and 16 of a card's lanes.
    Run,
    /// Calendar year.
    Year,
    /// Time, µs.
    Microseconds,
}

/// A figure of a paper: its axes, its lines, and what is simulated for them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Part of ids (`fig7a`).
    pub id: String,
    /// Place in the paper.
    pub source: String,
    /// Heading of its chart.
    pub title: String,
    /// What it shows and how to read it, in two sentences.
    pub text: String,
    /// The horizontal axis.
    pub axis: Axis,
    /// Quantity of its lines.
    pub quantity: String,
    /// Unit of the vertical axis (`%`: change relative to another setup).
    pub unit: String,
    /// Tolerance of its points, percent (percentage points if the unit is `%`).
    pub tolerance_pct: f64,
    /// Position on the axis from which its lines are plateaus, if they are.
    pub plateau_from: Option<u64>,
    /// Tolerance of points on plateaus, percent; defaults to `tolerance_pct`.
    pub plateau_pct: Option<f64>,
    /// Whether minimum and 95th percentile are shown as bars.
    #[serde(default)]
    pub bars: bool,
    /// Whether its vertical axis is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// Assumptions, for a figure beyond the paper's measurements.
    pub assumes: Option<String>,
    /// Its lines.
    pub line: Vec<FigureLine>,
}

/// A line of a figure, and where its points come from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureLine {
    /// Part of ids.
    pub name: String,
    /// Name in the chart's legend.
    pub label: String,
    /// Whether a parameter was fitted to its values.
    pub role: Role,
    /// Its points, if they are runs of pcie-bench.
    pub point: Option<PointSpec>,
    /// Its points, if they are observed values.
    pub observed: Option<ObservedLine>,
    /// The reference setup of a relative change; the rest of the point is the same.
    pub relative_to: Option<Reference>,
    /// Show percentiles instead of one number per point.
    #[serde(default)]
    pub statistics: Vec<Statistic>,
}

/// Observed values along an axis: `key/x` for each position.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedLine {
    /// Prefix of their keys.
    pub key: String,
    /// Positions.
    pub at: Vec<u64>,
}

/// A reference setup.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    #[serde(default)]
    sockets: Sockets,
    #[serde(default)]
    iommu: IommuMode,
}

/// A value at a position of the axis, with its range if bars are shown.
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
    /// Its observed values: position and key.
    pub fn keys(&self) -> Vec<(f64, String)> {
        let places =
            |line: &ObservedLine| line.at.iter().map(|&x| (x as f64, format!("{}/{x}", line.key))).collect();
        self.observed.as_ref().map_or_else(Vec::new, places)
    }

    /// Its points with their positions on the axis and, for a relative change, the reference points.
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
    /// The known points of a line, in order of the axis.
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

    /// The tolerance of points at a position on the axis.
    fn tolerance_at(&self, x: f64) -> f64 {
        let is_plateau = self.plateau_from.is_some_and(|from| x >= from as f64);
        self.plateau_pct.filter(|_| is_plateau).unwrap_or(self.tolerance_pct)
    }

    /// Judges every point as a claim, using its `published` value.
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
                let relative_figures = match &experiment {
                    Some(experiment) => evidence.relatives.get(experiment),
                    None => evidence.relatives_of.get(&run),
                };
                let relative_figures = relative_figures.copied().unwrap_or(0);
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
                    statement: format!("{}/{}", self.id, line.name),
                    structural: false,
                    ours: None,
                };
                result.judge(Bound::Exact);
                results.push(result);
            }
        }
        results
    }
}
