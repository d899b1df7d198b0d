//! A hash for tables of addresses that are looked up for every packet.

use std::hash::{BuildHasherDefault, Hasher};

/// A table's hasher.
pub(super) type Mixing = BuildHasherDefault<Mixer>;

/// Mixes words by multiplying with an odd number and folding the high bits down (Fibonacci hashing, Knuth 6.4).
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
