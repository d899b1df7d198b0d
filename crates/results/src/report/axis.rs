//! Axes: positions and labels of values.

use core::ops::Range;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// How values map to positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// In proportion.
    Linear,
    /// Logarithmic, in powers of two; labelled in bytes on the horizontal axis.
    Log2,
    /// Logarithmic, in powers of ten.
    Log10,
    /// Percentiles with a stretched tail: 90, 99 and 99.9 % are equidistant.
    Nines,
}

/// An axis with given positions of labels.
pub(super) struct Ticked {
    pub range: Range<f64>,
    pub ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Position of a value on a scale.
pub(super) fn place(v: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => v,
        Scale::Log2 => v.max(f64::MIN_POSITIVE).log2(),
        Scale::Log10 => v.max(f64::MIN_POSITIVE).log10(),
        Scale::Nines => -(1.0 - v.min(99.995) / 100.0).log10(),
    }
}

/// Minimum and maximum of the values.
pub(super) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// Positions of labels on a nonlinear scale.
pub(super) fn ticks(low: f64, high: f64, scale: Scale) -> Vec<f64> {
    match scale {
        Scale::Log2 => {
            let step = if high - low > 10.0 { 2 } else { 1 };
            let first = low.ceil() as i64;
            (first..=high.floor() as i64).step_by(step).map(|v| v as f64).collect()
        }
        Scale::Log10 => (low.ceil() as i64..=high.floor() as i64).map(|v| v as f64).collect(),
        Scale::Nines => [0.0, 50.0, 90.0, 95.0, 99.0, 99.9]
            .into_iter()
            .map(|p: f64| -(1.0 - p / 100.0).log10())
            .filter(|v| (low - 1e-9..=high + 1e-9).contains(v))
            .collect(),
        Scale::Linear => {
            let step = round_step(((high - low) / 6.0).max(1e-9));
            let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
            (first..=last).map(|i| i as f64 * step).collect()
        }
    }
}

/// The next greater round number.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough)
}

/// Expands a range to round numbers. Returns it with the labels.
pub(super) fn even_ticks(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    // Values of one sign start at zero unless they are all far from it.
    let span = (high - low).max(high.abs() * 0.02).max(1e-9);
    let (mut low, mut high) = (low, high);
    // A nearly constant curve should look constant.
    if high - low < span {
        let middle = (low + high) / 2.0;
        (low, high) = (middle - span / 2.0, middle + span / 2.0);
    }
    if low >= 0.0 && low < span * 1.5 {
        low = 0.0;
    }
    if high <= 0.0 && -high < span * 1.5 {
        high = 0.0;
    }
    if high - low < 1e-9 {
        (low, high) = (low - span / 2.0, high + span / 2.0);
    }
    let rough = (high - low) / 6.0;
    let step = round_step(rough);
    // No additional tick for an excess below a twentieth of a step.
    let (first, last) = ((low / step + 0.05).floor() as i64, (high / step - 0.05).ceil() as i64);
    let ticks: Vec<f64> = (first..=last).map(|i| i as f64 * step).collect();
    (low.min(first as f64 * step), high.max(last as f64 * step), ticks)
}

pub(super) fn tick_label(v: f64, scale: Scale, bytes: bool) -> String {
    match scale {
        Scale::Linear => {
            // Seven digits are unreadable and would overlap the axis title.
            let (v, times) = match v.abs() {
                size if size >= 1e8 => (v / 1e9, "G"),
                size if size >= 1e5 => (v / 1e6, "M"),
                _ => (v, ""),
            };
            let text = format!("{v:.2}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            (if text == "-0" { "0" } else { text }).replace('-', "−") + times
        }
        Scale::Log2 => {
            let value = v.exp2().round() as u64;
            match value {
                _ if !bytes => value.to_string(),
                _ if value >= 1 << 20 => format!("{}M", value >> 20),
                _ if value >= 1 << 10 => format!("{}K", value >> 10),
                _ => value.to_string(),
            }
        }
        Scale::Log10 => {
            let value = 10f64.powf(v).round();
            match value {
                _ if value >= 1e6 => format!("{}M", value / 1e6),
                _ if value >= 1e3 => format!("{}k", value / 1e3),
                _ => format!("{value}"),
            }
        }
        Scale::Nines => {
            let percent = 100.0 * (1.0 - 10f64.powf(-v));
            if percent < 1e-6 { "min".into() } else { format!("{}%", (percent * 10.0).round() / 10.0) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose() {
        let (low, high, ticks) = even_ticks(386.0, 1013.0);
        assert!(low <= 386.0 && high >= 1013.0 && ticks.len() < 9, "{ticks:?}");
        let (low, high, _) = even_ticks(-77.0, 0.3);
        assert!(low <= -77.0 && high >= 0.3);
        let (low, high, _) = even_ticks(5.0, 5.0);
        assert!(low < high);
        assert_eq!(tick_label(-20.0, Scale::Linear, false), "−20");
        assert_eq!(tick_label(0.5, Scale::Linear, false), "0.5");
        assert_eq!(tick_label(18_100_000.0, Scale::Linear, false), "18.1M");
        assert_eq!(tick_label(-0.001, Scale::Linear, false), "0");
        assert_eq!(tick_label(20.0, Scale::Log2, true), "1M");
    }
}
