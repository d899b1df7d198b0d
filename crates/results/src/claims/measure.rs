//! Computes a claim's number from points.

use super::{AnalyticPoint, Evidence, Point, PointSpec};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A computation over named points. Names refer to the claim's `point` and `analytic` tables; where a series is
/// expected, a name stands for all its points.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Measure {
    /// The value itself.
    Value {
        /// The point.
        of: String,
    },
    /// Difference of two values.
    Difference {
        /// The minuend, usually the greater value.
        of: String,
        /// The subtrahend.
        minus: String,
    },
    /// Ratio of two values.
    Ratio {
        /// The numerator.
        of: String,
        /// The denominator.
        per: String,
    },
    /// Change relative to a reference, in percent.
    PercentChange {
        /// The changed value.
        of: String,
        /// The reference.
        from: String,
    },
    /// How many of one fit into another, rounded up; for example, transfers in flight.
    Count {
        /// The whole.
        of: String,
        /// The part.
        per: String,
    },
    /// Greatest deviation of a series from its first value, in percent of that.
    Spread {
        /// The series.
        of: String,
    },
    /// Window at which a series over windows is half way from its first to its last value, in percent of a capacity.
    HalfWay {
        /// The series.
        of: String,
        /// The capacity of which the result is a share, such as that of the last-level cache, in bytes.
        capacity_bytes: u64,
    },
    /// Largest window up to which a series stays within `change_pct` of another, in pages.
    Reach {
        /// The series.
        of: String,
        /// The reference series over the same windows.
        from: String,
        /// Threshold of a change, percent.
        change_pct: f64,
        /// The page size, bytes.
        page_bytes: u64,
    },
    /// Number of entries of a translation cache. The hit rate follows from the mean latencies: between all-hit and
    /// all-miss latency. For random accesses over more pages than entries, the hit rate is entries / pages.
    Entries {
        /// Mean latencies over windows that exceed the cache.
        of: String,
        /// Mean latency when all hit.
        hit: String,
        /// Mean latency when almost all miss.
        miss: String,
        /// The page size, bytes.
        page_bytes: u64,
    },
    /// 1 if one value is below another by more than `by_pct` percent of the latter, else 0; equal values are in no order.
    Below {
        /// The value expected to be lower.
        of: String,
        /// The value to compare with.
        than: String,
        /// Minimum difference, percent.
        by_pct: f64,
    },
}

/// Resolves the names of a claim.
pub(super) struct Names<'a> {
    pub(super) points: &'a BTreeMap<String, PointSpec>,
    pub(super) analytic: &'a BTreeMap<String, AnalyticPoint>,
    pub(super) observed: &'a BTreeMap<String, String>,
    pub(super) evidence: &'a Evidence,
    /// An observed value to shift by an amount, for error propagation.
    pub(super) moved: Option<(&'a str, f64)>,
}

impl Names<'_> {
    fn value(&self, name: &str) -> Option<f64> {
        if let Some(analytic) = self.analytic.get(name) {
            return self.evidence.analytic.get(analytic).copied();
        }
        if let Some(key) = self.observed.get(name) {
            let more = self.moved.filter(|(moved, _)| *moved == name).map_or(0.0, |(_, more)| more);
            return self.evidence.observed(key).map(|value| value + more);
        }
        match self.series(name)?[..] {
            [(_, value)] => Some(value),
            _ => None,
        }
    }

    /// Values and points of a series; `None` if one is missing.
    fn series(&self, name: &str) -> Option<Vec<(Point, f64)>> {
        let points = self.points.get(name)?.points();
        points.into_iter().map(|p| self.evidence.value(&p).map(|v| (p, v))).collect()
    }
}

