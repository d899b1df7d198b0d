//! A set-associative tagged cache with a replacement policy, used for the IOTLB, the paging-structure caches, the
//! context cache and the interrupt entry cache.
//!
//! Lookups use a hash index for any geometry, so that a fully associative cache of 128 entries costs the simulator no
//! more than a direct-mapped one; sets and ways only determine evictions.

use super::params::{Geometry, IotlbReplacement};
use engine::Rng;
use units::hash::spread;

/// End of a list, or an empty index entry.
const NONE: u16 = u16::MAX;

/// A cache from a 64-bit tag to a value.
#[derive(Debug, Clone)]
pub(crate) struct TaggedCache<V> {
    ways: usize,
    set_mask: u64,
    replacement: IotlbReplacement,
    /// Tag and value of each slot; the slots of a set are adjacent.
    slots: Vec<Option<(u64, V)>>,
    /// Number of occupied slots in each set.
    taken: Vec<u16>,
    /// Open addressing with linear probing, at most a quarter full.
    index: Vec<u16>,
    index_shift: u32,
    /// Recency lists of the sets (LRU only).
    recency: Recency,
    /// Binary decision trees of the sets (pseudo-LRU only): node n of a set's heap points to the next victim.
    tree: Vec<u8>,
    random: Rng,
}

/// One doubly linked list per set, most recently used first.
#[derive(Debug, Clone, Default)]
struct Recency {
    links: Vec<(u16, u16)>,
    ends: Vec<(u16, u16)>,
}

impl Recency {
    fn unlink(&mut self, set: usize, slot: u16) {
        let (before, after) = self.links[slot as usize];
        match before {
            NONE => self.ends[set].0 = after,
            b => self.links[b as usize].1 = after,
        }
        match after {
            NONE => self.ends[set].1 = before,
            a => self.links[a as usize].0 = before,
        }
    }
    fn push_front(&mut self, set: usize, slot: u16) {
        let first = self.ends[set].0;
        self.links[slot as usize] = (NONE, first);
        match first {
            NONE => self.ends[set].1 = slot,
            f => self.links[f as usize].0 = slot,
        }
        self.ends[set].0 = slot;
    }
}

impl<V: Copy> TaggedCache<V> {
    /// Creates an empty cache. An invalid `geometry` is rounded down.
    pub(crate) fn new(geometry: Geometry, random: Rng) -> Self {
        let entries = geometry.entries.min(Geometry::MAX_ENTRIES);
        let ways = geometry.effective_ways().min(entries).max(1);
        let sets = if entries == 0 { 0 } else { prev_power_of_two(entries / ways) };
        let entries = sets * ways;
        let index_len = (entries * 4).next_power_of_two().max(8);
        let lru = geometry.replacement == IotlbReplacement::Lru;
        Self {
            ways,
            set_mask: (sets as u64).saturating_sub(1),
            replacement: geometry.replacement,
            slots: vec![None; entries],
            taken: vec![0; sets],
            index: vec![NONE; index_len],
            index_shift: 64 - index_len.trailing_zeros(),
            recency: Recency {
                links: vec![(NONE, NONE); if lru { entries } else { 0 }],
                ends: vec![(NONE, NONE); if lru { sets } else { 0 }],
            },
            tree: vec![0; if geometry.replacement == IotlbReplacement::TreePlru { entries } else { 0 }],
            random,
        }
    }

    fn home(&self, tag: u64) -> usize {
        (spread(tag) >> self.index_shift) as usize
    }

    /// The set of `slot`; avoids the division for caches with one set.
    fn set_of(&self, slot: usize) -> usize {
        if self.set_mask == 0 { 0 } else { slot / self.ways }
    }

    /// Index position and slot of `tag`.
    #[inline]
    fn find(&self, tag: u64) -> Option<(usize, usize)> {
        let mask = self.index.len() - 1;
        let mut place = self.home(tag);
        loop {
            match self.index[place] {
                NONE => return None,
                slot => match self.slots[slot as usize] {
                    Some((t, _)) if t == tag => return Some((place, slot as usize)),
                    _ => place = (place + 1) & mask,
                },
            }
        }
    }

