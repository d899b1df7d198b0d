//! Seeded random numbers, one generator for each component.
//!
//! A component's generator depends only on the simulation's seed and the component's name, so adding a component does
//! not change the numbers of another one. The numbers are the same on every platform.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::hash::spread;

/// Seed from which all random numbers of a simulation derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(u64);

impl Seed {
    /// Creates a seed from a number.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed's number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The generator of the component `name`, a path such as `host0/llc`.
    pub fn component(self, name: &str) -> Rng {
        // The generator's seeding (SplitMix64) expands these 64 bits to its 256.
        Rng(Xoshiro256PlusPlus::seed_from_u64(self.part(name).0))
    }

    /// A derived seed for a part of the simulation: `seed.part("host0").component("llc")`.
    #[must_use]
    pub const fn part(self, name: &str) -> Self {
        Self(splitmix64(self.0 ^ splitmix64(hash(name), 1), 1))
    }
}

/// FNV-1a, 64 bits: simple and stable.
const fn hash(name: &str) -> u64 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// SplitMix64's `n`-th number from a state (Steele et al. 2014), without the ones before it.
#[inline]
pub const fn splitmix64(state: u64, n: u64) -> u64 {
    let x = state.wrapping_add(spread(n));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A random number generator: xoshiro256++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// 64 random bits.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform integer below `n`.
    ///
    /// # Panics
    /// If `n` is zero.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        // Lemire's method: the upper half of a product. It is unbiased, since the few products whose lower half is too
        // small are rejected.
        let mut product = u128::from(self.u64()) * u128::from(n);
        if (product as u64) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u64) < threshold {
                product = u128::from(self.u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// A uniform number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn unit_f64(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.u64() >> 11) as f64 * SCALE
    }

    /// `true` with probability `p`: never if `p` is 0, negative or NaN, always if it is at least 1.
    #[inline]
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit_f64() < p
    }

    /// `true` or `false` with equal probability.
    #[inline]
    pub fn bool(&mut self) -> bool {
        // The sign bit: xoshiro's upper bits are its best.
        self.u64() >> 63 == 1
    }

    /// Shuffles `items` uniformly.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end as u64) as usize);
        }
    }
}

impl RngCore for Rng {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_never_change() {
        // If this fails, all published results change for every seed.
        let mut rng = Seed::new(1).component("host0/llc");
        assert_eq!([rng.u64(), rng.u64()], [5_722_663_841_694_187_700, 11_166_009_635_216_064_791]);
        // The first numbers of Steele et al.'s own generator from the state zero.
        let numbers = [1, 2].map(|n| splitmix64(0, n));
        assert_eq!(numbers, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8, "FNV-1a's own test vector");
    }

    #[test]
    fn components_are_independent() {
        let seed = Seed::new(7);
        assert_eq!(seed.component("a"), seed.component("a"));
        assert_ne!(seed.component("a"), seed.component("b"));
        assert_ne!(seed.component("a"), Seed::new(8).component("a"));
        assert_ne!(seed.part("a").component("b"), seed.part("b").component("a"));
    }

    #[test]
    fn below_is_even() {
        let mut rng = Seed::new(3).component("dice");
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[rng.below(6) as usize] += 1;
        }
        // Chi-squared with 5 degrees of freedom exceeds 20.5 for one seed in a thousand.
        let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4).sum();
        assert!(chi2 < 20.5, "{counts:?}");
    }

    #[test]
    fn chances_are_met() {
        let mut rng = Seed::new(4).component("faults");
        let hits = (0..100_000).filter(|_| rng.chance(0.25)).count();
        assert!((24_500..25_500).contains(&hits), "{hits}");
        let heads = (0..100_000).filter(|_| rng.bool()).count();
        assert!((49_300..50_700).contains(&heads), "{heads}");
        assert!((0..1000).all(|_| !rng.chance(0.0) && rng.chance(1.0) && !rng.chance(f64::NAN)));
    }

    #[test]
    fn shuffling_keeps_the_items() {
        let mut items: Vec<_> = (0..100).collect();
        Seed::new(5).component("cards").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn numbers_are_in_range(seed in any::<u64>(), n in 1u64..) {
            let mut rng = Seed::new(seed).component("");
            prop_assert!(rng.below(n) < n);
            prop_assert!((0.0..1.0).contains(&rng.unit_f64()));
        }
    }
}
