//! A server whose requests are not simulated in the order of their arrival.

use super::server::Server;
use units::{Duration, Time};

/// log2 of a tick in picoseconds: 8 ns. Arrivals within a tick are not told apart.
const SHIFT: u32 = 13;
/// Ticks that are kept, 17 us: longer than programs compute ahead of the clock. A multiple of 64.
const TICKS: u64 = 2048;

/// A server that serves in the order of arrival.
///
/// Programs compute ahead of the clock and reserve the server's time up to there. Whoever is simulated after them, be it a
/// device at the clock or another program, may arrive before them. On a busy server, where no time is left before the
/// program farthest ahead, it would be served behind all of them. It therefore goes behind those only that arrive
/// before it. As those that arrive later cannot be put off any more, the request takes its share of the server's time
/// from the next time that is left, where those still to come find less.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    server: Server,
    /// Number of the first tick that is kept.
    first: u64,
    /// When all are served that arrived before it.
    passed: Time,
    /// The last tick in which something arrives.
    last: u64,
    /// By tick, modulo their number, a bit: whether something arrives in it.
    arrivals: [u64; TICKS as usize / 64],
    /// By tick, modulo their number, if something arrives in it: picoseconds from its beginning to when all that arrived
    /// until its end are served.
    ends: Vec<u32>,
}

#[inline]
fn tick(at: Time) -> u64 {
    at.as_ps() >> SHIFT
}

/// Index of the word with the bit of `tick`.
#[inline]
fn word(tick: u64) -> usize {
    (tick % TICKS / 64) as usize
}

impl Turns {
    /// Reserves `service` for a request that arrives at `at`. Returns when service starts.
    #[inline]
    pub(super) fn reserve(&mut self, at: Time, service: Duration) -> Time {
        let idle = self.server.reserve(at, service);
        let tick = tick(at);
        if tick < self.first {
            return idle;
        }
        let is_late = idle > at && tick < self.last;
        let start = if is_late { self.served(tick).max(at).min(idle) } else { idle };
        self.note(tick, start + service);
        start
    }

    /// Reserves `parts` of the same length one after the other, in the first idle times. Returns when the last one ends.
    ///
    /// One long gap between reservations ahead of the clock may only exist behind the program farthest ahead.
    pub(super) fn reserve_parts(&mut self, at: Time, service: Duration, parts: u16) -> Time {
        if self.server.ends_by(at) {
            let all = service * u64::from(parts);
            return self.reserve(at, all) + all;
        }
        (0..parts).fold(at, |_, _| self.reserve(at, service)) + service
    }

    /// When all are served that arrived until the end of `tick`.
    #[inline]
    fn served(&self, tick: u64) -> Time {
        self.last_arrival(tick).map_or(self.passed, |before| self.end(before))
    }

    /// The same for a tick with arrivals.
    #[inline]
    fn end(&self, tick: u64) -> Time {
        Time::from_ps((tick << SHIFT) + u64::from(self.ends[(tick % TICKS) as usize]))
    }

    #[inline]
    fn set_end(&mut self, tick: u64, end: Time) {
        let since = end.as_ps() - (tick << SHIFT);
        self.ends[(tick % TICKS) as usize] = u32::try_from(since).unwrap_or(u32::MAX);
    }

    /// The last tick up to `tick` in which something arrives.
    #[inline]
    fn last_arrival(&self, tick: u64) -> Option<u64> {
        let mut tick = tick.min(self.last);
        while tick >= self.first {
            let bits = self.arrivals[word(tick)] << (63 - tick % 64);
            if bits != 0 {
                return tick.checked_sub(bits.leading_zeros().into()).filter(|&found| found >= self.first);
            }
            tick = (tick & !63).checked_sub(1)?;
        }
        None
    }

    /// The first tick after `tick` in which something arrives.
    fn next_arrival(&self, tick: u64) -> Option<u64> {
        let mut tick = tick + 1;
        while tick <= self.last {
            let bits = self.arrivals[word(tick)] >> (tick % 64);
            if bits != 0 {
                return Some(tick + u64::from(bits.trailing_zeros())).filter(|&found| found <= self.last);
            }
            tick = (tick | 63) + 1;
        }
        None
    }

    /// Records that what arrives in `tick` is served by `end`.
    #[inline]
    fn note(&mut self, tick: u64, end: Time) {
        if tick >= self.first + TICKS {
            self.forget(tick + 1 - TICKS);
        }
        if self.ends.is_empty() {
            self.ends = vec![0; TICKS as usize];
        }
        let end = self.served(tick).max(end);
        self.arrivals[word(tick)] |= 1 << (tick % 64);
        self.set_end(tick, end);
        if tick >= self.last {
            self.last = tick;
        } else {
            self.put_off(tick, end);
        }
    }

    /// What arrives after `tick` is not served before `end`.
    #[cold]
    fn put_off(&mut self, tick: u64, end: Time) {
        let mut next = self.next_arrival(tick);
        while let Some(tick) = next.filter(|&tick| self.end(tick) < end) {
            self.set_end(tick, end);
            next = self.next_arrival(tick);
        }
    }

