//! CUBIC (RFC 9438).
//!
//! Its arithmetic is IEEE addition, multiplication and division alone, which are the same on every machine.

use units::Time;

use super::{Acked, CongestionControl};

/// C: how fast the window grows, in segments per second cubed (5, "0.4").
const C: f64 = 0.4;
/// What is left of the window after a loss (4.6).
const BETA: f64 = 0.7;

/// A window that grows with the cube of the time since the last loss.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: f64,
    initial: u64,
    /// Window and threshold in segments.
    window: f64,
    threshold: f64,
    /// The window before the last reduction.
    most: f64,
    /// When this congestion avoidance stage began, and the window then.
    epoch: Option<(Time, f64)>,
    /// Seconds from then until the window is `most` again.
    k: f64,
    /// What Reno's window would be.
    estimate: f64,
    /// How it was before the last reduction.
    before: Option<Box<Self>>,
}

/// The cube root by Newton's method: from above, and good to a part in 10^12.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = if x > 1.0 { x } else { 1.0 };
    for _ in 0..200 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if (root - next) / root < 1e-12 {
            return next;
        }
        root = next;
    }
    root
}

impl Cubic {
    /// With an initial window of so many segments of `mss` bytes.
    pub fn new(mss: u64, initial: u64) -> Self {
        Self {
            mss: mss as f64,
            initial,
            window: initial as f64,
            threshold: f64::MAX,
            most: 0.0,
            epoch: None,
            k: 0.0,
            estimate: 0.0,
            before: None,
        }
    }

    fn bytes(&self, segments: f64) -> u64 {
        (segments * self.mss) as u64
    }

    /// Fast convergence (4.7) and multiplicative decrease (4.6).
    fn reduce(&mut self, in_flight: u64) {
        self.before = None;
        self.before = Some(Box::new(self.clone()));
        self.epoch = None;
        self.most = if self.window < self.most { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        let flight = in_flight as f64 / self.mss;
        self.threshold = (flight.min(self.window) * BETA).max(2.0);
    }

    /// Begins a congestion avoidance stage (4.2).
    fn begin(&mut self, now: Time) -> (Time, f64) {
        let epoch = (now, self.window);
        self.epoch = Some(epoch);
        self.estimate = self.window;
        self.most = self.most.max(self.window);
        self.k = cube_root((self.most - self.window) / C);
        epoch
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> u64 {
        self.bytes(self.window)
    }

    fn threshold(&self) -> u64 {
        self.bytes(self.threshold.min(u64::MAX as f64 / self.mss / 2.0))
    }

    fn acked(&mut self, ack: Acked) {
        if !ack.limited {
            // Time during which the window was not the limit does not count (4.2, 5.8).
            self.epoch = None;
            return;
        }
        let segments = ack.bytes as f64 / self.mss;
        if self.window < self.threshold {
            self.window = (self.window + segments).min(self.threshold.max(self.window));
            return;
        }
        let (began, _) = self.epoch.unwrap_or_else(|| self.begin(ack.now));
        let rtt = ack.rtt.map_or(0.0, |rtt| rtt.as_s_f64());
        let away = ack.now.since(began).as_s_f64() + rtt - self.k;
        let cubic = C * away * away * away + self.most;
        let target = cubic.clamp(self.window, 1.5 * self.window);
        // 4.3, with alpha 1 once the estimate has reached the window before the loss.
        let alpha = if self.estimate < self.most { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.estimate += alpha * segments / self.window;
        self.window += (target - self.window) / self.window * segments.min(self.window);
        self.window = self.window.max(self.estimate);
    }

    fn lost(&mut self, _: Time, in_flight: u64) {
        self.reduce(in_flight);
        self.window = self.threshold;
    }

    fn timed_out(&mut self, _: Time, in_flight: u64) {
        self.reduce(in_flight);
        self.window = 1.0;
    }

    fn recovered(&mut self) {
        self.window = self.threshold;
    }

    /// RFC 9438, 4.9: all variables as they were, and nothing smaller than it has become since.
    fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            let (window, threshold) = (self.window, self.threshold);
            *self = *before;
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
    }

    fn idle(&mut self) {
        self.window = self.window.min(self.initial as f64);
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Duration;

    #[test]
    fn cube_roots() {
        for x in [1e-9, 0.001, 1.0, 27.0, 1e12] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-9, "{x}: {root}");
        }
        assert_eq!(cube_root(0.0), 0.0);
    }

    /// After a loss at 1000 segments the window would be back where it was after K = cbrt(1000 × 0.3 / 0.4) s, and
    /// lacks 5 segments cbrt(5 / 0.4) s before.
    #[test]
    fn comes_back_on_the_cubic_curve() {
        let mut cubic = Cubic::new(1000, 1000);
        cubic.threshold = 1000.0;
        cubic.lost(Time::ZERO, 1_000_000);
        assert_eq!(cubic.window(), 700_000);
        let rtt = Duration::from_ms(100);
        let mut now = Time::ZERO;
        let mut back = None;
        for _ in 0..200 {
            let window = cubic.window();
            cubic.acked(Acked { now, bytes: window, rtt: Some(rtt), limited: true });
            assert!(cubic.window() >= window, "it never falls by itself");
            now += rtt;
            if back.is_none() && cubic.window() >= 995_000 {
                back = Some(now.since(Time::ZERO).as_s_f64());
            }
        }
        let expected = cube_root(1000.0 * 0.3 / 0.4) - cube_root(5.0 / 0.4);
        let back = back.expect("it comes back");
        assert!((back - expected).abs() < 0.05 * expected, "after {back} s, not {expected} s");
        assert!(cubic.window() > 1_100_000, "and goes on behind");
    }
}
