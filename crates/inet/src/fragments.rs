//! Reassembly of IPv4 packets from fragments (RFC 791, 3.2; RFC 815).
//!
//! The result is identical to what was sent, or nothing: if fragments overlap, disagree on the end, or exceed the
//! maximum packet size, the whole packet is dropped, with all its later fragments (RFC 5722, 4, which Linux applies
//! to IPv4, too; exact repetitions are not overlaps). Memory and time are bounded.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use units::{Duration, Time};

use crate::tcp::Payload;

/// Maximum payload after a header of 20 bytes.
const MOST: u32 = 65_535 - 20;
/// Memory accounted per fragment and per packet, in addition to payload (Linux: a `struct sk_buff` with its shared
/// info, about 512 bytes; `struct ipq`, about 200).
const EACH: u64 = 512;

/// Identifies the packet of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FragmentKey {
    /// Sender.
    pub source: Ipv4Addr,
    /// Receiver.
    pub destination: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// The sender's identification.
    pub identification: u16,
}

/// Limits of the reassembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentParams {
    /// Maximum memory for fragments, bytes.
    pub memory: u64,
    /// Maximum time that a packet's fragments wait for the others.
    pub time: Duration,
}

/// Result of adding a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate<P> {
    /// The packet is still incomplete.
    Waits,
    /// The packet is complete: its payload, in order.
    Whole(Vec<P>),
    /// The fragment is a duplicate.
    Repeated,
    /// The fragment is invalid; it and the packet's earlier fragments are dropped.
    Refused,
    /// Out of memory.
    NoRoom,
}

/// Fragments of a packet.
#[derive(Debug)]
struct Parts<P> {
    until: Time,
    /// By offset, without overlaps.
    parts: Vec<(u32, P)>,
    bytes: u32,
    /// Total payload length; known once the last fragment has arrived.
    total: Option<u32>,
    /// The packet is dropped, together with its later fragments.
    spoilt: bool,
}

/// Fragments waiting for others.
#[derive(Debug)]
pub struct Reassembly<P> {
    params: FragmentParams,
    packets: BTreeMap<FragmentKey, Parts<P>>,
    memory: u64,
    discarded: Vec<P>,
}

impl<P: Payload> Reassembly<P> {
    /// Creates an empty reassembly.
    pub fn new(params: FragmentParams) -> Self {
        Self { params, packets: BTreeMap::new(), memory: 0, discarded: Vec::new() }
    }

    /// Adds a fragment with `data` at `offset` of its packet's payload; `more` says that others follow.
    pub fn take(&mut self, now: Time, key: FragmentKey, offset: u32, more: bool, data: P) -> Fate<P> {
        let length = data.len();
        let known = self.packets.get(&key).is_some_and(|parts| !parts.spoilt);
        if !known && self.packets.contains_key(&key) {
            self.discarded.push(data);
            return Fate::Refused;
        }
        let needs = u64::from(length) + if known { EACH } else { 2 * EACH };
        if self.memory + needs > self.params.memory {
            self.discarded.push(data);
            return Fate::NoRoom;
        }
        let until = now + self.params.time;
        let parts = self.packets.entry(key).or_insert_with(|| {
            self.memory += EACH;
            Parts { until, parts: Vec::new(), bytes: 0, total: None, spoilt: false }
        });
        let end = offset + length;
        let fits = length > 0
            && end <= MOST
            && (!more || length.is_multiple_of(8))
            && match parts.total {
                Some(total) => end < total || end == total && !more,
                // No earlier fragment may extend beyond the end.
                None => more || parts.parts.last().is_none_or(|(at, last)| at + last.len() <= end),
            };
        let at = parts.parts.partition_point(|(start, _)| *start < offset);
        let same = parts.parts.get(at).is_some_and(|(start, part)| (*start, part.len()) == (offset, length));
        if fits && same && (more || parts.total == Some(end)) {
            self.discarded.push(data);
            return Fate::Repeated;
        }
        let before = at.checked_sub(1).and_then(|before| parts.parts.get(before));
        let apart = before.is_none_or(|(start, part)| start + part.len() <= offset)
            && parts.parts.get(at).is_none_or(|(start, _)| end <= *start);
        if !fits || !apart {
            self.discarded.push(data);
            self.memory -= u64::from(parts.bytes) + EACH * parts.parts.len() as u64;
            self.discarded.extend(parts.parts.drain(..).map(|(_, part)| part));
            (parts.bytes, parts.spoilt) = (0, true);
            return Fate::Refused;
        }
        if !more {
            parts.total = Some(end);
        }
        parts.parts.insert(at, (offset, data));
        parts.bytes += length;
        self.memory += u64::from(length) + EACH;
        if parts.total != Some(parts.bytes) {
            return Fate::Waits;
        }
        let parts = self.forget(key).into_iter().flat_map(|parts| parts.parts);
        Fate::Whole(parts.map(|(_, part)| part).collect())
    }

