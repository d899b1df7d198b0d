//! Collects latencies, and says on how many samples percentiles rest.

use units::Duration;

use crate::program::Report;

/// Samples that a percentile needs: one of them is expected above it.
pub(crate) fn needed(percent: f64) -> u64 {
    // Rounded, since 100 / (100 - 99.9) is not exactly 1000.
    if percent >= 100.0 { 1 } else { (100.0 / (100.0 - percent)).round() as u64 }
}

/// Reports the percentiles that `samples` samples can give, `(name, percent)` each, and notes the others.
pub(crate) fn percentiles(
    report: &mut Report,
    (what, unit): (&str, &'static str),
    samples: u64,
    wanted: &[(String, f64)],
    value: impl Fn(f64) -> f64,
) {
    let (given, missing): (Vec<_>, Vec<_>) = wanted.iter().partition(|(_, of)| needed(*of) <= samples);
    for (name, percent) in given {
        report.add(format!("{what} {name}"), unit, value(*percent));
    }
    if !missing.is_empty() && samples > 0 {
        let missing: Vec<_> =
            missing.iter().map(|(name, of)| format!("{name} needs {} samples", needed(*of))).collect();
        report.notes.push(format!("{what}: {}, and there are {samples}", missing.join(", ")));
    }
}

/// All latencies of a series.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_ps());
    }

    /// Adds those of another series.
    pub fn join(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Reports minimum, mean, percentiles and maximum in microseconds, their number, and all samples.
    pub fn report(&mut self, report: &mut Report, what: &str) {
        if self.0.is_empty() {
            return;
        }
        let us = |ps: u64| ps as f64 / 1e6;
        report.samples = self.0.iter().map(|&ps| us(ps)).collect();
        self.0.sort_unstable();
        let at = |percent: f64| us(self.0[((self.0.len() - 1) as f64 * percent / 100.0).round() as usize]);
        let mean = self.0.iter().map(|&ps| us(ps)).sum::<f64>() / self.0.len() as f64;
        report.add(format!("{what} min"), "µs", at(0.0));
        report.add(format!("{what} mean"), "µs", mean);
        let wanted = [50.0, 90.0, 99.0].map(|percent| (format!("p{percent}"), percent));
        percentiles(report, (what, "µs"), self.0.len() as u64, &wanted, at);
        report.add(format!("{what} max"), "µs", at(100.0));
        report.add(format!("{what} samples"), "", self.0.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_a_sample_above_it() {
        assert_eq!([50.0, 90.0, 99.0, 99.9, 99.99, 100.0].map(needed), [2, 10, 100, 1_000, 10_000, 1]);
        let of = |count: u64| {
            let (mut all, mut report) = (Latencies::default(), Report::default());
            (1..=count).for_each(|us| all.add(Duration::from_us(us)));
            all.report(&mut report, "rtt");
            report
        };
        let few = of(99);
        assert_eq!((few.get("rtt p90"), few.get("rtt p99")), (Some(89.0), None));
        assert_eq!(few.notes, ["rtt: p99 needs 100 samples, and there are 99"]);
        let many = of(101);
        assert_eq!((many.get("rtt p99"), many.get("rtt samples")), (Some(100.0), Some(101.0)));
        assert!(many.notes.is_empty());
    }
}
