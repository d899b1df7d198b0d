//! Busy and waiting times up to now.
//!
//! Models reserve a server when a request comes, ahead of the clock. What is reserved counts as busy only once it has
//! passed, so that no server was ever busy for longer than the time that has passed.

use units::{Duration, Time};

/// Busy time of a server of one request after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Busy {
    /// All that was reserved.
    reserved: Duration,
    /// When all of it has passed.
    done: Time,
}

impl Busy {
    /// Reserves `time` at `now`, behind what was reserved before. `now` may be ahead of the clock.
    #[inline]
    pub fn add(&mut self, now: Time, time: Duration) {
        self.reserved += time;
        self.done = self.done.max(now) + time;
    }

    /// Busy time up to `now`.
    #[inline]
    pub fn until(&self, now: Time) -> Duration {
        self.reserved.saturating_sub(self.done.since(now))
    }

    /// What is reserved from `now` on will not happen.
    pub fn cancel(&mut self, now: Time) {
        self.reserved = self.until(now);
        self.done = self.done.min(now);
    }
}

/// Time during which something has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitTime {
    /// Since when it waits.
    since: Option<Time>,
    passed: Busy,
}

impl WaitTime {
    /// It waits from `at` on, unless it already does.
    #[inline]
    pub fn begin(&mut self, at: Time) {
        self.since.get_or_insert(at);
    }

    /// It no longer waits at `at`, which may be ahead of the clock.
    #[inline]
    pub fn end(&mut self, at: Time) {
        if let Some(since) = self.since.take() {
            let from = since.max(self.passed.done);
            if at > from {
                self.passed.add(from, at.since(from));
            }
        }
    }

    /// It waits from `at` until `free`, which may be ahead of the clock.
    #[inline]
    pub fn pass(&mut self, at: Time, free: Time) {
        if free > at {
            self.begin(at);
            self.end(free);
        }
    }

    /// What would wait from `now` on does not.
    pub fn cancel(&mut self, now: Time) {
        self.end(now);
        self.passed.cancel(now);
    }

    /// Waiting time up to `now`.
    pub fn until(&self, now: Time) -> Duration {
        let open = self.since.map_or(Duration::ZERO, |since| now.since(since.max(self.passed.done)));
        self.passed.until(now) + open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1000)
    }

    #[test]
    fn what_was_reserved_counts_once_it_has_passed() {
        let mut server = Busy::default();
        let of = |server: &Busy, at| server.until(ns(at)).as_ps() / 1000;
        server.add(ns(10), Duration::from_ns(20));
        server.add(ns(15), Duration::from_ns(20));
        assert_eq!([10, 25, 50, 90].map(|at| of(&server, at)), [0, 15, 40, 40]);
        server.cancel(ns(25));
        assert_eq!([25, 90].map(|at| of(&server, at)), [15, 15]);
        server.add(ns(30), Duration::from_ns(10));
        assert_eq!([30, 35, 90].map(|at| of(&server, at)), [15, 20, 25]);
    }

    #[test]
    fn a_wait_counts_from_its_beginning_and_never_twice() {
        let mut waited = WaitTime::default();
        let of = |waited: &WaitTime, at| waited.until(ns(at)).as_ps() / 1000;
        waited.begin(ns(10));
        waited.begin(ns(15));
        assert_eq!([5, 10, 20].map(|at| of(&waited, at)), [0, 0, 10]);
        // A core that is ahead of the clock ends it, and another one begins the next.
        waited.end(ns(40));
        waited.begin(ns(30));
        assert_eq!([30, 40, 50].map(|at| of(&waited, at)), [20, 30, 40]);
        waited.end(ns(50));
        assert_eq!([50, 90].map(|at| of(&waited, at)), [40, 40]);
        waited.pass(ns(60), ns(80));
        waited.pass(ns(70), ns(90));
        waited.pass(ns(90), ns(90));
        assert_eq!([60, 75, 100].map(|at| of(&waited, at)), [40, 55, 70]);
        waited.pass(ns(100), ns(200));
        waited.cancel(ns(110));
        assert_eq!([110, 300].map(|at| of(&waited, at)), [80, 80]);
    }

    proptest! {
        /// Whatever is reserved and cancelled, a server is never busy for longer than the time that passes.
        #[test]
        fn no_time_is_more_than_full(steps in prop::collection::vec((0u64..20, 0u64..40, any::<bool>()), 1..100)) {
            let (mut server, mut now, mut before) = (Busy::default(), Time::ZERO, Duration::ZERO);
            for (passes, takes, stops) in steps {
                now += Duration::from_ns(passes);
                let busy = server.until(now);
                prop_assert!(busy >= before && busy - before <= Duration::from_ns(passes));
                before = busy;
                if stops && takes == 0 {
                    server.cancel(now);
                } else {
                    server.add(now, Duration::from_ns(takes));
                }
            }
        }
    }
}
