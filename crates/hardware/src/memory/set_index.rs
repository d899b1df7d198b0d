//! Mapping from line numbers to sets and tags, and back.

use super::params::{SetIndex, SliceFold};

/// Maps line numbers to sets and tags, and back.
#[derive(Clone, Debug)]
pub(super) struct Index {
    sets: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A power-of-two number of sets.
    Power { shift: u32, hashed: bool },
    /// Any number of sets; the reciprocal is 2^64 / sets, rounded up.
    Any { reciprocal: u64, hashed: bool },
    /// Slices of 2^shift sets.
    Sliced { shift: u32, slices: Box<Slices> },
}

/// Bits of a line number covered by one table of [`Slices`].
const TABLE_BITS: u32 = 11;
/// Number of tables: enough for the lines of 512 GiB.
const TABLES: usize = 3;

/// Slice hash of an Intel server's LLC.
#[derive(Clone, Debug)]
struct Slices {
    count: u32,
    fold: SliceFold,
    /// Parities that make up the hash, tabulated for 11 address bits each.
    parities: [[u8; 1 << TABLE_BITS]; TABLES],
}

/// Address bits whose parity gives each bit of the slice hash (Maurice et al., RAID 2015, table for up to 16 slices).
const SLICE_MASKS: [u64; 4] = [0x1b_5f57_5440, 0x2e_b5fa_a880, 0x3c_ccc9_3100, 0x31_aeeb_1000];

impl Slices {
    fn new(count: u8, fold: SliceFold) -> Self {
        let count = u32::from(count);
        let bits = count.next_power_of_two().trailing_zeros() as usize;
        let mut parities = [[0; 1 << TABLE_BITS]; TABLES];
        for (n, table) in parities.iter_mut().enumerate() {
            for (value, entry) in table.iter_mut().enumerate() {
                let line = (value as u64) << (n as u32 * TABLE_BITS);
                for (bit, mask) in SLICE_MASKS[..bits].iter().enumerate() {
                    *entry |= (((line & (mask >> 6)).count_ones() & 1) as u8) << bit;
                }
            }
        }
        Self { count, fold, parities }
    }

    #[inline]
    fn of(&self, line: u64) -> u32 {
        let piece = |n: usize| (line >> (n as u32 * TABLE_BITS)) as usize & ((1 << TABLE_BITS) - 1);
        let hash = self.parities[0][piece(0)] ^ self.parities[1][piece(1)] ^ self.parities[2][piece(2)];
        let hash = u32::from(hash);
        if hash < self.count {
            return hash;
        }
        match self.fold {
            SliceFold::Wrap => hash - self.count,
            SliceFold::SecondHash => reduce(mix((line >> TABLE_BITS) as u32), self.count),
        }
    }
}

impl Index {
    pub(super) fn new(sets: u32, index: SetIndex) -> Self {
        let kind = match index {
            SetIndex::Sliced { slices, fold } => Kind::Sliced {
                shift: (sets / u32::from(slices)).trailing_zeros(),
                slices: Box::new(Slices::new(slices, fold)),
            },
            SetIndex::Plain | SetIndex::Hashed => {
                let hashed = index == SetIndex::Hashed;
                if sets.is_power_of_two() {
                    Kind::Power { shift: sets.trailing_zeros(), hashed }
                } else {
                    Kind::Any { reciprocal: u64::MAX / u64::from(sets) + 1, hashed }
                }
            }
        };
        Self { sets, kind }
    }

    /// Set and tag of a line.
    #[inline(always)]
    pub(super) fn split(&self, line: u64) -> (u32, u32) {
        match &self.kind {
            Kind::Power { shift, hashed } => {
                let tag = (line >> shift) as u32;
                let mask = self.sets - 1;
                let set = line as u32 & mask;
                (if *hashed { set ^ (mix(tag) & mask) } else { set }, tag)
            }
            Kind::Sliced { shift, slices } => {
                let set = line as u32 & ((1 << shift) - 1);
                (slices.of(line) << shift | set, (line >> shift) as u32)
            }
            Kind::Any { reciprocal, hashed } => {
                // Exact for line numbers below 2^64 / sets.
                let tag = ((u128::from(line) * u128::from(*reciprocal)) >> 64) as u32;
                let mut set = (line - u64::from(tag) * u64::from(self.sets)) as u32;
                if *hashed {
                    set += reduce(mix(tag), self.sets);
                    if set >= self.sets {
                        set -= self.sets;
                    }
                }
                (set, tag)
            }
        }
    }

