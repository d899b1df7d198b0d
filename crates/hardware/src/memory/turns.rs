//! A server whose requests are not simulated in the order of their arrival.

use super::server::Server;
use units::{Duration, Time};

/// log2 of a tick in picoseconds: 16 ns. Within a tick, arrivals are not told apart.
const SHIFT: u32 = 14;
/// Ticks that are kept, 34 us: longer than programs compute ahead of the clock. A multiple of 64.
const TICKS: u64 = 2048;

/// A server, and when those that arrive at it are served.
///
/// Programs compute ahead of the clock and reserve the server's time up to there. Whoever is simulated after them, be it a
/// device at the clock or another program, may arrive before them. On a busy server, where no time is left before the
/// program farthest ahead, it would be served behind all of them. It therefore goes before the first one that arrives
/// later. As that one cannot be put off any more, the request takes its share of the server's time from the next time
/// that is left, where those still to come find less.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    server: Server,
    /// Number of the first tick that is kept.
    first: u64,
    /// By tick, modulo their number, a bit: whether something arrives in it.
    arrivals: [u64; TICKS as usize / 64],
    /// By tick, modulo their number, if something arrives in it: picoseconds from its end to the earliest start of service.
    starts: Vec<u32>,
    /// The last request that went before others: its arrival, and the end of its service.
    last: (Time, Time),
}

impl Default for Turns {
    fn default() -> Self {
        let last = (Time::ZERO, Time::ZERO);
        Self { server: Server::default(), first: 0, arrivals: Default::default(), starts: Vec::new(), last }
    }
}

/// The tick that ends at or after `at`.
#[inline]
fn tick(at: Time) -> u64 {
    (at.as_ps() + (1 << SHIFT) - 1) >> SHIFT
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
        let mut start = self.server.reserve(at, service);
        if start > at {
            start = self.turn(at, start, service);
        }
        self.note(at, start);
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

    /// Start of a request that arrives at `at` and finds the server busy until `idle`.
    #[cold]
    fn turn(&mut self, at: Time, idle: Time, service: Duration) -> Time {
        let last = tick(idle).min(self.first + TICKS - 1);
        let Some(tick) = self.next_arrival(tick(at).max(self.first) + 1, last) else { return idle };
        let later = Time::from_ps((tick << SHIFT) + u64::from(self.starts[(tick % TICKS) as usize]));
        if later >= idle {
            return idle;
        }
        // Those that go before others do so one after the other.
        let behind = if self.last.0 <= at { self.last.1 } else { at };
        let start = later.max(behind).min(idle);
        self.last = (at, start + service);
        start
    }

    /// The first tick from `tick` to `last` in which something arrives.
    fn next_arrival(&self, mut tick: u64, last: u64) -> Option<u64> {
        while tick <= last {
            let bits = self.arrivals[word(tick)] >> (tick % 64);
            if bits != 0 {
                return Some(tick + u64::from(bits.trailing_zeros())).filter(|&found| found <= last);
            }
            tick = (tick | 63) + 1;
        }
        None
    }

    /// Records that what arrives at `at` is served from `start` on.
    #[inline]
    fn note(&mut self, at: Time, start: Time) {
        let tick = tick(at);
        if tick.wrapping_sub(self.first) >= TICKS {
            if tick < self.first {
                return;
            }
            self.forget(tick + 1 - TICKS);
        }
        if self.starts.is_empty() {
            self.starts = vec![0; TICKS as usize];
        }
        let later = u32::try_from(start.as_ps().saturating_sub(tick << SHIFT)).unwrap_or(u32::MAX);
        let (bits, bit) = (&mut self.arrivals[word(tick)], 1 << (tick % 64));
        let known = &mut self.starts[(tick % TICKS) as usize];
        *known = if *bits & bit == 0 { later } else { later.min(*known) };
        *bits |= bit;
    }

    /// Discards the ticks before `first`.
    fn forget(&mut self, first: u64) {
        let (mut tick, end) = (self.first, first.min(self.first + TICKS));
        while tick < end {
            let next = ((tick | 63) + 1).min(end);
            let bits = u64::MAX >> (64 - (next - tick)) << (tick % 64);
            self.arrivals[word(tick)] &= !bits;
            tick = next;
        }
        self.first = first;
    }

    /// Discards what has passed at `now`; nothing arrives before.
    pub(super) fn pass(&mut self, now: Time) {
        self.server.pass(now);
        self.forget((now.as_ps() >> SHIFT).max(self.first));
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

        /// Who is simulated late is served after its arrival, before those that arrive later, and takes as much of the
        /// server's time as anybody.
        #[test]
        fn turns_are_fair_and_not_free(mut all in prop::collection::vec(0u64..2_000, 1..400), late in 0u64..2_000) {
            all.sort_unstable();
            let mut server = Turns::default();
            let known: Vec<(u64, Time)> = all.iter().map(|&at| (at, server.reserve(ns(at), SERVICE))).collect();
            let taken = |server: &Turns| {
                let mut server = server.server.clone();
                (0..1_000).map(|_| server.reserve(Time::ZERO, SERVICE)).max().unwrap()
            };
            let before = taken(&server);
            let start = server.reserve(ns(late), SERVICE);
            prop_assert!(start >= ns(late));
            for &(at, served) in known.iter().filter(|(at, _)| tick(ns(*at)) > tick(ns(late))) {
                prop_assert!(start <= served.max(Time::from_ps(tick(ns(at)) << SHIFT)), "{start:?} {at} {served:?}");
            }
            prop_assert!(taken(&server) > before);
        }
    }
}
