//! Distributions of durations.

use units::Duration;

/// Significant decimal digits that a bin keeps: bins are at most 0.1 % wide.
const DIGITS: u8 = 3;

/// A distribution of durations with bins of bounded relative width (an HDR histogram).
///
/// Count, minimum, maximum and mean are exact. Quantiles and the distribution function know a value to
/// its bin: durations up to 2.047 ns are exact, longer ones are off by at most 0.05 % of their value.
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: hdrhistogram::Histogram<u64>,
    sum_ps: u128,
    min_ps: u64,
    max_ps: u64,
}

/// A point of a distribution function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CdfPoint {
    /// A duration...
    pub value: Duration,
    /// ... and the share (0 to 1) of recorded values that are no longer.
    pub share: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// A distribution without values.
    pub fn new() -> Self {
        let bins = hdrhistogram::Histogram::new(DIGITS).expect("a number of digits that the library allows");
        Self { bins, sum_ps: 0, min_ps: u64::MAX, max_ps: 0 }
    }

    /// Adds a value. Allocates only when it is longer than any before.
    #[inline]
    pub fn record(&mut self, value: Duration) {
        self.record_many(value, 1);
    }

    /// Adds a value `times` times.
    pub fn record_many(&mut self, value: Duration, times: u64) {
        if times == 0 {
            return;
        }
        let ps = value.as_ps();
        self.bins.record_n(ps, times).expect("bins grow to hold any value");
        self.sum_ps += u128::from(ps) * u128::from(times);
        self.min_ps = self.min_ps.min(ps);
        self.max_ps = self.max_ps.max(ps);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.bins.add(&other.bins).expect("bins grow to hold any value");
        self.sum_ps += other.sum_ps;
        self.min_ps = self.min_ps.min(other.min_ps);
        self.max_ps = self.max_ps.max(other.max_ps);
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        self.bins.reset();
        (self.sum_ps, self.min_ps, self.max_ps) = (0, u64::MAX, 0);
    }

    /// How many values were recorded.
    pub fn len(&self) -> u64 {
        self.bins.len()
    }

    /// Whether no value was recorded.
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The shortest value, exactly.
    pub fn min(&self) -> Option<Duration> {
        (!self.is_empty()).then_some(Duration::from_ps(self.min_ps))
    }

    /// The longest value, exactly.
    pub fn max(&self) -> Option<Duration> {
        (!self.is_empty()).then_some(Duration::from_ps(self.max_ps))
    }

    /// The arithmetic mean, exact but for rounding to the nearest picosecond.
    pub fn mean(&self) -> Option<Duration> {
        let count = u128::from(self.len());
        (count > 0).then(|| Duration::from_ps(((self.sum_ps + count / 2) / count) as u64))
    }

    /// The quantile `q` (0.5 the median, 0.99 the 99th percentile) by nearest rank: of `n` values in
    /// ascending order the one at rank `ceil(q n)`, counted from 1 and at least 1.
    ///
    /// It is reported as the middle of its bin, moved into [minimum, maximum], except that quantiles 0
    /// (or below, or not a number) and 1 (or above) are the exact minimum and maximum. `None` without values.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let ps = match q {
            _ if self.is_empty() => return None,
            q if q >= 1.0 => self.max_ps,
            q if q > 0.0 => self.middle(self.bins.value_at_quantile(q)),
            _ => self.min_ps,
        };
        Some(Duration::from_ps(ps))
    }

    /// The median: [`quantile`](Self::quantile) 0.5.
    pub fn median(&self) -> Option<Duration> {
        self.quantile(0.5)
    }

    /// The distribution function: one point per bin that holds values, ascending, the last at share 1.
    pub fn cdf(&self) -> impl Iterator<Item = CdfPoint> + '_ {
        let total = self.len() as f64;
        let mut below = 0;
        self.bins.iter_recorded().map(move |bin| {
            below += bin.count_since_last_iteration();
            let value = Duration::from_ps(self.middle(bin.value_iterated_to()));
            CdfPoint { value, share: below as f64 / total }
        })
    }

    /// The middle of the bin of `ps`, but no value that was not seen at the ends.
    fn middle(&self, ps: u64) -> u64 {
        let low = self.bins.lowest_equivalent(ps);
        (low + (self.bins.highest_equivalent(ps) - low) / 2).clamp(self.min_ps, self.max_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&ps| histogram.record(Duration::from_ps(ps)));
        histogram
    }

    #[test]
    fn without_values_there_is_nothing_to_say() {
        let histogram = Histogram::new();
        assert_eq!((histogram.min(), histogram.median(), histogram.mean()), (None, None, None));
        assert_eq!(histogram.cdf().count(), 0);
    }

    #[test]
    fn a_constant_is_exact() {
        let histogram = of(&[547_123; 10]);
        for q in [0.0, 0.01, 0.5, 0.999, 1.0] {
            assert_eq!(histogram.quantile(q), Some(Duration::from_ps(547_123)));
        }
    }

    #[test]
    fn ranks_are_the_nearest() {
        let histogram = of(&[40, 10, 30, 20]);
        let ps = |q| histogram.quantile(q).unwrap().as_ps();
        assert_eq!([ps(0.25), ps(0.26), ps(0.5), ps(0.75), ps(0.76)], [10, 20, 20, 30, 40]);
        assert_eq!([ps(f64::NAN), ps(-1.0), ps(2.0)], [10, 10, 40]);
    }

    #[test]
    fn clearing_leaves_nothing() {
        let mut histogram = of(&[5, 6]);
        histogram.clear();
        assert!(histogram.is_empty() && histogram.max().is_none());
        histogram.record(Duration::from_ps(9));
        assert_eq!(histogram.mean(), Some(Duration::from_ps(9)));
    }

    proptest! {
        #[test]
        fn errors_are_bounded(values in prop::collection::vec(0u64..1 << 45, 1..200), q in 0.0..=1.0f64) {
            let histogram = of(&values);
            let mut sorted = values;
            sorted.sort_unstable();
            let n = sorted.len();
            let exact = sorted[((q * n as f64).ceil() as usize).clamp(1, n) - 1];
            let found = histogram.quantile(q).unwrap().as_ps();
            prop_assert!(found.abs_diff(exact) as f64 <= exact as f64 * 0.0005, "{found} for {exact}");
            prop_assert_eq!(histogram.max().unwrap().as_ps(), sorted[n - 1]);
            let mean = sorted.iter().map(|&v| u128::from(v)).sum::<u128>() as f64 / n as f64;
            prop_assert!((histogram.mean().unwrap().as_ps() as f64 - mean).abs() <= 1.0);
            let cdf: Vec<_> = histogram.cdf().collect();
            prop_assert!(cdf.is_sorted_by(|a, b| a.value <= b.value && a.share < b.share));
            prop_assert_eq!(cdf.last().unwrap().share, 1.0);
        }

        #[test]
        fn merging_is_recording_both(a in prop::collection::vec(0u64..1 << 40, 0..50), b in prop::collection::vec(0u64..1 << 40, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!(merged.cdf().collect::<Vec<_>>(), both.cdf().collect::<Vec<_>>());
            prop_assert_eq!((merged.min(), merged.max(), merged.mean()), (both.min(), both.max(), both.mean()));
        }
    }
}
