//! The neighbour cache: maps IPv4 addresses on the local network to Ethernet addresses (RFC 826; host behaviour: RFC
//! 1122, 2.3.2).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use units::{Duration, Time};
use wire::ethernet::MacAddr;

/// Lifetime of an entry (Linux: `base_reachable_time`, 30 s).
const REACHABLE: Duration = Duration::from_ms(30_000);
/// Time to wait for an answer (Linux: `retrans_time`, 1 s).
const RETRY: Duration = Duration::from_ms(1_000);
/// Number of requests (Linux: `mcast_solicit`, 3).
const TRIES: u8 = 3;
/// How long a failure is remembered.
const FAILED: Duration = Duration::from_ms(3_000);
/// Maximum number of entries (Linux: `net.ipv4.neigh.default.gc_thresh3`).
const MOST: usize = 1_024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Neighbour {
    Asked { tries: u8, again: Time },
    Known { mac: MacAddr, until: Time },
    Failed { until: Time },
}

/// State of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Its address.
    Known(MacAddr),
    /// Unknown: send a request and wait.
    Ask,
    /// A request is pending: wait.
    Wait,
    /// It does not answer.
    Failed,
}

/// The cache. Its owner keeps the packets that wait for an answer.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    entries: BTreeMap<Ipv4Addr, Neighbour>,
}

impl Neighbours {
    /// The address of `neighbour`, or what to do.
    pub fn resolve(&mut self, now: Time, neighbour: Ipv4Addr) -> Resolution {
        match self.entries.get(&neighbour) {
            Some(&Neighbour::Known { mac, until }) if now < until => Resolution::Known(mac),
            Some(Neighbour::Asked { .. }) => Resolution::Wait,
            Some(&Neighbour::Failed { until }) if now < until => Resolution::Failed,
            _ => {
                self.make_room(now, neighbour);
                self.entries.insert(neighbour, Neighbour::Asked { tries: 1, again: now + RETRY });
                Resolution::Ask
            }
        }
    }

    /// Records a neighbour's address. Returns whether it was requested or known before; otherwise it is recorded only
    /// if `unasked`.
    pub fn learn(&mut self, now: Time, neighbour: Ipv4Addr, mac: MacAddr, unasked: bool) -> bool {
        if !unasked && !self.entries.contains_key(&neighbour) {
            return false;
        }
        self.make_room(now, neighbour);
        self.entries.insert(neighbour, Neighbour::Known { mac, until: now + REACHABLE });
        true
    }

    /// Removes expired entries if the cache is full, or else the oldest one. Pending entries stay, since packets wait
    /// for them.
    fn make_room(&mut self, now: Time, other: Ipv4Addr) {
        if self.entries.len() < MOST || self.entries.contains_key(&other) {
            return;
        }
        let until = |entry: &Neighbour| match entry {
            Neighbour::Asked { .. } => None,
            Neighbour::Known { until, .. } | Neighbour::Failed { until } => Some(*until),
        };
        self.entries.retain(|_, entry| until(entry).is_none_or(|until| until > now));
        if self.entries.len() < MOST {
            return;
        }
        let oldest = self.entries.iter().filter_map(|(who, entry)| Some((until(entry)?, *who))).min();
        if let Some((_, who)) = oldest {
            self.entries.remove(&who);
        }
    }

    /// When [`timer`](Self::timer) must be called.
    pub fn deadline(&self) -> Option<Time> {
        self.entries
            .values()
            .filter_map(|entry| match entry {
                Neighbour::Asked { again, .. } => Some(*again),
                _ => None,
            })
            .min()
    }

    /// Returns the neighbours to ask again, and those that did not answer.
    pub fn timer(&mut self, now: Time) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        let (mut ask, mut lost) = (Vec::new(), Vec::new());
        for (&neighbour, entry) in &mut self.entries {
            let Neighbour::Asked { tries, again } = entry else { continue };
            if *again > now {
                continue;
            }
            if *tries >= TRIES {
                *entry = Neighbour::Failed { until: now + FAILED };
                lost.push(neighbour);
            } else {
                *tries += 1;
                *again = now + RETRY;
                ask.push(neighbour);
            }
        }
        (ask, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn asks_once_then_knows_until_it_is_too_old() {
        let mut cache = Neighbours::default();
        assert_eq!(cache.resolve(at(0), HOST), Resolution::Ask);
        assert_eq!(cache.resolve(at(1), HOST), Resolution::Wait);
        assert!(cache.learn(at(2), HOST, MacAddr::local(7), false));
        assert_eq!(cache.resolve(at(30_001), HOST), Resolution::Known(MacAddr::local(7)));
        assert_eq!(cache.deadline(), None);
        assert_eq!(cache.resolve(at(30_002), HOST), Resolution::Ask);
    }

    #[test]
    fn gives_up_after_three_questions_and_tries_again_later() {
        let mut cache = Neighbours::default();
        cache.resolve(at(0), HOST);
        for second in 1..=2 {
            assert_eq!(cache.deadline(), Some(at(1000 * second)));
            assert_eq!(cache.timer(at(1000 * second)), (vec![HOST], vec![]));
        }
        assert_eq!(cache.timer(at(3000)), (vec![], vec![HOST]));
        assert_eq!(cache.resolve(at(3001), HOST), Resolution::Failed);
        assert_eq!(cache.resolve(at(6000), HOST), Resolution::Ask);
    }

    #[test]
    fn a_flood_of_neighbours_displaces_the_oldest_but_none_that_is_waited_for() {
        let mut cache = Neighbours::default();
        assert_eq!(cache.resolve(at(0), HOST), Resolution::Ask);
        for n in 0..5_000u32 {
            cache.learn(at(u64::from(n)), Ipv4Addr::from(0x0b00_0000 + n), MacAddr::local(n), true);
        }
        assert_eq!(cache.entries.len(), MOST);
        assert_eq!(cache.resolve(at(5_000), HOST), Resolution::Wait);
        let last = Ipv4Addr::from(0x0b00_0000 + 4_999);
        assert_eq!(cache.resolve(at(5_000), last), Resolution::Known(MacAddr::local(4_999)));
    }

    #[test]
    fn strangers_are_not_remembered_unless_they_want_something() {
        let mut cache = Neighbours::default();
        assert!(!cache.learn(at(0), HOST, MacAddr::local(7), false));
        assert!(cache.learn(at(0), HOST, MacAddr::local(7), true));
        assert_eq!(cache.resolve(at(1), HOST), Resolution::Known(MacAddr::local(7)));
    }
}
