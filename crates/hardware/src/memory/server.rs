//! A resource that serves one request at a time.

use std::collections::VecDeque;
use units::{Duration, Time};

/// Number of idle gaps before the last reservation that are kept if the clock is never advanced.
const GAPS: usize = 256;

/// A resource that serves one request at a time, in the first idle time after its arrival.
///
/// Reservations are made when a request is issued, so they are not in arrival order: a request from the other socket
/// reserves further ahead than a local one, and a program further ahead than both. The server therefore keeps idle gaps
/// and lets earlier arrivals use them.
///
/// A gap must be kept until the clock has passed it: programs compute ahead of the clock, and each of their lines
/// leaves a gap on its channel. If gaps after the clock were lost, the next request would be served behind the program
/// farthest ahead, become the farthest ahead itself, and so on without end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    free: u64,
    /// All that was reserved.
    reserved: u64,
    /// No reservation arrives before this time, as far as known.
    past: u64,
    /// Start and end, in ascending order. Gaps do not overlap and end before `free`.
    gaps: VecDeque<(u64, u64)>,
}

impl Server {
    /// Reserves `service` at `at`, or as soon after as the server is idle. Returns when service starts.
    #[inline]
    pub(crate) fn reserve(&mut self, at: Time, service: Duration) -> Time {
        let (at, service) = (at.as_ps(), service.as_ps());
        if service == 0 {
            return Time::from_ps(at);
        }
        self.reserved += service;
        if at >= self.free {
            if at - self.free >= service && at > self.past {
                if self.is_full() {
                    self.gaps.pop_front();
                }
                self.gaps.push_back((self.free, at));
            }
            self.free = at + service;
            return Time::from_ps(at);
        }
        Time::from_ps(self.reserve_behind(at, service))
    }

    /// Whether the last reservation ends at `at` or before.
    pub(crate) fn ends_by(&self, at: Time) -> bool {
        self.free <= at.as_ps()
    }

    /// How long it was busy up to `now`. A gap too short to be kept counts as reserved until it has passed.
    pub(crate) fn busy(&self, now: Time) -> Duration {
        let now = now.as_ps();
        let gaps = self.gaps.iter().rev().take_while(|gap| gap.1 > now);
        let idle: u64 = gaps.map(|gap| gap.1 - gap.0.max(now)).sum();
        Duration::from_ps(self.reserved.saturating_sub(self.free.saturating_sub(now).saturating_sub(idle)))
    }

    /// Discards gaps that have passed at `now`; nothing arrives before.
    pub(crate) fn pass(&mut self, now: Time) {
        self.past = now.as_ps();
        while self.gaps.front().is_some_and(|gap| gap.1 <= self.past) {
            self.gaps.pop_front();
        }
    }

    fn is_full(&self) -> bool {
        self.past == 0 && self.gaps.len() >= GAPS
    }

    /// A reservation that arrives before the end of the last one.
    fn reserve_behind(&mut self, at: u64, service: u64) -> u64 {
        let long_enough = |gap: &&(u64, u64)| gap.1 - gap.0.max(at) >= service;
        // Most arrive shortly before the end, after all gaps.
        let first = match self.gaps.back() {
            Some(last) if last.1 >= at + service => self.gaps.partition_point(|gap| gap.1 < at + service),
            _ => self.gaps.len(),
        };
        let Some((skipped, &(from, to))) =
            self.gaps.range(first..).enumerate().find(|(_, gap)| long_enough(gap))
        else {
            let start = self.free;
            self.free += service;
            return start;
        };
        let start = at.max(from);
        self.split(first + skipped, (from, start), (start + service, to), service);
        start
    }

