//! Axes: positions and labels of values.

use core::ops::Range;

use crate::table::grouped;
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
            // As many labels as have room.
            let step = ((high - low) / 7.0).ceil().max(1.0) as usize;
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

/// Whether an axis with this heading is of bytes.
pub(super) fn is_of_bytes(heading: &str) -> bool {
    heading.ends_with("(bytes)") || heading.ends_with("(B)")
}

/// A heading in a unit that keeps the numbers up to `most` short, and the factor between the units.
pub(super) fn heading(text: &str, most: f64) -> (String, f64) {
    let (quantity, unit) = match text.rsplit_once(" (") {
        Some((quantity, unit)) => (Some(quantity), unit.trim_end_matches(')')),
        None => (None, text),
    };
    // 100,000 is read at a glance, ten digits are not.
    let steps = match most {
        most if most >= 1e9 => 3,
        most if most >= 1e6 => 2,
        _ => return (text.to_owned(), 1.0),
    };
    let of = |units: [&'static str; 4]| units[steps];
    let larger = match unit {
        "B" | "bytes" => of(["B", "kB", "MB", "GB"]).to_owned(),
        "B/s" | "bytes/s" => of(["B/s", "kB/s", "MB/s", "GB/s"]).to_owned(),
        "bit/s" => of(["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]).to_owned(),
        "kbit/s" => of(["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]).to_owned(),
        "Mbit/s" => of(["Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"]).to_owned(),
        "ns" => of(["ns", "µs", "ms", "s"]).to_owned(),
        "1/s" => of(["1/s", "thousand/s", "million/s", "billion/s"]).to_owned(),
        unit => format!("{} {unit}", of(["", "thousand", "million", "billion"])),
    };
    let text = quantity.map_or_else(|| larger.clone(), |quantity| format!("{quantity} ({larger})"));
    (text, 1e3f64.powi(steps as i32))
}

/// A number of bytes; multiples of 1024 in binary units.
fn bytes(value: u64) -> String {
    match value {
        _ if value >= 1 << 30 && value % (1 << 30) == 0 => format!("{} GiB", value >> 30),
        _ if value >= 1 << 20 && value % (1 << 20) == 0 => format!("{} MiB", value >> 20),
        _ if value >= 1 << 10 && value % (1 << 10) == 0 => format!("{} KiB", value >> 10),
        _ => format!("{} B", grouped(value as f64)),
    }
}

/// The label of a position; on a logarithmic axis of bytes with its unit.
pub(super) fn tick_label(v: f64, scale: Scale, of_bytes: bool) -> String {
    match scale {
        Scale::Linear if v.abs() >= 1e4 => grouped(v.round()).replace('-', "−"),
        Scale::Linear => {
            let text = format!("{v:.2}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            (if text == "-0" { "0" } else { text }).replace('-', "−")
        }
        Scale::Log2 => {
            let value = v.exp2().round();
            if of_bytes { bytes(value as u64) } else { grouped(value) }
        }
        Scale::Log10 if v < 0.0 => format!("{}", 10f64.powf(v)),
        Scale::Log10 => grouped(10f64.powf(v).round()),
        Scale::Nines => {
            let percent = 100.0 * (1.0 - 10f64.powf(-v));
            if percent < 1e-6 { "min".into() } else { format!("{} %", (percent * 10.0).round() / 10.0) }
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
        assert_eq!(tick_label(100_000.0, Scale::Linear, false), "100,000");
        assert_eq!(tick_label(-0.001, Scale::Linear, false), "0");
        assert_eq!(tick_label(20.0, Scale::Log2, true), "1 MiB");
        assert_eq!(tick_label(1500f64.log2(), Scale::Log2, true), "1500 B");
        assert_eq!(tick_label(5.0, Scale::Log10, false), "100,000");
    }

    #[test]
    fn large_numbers_have_a_larger_unit() {
        assert_eq!(heading("rate (packets/s)", 4e5), ("rate (packets/s)".to_owned(), 1.0));
        assert_eq!(heading("rate (packets/s)", 2e7), ("rate (million packets/s)".to_owned(), 1e6));
        assert_eq!(heading("latency (ns)", 2e6), ("latency (ms)".to_owned(), 1e6));
        assert_eq!(heading("requests", 3e9), ("billion requests".to_owned(), 1e9));
    }
}
