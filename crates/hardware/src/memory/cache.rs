//! Set-associative tag arrays: line places and states.

use super::params::CacheGeometry;
use super::replacement::ReplacementState;
use super::set_index::Index;
use crate::growth::lengthen;
use std::ops::Range;

/// State bits below the tag in each line's word. Except for [`VALID`], their meaning is up to the cache's owner.
pub(super) mod flag {
    /// The word holds a line.
    pub const VALID: u32 = 1;
    /// The line differs from DRAM.
    pub const DIRTY: u32 = 2;
    /// LLC, snoop filter: no other socket holds the line.
    /// Private cache: no other cache may write it (MESI's E, or M if dirty).
    pub const EXCLUSIVE: u32 = 4;
    /// LLC, snoop filter: a core has the line in state E or M.
    pub const OWNED: u32 = 8;
    /// LLC: cores may have copies; the presence mask says which.
    pub const PRIVATE: u32 = 16;
}
use flag::VALID;

/// Bits of a word below the tag.
const FLAG_BITS: u32 = 5;
/// Bits of a word that are the tag.
pub(super) const TAG_BITS: u32 = 32 - FLAG_BITS;
/// Bits of a word that a lookup compares.
const KEY: u32 = !((1 << FLAG_BITS) - 1) | VALID;

/// Words compared at once.
const LANES: usize = 4;

/// Place of a line in a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Slot(u32);

impl Slot {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// An evicted line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Victim {
    pub(super) line: u64,
    pub(super) flags: u32,
    /// Its place, now taken by the new line.
    pub(super) slot: Slot,
}

/// A set-associative array of line tags and states.
///
/// One 32-bit word for each line holds its tag and state, so that a lookup touches one or two cache lines of the
/// machine running the simulation. Sets are padded to whole vectors of [`LANES`] words, which lookups compare at once.
///
/// A set's words are allocated with its first line: most hosts of a large cluster use few of their sets, and those of
/// all hosts together should fit into real caches.
#[derive(Clone, Debug)]
pub(super) struct TagArray {
    /// Blocks of words; the first is shared by all sets that have never held a line.
    words: Vec<u32>,
    /// By set: its block.
    blocks: Vec<u32>,
    /// By block: its set.
    sets: Vec<u32>,
    ways: usize,
    /// Words of a block.
    stride: usize,
    /// Capacity in lines.
    capacity: u32,
    index: Index,
    replacement: ReplacementState,
    occupied: u32,
}

/// Result of a lookup: where the line belongs, and whether it was present.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    set: u32,
    tag: u32,
    hit: Option<Slot>,
}

impl Probe {
    /// The line's place, if present.
    #[inline]
    pub(super) fn slot(self) -> Option<Slot> {
        self.hit
    }
}

impl TagArray {
    pub(super) fn new(geometry: &CacheGeometry, seed: u64) -> Self {
        let (sets, ways) = (geometry.sets(), usize::from(geometry.ways));
        let stride = ways.next_multiple_of(LANES);
        Self {
            words: vec![0; stride],
            blocks: vec![0; sets as usize],
            sets: vec![0],
            ways,
            stride,
            capacity: sets * ways as u32,
            index: Index::new(sets, geometry.index),
            replacement: ReplacementState::new(geometry.replacement, ways, stride, seed),
            occupied: 0,
        }
    }

    #[inline]
    pub(super) fn all_ways(&self) -> u32 {
        u32::MAX >> (32 - self.ways)
    }

    /// Index of a set's first word.
    #[inline]
    fn base(&self, set: u32) -> usize {
        self.blocks[set as usize] as usize * self.stride
    }

    /// Allocates a block for a set that gets its first line.
    #[cold]
    fn add_block(&mut self, set: u32) {
        let block = self.sets.len();
        self.blocks[set as usize] = block as u32;
        lengthen(&mut self.sets, 1);
        self.sets[block] = set;
        lengthen(&mut self.words, self.stride);
        self.replacement.add_set();
    }

    /// Number of lines present.
    #[inline]
    pub(super) fn occupied(&self) -> u32 {
        self.occupied
    }

    /// Looks a line up.
    #[inline(always)]
    pub(super) fn probe(&self, line: u64) -> Probe {
        let (set, tag) = self.index.split(line);
        let base = self.base(set);
        let key = tag << FLAG_BITS | VALID;
        let (vectors, _) = self.words[base..base + self.stride].as_chunks::<LANES>();
        let hit = vectors.iter().enumerate().find_map(|(number, vector)| {
            // One bit for each way, without branches: the compiler compares the words at once.
            let hits =
                (0..).zip(vector).fold(0u32, |hits, (way, &word)| hits | u32::from(word & KEY == key) << way);
            (hits != 0).then(|| Slot((base + number * LANES) as u32 + hits.trailing_zeros()))
        });
        Probe { set, tag, hit }
    }

    /// The place of a line, if present.
    #[inline(never)]
    pub(super) fn find(&self, line: u64) -> Option<Slot> {
        self.probe(line).hit
    }

    /// Reads what a lookup of `line` will read. Returns a value derived from it, and the places where the line can be.
    ///
    /// The tags of a large cache lie in slow caches of the machine running the simulation. Independent reads for
    /// several lines overlap there; whole lookups do not.
    #[inline]
    pub(super) fn warm(&self, line: u64) -> (u32, Range<usize>) {
        let first = self.base(self.index.split(line).0);
        let end = first + self.stride;
        (self.words[first] ^ self.words[end - 1], first..end)
    }

    /// Records a use for the replacement policy.
    #[inline]
    pub(super) fn used(&mut self, slot: Slot) {
        self.replacement.used(slot.index(), || slot.index() / self.stride);
    }