    /// The line with this set and tag.
    #[inline]
    pub(super) fn join(&self, set: u32, tag: u32) -> u64 {
        match &self.kind {
            Kind::Power { shift, hashed } => {
                let mask = self.sets - 1;
                u64::from(tag) << shift | u64::from(if *hashed { set ^ (mix(tag) & mask) } else { set })
            }
            Kind::Sliced { shift, .. } => u64::from(tag) << shift | u64::from(set & ((1 << shift) - 1)),
            Kind::Any { hashed, .. } => {
                let moved = if *hashed { reduce(mix(tag), self.sets) } else { 0 };
                let set = if set >= moved { set - moved } else { set + self.sets - moved };
                u64::from(tag) * u64::from(self.sets) + u64::from(set)
            }
        }
    }
}

/// Maps a hash to 0..n.
#[inline]
fn reduce(hash: u32, n: u32) -> u32 {
    ((u64::from(hash) * u64::from(n)) >> 32) as u32
}

/// Mixes the bits of a tag (the finaliser of MurmurHash3, public domain).
#[inline]
fn mix(tag: u32) -> u32 {
    let mut h = tag ^ (tag >> 16);
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_is_found_again_from_its_place(
            sets in prop_oneof![1u32..50_000, (0u32..16).prop_map(|log2| 1 << log2)],
            hashed: bool,
            line in 0u64..1 << 27,
        ) {
            let index = Index::new(sets, if hashed { SetIndex::Hashed } else { SetIndex::Plain });
            let (set, tag) = index.split(line);
            prop_assert!(set < sets);
            prop_assert_eq!(index.join(set, tag), line);
        }

        #[test]
        fn a_line_is_found_again_in_its_slice(slices in 1u8..=16, wrap: bool, line in 0u64..1 << 33) {
            let fold = if wrap { SliceFold::Wrap } else { SliceFold::SecondHash };
            let sets = u32::from(slices) * 2_048;
            let index = Index::new(sets, SetIndex::Sliced { slices, fold });
            let (set, tag) = index.split(line);
            prop_assert!(set < sets);
            prop_assert_eq!(index.join(set, tag), line);
            // Compares the tables with the definition.
            let hash = (0..u32::from(slices).next_power_of_two().trailing_zeros())
                .map(|b| (((line << 6) & SLICE_MASKS[b as usize]).count_ones() & 1) << b)
                .sum::<u32>();
            if hash < u32::from(slices) {
                prop_assert_eq!(set / 2_048, hash);
            }
        }

        #[test]
        fn hashing_spreads_a_window_evenly(
            sets in prop::sample::select(vec![64u32, 60, 20_480]), start in 0u64..1 << 27,
        ) {
            // Any aligned run of as many lines as there are sets uses every set once.
            let index = Index::new(sets, SetIndex::Hashed);
            let first = start / u64::from(sets) * u64::from(sets);
            let mut seen = vec![false; sets as usize];
            for line in first..first + u64::from(sets) {
                seen[index.split(line).0 as usize] = true;
            }
            prop_assert!(seen.into_iter().all(|s| s));
        }
    }

    /// Numbers of MurmurHash3's finaliser, from its reference implementation.
    #[test]
    fn tags_are_mixed_as_by_the_reference() {
        let known = [(0, 0), (1, 0x514e_28b7), (2, 0x30f4_c306), (0xdead_beef, 0x0de5_c6a9)];
        assert_eq!(known.map(|(tag, _)| mix(tag)), known.map(|(_, mixed)| mixed));
        assert_eq!([0, 1 << 31, 0x3fff_ffff, u32::MAX].map(|hash| reduce(hash, 10)), [0, 5, 2, 9]);
    }

    #[test]
    fn what_no_slice_takes_is_folded() {
        for (fold, count) in [(SliceFold::Wrap, 10), (SliceFold::SecondHash, 10), (SliceFold::Wrap, 5)] {
            let slices = Slices::new(count, fold);
            let whole = Slices::new(count.next_power_of_two(), fold);
            for line in (0..1u64 << 33).step_by(8_675_309) {
                let (hash, n) = (whole.of(line), u32::from(count));
                let folded = match fold {
                    SliceFold::Wrap => hash.wrapping_sub(n),
                    SliceFold::SecondHash => reduce(mix((line >> 11) as u32), n),
                };
                assert_eq!(slices.of(line), if hash < n { hash } else { folded }, "{line:#x}");
            }
        }
    }
}
