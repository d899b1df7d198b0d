//! Experiments and points used by claims and figures.

use crate::pciebench::{Cache, IommuMode, LatencyStats, Pattern, ResultDirectory, Row, Run, Sockets, Test};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use units::Bytes;

/// A second function behind the same IOMMU that accesses memory continuously.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggressor {
    /// Its workload (a bandwidth test, random).
    pub test: Test,
    /// The window of host memory that its transfers access, in bytes.
    pub window_bytes: u64,
    /// Size of one of its transfers, in bytes.
    pub transfer_bytes: u64,
}

/// A run on a machine, to be simulated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Experiment {
    /// The machine, named by its CPU (`E5-2630v4`) as under `measured_as` in machine files.
    pub cpu: String,
    /// Sockets of device, memory and program.
    pub sockets: Sockets,
    /// Whether and with which pages an IOMMU translates the card's addresses.
    pub iommu: IommuMode,
    /// The test, its window and its transfers.
    pub run: Run,
    /// A concurrent second function.
    pub aggressor: Option<Aggressor>,
}

/// A statistic of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Least latency, ns.
    Minimum,
    /// Median latency, ns.
    Median,
    /// Mean latency, ns.
    Average,
    /// 95th percentile of latency, ns.
    P95,
    /// 99.9th percentile of latency, ns.
    P999,
    /// Greatest latency, ns.
    Maximum,
    /// Goodput, Gbit/s.
    Goodput,
}

impl Statistic {
    /// The main statistic: median of a latency test, goodput of a bandwidth test.
    pub const fn headline(test: Test) -> Self {
        if test.is_latency() { Self::Median } else { Self::Goodput }
    }
}

/// A statistic of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Point {
    /// The run that the number is taken from.
    pub experiment: Experiment,
    /// Which of its numbers.
    pub statistic: Statistic,
}

/// A number computed from a closed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AnalyticPoint {
    /// Nanoseconds between frames at line rate.
    FrameInterval {
        /// Line rate, Gbit/s.
        gbit_per_s: u64,
        /// Frame size including FCS, bytes.
        frame_bytes: u64,
    },
}

/// One value or several.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(u64),
    Many(Vec<u64>),
}

impl OneOrMany {
    fn values(&self) -> Vec<u64> {
        match self {
            Self::One(value) => vec![*value],
            Self::Many(values) => values.clone(),
        }
    }
}

/// Points as written in a claims file: a single one, or a series over windows or sizes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointSpec {
    cpu: String,
    test: Test,
    #[serde(default = "random")]
    pattern: Pattern,
    cache: Cache,
    window_bytes: OneOrMany,
    transfer_bytes: OneOrMany,
    #[serde(default)]
    sockets: Sockets,
    #[serde(default)]
    iommu: IommuMode,
    statistic: Option<Statistic>,
    aggressor: Option<Aggressor>,
}

const fn random() -> Pattern {
    Pattern::Random
}

impl PointSpec {
    /// The points; windows vary in the outer loop.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for window in self.window_bytes.values() {
            for transfer in self.transfer_bytes.values() {
                let run = Run {
                    test: self.test,
                    pattern: self.pattern,
                    cache: self.cache,
                    host_offset: 0,
                    device_offset: 0,
                    window: Bytes::new(window),
                    transfer: Bytes::new(transfer),
                };
                let experiment = Experiment {
                    cpu: self.cpu.clone(),
                    sockets: self.sockets,
                    iommu: self.iommu,
                    run,
                    aggressor: self.aggressor,
                };
                let statistic = self.statistic.unwrap_or(Statistic::headline(self.test));
                points.push(Point { experiment, statistic });
            }
        }
        points
    }
}

/// Outcome of an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// Latency, ns.
    Latency(LatencyStats),
    /// Goodput, Gbit/s.
    Bandwidth(f64),
}

impl Outcome {
    /// The numbers that claims can use of a row.
    pub fn of(row: &Row) -> Self {
        match row {
            Row::Latency(row) => Self::Latency(row.ns),
            Row::Bandwidth(row) => Self::Bandwidth(row.gbit_per_s),
        }
    }

    fn get(&self, statistic: Statistic) -> Option<f64> {
        match (self, statistic) {
            (Self::Bandwidth(gbit_per_s), Statistic::Goodput) => Some(*gbit_per_s),
            (Self::Latency(s), Statistic::Minimum) => Some(s.minimum),
            (Self::Latency(s), Statistic::Median) => Some(s.median),
            (Self::Latency(s), Statistic::Average) => Some(s.average),
            (Self::Latency(s), Statistic::P95) => Some(s.p95),
            (Self::Latency(s), Statistic::P999) => Some(s.p999),
            (Self::Latency(s), Statistic::Maximum) => Some(s.maximum),
            _ => None,
        }
    }
}

/// Known results by which claims are judged.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// What the simulated runs gave.
    pub outcomes: BTreeMap<Experiment, Outcome>,
    /// Values of closed forms.
    pub analytic: BTreeMap<AnalyticPoint, f64>,
    /// Observed values by `experiment/value`, or why they are missing.
    pub observed: BTreeMap<String, Result<f64, String>>,
    /// Half-widths of the 95 % confidence intervals of observed means, where known.
    pub half_widths: BTreeMap<String, f64>,
    /// For each experiment, the number of parameters that come from a related machine; absent if zero.
    pub relatives: BTreeMap<Experiment, usize>,
    /// The same for each observed value.
    pub relatives_of: BTreeMap<String, usize>,
}

impl Evidence {
    /// The value of a point, if its experiment was run.
    pub fn value(&self, point: &Point) -> Option<f64> {
        self.outcomes.get(&point.experiment)?.get(point.statistic)
    }

    /// An observed value, if known.
    pub fn observed(&self, key: &str) -> Option<f64> {
        self.observed.get(key)?.as_ref().ok().copied()
    }

    /// Why an observed value is missing.
    pub fn reason(&self, key: &str) -> Option<&str> {
        self.observed.get(key)?.as_ref().err().map(String::as_str)
    }

    /// Adds the rows of a measured directory as outcomes, so that claims can be judged by the measurement itself.
    /// Adds nothing if the directory's name cannot be parsed; of duplicate rows, the first counts.
    pub fn add_measured(&mut self, directory: &ResultDirectory) {
        let Some(setup) = &directory.setup else {
            return;
        };
        for row in directory.files.iter().flat_map(crate::pciebench::ResultFile::rows) {
            let experiment = Experiment {
                cpu: setup.cpu.trim_start_matches("Xeon-").into(),
                sockets: setup.sockets,
                iommu: setup.iommu,
                run: *row.run(),
                aggressor: None,
            };
            self.outcomes.entry(experiment).or_insert_with(|| Outcome::of(&row));
        }
    }

    /// The experiments of `wanted` without an outcome.
    pub fn missing<'a>(&self, wanted: &'a BTreeSet<Experiment>) -> Vec<&'a Experiment> {
        wanted.iter().filter(|e| !self.outcomes.contains_key(e)).collect()
    }
}
