//! Amounts of data.

use crate::parse::{Scale, text_quantity};
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};

/// An amount of data in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// No data.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    #[inline]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// `n` KiB (1,024 bytes each).
    #[inline]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB (2²⁰ bytes each).
    #[inline]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB (2³⁰ bytes each).
    #[inline]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The number of bytes.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// How many pieces of at most `piece` bytes this amount needs.
    #[inline]
    pub const fn div_ceil(self, piece: Self) -> u64 {
        self.0.div_ceil(piece.0)
    }
}

impl Add for Bytes {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}
impl AddAssign for Bytes {
    #[inline]
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}
impl Sub for Bytes {
    type Output = Self;
    #[inline]
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl SubAssign for Bytes {
    #[inline]
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}
impl Mul<u64> for Bytes {
    type Output = Self;
    #[inline]
    fn mul(self, rhs: u64) -> Self {
        Self(self.0 * rhs)
    }
}
impl Div for Bytes {
    type Output = u64;
    #[inline]
    fn div(self, rhs: Self) -> u64 {
        self.0 / rhs.0
    }
}
impl Div<u64> for Bytes {
    type Output = Self;
    #[inline]
    fn div(self, rhs: u64) -> Self {
        Self(self.0 / rhs)
    }
}
impl Rem for Bytes {
    type Output = Self;
    #[inline]
    fn rem(self, rhs: Self) -> Self {
        Self(self.0 % rhs.0)
    }
}
impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|b| b.0).sum())
    }
}

const SCALES: &[Scale] = &[
    Scale::new("B", 1.0),
    Scale::new("KiB", 1024.0),
    Scale::new("MiB", 1_048_576.0),
    Scale::new("GiB", 1_073_741_824.0),
    Scale::new("TiB", 1_099_511_627_776.0),
];
text_quantity!(Bytes, u64, "a size", SCALES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        assert_eq!("64 KiB".parse(), Ok(Bytes::kib(64)));
        assert_eq!("25MiB".parse(), Ok(Bytes::mib(25)));
        assert_eq!(Bytes::kib(64).to_string(), "64 KiB");
        assert_eq!(Bytes::new(65).to_string(), "65 B");
    }

    #[test]
    fn a_wrong_unit_names_the_right_ones() {
        let error = "64 kB".parse::<Bytes>().unwrap_err().to_string();
        assert!(error.contains("KiB"), "{error}");
    }
}
