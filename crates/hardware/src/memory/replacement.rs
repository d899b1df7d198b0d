//! Replacement policies: select the victim in a set.

use super::params::ReplacementPolicy;
use crate::growth::lengthen;

/// State of a replacement policy for the sets of a cache.
#[derive(Clone, Debug)]
pub(super) struct ReplacementState {
    /// Places of a set.
    stride: usize,
    policy: Policy,
}

#[derive(Clone, Debug)]
enum Policy {
    Lru(LastUses),
    NotRecentlyUsed(Marks),
    TreePlru(Trees),
    /// xorshift64: one generator for each cache, seeded by the machine file.
    Random(u64),
}

impl ReplacementState {
    /// Creates state for one set, whose lines take `stride` places.
    pub(super) fn new(policy: ReplacementPolicy, ways: usize, stride: usize, seed: u64) -> Self {
        let policy = match policy {
            ReplacementPolicy::Lru => Policy::Lru(LastUses::new(ways)),
            ReplacementPolicy::NotRecentlyUsed => Policy::NotRecentlyUsed(Marks::new(ways)),
            ReplacementPolicy::TreePlru => Policy::TreePlru(Trees::new(ways)),
            ReplacementPolicy::Random => Policy::Random(seed | 1),
        };
        Self { stride, policy }
    }

    /// Appends a set.
    pub(super) fn add_set(&mut self) {
        match &mut self.policy {
            Policy::Lru(uses) => uses.add_set(),
            Policy::NotRecentlyUsed(Marks { bits, .. }) | Policy::TreePlru(Trees { bits, .. }) => {
                bits.push(0)
            }
            Policy::Random(_) => {}
        }
    }

    /// Discards all uses. The random policy's sequence continues.
    pub(super) fn reset(&mut self) {
        match &mut self.policy {
            Policy::Lru(uses) => uses.sets.fill(0),
            Policy::NotRecentlyUsed(Marks { bits, .. }) | Policy::TreePlru(Trees { bits, .. }) => {
                bits.fill(0)
            }
            Policy::Random(_) => {}
        }
    }

    /// Records a use of `place`, counted through all sets; `set` is the one that has it.
    #[inline(always)]
    pub(super) fn used(&mut self, place: usize, set: impl FnOnce() -> usize) {
        let stride = self.stride;
        let located = || {
            let set = set();
            (set, place - set * stride)
        };
        match &mut self.policy {
            Policy::Lru(uses) => uses.used(located()),
            Policy::NotRecentlyUsed(marks) => marks.used(located()),
            Policy::TreePlru(trees) => trees.used(located()),
            Policy::Random(_) => {}
        }
    }

    /// Selects the victim among the `allowed` ways of `set`.
    #[inline]
    pub(super) fn victim(&mut self, set: usize, allowed: u32) -> usize {
        match &mut self.policy {
            Policy::Lru(uses) => uses.oldest(set, allowed),
            Policy::NotRecentlyUsed(marks) => marks.victim(set, allowed),
            Policy::TreePlru(trees) => trees.victim(set, allowed),
            Policy::Random(random) => {
                *random ^= *random << 13;
                *random ^= *random >> 7;
                *random ^= *random << 17;
                let nth = ((*random >> 32) * u64::from(allowed.count_ones())) >> 32;
                let mut left = allowed;
                for _ in 0..nth {
                    left &= left - 1;
                }
                left.trailing_zeros() as usize
            }
        }
    }
}

/// Least recently used: time of each line's last use, counted in uses of its set.
///
/// A use writes two bytes that are together; the victim is only searched for on replacement.
#[derive(Clone, Debug)]
struct LastUses {
    ways: usize,
    /// Bytes of a set.
    pitch: usize,
    /// By set: how often it was used, and each way's last use.
    sets: Vec<u8>,
}

impl LastUses {
    /// Creates state for one set.
    fn new(ways: usize) -> Self {
        let pitch = (1 + ways).next_multiple_of(4);
        Self { ways, pitch, sets: vec![0; pitch] }
    }

    fn add_set(&mut self) {
        lengthen(&mut self.sets, self.pitch);
    }

    #[inline]
    fn used(&mut self, (set, way): (usize, usize)) {
        let set = &mut self.sets[set * self.pitch..(set + 1) * self.pitch];
        if set[0] == u8::MAX {
            Self::begin_anew(set, self.ways);
        }
        set[0] += 1;
        set[1 + way] = set[0];
    }

    /// Renumbers the last uses of a set with the smallest numbers that keep their order.
    #[cold]
    fn begin_anew(set: &mut [u8], ways: usize) {
        let mut order: [u8; 32] = std::array::from_fn(|way| way as u8);
        let order = &mut order[..ways];
        order.sort_unstable_by_key(|&way| (set[1 + usize::from(way)], way));
        for (rank, &way) in (0..).zip(&*order) {
            set[1 + usize::from(way)] = rank;
        }
        set[0] = ways as u8;
    }

