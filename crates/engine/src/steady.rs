//! Steady-state detection: batch means with a confidence interval.
//!
//! The run is divided into batches (of equal numbers of transactions, or equal times) with one mean each.
//! [`SteadyMean`] then answers two questions:
//!
//! - *Where does the warm-up end?* Where the marginal standard error of the remainder is least: the MSER rule (K. P.
//!   White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997). A
//!   minimum in the second half means that the run is still warming up.
//! - *How accurate is the mean?* The remainder is divided into [`GROUPS`] groups, which are nearly independent even if
//!   single batches are not, and Student's distribution gives the 95 % interval of their mean.

/// Groups of steady batches for the interval: 10 to 30 are usual (B. Schmeiser, "Batch size effects in the analysis of
/// simulation output", Operations Research 30(3), 1982).
pub const GROUPS: usize = 20;

/// Maximum number of batches kept. Beyond it, adjacent batches are merged and the batch length doubles.
const MOST_BATCHES: usize = 1024;

/// An estimate of a steady mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean without the warm-up.
    pub mean: f64,
    /// Half the width of its 95 % confidence interval.
    pub half_width: f64,
    /// Fraction of the run (0 to 0.5) discarded as warm-up.
    pub warm_up: f64,
}

impl Estimate {
    /// [`half_width`](Self::half_width) relative to the mean; zero if both are zero.
    pub fn relative_half_width(&self) -> f64 {
        if self.half_width == 0.0 { 0.0 } else { self.half_width / self.mean.abs() }
    }
}

/// An estimator of a steady-state mean.
#[derive(Clone, Debug)]
pub struct SteadyMean {
    batches: Vec<f64>,
    /// Number of batches merged into one kept batch (a power of two).
    per_batch: usize,
    /// Number and sum of the batches of the incomplete kept batch.
    partial: (usize, f64),
}

impl Default for SteadyMean {
    fn default() -> Self {
        Self::new()
    }
}

impl SteadyMean {
    /// Creates an estimator without batches.
    pub fn new() -> Self {
        Self { batches: Vec::new(), per_batch: 1, partial: (0, 0.0) }
    }

