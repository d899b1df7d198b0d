//! Set-associative tag arrays: line places and states.

use super::params::CacheGeometry;
use super::replacement::Replacement;
use super::set_index::Index;
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
    /// LLC: cores may have copies; the line's note says which.
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
pub(super) struct Slot {
    /// The first word of its block.
    block: u32,
    way: u32,
}

impl Slot {
    #[inline(always)]
    fn word(self) -> usize {
        (self.block + self.way) as usize
    }

    #[cfg(test)]
    pub(super) fn way(self) -> u32 {
        self.way
    }

    /// The slot as a note of another cache, in 32 bits: blocks begin at multiples of [`LANES`], and have up to 32 ways.
    #[inline]
    pub(super) fn to_note(self) -> u64 {
        u64::from(self.block) << 3 | u64::from(self.way)
    }

    /// Reverses [`to_note`](Self::to_note).
    #[inline]
    pub(super) fn from_note(note: u64) -> Self {
        Self { block: (note >> 5 << 2) as u32, way: note as u32 & 31 }
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

/// A set-associative array of line tags and states, with a note on each line.
///
/// All that belongs to a set lies in one block of words: a word for each line's tag and state, which lookups compare
/// [`LANES`] at once; the state of the replacement policy; the notes. An access to a line thereby touches two or three
/// cache lines of the machine running the simulation, where those of many hosts do not fit into its caches.
///
/// A block is allocated with its set's first line, as most hosts of a large cluster use few of their sets.
#[derive(Clone, Debug)]
pub(super) struct TagArray {
    /// The first block is shared by all sets that have never held a line.
    words: Vec<u32>,
    /// By set: the first word of its block.
    blocks: Vec<u32>,
    /// By block: its set.
    sets: Vec<u32>,
    ways: usize,
    /// Words of a block that hold tags.
    tags: usize,
    /// Where notes begin in a block.
    first_note: usize,
    /// Words of a block.
    size: usize,
    wide_notes: bool,
    /// Capacity in lines.
    capacity: u32,
    index: Index,
    replacement: Replacement,
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
    /// Creates an empty cache with a note of so many bits on each line, at most 64.
    pub(super) fn new(geometry: &CacheGeometry, seed: u64, note_bits: u16) -> Self {
        let (sets, ways) = (geometry.sets(), usize::from(geometry.ways));
        let replacement = Replacement::new(geometry.replacement, ways, seed);
        let tags = ways.next_multiple_of(LANES);
        let first_note = tags + replacement.words();
        let note_words = usize::from(note_bits.div_ceil(32));
        let size = (first_note + ways * note_words).next_multiple_of(LANES);
        Self {
            words: vec![0; size],
            blocks: vec![0; sets as usize],
            sets: vec![0],
            ways,
            tags,
            first_note,
            size,
            wide_notes: note_words > 1,
            capacity: sets * ways as u32,
            index: Index::new(sets, geometry.index),
            replacement,
            occupied: 0,
        }
    }

    #[inline]
    pub(super) fn all_ways(&self) -> u32 {
        u32::MAX >> (32 - self.ways)
    }

    /// The first word of a set's block.
    #[inline(always)]
    fn block(&self, set: u32) -> u32 {
        self.blocks[set as usize]
    }

    /// The replacement policy's state in a block.
    #[inline(always)]
    fn order(&self, block: u32) -> Range<usize> {
        block as usize + self.tags..block as usize + self.first_note
    }

    /// Allocates a block for a set that gets its first line.
    #[cold]
    fn add_block(&mut self, set: u32) {
        if self.words.len() == self.words.capacity() {
            let more = (self.sets.len() / 8).max(16);
            self.words.reserve_exact(more * self.size);
            self.sets.reserve_exact(more);
        }
        self.blocks[set as usize] = self.words.len() as u32;
        self.sets.push(set);
        self.words.resize(self.words.len() + self.size, 0);
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
        let block = self.block(set);
        let key = tag << FLAG_BITS | VALID;
        let (vectors, _) = self.words[block as usize..][..self.tags].as_chunks::<LANES>();
        let hit = vectors.iter().enumerate().find_map(|(number, vector)| {
            // One bit for each way, without branches: the compiler compares the words at once.
            let hits =
                (0..).zip(vector).fold(0u32, |hits, (way, &word)| hits | u32::from(word & KEY == key) << way);
            (hits != 0).then(|| Slot { block, way: (number * LANES) as u32 + hits.trailing_zeros() })
        });
        Probe { set, tag, hit }
    }

    /// The place of a line, if present.
    #[inline(never)]
    pub(super) fn find(&self, line: u64) -> Option<Slot> {
        self.probe(line).hit
    }

    /// Reads what an access to `line` will read. Returns a value derived from it.
    ///
    /// The tags of a large cache lie in slow caches of the machine running the simulation. Independent reads for
    /// several lines overlap there; whole lookups do not.
    #[inline]
    pub(super) fn warm(&self, line: u64) -> u32 {
        let block = self.block(self.index.split(line).0);
        let words = &self.words[block as usize..][..self.size];
        words[0] ^ words[self.tags - 1] ^ words[self.size - 1]
    }

    /// Records a use for the replacement policy.
    #[inline(always)]
    pub(super) fn used(&mut self, slot: Slot) {
        let order = self.order(slot.block);
        self.replacement.used(&mut self.words[order], slot.way as usize);
    }

    /// State bits of a present line.
    #[inline]
    pub(super) fn flags(&self, slot: Slot) -> u32 {
        self.words[slot.word()] & !KEY
    }

    /// Sets and clears state bits.
    #[inline]
    pub(super) fn change(&mut self, slot: Slot, set: u32, clear: u32) {
        let word = &mut self.words[slot.word()];
        *word = (*word & !clear) | set;
    }

    /// The note on the line of a place: of a directory, the cores that may have it, as a bit mask; of an L2, its place in
    /// an inclusive LLC. It outlives the line.
    #[inline(always)]
    pub(super) fn note(&self, slot: Slot) -> u64 {
        let low = slot.word() + self.first_note;
        let high = if self.wide_notes { self.words[low + self.ways] } else { 0 };
        u64::from(high) << 32 | u64::from(self.words[low])
    }

    /// Replaces the note on the line of a place.
    #[inline(always)]
    pub(super) fn set_note(&mut self, slot: Slot, note: u64) {
        let low = slot.word() + self.first_note;
        self.words[low] = note as u32;
        if self.wide_notes {
            self.words[low + self.ways] = (note >> 32) as u32;
        }
    }

    /// Inserts the line that `probe` did not find into one of the `allowed` ways, and marks it used. Returns its place,
    /// and the victim.
    #[inline]
    pub(super) fn insert(&mut self, probe: Probe, allowed: u32, flags: u32) -> (Slot, Option<Victim>) {
        if self.block(probe.set) == 0 {
            self.add_block(probe.set);
        }
        let block = self.block(probe.set);
        let empty = if self.occupied == self.capacity { None } else { self.empty_way(block, allowed) };
        let order = self.order(block);
        let way = match empty {
            Some(way) => way,
            None => self.replacement.victim(&mut self.words[order.clone()], allowed),
        };
        let slot = Slot { block, way: way as u32 };
        let victim = match empty {
            Some(_) => {
                self.occupied += 1;
                None
            }
            None => Some(Victim { line: self.line_at(probe.set, slot), flags: self.flags(slot), slot }),
        };
        self.words[slot.word()] = probe.tag << FLAG_BITS | VALID | flags;
        self.replacement.used(&mut self.words[order], way);
        (slot, victim)
    }

    /// The first empty way in `allowed`.
    #[inline]
    fn empty_way(&self, block: u32, allowed: u32) -> Option<usize> {
        let words = &self.words[block as usize..][..self.ways];
        let mut left = allowed;
        while left != 0 {
            let way = left.trailing_zeros() as usize;
            if words[way] & VALID == 0 {
                return Some(way);
            }
            left &= left - 1;
        }
        None
    }

    /// Removes a line. Returns its state bits.
    #[inline]
    pub(super) fn remove(&mut self, slot: Slot) -> u32 {
        let flags = self.flags(slot);
        self.words[slot.word()] = 0;
        self.occupied -= 1;
        flags
    }

    /// Removes all lines, and forgets all uses.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.occupied = 0;
    }

    /// The line in an occupied place of `set`.
    #[inline]
    fn line_at(&self, set: u32, slot: Slot) -> u64 {
        self.index.join(set, self.words[slot.word()] >> FLAG_BITS)
    }

    /// All lines present, with places and state bits, for checks.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, Slot, u32)> + '_ {
        let ways = self.ways as u32;
        let blocks = self.sets.iter().zip((0..).step_by(self.size));
        blocks.flat_map(move |(&set, block)| (0..ways).map(move |way| (set, Slot { block, way }))).filter_map(
            |(set, slot)| {
                let valid = self.words[slot.word()] & VALID != 0;
                valid.then(|| (self.line_at(set, slot), slot, self.flags(slot)))
            },
        )
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
            let mut cache = TagArray::new(&geometry, 1, 0);
            // As with DDIO, some accesses may only allocate in the first ways.
            let few = if masked { (ways / 2).max(1) } else { ways };
            let mut naive: Vec<Vec<(u64, usize)>> = vec![Vec::new(); sets as usize];
            for (line, restricted) in accesses {
                let set = &mut naive[(line % sets) as usize];
                let probe = cache.probe(line);
                let known = set.iter().position(|&(l, _)| l == line);
                prop_assert_eq!(probe.slot().is_some(), known.is_some());
                if let (Some(slot), Some(at)) = (probe.slot(), known) {
                    cache.used(slot);
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
                prop_assert_eq!(slot.way as usize, way);
                set.insert(0, (line, way));
            }
            prop_assert_eq!(cache.occupied() as usize, naive.iter().map(Vec::len).sum::<usize>());
        }
    }
}
