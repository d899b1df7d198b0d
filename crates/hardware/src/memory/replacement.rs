//! Replacement policies: select the victim in a set.

use super::params::ReplacementPolicy;
use zerocopy::IntoBytes;

/// A replacement policy. Each set's state is in words that the caller keeps, zero at first.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    ways: usize,
    policy: Policy,
}

#[derive(Clone, Debug)]
enum Policy {
    /// A byte for the set and one for each way: see [`Uses`].
    Lru,
    /// One bit for each way.
    NotRecentlyUsed,
    TreePlru(Tree),
    /// xorshift64: one generator for each cache, seeded by the machine file.
    Random(u64),
}

impl Replacement {
    pub(super) fn new(policy: ReplacementPolicy, ways: usize, seed: u64) -> Self {
        let policy = match policy {
            ReplacementPolicy::Lru => Policy::Lru,
            ReplacementPolicy::NotRecentlyUsed => Policy::NotRecentlyUsed,
            ReplacementPolicy::TreePlru => Policy::TreePlru(Tree::new(ways)),
            ReplacementPolicy::Random => Policy::Random(seed | 1),
        };
        Self { ways, policy }
    }

    /// Words of a set's state.
    pub(super) fn words(&self) -> usize {
        match self.policy {
            Policy::Lru => (self.ways + 1).div_ceil(4),
            Policy::NotRecentlyUsed | Policy::TreePlru(_) => 1,
            Policy::Random(_) => 0,
        }
    }

    /// Records a use of a way of the set with this state.
    #[inline(always)]
    pub(super) fn used(&self, set: &mut [u32], way: usize) {
        match &self.policy {
            Policy::Lru => Uses::of(set, self.ways).used(way),
            Policy::TreePlru(tree) => tree.used(&mut set[0], way),
            Policy::NotRecentlyUsed => {
                let bits = &mut set[0];
                *bits |= 1 << way;
                if *bits == u32::MAX >> (32 - self.ways) {
                    *bits = 1 << way;
                }
            }
            Policy::Random(_) => {}
        }
    }

    /// Selects the victim among the `allowed` ways of the set with this state.
    #[inline]
    pub(super) fn victim(&mut self, set: &mut [u32], allowed: u32) -> usize {
        match &mut self.policy {
            Policy::Lru => Uses::of(set, self.ways).oldest(allowed),
            Policy::TreePlru(tree) => tree.victim(set[0], allowed),
            Policy::NotRecentlyUsed => {
                let bits = &mut set[0];
                if allowed & !*bits == 0 {
                    // All candidates were used: start a new round.
                    *bits &= !allowed;
                }
                (allowed & !*bits).trailing_zeros() as usize
            }
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

/// Least recently used: a byte with the number of the set's last use, then one for each way with the number of its last
/// use.
///
/// A use only writes a number; the victim is only searched for on replacement.
struct Uses<'a> {
    last: &'a mut u8,
    ways: &'a mut [u8],
}

impl<'a> Uses<'a> {
    #[inline(always)]
    fn of(set: &'a mut [u32], ways: usize) -> Self {
        let (last, bytes) = set.as_mut_bytes().split_first_mut().expect("a byte for the set");
        Self { last, ways: &mut bytes[..ways] }
    }

    #[inline(always)]
    fn used(self, way: usize) {
        let number = match self.last.checked_add(1) {
            Some(number) => number,
            None => begin_anew(self.ways),
        };
        *self.last = number;
        self.ways[way] = number;
    }

    #[inline]
    fn oldest(&self, allowed: u32) -> usize {
        let (mut oldest, mut left) = ((u8::MAX, 0), allowed);
        while left != 0 {
            let way = left.trailing_zeros() as usize;
            oldest = oldest.min((self.ways[way], way));
            left &= left - 1;
        }
        oldest.1
    }
}

/// Renumbers the last uses with the smallest numbers that keep their order. Returns the next number.
#[cold]
fn begin_anew(ways: &mut [u8]) -> u8 {
    let mut order: Vec<usize> = (0..ways.len()).collect();
    order.sort_by_key(|&way| ways[way]);
    for (rank, &way) in (1..).zip(&order) {
        ways[way] = rank;
    }
    order.len() as u8 + 1
}

/// A binary tree over the ways of a set. Every inner node points away from the line used last below it: node 1 is the
/// root, 2 and 3 are below it, and so on, and a set bit points to the second half.
#[derive(Clone, Debug)]
struct Tree {
    ways: usize,
    /// For each way: the nodes on its path from the root, and those that a use sets.
    paths: Vec<(u32, u32)>,
}

impl Tree {
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
        Self { ways, paths: (0..ways).map(path).collect() }
    }

    #[inline]
    fn used(&self, bits: &mut u32, way: usize) {
        let (all, away) = self.paths[way];
        *bits = *bits & !all | away;
    }

    #[inline]
    fn victim(&self, bits: u32, allowed: u32) -> usize {
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
        /// Numbers of uses wrap after at most 255, without visible effect.
        #[test]
        fn the_least_recently_used_way_is_the_victim(
            uses in prop::collection::vec(0usize..7, 0..2_000), allowed in 1u32..0x80,
        ) {
            let mut lru = Replacement::new(ReplacementPolicy::Lru, 7, 1);
            let mut set = vec![0; lru.words()];
            let mut order: Vec<usize> = (0..7).collect();
            for way in uses {
                lru.used(&mut set, way);
                order.retain(|&other| other != way);
                order.push(way);
                let oldest = order.iter().find(|&&way| allowed >> way & 1 == 1);
                prop_assert_eq!(Some(&lru.victim(&mut set, allowed)), oldest);
            }
        }

        /// The fast path, for all ways allowed, agrees with the general one.
        #[test]
        fn a_free_choice_is_the_one_among_all(uses in prop::collection::vec(0usize..16, 0..60), depth in 1u32..5) {
            let ways = 1 << depth;
            let (tree, mut bits) = (Tree::new(ways), 0);
            for way in uses {
                tree.used(&mut bits, way % ways);
                let victim = tree.victim(bits, u32::MAX >> (32 - ways));
                // With all ways allowed one at a time, the victim must be the same.
                let toward = (0..ways).filter(|&other| tree.victim(bits, 1 << other | 1 << victim) == victim);
                prop_assert_eq!(toward.count(), ways);
            }
        }

        #[test]
        fn a_victim_is_always_one_of_the_allowed_ways(
            policy in 0usize..4, uses in prop::collection::vec(0usize..16, 0..60), allowed in 1u32..0x1_0000,
        ) {
            let mut replacement = Replacement::new(ALL[policy], 16, 7);
            let mut set = vec![0; replacement.words()];
            for way in uses {
                replacement.used(&mut set, way);
                let victim = replacement.victim(&mut set, allowed);
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
}