impl Measure {
    /// The names that it refers to.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Value { of } | Self::Spread { of } | Self::HalfWay { of, .. } => vec![of],
            Self::Difference { of, minus: other }
            | Self::PercentChange { of, from: other }
            | Self::Count { of, per: other }
            | Self::Ratio { of, per: other }
            | Self::Reach { of, from: other, .. }
            | Self::Below { of, than: other, .. } => vec![of, other],
            Self::Entries { of, hit, miss, .. } => vec![of, hit, miss],
        }
    }

    /// Half-width of the number's 95 % interval, from those of the observed values, which are independent; `None` if
    /// one of them is unknown. For yes/no: 1 if the two values differ by less than their interval, else 0.
    pub(super) fn half_width(&self, names: &Names<'_>) -> Option<f64> {
        if let Self::Below { of, than, by_pct } = self {
            let half = |name: &String| names.evidence.half_widths.get(names.observed.get(name)?).copied();
            let share = 1.0 - by_pct / 100.0;
            let (distance, off) =
                (names.value(than)? * share - names.value(of)?, (half(than)? * share).hypot(half(of)?));
            return Some(if distance.abs() < off { 1.0 } else { 0.0 });
        }
        let number = self.compute(names)?;
        let effect = |name| {
            let half = *names.evidence.half_widths.get(names.observed.get(name)?)?;
            let moved = self.compute(&Names { moved: Some((name, half)), ..*names })?;
            Some((moved - number).powi(2))
        };
        self.names().into_iter().map(effect).sum::<Option<f64>>().map(f64::sqrt)
    }

    /// Computes the number; `None` if a required experiment was not run.
    pub(super) fn compute(&self, names: &Names<'_>) -> Option<f64> {
        let window = |point: &Point| point.experiment.run.window.get() as f64;
        match self {
            Self::Value { of } => names.value(of),
            Self::Difference { of, minus } => Some(names.value(of)? - names.value(minus)?),
            Self::PercentChange { of, from } => {
                let from = names.value(from)?;
                Some(100.0 * (names.value(of)? - from) / from)
            }
            Self::Ratio { of, per } => Some(names.value(of)? / names.value(per)?),
            Self::Count { of, per } => Some((names.value(of)? / names.value(per)?).ceil()),
            Self::Spread { of } => {
                let series = names.series(of)?;
                let first = series.first()?.1;
                let far = series.iter().map(|(_, v)| (v - first).abs()).fold(0.0, f64::max);
                Some(100.0 * far / first)
            }
            Self::HalfWay { of, capacity_bytes } => {
                let series = names.series(of)?;
                let (first, last) = (series.first()?.1, series.last()?.1);
                let half = (first + last) / 2.0;
                let beyond = |v: f64| (v >= half) == (last >= first);
                let at = series.iter().position(|(_, v)| beyond(*v)).filter(|at| *at > 0)?;
                let ((low, a), (high, b)) = (&series[at - 1], &series[at]);
                let share = (half - a) / (b - a);
                let bytes = window(low) + share * (window(high) - window(low));
                Some(100.0 * bytes / *capacity_bytes as f64)
            }
            Self::Reach { of, from, change_pct, page_bytes } => {
                let (of, from) = (names.series(of)?, names.series(from)?);
                let stays =
                    |(a, b): &(&(Point, f64), &(Point, f64))| (a.1 - b.1).abs() <= change_pct / 100.0 * b.1;
                let last = of.iter().zip(&from).take_while(stays).last()?;
                Some(window(&last.0.0) / *page_bytes as f64)
            }
            Self::Entries { of, hit, miss, page_bytes } => {
                let (hit, miss, series) = (names.value(hit)?, names.value(miss)?, names.series(of)?);
                let entries = |(point, mean): &(Point, f64)| {
                    (miss - mean) / (miss - hit) * window(point) / *page_bytes as f64
                };
                Some(series.iter().map(entries).sum::<f64>() / series.len() as f64)
            }
            Self::Below { of, than, by_pct } => {
                let than = names.value(than)?;
                Some(if names.value(of)? < than * (1.0 - by_pct / 100.0) { 1.0 } else { 0.0 })
            }
        }
    }
}
