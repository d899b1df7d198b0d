//! Reno (RFC 5681), with appropriate byte counting (RFC 3465).

use units::Time;

use super::{Acked, CongestionControl};

/// Slow start, additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    initial: u64,
    window: u64,
    threshold: u64,
    /// Bytes acknowledged since the last growth of the window.
    counted: u64,
    /// Window and threshold before the last reduction.
    before: (u64, u64),
}

impl Reno {
    /// Creates it with an initial window of `initial` segments of `mss` bytes.
    pub fn new(mss: u64, initial: u64) -> Self {
        let (window, threshold) = (mss * initial, u64::MAX);
        Self { mss, initial: window, window, threshold, counted: 0, before: (window, threshold) }
    }

    /// Equation 4 of RFC 5681.
    fn halve(&mut self, in_flight: u64) {
        self.before = (self.window, self.threshold);
        self.threshold = (in_flight / 2).max(2 * self.mss);
        self.counted = 0;
    }
}

impl CongestionControl for Reno {
    fn window(&self) -> u64 {
        self.window
    }

    fn threshold(&self) -> u64 {
        self.threshold
    }

    fn acked(&mut self, ack: Acked) {
        if !ack.limited {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + ack.bytes).min(self.threshold.max(self.window));
            return;
        }
        self.counted += ack.bytes;
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window += self.mss;
        }
    }

    fn lost(&mut self, _: Time, in_flight: u64) {
        self.halve(in_flight);
        self.window = self.threshold;
    }

    fn timed_out(&mut self, _: Time, in_flight: u64) {
        self.halve(in_flight);
        self.window = self.mss;
    }

    fn recovered(&mut self) {
        self.window = self.threshold;
    }

    fn undo(&mut self) {
        self.window = self.window.max(self.before.0);
        self.threshold = self.threshold.max(self.before.1);
    }

    fn idle(&mut self) {
        self.window = self.window.min(self.initial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(bytes: u64) -> Acked {
        Acked { now: Time::ZERO, bytes, rtt: None, limited: true }
    }

    #[test]
    fn doubles_then_grows_by_a_segment_a_window() {
        let mut reno = Reno::new(1000, 10);
        reno.acked(ack(10_000));
        assert_eq!(reno.window(), 20_000);
        reno.lost(Time::ZERO, 20_000);
        assert_eq!((reno.window(), reno.threshold()), (10_000, 10_000));
        (0..10).for_each(|_| reno.acked(ack(1000)));
        assert_eq!(reno.window(), 11_000);
        reno.timed_out(Time::ZERO, 11_000);
        assert_eq!((reno.window(), reno.threshold()), (1000, 5500));
        reno.acked(Acked { limited: false, ..ack(1000) });
        assert_eq!(reno.window(), 1000, "what was not used does not grow");
    }
}
