//! Random numbers of programs, and position-dependent content.

use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::hash::spread;

/// A program's generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The generator of part `part` of a program.
    pub fn new(seed: u64, part: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ spread(part)))
    }

    /// A number below `n`; `n` must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        // Upper half of the product: as uniform as 64 bits allow.
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number from 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        // As many bits as a double holds.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Brings the items into a random order, each as likely as any other.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            items.swap(n, self.below(n as u64 + 1) as usize);
        }
    }
}

/// Bytes that are unique to `place`.
pub(crate) fn content(seed: u64, place: u64, length: usize) -> Vec<u8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ place.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut bytes = vec![0; length];
    random.fill_bytes(&mut bytes);
    bytes
}