    /// Adds the mean of the next batch. All batches must have the same length.
    pub fn push(&mut self, batch_mean: f64) {
        self.partial.0 += 1;
        self.partial.1 += batch_mean;
        if self.partial.0 < self.per_batch {
            return;
        }
        self.batches.push(self.partial.1 / self.per_batch as f64);
        self.partial = (0, 0.0);
        if self.batches.len() == MOST_BATCHES {
            let joined = self.batches.chunks_exact(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
            self.batches = joined;
            self.per_batch *= 2;
        }
    }

    /// Number of batches added.
    pub fn len(&self) -> usize {
        self.batches.len() * self.per_batch + self.partial.0
    }

    /// Whether no batch has been added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Mean and interval; `None` while the run is too short or still warming up.
    pub fn estimate(&self) -> Option<Estimate> {
        let n = self.batches.len();
        if n < 2 * GROUPS {
            return None;
        }
        let start = warm_up(&self.batches)?;
        let size = (n - start) / GROUPS;
        // Groups are filled from the end, so a remainder is discarded with the warm-up.
        let start = n - size * GROUPS;
        let groups: Vec<f64> = self.batches[start..].chunks_exact(size).map(mean).collect();
        Some(Estimate {
            mean: mean(&groups),
            half_width: half_width(&groups),
            warm_up: start as f64 / n as f64,
        })
    }

    /// Whether the interval's half width is at most `relative_half_width` of the mean.
    pub fn is_steady(&self, relative_half_width: f64) -> bool {
        self.estimate().is_some_and(|e| e.relative_half_width() <= relative_half_width)
    }
}

/// Half width of the 95 % confidence interval of the mean of [`GROUPS`] groups of a steady run.
pub fn half_width(groups: &[f64]) -> f64 {
    let (mean, degrees) = (mean(groups), groups.len() - 1);
    let variance = groups.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / degrees as f64;
    student_975(degrees) * (inflation(groups) * variance / groups.len() as f64).sqrt()
}

/// The `share` quantile of the samples of a steady run, and the half width of its 95 % confidence interval; NaN if
/// there are too few samples.
///
/// Groups of samples give the interval of the fraction below the value; the quantiles at the ends of that interval
/// bound the value (C. Alexopoulos and A. F. Seila, "Output data analysis", chapter 7 of the Handbook of Simulation,
/// Wiley 1998).
pub fn quantile(samples: &[f64], share: f64) -> (f64, f64) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    let (value, size) = (at(share), samples.len() / GROUPS);
    if size == 0 {
        return (value, f64::NAN);
    }
    let below = |group: &[f64]| group.iter().filter(|&&x| x <= value).count() as f64 / size as f64;
    let groups: Vec<f64> = samples.rchunks_exact(size).take(GROUPS).map(below).collect();
    let off = half_width(&groups);
    let (low, high) = (share - off, share + off);
    let known = low >= 0.0 && high <= 1.0;
    (value, if known { (value - at(low)).max(at(high) - value) } else { f64::NAN })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// End of the warm-up according to MSER, if it is in the first half.
fn warm_up(batches: &[f64]) -> Option<usize> {
    let n = batches.len();
    // Sums relative to a value near the mean, so that squares do not cancel.
    let origin = mean(batches);
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // From the end, so that each step adds one batch. The last few are too few to judge.
    for start in (0..n).rev() {
        let x = batches[start] - origin;
        sum += x;
        squares += x * x;
        let remaining = (n - start) as f64;
        if n - start >= GROUPS / 2 {
            let scatter = (squares - sum * sum / remaining).max(0.0);
            let error = scatter / (remaining * remaining);
            // On a tie the longer run wins.
            if error <= best.0 {
                best = (error, start);
            }
        }
    }
    (best.1 <= n / 2).then_some(best.1)
}

/// Factor by which the variance of the mean exceeds that of independent groups, from the correlation of adjacent groups
/// in a first-order autoregressive model; at least 1.
fn inflation(groups: &[f64]) -> f64 {
    let mean = mean(groups);
    let variance: f64 = groups.iter().map(|g| (g - mean).powi(2)).sum();
    if variance == 0.0 {
        return 1.0;
    }
    let covariance: f64 = groups.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    let r = (covariance / variance).clamp(0.0, 0.9);
    (1.0 + r) / (1.0 - r)
}

/// 97.5 % quantile of Student's distribution, by the expansion in Abramowitz and Stegun 26.7.5; the error is below
/// 0.001 from 6 degrees of freedom on.
fn student_975(degrees: usize) -> f64 {
    let z: f64 = 1.959_963_984_540_054;
    let v = degrees as f64;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / v + g2 / (v * v) + g3 / (v * v * v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, Seed};

    fn noise(rng: &mut Rng) -> f64 {
        // Sum of twelve uniform numbers: approximately normal, variance 1.
        (0..12).map(|_| rng.unit_f64()).sum::<f64>() - 6.0
    }

    #[test]
    fn students_table_is_met() {
        for (degrees, t) in [(9, 2.262_157), (19, 2.093_024), (29, 2.045_230), (120, 1.979_930)] {
            assert!((student_975(degrees) - t).abs() < 1e-3, "{degrees}");
        }
    }

    #[test]
    fn a_constant_is_known_exactly() {
        let mut steady = SteadyMean::new();
        for _ in 0..2 * GROUPS {
            assert!(!steady.is_steady(0.01));
            steady.push(5.0);
        }
        let estimate = steady.estimate().unwrap();
        assert_eq!((estimate.mean, estimate.half_width), (5.0, 0.0));
        assert!(steady.is_steady(0.0));
    }

    #[test]
    fn the_interval_holds_the_mean_nineteen_times_in_twenty() {
        for correlation in [0.0, 0.5] {
            let mut hits = 0;
            for seed in 0..1000 {
                let mut rng = Seed::new(seed).component("coverage");
                let (mut steady, mut x) = (SteadyMean::new(), 0.0);
                for _ in 0..400 {
                    x = correlation * x + noise(&mut rng);
                    steady.push(100.0 + x);
                }
                let e = steady.estimate().expect("noise about a constant is steady");
                hits += i32::from((e.mean - 100.0).abs() <= e.half_width);
            }
            // The truncation prefers quiet tails, which costs a little of the nominal 950.
            assert!((900..=985).contains(&hits), "{hits} of 1000 at correlation {correlation}");
        }
    }

    #[test]
    fn the_interval_holds_a_quantile_nineteen_times_in_twenty() {
        // Quantiles of the normal distribution.
        for (share, z) in [(0.5, 0.0_f64), (0.9, 1.281_552), (0.99, 2.326_348)] {
            let mut hits = 0;
            for seed in 0..1000 {
                let mut rng = Seed::new(seed).component("quantile");
                let samples: Vec<f64> = (0..4000).map(|_| 100.0 + noise(&mut rng)).collect();
                let (value, half) = quantile(&samples, share);
                assert!(half > 0.0, "{share}: {half}");
                // Of twelve uniform numbers: excess kurtosis -0.1 (Cornish and Fisher's expansion).
                let exact = 100.0 + z - 0.1 * (z.powi(3) - 3.0 * z) / 24.0;
                hits += i32::from((value - exact).abs() <= half);
            }
            assert!((900..=995).contains(&hits), "{hits} of 1000 at {share}");
        }
    }

    #[test]
    fn few_samples_tell_no_tail() {
        let mut rng = Seed::new(1).component("few");
        let samples: Vec<f64> = (0..200).map(|_| noise(&mut rng)).collect();
        assert!(quantile(&samples, 0.99).1.is_nan() && quantile(&samples[..10], 0.5).1.is_nan());
        assert!(quantile(&samples, 0.5).1 > 0.0);
    }

    #[test]
    fn a_warm_up_is_left_out() {
        let mut rng = Seed::new(1).component("warm-up");
        let mut steady = SteadyMean::new();
        for i in 0..500 {
            steady.push(100.0 + 400.0 * (-f64::from(i) / 10.0).exp() + noise(&mut rng));
        }
        let e = steady.estimate().unwrap();
        assert!((e.mean - 100.0).abs() < 0.5 && e.warm_up > 0.05 && e.warm_up < 0.3, "{e:?}");
    }

    #[test]
    fn a_drift_is_not_steady() {
        let mut steady = SteadyMean::new();
        for i in 0..1000 {
            steady.push(f64::from(i));
        }
        assert!(!steady.is_steady(0.05), "{:?}", steady.estimate());
    }

    #[test]
    fn long_runs_need_no_more_memory_and_forget_nothing() {
        let mut steady = SteadyMean::new();
        let mut sum = 0.0;
        for i in 0..100_000u32 {
            let x = f64::from(i % 7);
            sum += x;
            steady.push(x);
        }
        assert_eq!(steady.len(), 100_000);
        assert!(steady.batches.len() < MOST_BATCHES);
        let e = steady.estimate().unwrap();
        assert!((e.mean - sum / 1e5).abs() < 0.02, "{e:?}");
    }
}