    /// The value of `tag`, which becomes the most recently used of its set.
    #[inline]
    pub(crate) fn lookup(&mut self, tag: u64) -> Option<V> {
        let (_, slot) = self.find(tag)?;
        self.touch(slot);
        self.slots[slot].map(|(_, value)| value)
    }

    /// The value of `tag`, without side effects.
    pub(crate) fn peek(&self, tag: u64) -> Option<V> {
        let (_, slot) = self.find(tag)?;
        self.slots[slot].map(|(_, value)| value)
    }

    #[inline]
    fn touch(&mut self, slot: usize) {
        match self.replacement {
            IotlbReplacement::Random => {}
            IotlbReplacement::Lru => {
                let set = self.set_of(slot);
                if self.recency.ends[set].0 != slot as u16 {
                    self.recency.unlink(set, slot as u16);
                    self.recency.push_front(set, slot as u16);
                }
            }
            IotlbReplacement::TreePlru => {
                let base = self.set_of(slot) * self.ways;
                let mut node = slot - base + self.ways;
                while node > 1 {
                    self.tree[base + node / 2] = (node & 1 == 0) as u8;
                    node /= 2;
                }
            }
        }
    }

    /// Stores `value` under `tag` in the set `set_number`. Returns the evicted tag.
    pub(crate) fn insert(&mut self, tag: u64, set_number: u64, value: V) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        if let Some((_, slot)) = self.find(tag) {
            self.slots[slot] = Some((tag, value));
            self.touch(slot);
            return None;
        }
        let set = (set_number & self.set_mask) as usize;
        let base = set * self.ways;
        let (slot, displaced) = if (self.taken[set] as usize) < self.ways {
            let free = self.slots[base..base + self.ways].iter().position(Option::is_none);
            (base + free.unwrap_or(0), None)
        } else {
            let slot = self.victim(set);
            let displaced = self.slots[slot].map(|(t, _)| t);
            if let Some(t) = displaced {
                self.remove(t);
            }
            (slot, displaced)
        };
        self.slots[slot] = Some((tag, value));
        self.taken[set] += 1;
        let mask = self.index.len() - 1;
        let mut place = self.home(tag);
        while self.index[place] != NONE {
            place = (place + 1) & mask;
        }
        self.index[place] = slot as u16;
        if self.replacement == IotlbReplacement::Lru {
            self.recency.push_front(set, slot as u16);
        } else {
            self.touch(slot);
        }
        displaced
    }

    /// The victim of a full set.
    fn victim(&mut self, set: usize) -> usize {
        let base = set * self.ways;
        match self.replacement {
            IotlbReplacement::Lru => self.recency.ends[set].1 as usize,
            IotlbReplacement::TreePlru => {
                let mut node = 1;
                while node < self.ways {
                    node = 2 * node + self.tree[base + node] as usize;
                }
                base + node - self.ways
            }
            IotlbReplacement::Random => base + self.random.below(self.ways as u64) as usize,
        }
    }

    /// Removes `tag`. Returns whether it was present.
    pub(crate) fn remove(&mut self, tag: u64) -> bool {
        let Some((mut hole, slot)) = self.find(tag) else { return false };
        self.slots[slot] = None;
        let set = self.set_of(slot);
        self.taken[set] -= 1;
        if self.replacement == IotlbReplacement::Lru {
            self.recency.unlink(set, slot as u16);
        }
        // Close the gap, so that no probe sequence is cut short.
        let mask = self.index.len() - 1;
        let mut place = hole;
        self.index[hole] = NONE;
        loop {
            place = (place + 1) & mask;
            let occupant = self.index[place];
            let Some((t, _)) = self.slots.get(occupant as usize).copied().flatten() else { break };
            let home = self.home(t);
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.index[hole] = occupant;
                self.index[place] = NONE;
                hole = place;
            }
        }
        true
    }

    /// Removes every entry for which `stale` is true. Returns how many there were.
    pub(crate) fn remove_where(&mut self, mut stale: impl FnMut(u64, &V) -> bool) -> usize {
        let mut removed = 0;
        for slot in 0..self.slots.len() {
            if let Some((tag, value)) = self.slots[slot]
                && stale(tag, &value)
            {
                self.remove(tag);
                removed += 1;
            }
        }
        removed
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.taken.iter().map(|&n| n as usize).sum()
    }
}