    #[inline]
    fn oldest(&self, set: usize, allowed: u32) -> usize {
        let last = &self.sets[set * self.pitch + 1..set * self.pitch + 1 + self.ways];
        if allowed == u32::MAX >> (32 - self.ways) {
            let keys = (0u32..).zip(last).map(|(way, &last)| u32::from(last) << 8 | way);
            return keys.min().unwrap_or(0) as usize & 0xff;
        }
        let (mut oldest, mut left) = ((u8::MAX, 0), allowed);
        while left != 0 {
            let way = left.trailing_zeros() as usize;
            oldest = oldest.min((last[way], way));
            left &= left - 1;
        }
        oldest.1
    }
}

/// Not recently used: which ways of each set were.
#[derive(Clone, Debug)]
struct Marks {
    ways: usize,
    /// By set: one bit for each way.
    bits: Vec<u32>,
}

impl Marks {
    /// Creates state for one set.
    fn new(ways: usize) -> Self {
        Self { ways, bits: vec![0] }
    }

    #[inline]
    fn used(&mut self, (set, way): (usize, usize)) {
        let all = u32::MAX >> (32 - self.ways);
        let bits = &mut self.bits[set];
        *bits |= 1 << way;
        if *bits == all {
            *bits = 1 << way;
        }
    }

    #[inline]
    fn victim(&mut self, set: usize, allowed: u32) -> usize {
        let bits = &mut self.bits[set];
        if allowed & !*bits == 0 {
            // All candidates were used: start a new round.
            *bits &= !allowed;
        }
        (allowed & !*bits).trailing_zeros() as usize
    }
}

/// A binary tree over the ways of each set. Every inner node points away from the line used last below it.
#[derive(Clone, Debug)]
struct Trees {
    ways: usize,
    /// Node 1 is the root, 2 and 3 are below it, and so on. A set bit points to the second half.
    bits: Vec<u32>,
    /// For each way: the nodes on its path from the root, and those that a use sets.
    paths: Vec<(u32, u32)>,
}

impl Trees {
    /// Creates a tree for one set.
    fn new(ways: usize) -> Self {
        let path = |way: usize| {
            let (mut node, mut all, mut away) = (way + ways, 0, 0);
            while node > 1 {
                let in_first_half = node % 2 == 0;
                node /= 2;
                all |= 1 << node;
                away |= u32::from(in_first_half) << node;
            }
            (all, away)
        };
        Self { ways, bits: vec![0], paths: (0..ways).map(path).collect() }
    }

    #[inline]
    fn used(&mut self, (set, way): (usize, usize)) {
        let (all, away) = self.paths[way];
        let bits = &mut self.bits[set];
        *bits = *bits & !all | away;
    }

