//! Round-trip time and retransmission timeout (RFC 6298).

use units::Duration;

#[derive(Clone, Debug)]
pub(super) struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
    rto: Duration,
    min: Duration,
    max: Duration,
}

impl RttEstimator {
    pub fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        Self { smoothed: None, variation: Duration::ZERO, least: None, rto: initial, min, max }
    }

    /// A round trip took `sample`: section 2, with alpha 1/8 and beta 1/4.
    pub fn sample(&mut self, sample: Duration) {
        let picoseconds = sample.as_ps();
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = Duration::from_ps(picoseconds / 2);
            }
            Some(smoothed) => {
                let off = smoothed.as_ps().abs_diff(picoseconds);
                self.variation = Duration::from_ps(self.variation.as_ps() / 4 * 3 + off / 4);
                self.smoothed = Some(Duration::from_ps(smoothed.as_ps() / 8 * 7 + picoseconds / 8));
            }
        }
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.settle();
    }

    /// Recomputes the timeout from measurements, after an acknowledgement of new data.
    pub fn settle(&mut self) {
        if let Some(smoothed) = self.smoothed {
            // As in Linux, the minimum applies to the variation's share, not to the sum.
            let rto = smoothed + Duration::from_ps(self.variation.as_ps() * 4).max(self.min);
            self.rto = rto.min(self.max);
        }
    }

    /// Doubles the timeout after the timer expired (5.5).
    pub fn back_off(&mut self) {
        self.rto = Duration::from_ps(self.rto.as_ps().saturating_mul(2)).min(self.max);
    }

    pub fn rto(&self) -> Duration {
        self.rto
    }

    pub fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub fn least(&self) -> Option<Duration> {
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    #[test]
    fn follows_samples_and_backs_off() {
        let ms = Duration::from_ms;
        let mut rtt = RttEstimator::new(ms(1000), ms(200), ms(120_000));
        assert_eq!(rtt.rto(), ms(1000));
        rtt.sample(ms(100));
        assert_eq!(rtt.rto(), ms(300), "100 + 4 × 50");
        rtt.sample(ms(180));
        assert_eq!(rtt.smoothed(), Some(ms(110)));
        assert_eq!(rtt.rto(), Duration::from_ps(110 * MS + 4 * (37 * MS + MS / 2 + 20 * MS)));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), Duration::from_ps(4 * 340 * MS));
        rtt.settle();
        assert_eq!(rtt.rto(), ms(340));
        (0..20).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(), ms(120_000));
    }
}
