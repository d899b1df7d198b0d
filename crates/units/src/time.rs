//! Points in simulated time and lengths of it, in whole picoseconds.

use crate::parse::{Scale, text_quantity};
use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A point in simulated time: picoseconds since the simulation began.
///
/// 64 bits last for 213 simulated days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of simulated time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Time {
    /// The instant at which every simulation begins.
    pub const ZERO: Self = Self(0);
    /// Later than any event: the deadline of what has none.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `ps` picoseconds after the simulation began.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }
    /// Picoseconds since the simulation began.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// Nanoseconds since the simulation began, for reports.
    #[inline]
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// Time passed since `earlier`, or zero if `earlier` lies in the future.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
    /// The last multiple of `tick` at or before this instant: what a clock
    /// with that resolution shows.
    ///
    /// A zero `tick` is a clock without a resolution and changes nothing.
    #[inline]
    pub const fn truncated_to(self, tick: Duration) -> Self {
        if tick.0 == 0 { self } else { Self(self.0 - self.0 % tick.0) }
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A duration of `ps` picoseconds.
    #[inline]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }
    /// A duration of `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1_000)
    }
    /// A duration of `us` microseconds.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000_000)
    }
    /// A duration of `ms` milliseconds.
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms * 1_000_000_000)
    }
    /// The length in picoseconds.
    #[inline]
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// The length in nanoseconds, for reports.
    #[inline]
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
    /// The length in seconds, for rates.
    #[inline]
    pub fn as_s_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// The difference, or zero if `other` is longer.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Whether this is no time at all.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

// Sums and products end at the longest time, 213 days, which no run reaches: figures come from outside and never wrap.
impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.saturating_add(rhs.0))
    }
}
impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}
impl Sub<Duration> for Time {
    type Output = Time;
    #[inline]
    fn sub(self, rhs: Duration) -> Time {
        Time(self.0 - rhs.0)
    }
}
impl Sub for Time {
    type Output = Duration;
    #[inline]
    fn sub(self, rhs: Time) -> Duration {
        Duration(self.0 - rhs.0)
    }
}
impl Add for Duration {
    type Output = Self;
    #[inline]
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}
impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}
impl Sub for Duration {
    type Output = Self;
    #[inline]
    fn sub(self, rhs: Self) -> Self {
        Self(self.0 - rhs.0)
    }
}
impl SubAssign for Duration {
    #[inline]
    fn sub_assign(&mut self, rhs: Self) {
        self.0 -= rhs.0;
    }
}
impl Mul<u64> for Duration {
    type Output = Self;
    #[inline]
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}
impl Div<u64> for Duration {
    type Output = Self;
    #[inline]
    fn div(self, rhs: u64) -> Self {
        Self(self.0 / rhs)
    }
}
impl Div for Duration {
    type Output = u64;
    #[inline]
    fn div(self, rhs: Self) -> u64 {
        self.0 / rhs.0
    }
}
impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), |sum, each| sum + each)
    }
}

const SCALES: &[Scale] = &[
    Scale::new("ps", 1.0),
    Scale::new("ns", 1e3),
    Scale::shown_as("us", "µs", 1e6),
    Scale::new("ms", 1e9),
    Scale::new("s", 1e12),
];
text_quantity!(Duration, u64, "a time", SCALES);

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", Duration(self.0))
    }
}
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_the_last_tick() {
        let tick = Duration::from_ps(13_333);
        assert_eq!(Time::from_ps(13_332).truncated_to(tick), Time::ZERO);
        assert_eq!(Time::from_ps(26_667).truncated_to(tick).as_ps(), 26_666);
        assert_eq!(Time::from_ps(7).truncated_to(Duration::ZERO).as_ps(), 7);
    }

    #[test]
    fn text_round_trips() {
        assert_eq!("330 ns".parse(), Ok(Duration::from_ns(330)));
        assert_eq!("13.333 ns".parse(), Ok(Duration::from_ps(13_333)));
        assert_eq!(Duration::from_ns(330).to_string(), "330 ns");
        assert_eq!(Duration::from_ps(1_500).to_string(), "1.5 ns");
        assert_eq!("9 us".parse(), Ok(Duration::from_us(9)));
        assert_eq!("9 µs".parse(), Ok(Duration::from_us(9)));
        assert_eq!(Duration::from_us(9).to_string(), "9 µs");
        assert!("330".parse::<Duration>().is_err());
        assert!("-1 ns".parse::<Duration>().is_err());
    }
}