    fn forget(&mut self, key: FragmentKey) -> Option<Parts<P>> {
        let parts = self.packets.remove(&key)?;
        self.memory -= u64::from(parts.bytes) + EACH * (1 + parts.parts.len() as u64);
        Some(parts)
    }

    /// When [`timer`](Self::timer) must be called.
    pub fn deadline(&self) -> Option<Time> {
        self.packets.values().map(|parts| parts.until).min()
    }

    /// Drops packets that were incomplete for too long. Returns how many of them had not been refused before.
    pub fn timer(&mut self, now: Time) -> u64 {
        let late: Vec<_> = self.packets.iter().filter(|(_, p)| p.until <= now).map(|(key, _)| *key).collect();
        let mut count = 0;
        for key in late {
            let Some(parts) = self.forget(key) else { continue };
            count += u64::from(!parts.spoilt);
            self.discarded.extend(parts.parts.into_iter().map(|(_, part)| part));
        }
        count
    }

    /// Memory used by waiting fragments.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Dropped payloads; must be taken after each call.
    pub fn discarded(&mut self) -> std::vec::Drain<'_, P> {
        self.discarded.drain(..)
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        let all = std::mem::take(&mut self.packets);
        self.discarded.extend(all.into_values().flat_map(|parts| parts.parts).map(|(_, part)| part));
        self.memory = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARAMS: FragmentParams = FragmentParams { memory: 4 << 20, time: Duration::from_ms(30_000) };

