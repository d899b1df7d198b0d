//! A resource that serves one request at a time.

use units::{Duration, Time};

/// How many idle gaps before the last reservation are remembered.
const GAPS: usize = 4;

/// A resource that serves one request at a time, in the order of arrival.
///
/// Reservations are made when a request sets out, so they do not come in the
/// order in which requests arrive: a request from the other socket reserves
/// further ahead than a local one. The server therefore remembers the last few
/// idle gaps and lets an earlier arrival use them.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    free: u64,
    gaps: [(u64, u64); GAPS],
    oldest: usize,
}

impl Server {
    /// Reserves `service` from `at` on or as soon after as the server is idle:
    /// when it begins.
    #[inline]
    pub(super) fn reserve(&mut self, at: Time, service: Duration) -> Time {
        let (at, service) = (at.as_ps(), service.as_ps());
        if service == 0 {
            return Time::from_ps(at);
        }
        if at >= self.free {
            if at - self.free >= service {
                self.gaps[self.oldest] = (self.free, at);
                self.oldest = (self.oldest + 1) % GAPS;
            }
            self.free = at + service;
            return Time::from_ps(at);
        }
        Time::from_ps(self.reserve_behind(at, service))
    }

    /// A reservation that arrives before the last one ends.
    fn reserve_behind(&mut self, at: u64, service: u64) -> u64 {
        let mut best: Option<(usize, u64)> = None;
        for (i, &(from, to)) in self.gaps.iter().enumerate() {
            let start = at.max(from);
            if start + service <= to && best.is_none_or(|(_, b)| start < b) {
                best = Some((i, start));
            }
        }
        let Some((i, start)) = best else {
            let start = self.free;
            self.free += service;
            return start;
        };
        let (from, to) = self.gaps[i];
        let end = start + service;
        // One gap became two; the longer one is worth remembering.
        self.gaps[i] = if to - end >= start - from { (end, to) } else { (from, start) };
        start
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

    proptest! {
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