    /// Like [`used`](Self::used), for the line that `probe` found.
    #[inline(always)]
    pub(super) fn used_at(&mut self, probe: Probe, slot: Slot) {
        self.replacement.used(slot.index(), || self.blocks[probe.set as usize] as usize);
    }

    /// State bits of a present line.
    #[inline]
    pub(super) fn flags(&self, slot: Slot) -> u32 {
        self.words[slot.index()] & !KEY
    }

    /// Sets and clears state bits.
    #[inline]
    pub(super) fn change(&mut self, slot: Slot, set: u32, clear: u32) {
        let word = &mut self.words[slot.index()];
        *word = (*word & !clear) | set;
    }

    /// Inserts the line that `probe` did not find into one of the `allowed` ways, and marks it used. Returns its place,
    /// and the victim.
    #[inline]
    pub(super) fn insert(&mut self, probe: Probe, allowed: u32, flags: u32) -> (Slot, Option<Victim>) {
        if self.blocks[probe.set as usize] == 0 {
            self.add_block(probe.set);
        }
        let block = self.blocks[probe.set as usize] as usize;
        let base = block * self.stride;
        let empty = if self.occupied == self.capacity { None } else { self.empty_way(base, allowed) };
        let way = empty.unwrap_or_else(|| self.replacement.victim(block, allowed));
        let slot = Slot((base + way) as u32);
        let victim = match empty {
            Some(_) => {
                self.occupied += 1;
                None
            }
            None => Some(Victim { line: self.line_at(probe.set, slot), flags: self.flags(slot), slot }),
        };
        self.words[slot.index()] = probe.tag << FLAG_BITS | VALID | flags;
        self.replacement.used(slot.index(), || block);
        (slot, victim)
    }

    /// The first empty way in `allowed`.
    #[inline]
    fn empty_way(&self, base: usize, allowed: u32) -> Option<usize> {
        let (vectors, _) = self.words[base..base + self.stride].as_chunks::<LANES>();
        let empty = vectors.iter().enumerate().fold(0, |empty, (number, vector)| {
            let own = (0..).zip(vector).fold(0u32, |own, (way, &word)| own | (!word & VALID) << way);
            empty | own << (number * LANES)
        });
        let empty = empty & allowed;
        (empty != 0).then(|| empty.trailing_zeros() as usize)
    }

    /// Removes a line. Returns its state bits.
    #[inline]
    pub(super) fn remove(&mut self, slot: Slot) -> u32 {
        let flags = self.flags(slot);
        self.words[slot.index()] = 0;
        self.occupied -= 1;
        flags
    }

    /// Removes all lines.
    pub(super) fn clear(&mut self) {
        if self.occupied > 0 {
            self.words.fill(0);
            self.occupied = 0;
        }
        self.replacement.reset();
    }

    /// The line in an occupied place of `set`.
    #[inline]
    fn line_at(&self, set: u32, slot: Slot) -> u64 {
        self.index.join(set, self.words[slot.index()] >> FLAG_BITS)
    }

    /// All lines present, with places and state bits, for checks.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, Slot, u32)> + '_ {
        (0..self.words.len() as u32)
            .map(Slot)
            .filter(|s| self.words[s.index()] & VALID != 0)
            .map(|s| (self.line_at(self.sets[s.index() / self.stride], s), s, self.flags(s)))
    }

    /// Way number of a place.
    #[cfg(test)]
    pub(super) fn way(&self, slot: Slot) -> usize {
        slot.index() % self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::{ReplacementPolicy, SetIndex};
    use super::*;
    use proptest::prelude::*;
    use units::Bytes;

    proptest! {
        /// Compares hits and misses with a list for each set, most recently used first.
        #[test]
        fn lru_agrees_with_a_naive_cache(
            accesses in prop::collection::vec((0u64..96, any::<bool>()), 1..400),
            ways in 1u8..7, sets in 1u64..6, masked: bool,
        ) {
            let geometry = CacheGeometry {
                size: Bytes::new(64 * u64::from(ways) * sets), ways,
                index: SetIndex::Plain,
                replacement: ReplacementPolicy::Lru,
            };
            let mut cache = TagArray::new(&geometry, 1);
            // As with DDIO, some accesses may only allocate in the first ways.
            let few = if masked { (ways / 2).max(1) } else { ways };
            let mut naive: Vec<Vec<(u64, usize)>> = vec![Vec::new(); sets as usize];
            for (line, restricted) in accesses {
                let set = &mut naive[(line % sets) as usize];
                let probe = cache.probe(line);
                let known = set.iter().position(|&(l, _)| l == line);
                prop_assert_eq!(probe.slot().is_some(), known.is_some());
                if let (Some(slot), Some(at)) = (probe.slot(), known) {
                    cache.used_at(probe, slot);
                    let entry = set.remove(at);
                    set.insert(0, entry);
                    continue;
                }
                let limit = usize::from(if restricted { few } else { ways });
                let (slot, victim) = cache.insert(probe, u32::MAX >> (32 - limit), 0);
                let free = (0..limit).find(|w| set.iter().all(|&(_, x)| x != *w));
                let way = free.unwrap_or_else(|| {
                    let at = set.iter().rposition(|&(_, w)| w < limit).expect("a full set");
                    let (out, way) = set.remove(at);
                    assert_eq!(victim.map(|v| v.line), Some(out));
                    way
                });
                prop_assert_eq!(cache.way(slot), way);
                set.insert(0, (line, way));
            }
            prop_assert_eq!(cache.occupied() as usize, naive.iter().map(Vec::len).sum::<usize>());
        }
    }
}