    fn key(identification: u16) -> FragmentKey {
        let [source, destination] = [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, n));
        FragmentKey { source, destination, protocol: 17, identification }
    }

    fn packet(number: u16, length: usize) -> Vec<u8> {
        (0..length).map(|n| (n * 31 + usize::from(number) * 7) as u8).collect()
    }

    #[test]
    fn waits_for_all_and_forgets_after_a_while() {
        let params = FragmentParams { memory: 10_000, ..PARAMS };
        let (mut all, now) = (Reassembly::<Vec<u8>>::new(params), Time::ZERO);
        assert_eq!(all.take(now, key(1), 8, false, vec![2; 3]), Fate::Waits);
        assert_eq!(all.take(now, key(1), 0, true, vec![1; 8]), Fate::Whole(vec![vec![1; 8], vec![2; 3]]));
        assert_eq!((all.memory(), all.deadline()), (0, None));
        assert_eq!(all.take(now, key(2), 0, true, vec![1; 8000]), Fate::Waits);
        assert_eq!(all.take(now, key(3), 0, true, vec![1; 1600]), Fate::NoRoom, "bounded");
        assert_eq!(all.deadline(), Some(now + params.time));
        assert_eq!(all.timer(now + params.time), 1);
        assert_eq!((all.memory(), all.deadline()), (0, None));
        assert_eq!(all.discarded().map(|d| d.len()).sum::<usize>(), 9600);
    }

    #[test]
    fn what_overlaps_or_cannot_be_spoils_the_packet() {
        let wrong: [(u32, bool, usize); 6] =
            [(4, true, 8), (8, true, 8), (0, true, 16), (24, true, 8), (16, false, 4), (65_512, false, 8)];
        for (offset, more, length) in wrong {
            let mut all = Reassembly::<Vec<u8>>::new(PARAMS);
            assert_eq!(all.take(Time::ZERO, key(1), 8, true, vec![1; 16]), Fate::Waits);
            if offset == 24 {
                assert_eq!(all.take(Time::ZERO, key(1), 24, false, vec![1; 8]), Fate::Waits);
            }
            assert_eq!(
                all.take(Time::ZERO, key(1), offset, more, vec![2; length]),
                Fate::Refused,
                "{offset}"
            );
            assert_eq!(all.take(Time::ZERO, key(1), 0, true, vec![1; 8]), Fate::Refused, "the rest too");
            assert_eq!(all.memory(), EACH);
            assert_eq!(all.timer(Time::ZERO + PARAMS.time), 0);
            assert_eq!(all.memory(), 0);
        }
    }

    proptest! {
        /// For any order, with repetitions, losses and foreign fragments: a packet comes out unchanged, at most once
        /// unless parts are repeated, and always if nothing is lost and nothing foreign arrives.
        #[test]
        fn identical_or_nothing(
            lengths in prop::collection::vec(1usize..3000, 1..6), mtu in 1usize..100,
            order in prop::collection::vec(any::<prop::sample::Index>(), 300), lost in prop::collection::vec(any::<bool>(), 0..40),
            repeat in any::<bool>(), foreign in prop::collection::vec((0u16..6, 0u32..400, any::<bool>(), 1usize..64), 0..4),
        ) {
            let piece = mtu * 8;
            let mut fragments = Vec::new();
            for (number, &length) in (0u16..).zip(&lengths) {
                let bytes = packet(number, length);
                let count = bytes.chunks(piece).count();
                fragments.extend(bytes.chunks(piece).enumerate().map(|(n, data)| {
                    (number, (n * piece) as u32, n + 1 < count, data.to_vec())
                }));
            }
            let mut lose = lost.iter().copied().chain(std::iter::repeat(false));
            let (mut sent, mut dropped) = (fragments.clone(), vec![false; lengths.len()]);
            sent.retain(|f| {
                let lost = lose.next().unwrap();
                dropped[usize::from(f.0)] |= lost;
                !lost
            });
            if repeat {
                sent.extend(fragments.iter().take(20).cloned());
            }
            for &(number, at, more, length) in &foreign {
                sent.push((number, at * 8, more, vec![0xee; length]));
            }
            for n in (1..sent.len()).rev() {
                sent.swap(n, order[n % order.len()].index(n + 1));
            }
            let mut all = Reassembly::<Vec<u8>>::new(PARAMS);
            let mut came = vec![0; lengths.len()];
            let (mut given, mut back) = (0, 0);
            for (number, offset, more, data) in sent {
                given += data.len();
                if let Fate::Whole(parts) = all.take(Time::ZERO, key(number), offset, more, data) {
                    let whole = parts.concat();
                    back += whole.len();
                    let number = usize::from(number);
                    if number < lengths.len() && (foreign.is_empty() || !whole.contains(&0xee)) {
                        prop_assert!(whole == packet(number as u16, lengths[number]), "packet {number}");
                        came[number] += 1;
                    }
                }
                back += all.discarded().map(|d| d.len()).sum::<usize>();
            }
            if !repeat && foreign.is_empty() {
                for (number, &count) in came.iter().enumerate() {
                    prop_assert_eq!(count, u32::from(!dropped[number]));
                }
            }
            all.timer(Time::ZERO + PARAMS.time);
            back += all.discarded().map(|d| d.len()).sum::<usize>();
            prop_assert_eq!((all.memory(), back), (0, given), "every piece comes back once");
        }
    }
}
