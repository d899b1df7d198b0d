//! Data rates, clock frequencies and counts of clock cycles.

use crate::parse::{Scale, text_quantity};
use crate::{Bytes, Duration};
use core::ops::{Add, AddAssign, Mul, Sub};

/// Picoseconds in a second.
const PS_PER_S: u128 = 1_000_000_000_000;

/// A data rate in bits per second: links, Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(u64);

/// A data rate in bytes per second: memory, copies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteRate(u64);

/// A clock frequency in hertz.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Frequency(u64);

/// A number of cycles of some clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cycles(u64);

impl BitRate {
    /// `n` bits per second.
    #[inline]
    pub const fn from_bits_per_s(n: u64) -> Self {
        Self(n)
    }
    /// `n` Gbit/s (10⁹ bits per second).
    #[inline]
    pub const fn gbit_per_s(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Bits per second.
    #[inline]
    pub const fn bits_per_s(self) -> u64 {
        self.0
    }
    /// Gbit/s, for reports.
    #[inline]
    pub fn as_gbit_per_s_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// How long `amount` takes at this rate, rounded up to a picosecond.
    ///
    /// # Panics
    /// If the rate is zero.
    #[inline]
    pub const fn time_for(self, amount: Bytes) -> Duration {
        let bits = amount.get() as u128 * 8;
        Duration::from_ps((bits * PS_PER_S).div_ceil(self.0 as u128) as u64)
    }
    /// The rate at which `amount` passed in `time`; zero if no time passed.
    #[inline]
    pub fn of(amount: Bytes, time: Duration) -> Self {
        Self((amount.get() as u128 * 8 * PS_PER_S).checked_div(time.as_ps() as u128).unwrap_or(0) as u64)
    }
}

impl ByteRate {
    /// `n` bytes per second.
    #[inline]
    pub const fn from_bytes_per_s(n: u64) -> Self {
        Self(n)
    }
    /// `n` GB/s (10^9 bytes per second).
    #[inline]
    pub const fn gb_per_s(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
    /// Bytes per second.
    #[inline]
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }
    /// How long `amount` takes at this rate, rounded up to a picosecond.
    ///
    /// # Panics
    /// If the rate is zero.
    #[inline]
    pub const fn time_for(self, amount: Bytes) -> Duration {
        Duration::from_ps((amount.get() as u128 * PS_PER_S).div_ceil(self.0 as u128) as u64)
    }
    /// The rate at which `amount` passed in `time`; zero if no time passed.
    #[inline]
    pub fn of(amount: Bytes, time: Duration) -> Self {
        Self((amount.get() as u128 * PS_PER_S).checked_div(time.as_ps() as u128).unwrap_or(0) as u64)
    }
}

impl Frequency {
    /// `n` hertz.
    #[inline]
    pub const fn from_hz(n: u64) -> Self {
        Self(n)
    }
    /// `n` MHz (10⁶ hertz).
    #[inline]
    pub const fn mhz(n: u64) -> Self {
        Self(n * 1_000_000)
    }
    /// Hertz.
    #[inline]
    pub const fn hz(self) -> u64 {
        self.0
    }
    /// How long `cycles` of this clock take, rounded to a picosecond.
    ///
    /// # Panics
    /// If the frequency is zero.
    #[inline]
    pub const fn time_for(self, cycles: Cycles) -> Duration {
        let half = self.0 as u128 / 2;
        Duration::from_ps(((cycles.0 as u128 * PS_PER_S + half) / self.0 as u128) as u64)
    }
}

impl Cycles {
    /// `n` cycles.
    #[inline]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The number of cycles.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add for Cycles {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Self) -> Self {
        Self(self.0 + rhs.0)
    }
}
impl AddAssign for Cycles {
    #[inline]
    fn add_assign(&mut self, rhs: Self) {
        self.0 += rhs.0;
    }
}
impl Sub for Cycles {
    type Output = Self;
    #[inline]
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl Mul<u64> for Cycles {
    type Output = Self;
    #[inline]
    fn mul(self, rhs: u64) -> Self {
        Self(self.0 * rhs)
    }
}

const BIT_SCALES: &[Scale] = &[
    Scale::new("bit/s", 1.0),
    Scale::new("kbit/s", 1e3),
    Scale::new("Mbit/s", 1e6),
    Scale::new("Gbit/s", 1e9),
    Scale::new("Tbit/s", 1e12),
];
text_quantity!(BitRate, u64, "a bit rate", BIT_SCALES);

const BYTE_SCALES: &[Scale] = &[
    Scale::new("B/s", 1.0),
    Scale::new("kB/s", 1e3),
    Scale::new("MB/s", 1e6),
    Scale::new("GB/s", 1e9),
    Scale::new("TB/s", 1e12),
];
text_quantity!(ByteRate, u64, "a byte rate", BYTE_SCALES);

const HZ_SCALES: &[Scale] =
    &[Scale::new("Hz", 1.0), Scale::new("kHz", 1e3), Scale::new("MHz", 1e6), Scale::new("GHz", 1e9)];
text_quantity!(Frequency, u64, "a frequency", HZ_SCALES);

const CYCLE_SCALES: &[Scale] = &[Scale::new("cycles", 1.0)];
text_quantity!(Cycles, u64, "a number of cycles", CYCLE_SCALES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gen3_x8_moves_a_line_in_under_nine_ns() {
        // 8 GT/s x 8 lanes x 128/130: 63.02 Gbit/s.
        let raw = BitRate::from_bits_per_s(63_015_384_615);
        assert_eq!(raw.time_for(Bytes::new(64)).as_ps(), 8_126);
    }

    #[test]
    fn cycles_and_time_agree() {
        let clock = Frequency::mhz(1_200);
        assert_eq!(clock.time_for(Cycles::new(16)).as_ps(), 13_333);
    }

    #[test]
    fn gigabits_are_not_gigabytes() {
        assert_eq!("100 Gbit/s".parse(), Ok(BitRate::gbit_per_s(100)));
        assert!("100 GB/s".parse::<BitRate>().is_err());
        assert_eq!("12.8 GB/s".parse::<ByteRate>().unwrap().bytes_per_s(), 12_800_000_000);
    }
}