    /// Discards the ticks before `first`.
    fn forget(&mut self, first: u64) {
        let last = first.checked_sub(1).and_then(|tick| self.last_arrival(tick));
        if let Some(last) = last {
            self.passed = self.end(last);
            let mut tick = self.first;
            while tick <= last {
                let next = (tick | 63).min(last) + 1;
                self.arrivals[word(tick)] &= !(u64::MAX >> (64 - (next - tick)) << (tick % 64));
                tick = next;
            }
        }
        self.first = first;
    }

    /// How long the server was busy up to `now`.
    pub(super) fn busy(&self, now: Time) -> Duration {
        self.server.busy(now)
    }

    /// Discards what has passed at `now`; nothing arrives before.
    pub(super) fn pass(&mut self, now: Time) {
        self.server.pass(now);
        self.forget(tick(now).max(self.first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVICE: Duration = Duration::from_ns(4);

    fn ns(n: u64) -> Time {
        Time::from_ps(n * 1000)
    }

    /// A program that asks for `lines` lines, one every 2 ns, of a server that takes 4 ns for each.
    fn ahead(server: &mut Turns, lines: u64) {
        (0..lines).for_each(|line| assert_eq!(server.reserve(ns(2 * line), SERVICE), ns(4 * line)));
    }

    #[test]
    fn who_is_simulated_late_is_served_between_those_that_arrive_before_and_after() {
        let mut server = Turns::default();
        ahead(&mut server, 500);
        let start = server.reserve(ns(100), SERVICE);
        // Lines that arrive at 100 ns are served at 200; arrivals are known to 16 ns.
        assert!((ns(200)..=ns(240)).contains(&start), "{start:?}");
        assert_eq!(server.reserve(ns(1_500), SERVICE), ns(2_004), "the server's time was taken at the end");
    }

    #[test]
    fn those_that_go_before_others_do_so_one_after_the_other() {
        let mut server = Turns::default();
        ahead(&mut server, 500);
        let starts: Vec<Time> = (0..20).map(|n| server.reserve(ns(100 + n), SERVICE)).collect();
        assert!(starts.windows(2).all(|two| two[1] >= two[0] + SERVICE), "{starts:?}");
        assert!(starts[19] < ns(400), "{starts:?}");
    }

    /// Two programs that could each use all of a server's time, simulated in turn, each a block ahead of the clock.
    #[test]
    fn programs_share_a_server_whoever_is_simulated_first() {
        let (mut server, mut waits, lines) = (Turns::default(), [0.0; 2], 50 * 32);
        for block in 0..50 {
            for wait in &mut waits {
                for line in 0..32 {
                    let at = ns(4 * (32 * block + line));
                    *wait += (server.reserve(at, SERVICE) - at).as_ns_f64() / f64::from(lines);
                }
            }
        }
        // A block of a plain server takes 128 ns.
        assert!((waits[1] - waits[0]).abs() < 32.0, "{waits:?} ns");
        let all = ns(8 * u64::try_from(lines).unwrap());
        assert!(
            server.server.ends_by(all) && !server.server.ends_by(all - SERVICE),
            "no time is lost or gained"
        );
    }

    #[test]
    fn what_has_passed_is_forgotten() {
        let mut server = Turns::default();
        ahead(&mut server, 500);
        server.pass(ns(500));
        assert_eq!(server.reserve(ns(1_100), SERVICE), ns(2_000), "the last to arrive");
        assert_eq!(server.reserve(ns(100_000), SERVICE), ns(100_000));
    }

    proptest! {
        /// Requests in the order of arrival find a plain server.
        #[test]
        fn in_order_of_arrival_there_are_no_turns(mut all in prop::collection::vec(0u64..40_000, 1..200)) {
            all.sort_unstable();
            let (mut server, mut plain) = (Turns::default(), Server::default());
            for at in all {
                prop_assert_eq!(server.reserve(ns(at), SERVICE), plain.reserve(ns(at), SERVICE));
            }
        }

        /// Who is simulated late waits as in a queue in the order of arrival, to a tick; late requests of others, in any
        /// order, add what they take at most. Nobody's time is free.
        #[test]
        fn late_requests_wait_as_in_a_queue(
            mut all in prop::collection::vec((0u64..2_000, 1u64..8), 1..500),
            late in prop::collection::vec((0u64..2_000, 1u64..8), 1..5),
            clock in 0u64..2_000,
        ) {
            all.sort_unstable();
            let mut server = Turns::default();
            for &(at, takes) in &all {
                server.reserve(ns(at), Duration::from_ns(takes));
            }
            server.pass(ns(clock));
            let work: u64 = late.iter().map(|&(_, takes)| takes).sum();
            for &(at, takes) in late.iter().filter(|&&(at, _)| at >= clock) {
                let (free, before) = (server.server.clone(), tick(ns(at)) << SHIFT);
                let served = |until: Time| {
                    all.iter().take_while(|&&(at, _)| ns(at) <= until).fold(Time::ZERO, |end, &(at, takes)| {
                        end.max(ns(at)) + Duration::from_ns(takes)
                    })
                };
                let start = server.reserve(ns(at), Duration::from_ns(takes));
                prop_assert!(start >= served(Time::from_ps(before)).max(ns(at)), "{at}: {start:?}");
                let latest = served(Time::from_ps(before + (1 << SHIFT))).max(ns(at)) + Duration::from_ns(work);
                prop_assert!(start <= latest, "{at}: {start:?} {latest:?}");
                prop_assert_ne!(format!("{free:?}"), format!("{:?}", server.server));
            }
        }
    }
}
