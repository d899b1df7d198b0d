//! Which line of a set makes room for a new one.

use super::params::ReplacementPolicy;

/// The state of a replacement policy for all sets of a cache.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    policy: ReplacementPolicy,
    ways: usize,
    /// LRU: for each line its rank in its set, 0 for the last one used.
    ages: Vec<u8>,
    /// Not recently used: one bit for each way. Tree: one bit for each inner node.
    bits: Vec<u32>,
    random: u64,
}

impl Replacement {
    pub(super) fn new(policy: ReplacementPolicy, sets: usize, ways: usize, seed: u64) -> Self {
        let mut new = Self { policy, ways, ages: Vec::new(), bits: Vec::new(), random: seed | 1 };
        match policy {
            ReplacementPolicy::Lru => new.ages = vec![0; sets * ways],
            ReplacementPolicy::NotRecentlyUsed | ReplacementPolicy::TreePlru => new.bits = vec![0; sets],
            ReplacementPolicy::Random => {}
        }
        new.reset();
        new
    }

    /// Forgets all uses. The random policy's sequence goes on.
    pub(super) fn reset(&mut self) {
        self.bits.fill(0);
        for set in self.ages.chunks_exact_mut(self.ways) {
            for (way, age) in set.iter_mut().enumerate() {
                *age = way as u8;
            }
        }
    }

    /// Reads something of what is kept for `set`.
    #[inline]
    pub(super) fn warm(&self, set: usize) -> u32 {
        u32::from(self.ages.get(set * self.ways).copied().unwrap_or_default())
    }

    /// Notes that `way` of `set` was used.
    #[inline]
    pub(super) fn used(&mut self, set: usize, way: usize) {
        match self.policy {
            ReplacementPolicy::Lru => {
                let ages = &mut self.ages[set * self.ways..(set + 1) * self.ways];
                let mine = ages[way];
                if mine != 0 {
                    for age in ages.iter_mut() {
                        *age += u8::from(*age < mine);
                    }
                    ages[way] = 0;
                }
            }
            ReplacementPolicy::NotRecentlyUsed => {
                let all = u32::MAX >> (32 - self.ways);
                let bits = &mut self.bits[set];
                *bits |= 1 << way;
                if *bits == all {
                    *bits = 1 << way;
                }
            }
            ReplacementPolicy::TreePlru => {
                // Node 1 is the root; every node on the way points away from the line used.
                let mut node = way + self.ways;
                let bits = &mut self.bits[set];
                while node > 1 {
                    let parent = node / 2;
                    if node % 2 == 0 {
                        *bits |= 1 << parent
                    } else {
                        *bits &= !(1 << parent)
                    }
                    node = parent;
                }
            }
            ReplacementPolicy::Random => {}
        }
    }

    /// The way of `set` to evict, out of those in `allowed` (not empty).
    #[inline]
    pub(super) fn victim(&mut self, set: usize, allowed: u32) -> usize {
        match self.policy {
            ReplacementPolicy::Lru => {
                let ages = &self.ages[set * self.ways..(set + 1) * self.ways];
                let (mut oldest, mut left) = ((0, 0), allowed);
                while left != 0 {
                    let way = left.trailing_zeros() as usize;
                    oldest = oldest.max((ages[way], way));
                    left &= left - 1;
                }
                oldest.1
            }
            ReplacementPolicy::NotRecentlyUsed => {
                let bits = &mut self.bits[set];
                if allowed & !*bits == 0 {
                    // All candidates were used: they start a new round among themselves.
                    *bits &= !allowed;
                }
                (allowed & !*bits).trailing_zeros() as usize
            }
            ReplacementPolicy::TreePlru => self.tree_victim(set, allowed),
            ReplacementPolicy::Random => {
                // xorshift64: one generator for each cache, seeded by the machine.
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let nth = ((self.random >> 32) * u64::from(allowed.count_ones())) >> 32;
                let mut left = allowed;
                for _ in 0..nth {
                    left &= left - 1;
                }
                left.trailing_zeros() as usize
            }
        }
    }

    fn tree_victim(&self, set: usize, allowed: u32) -> usize {
        let bits = self.bits[set];
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
        #[test]
        fn a_victim_is_always_one_of_the_allowed_ways(
            policy in 0usize..4, uses in prop::collection::vec(0usize..16, 0..60), allowed in 1u32..0x1_0000,
        ) {
            let mut replacement = Replacement::new(ALL[policy], 1, 16, 7);
            for way in uses {
                replacement.used(0, way);
                let victim = replacement.victim(0, allowed);
                prop_assert!(allowed & (1 << victim) != 0);
                // The line just used goes only if there is no choice, or by chance, or
                // because a restricted choice has been through all its lines.
                let exact = policy == 0 || policy == 2 || (policy == 1 && allowed == 0xffff);
                if exact && allowed.count_ones() > 1 {
                    prop_assert_ne!(victim, way);
                }
            }
        }
    }
}