    /// Keeps what a reservation leaves of a gap, where it is at least as long as the reservation.
    fn split(&mut self, gap: usize, before: (u64, u64), after: (u64, u64), least: u64) {
        match (before.1 - before.0 >= least, after.1 - after.0 >= least) {
            (false, false) => {
                self.gaps.remove(gap);
            }
            (true, false) => self.gaps[gap] = before,
            (false, true) => self.gaps[gap] = after,
            (true, true) => {
                self.gaps[gap] = after;
                if !self.is_full() {
                    self.gaps.insert(gap, before);
                }
            }
        }
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
    fn an_early_arrival_is_not_held_up_by_a_reservation_further_ahead() {
        let mut server = Server::default();
        let five = Duration::from_ns(5);
        assert_eq!(server.reserve(ns(100), five), ns(100));
        assert_eq!(server.reserve(ns(10), five), ns(10));
        assert_eq!(server.reserve(ns(12), five), ns(15));
        assert_eq!(server.reserve(ns(101), five), ns(105));
    }

    /// Models memory channels on which several programs load lines, each ahead of the clock by its own block.
    #[test]
    fn programs_ahead_of_the_clock_leave_no_time_unused() {
        let mut server = Server::default();
        let (service, blocks, lines) = (Duration::from_ns(4), 50, 32);
        // Four programs load a block each in turn, one line every 16 ns, which needs all of the server's time.
        for block in 0..blocks {
            for program in 0..4 {
                for line in 0..lines {
                    server.reserve(ns(16 * (block * lines + line) + program), service);
                }
            }
        }
        let last = server.reserve(Time::ZERO, service);
        assert_eq!(last, ns(4 * 4 * blocks * lines));
    }

    /// A program far ahead of the clock leaves many gaps; a request at the clock is served in one.
    #[test]
    fn nobody_is_thrown_behind_the_program_farthest_ahead() {
        let (mut server, service) = (Server::default(), Duration::from_ns(4));
        server.pass(ns(1));
        let far = (0..10_000).map(|line| server.reserve(ns(1000 + 10 * line), service)).last();
        assert_eq!(far, Some(ns(100_990)));
        assert_eq!(server.reserve(ns(2), service), ns(2));
        server.pass(ns(50_000));
        assert_eq!(server.reserve(ns(50_001), service), ns(50_004));
        assert!(server.gaps.len() < 6_000, "what has passed is forgotten");
    }

    #[test]
    fn what_is_reserved_ahead_is_not_busy_yet() {
        let (mut server, five) = (Server::default(), Duration::from_ns(5));
        server.reserve(ns(10), five);
        server.reserve(ns(100), five);
        server.reserve(ns(10), five);
        let busy = |server: &Server, at| server.busy(ns(at)).as_ps() / 1000;
        assert_eq!([0, 10, 12, 20, 50, 103, 200].map(|at| busy(&server, at)), [0, 0, 2, 10, 10, 13, 15]);
        server.pass(ns(50));
        assert_eq!(busy(&server, 50), 10);
    }

    proptest! {
        /// Whatever is reserved meanwhile, no time is more than full.
        #[test]
        fn no_server_is_busy_for_longer_than_passes(
            steps in prop::collection::vec((0u64..20, 0u64..300, 1u64..20), 1..200),
        ) {
            let (mut server, mut now, mut before) = (Server::default(), 1, Duration::ZERO);
            for (passes, ahead, service) in steps {
                now += passes;
                let busy = server.busy(ns(now));
                prop_assert!(busy.saturating_sub(before) <= Duration::from_ns(passes));
                before = busy;
                server.pass(ns(now));
                server.reserve(ns(now + ahead), Duration::from_ns(service));
                before = before.min(server.busy(ns(now)));
            }
        }

        /// While all gaps are kept, each request is served as early as possible.
        #[test]
        fn no_fitting_gap_is_missed(requests in prop::collection::vec(0u64..2_000, 1..200)) {
            let (mut server, service) = (Server::default(), 10);
            let mut served: Vec<u64> = Vec::new();
            for at in requests {
                let free = |start: u64| served.iter().all(|&other| start >= other + service || start + service <= other);
                let earliest = std::iter::once(at).chain(served.iter().map(|other| other + service).filter(|&s| s >= at));
                let earliest = earliest.filter(|&start| free(start)).min().unwrap();
                let start = server.reserve(Time::from_ps(at), Duration::from_ps(service)).as_ps();
                prop_assert_eq!(start, earliest);
                served.push(start);
            }
        }

        #[test]
        fn service_never_overlaps(requests in prop::collection::vec((0u64..2_000, 1u64..20), 1..200)) {
            let mut server = Server::default();
            let mut served: Vec<(u64, u64)> = Vec::new();
            for (at, service) in requests {
                let start = server.reserve(Time::from_ps(at), Duration::from_ps(service)).as_ps();
                prop_assert!(start >= at);
                for &(from, to) in &served {
                    prop_assert!(start >= to || start + service <= from);
                }
                served.push((start, start + service));
            }
        }
    }
}