    #[inline]
    fn victim(&self, set: usize, allowed: u32) -> usize {
        let bits = self.bits[set];
        if allowed == u32::MAX >> (32 - self.ways) {
            let mut node = 1;
            while node < self.ways {
                node = node * 2 + (bits >> node & 1) as usize;
            }
            return node - self.ways;
        }
        let (mut node, mut first, mut width) = (1usize, 0usize, self.ways);
        while width > 1 {
            width /= 2;
            let half = (u32::MAX >> (32 - width)) << first;
            let other = half << width;
            let right = if allowed & half == 0 {
                true
            } else if allowed & other == 0 {
                false
            } else {
                bits & (1 << node) != 0
            };
            node = node * 2 + usize::from(right);
            first += if right { width } else { 0 };
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [ReplacementPolicy; 4] = [
        ReplacementPolicy::Lru,
        ReplacementPolicy::NotRecentlyUsed,
        ReplacementPolicy::TreePlru,
        ReplacementPolicy::Random,
    ];

    proptest! {
        /// However often a set is used, its victim is what a list of its lines in the order of their uses says.
        #[test]
        fn the_order_of_uses_outlives_their_numbers(
            uses in prop::collection::vec(0usize..20, 0..2_000), allowed in 1u32..0x10_0000,
        ) {
            let mut last = LastUses::new(20);
            last.add_set();
            // Of lines that were never used, the first goes first.
            let mut order: Vec<usize> = (0..20).collect();
            for way in uses {
                last.used((1, way));
                order.retain(|&other| other != way);
                order.push(way);
            }
            prop_assert_eq!(Some(last.oldest(1, allowed)), order.into_iter().find(|way| allowed >> way & 1 != 0));
            prop_assert_eq!(last.oldest(0, allowed), allowed.trailing_zeros() as usize, "another set");
        }
    }

    proptest! {
        /// The fast path, for all ways allowed, agrees with the general one.
        #[test]
        fn a_free_choice_is_the_one_among_all(uses in prop::collection::vec(0usize..16, 0..60), depth in 1u32..5) {
            let ways = 1 << depth;
            let mut trees = Trees::new(ways);
            for way in uses {
                trees.used((0, way % ways));
                let victim = trees.victim(0, u32::MAX >> (32 - ways));
                // With all ways allowed one at a time, the victim must be the same.
                let toward = (0..ways).filter(|&other| trees.victim(0, 1 << other | 1 << victim) == victim);
                prop_assert_eq!(toward.count(), ways);
            }
        }

        #[test]
        fn a_victim_is_always_one_of_the_allowed_ways(
            policy in 0usize..4, uses in prop::collection::vec(0usize..16, 0..60), allowed in 1u32..0x1_0000,
        ) {
            let mut replacement = ReplacementState::new(ALL[policy], 16, 16, 7);
            for way in uses {
                replacement.used(way, || 0);
                let victim = replacement.victim(0, allowed);
                prop_assert!(allowed & (1 << victim) != 0);
                // The line just used is only replaced if there is no choice, at random, or if a restricted choice has
                // been through all its lines.
                let exact = policy == 0 || policy == 2 || (policy == 1 && allowed == 0xffff);
                if exact && allowed.count_ones() > 1 {
                    prop_assert_ne!(victim, way);
                }
            }
        }
    }

    #[test]
    fn each_way_is_drawn_as_often_as_any_other() {
        for allowed in [0xffff_u32, 0b1011, 1 << 15, 0x8001] {
            let mut replacement = ReplacementState::new(ReplacementPolicy::Random, 16, 16, 7);
            let (ways, mut drawn) = (allowed.count_ones(), [0u32; 16]);
            for _ in 0..ways * 4_000 {
                drawn[replacement.victim(0, allowed)] += 1;
            }
            for way in 0..16 {
                let expected = if allowed >> way & 1 == 1 { 3_700..4_300 } else { 0..1 };
                assert!(expected.contains(&drawn[way]), "{allowed:#b}: {drawn:?}");
            }
        }
    }

    /// xorshift64 by G. Marsaglia (2003) with shifts of 13, 7 and 17, from a state of 1, worked out by hand.
    #[test]
    fn random_numbers_are_those_of_the_generator() {
        let mut policy = Policy::Random(1);
        let mut state = ReplacementState { stride: 16, policy };
        state.victim(0, 0xffff);
        policy = state.policy;
        assert!(matches!(policy, Policy::Random(0x4082_2041)));
    }

    proptest! {
        /// A way is marked by its use until all are: then by the last use alone. Victims are the first unmarked ones.
        #[test]
        fn a_mark_lasts_for_a_round(uses in prop::collection::vec(0usize..8, 0..60), other in 0usize..8) {
            let mut replacement = ReplacementState::new(ReplacementPolicy::NotRecentlyUsed, 8, 8, 7);
            replacement.add_set();
            replacement.used(other, || 0);
            let mut marked: Vec<usize> = Vec::new();
            for way in uses {
                replacement.used(8 + way, || 1);
                if !marked.contains(&way) {
                    marked.push(way);
                }
                if marked.len() == 8 {
                    marked = vec![way];
                }
                let free = (0..8).find(|way| !marked.contains(way));
                prop_assert_eq!(Some(replacement.victim(1, 0xff)), free);
            }
            prop_assert_eq!(replacement.victim(0, 0xff), usize::from(other == 0), "another set");
            replacement.reset();
            prop_assert_eq!((replacement.victim(0, 0xff), replacement.victim(1, 0xff)), (0, 0));
        }

        /// Among two ways, the victim is the one that was not used last, if the tree knows no third.
        #[test]
        fn a_tree_points_away_from_the_last_use(first in 0usize..16, second in 0usize..16, set in 0usize..3) {
            prop_assume!(first != second);
            let mut replacement = ReplacementState::new(ReplacementPolicy::TreePlru, 16, 16, 7);
            (0..2).for_each(|_| replacement.add_set());
            for way in [first, second] {
                replacement.used(16 * set + way, || set);
            }
            prop_assert_eq!(replacement.victim(set, 1 << first | 1 << second), first);
            // The half that was not used last, and its first way.
            prop_assert_eq!(replacement.victim(set, 0xffff) / 8, 1 - second / 8);
            for other in (0..3).filter(|&other| other != set) {
                prop_assert_eq!(replacement.victim(other, 0xffff), 0);
            }
        }
    }
}