fn prev_power_of_two(n: usize) -> usize {
    if n == 0 { 0 } else { 1 << n.ilog2() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Seed;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn cache(entries: usize, ways: usize, replacement: IotlbReplacement) -> TaggedCache<u64> {
        TaggedCache::new(Geometry { entries, ways, replacement }, Seed::new(1).component("cache"))
    }

    #[test]
    fn lru_evicts_the_least_recently_used() {
        let mut c = cache(3, 3, IotlbReplacement::Lru);
        for tag in 1..=3 {
            c.insert(tag, 0, tag);
        }
        c.lookup(1);
        assert_eq!(c.insert(4, 0, 4), Some(2));
        assert_eq!(c.insert(5, 0, 5), Some(3));
        assert_eq!(c.lookup(1), Some(1));
    }

    #[test]
    fn plru_never_evicts_the_last_used() {
        let mut c = cache(8, 8, IotlbReplacement::TreePlru);
        for tag in 0..8 {
            c.insert(tag, 0, tag);
        }
        for tag in 8..100 {
            assert_ne!(c.insert(tag, 0, tag), Some(tag - 1));
        }
    }

    #[test]
    fn random_replacement_hits_in_proportion() {
        // With random addresses over twice the entries, a full cache hits half the time under any policy.
        let mut c = cache(128, 0, IotlbReplacement::Random);
        let mut state = 7u64;
        let mut hits = 0;
        for i in 0..40_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let tag = (state >> 33) % 256;
            if c.lookup(tag).is_some() {
                hits += (i >= 4_000) as u32;
            } else {
                c.insert(tag, tag, tag);
            }
        }
        assert!((17_000..19_000).contains(&hits), "{hits}");
    }

    #[test]
    fn sets_compete_only_with_themselves() {
        let mut c = cache(16, 4, IotlbReplacement::Lru);
        for n in 0..5 {
            c.insert(n * 4, n * 4, n);
        }
        c.insert(1, 1, 9);
        assert_eq!(c.peek(0), None);
        assert_eq!(c.peek(1), Some(9));
        assert_eq!(c.len(), 5);
    }

    #[test]
    fn without_entries_nothing_is_held() {
        let mut c = cache(0, 0, IotlbReplacement::Lru);
        assert_eq!(c.insert(1, 1, 1), None);
        assert_eq!(c.lookup(1), None);
    }

    proptest! {
        #[test]
        fn never_answers_what_was_not_stored(
            ops in prop::collection::vec((0u8..4, 0u64..40, any::<u64>()), 1..400),
            ways in prop::sample::select(vec![0usize, 1, 2, 4]),
            replacement in prop::sample::select(vec![IotlbReplacement::Lru, IotlbReplacement::TreePlru, IotlbReplacement::Random]),
        ) {
            let mut c = cache(16, ways, replacement);
            let mut truth = BTreeMap::new();
            for (op, tag, value) in ops {
                match op {
                    0 | 1 => {
                        truth.insert(tag, value);
                        if let Some(gone) = c.insert(tag, tag, value) {
                            prop_assert!(truth.remove(&gone).is_some());
                        }
                    }
                    2 => prop_assert_eq!(c.remove(tag), truth.remove(&tag).is_some()),
                    _ => prop_assert_eq!(c.lookup(tag), truth.get(&tag).copied()),
                }
                prop_assert_eq!(c.len(), truth.len());
            }
            for (tag, value) in &truth {
                prop_assert_eq!(c.peek(*tag), Some(*value));
            }
            c.remove_where(|tag, _| tag % 2 == 0);
            truth.retain(|tag, _| tag % 2 == 1);
            prop_assert_eq!(c.len(), truth.len());
        }
    }
}
