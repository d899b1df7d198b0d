//! Where the cores' time went.

use platform::cpu::Part;
use units::Duration;

/// Busy time by part of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times([Duration; Part::ALL.len()]);

impl Times {
    /// Adds time to a part.
    pub fn add(&mut self, part: Part, time: Duration) {
        self.0[part as usize] += time;
    }

    /// Time of one part.
    pub fn of(&self, part: Part) -> Duration {
        self.0[part as usize]
    }

    /// Time of all parts.
    pub fn total(&self) -> Duration {
        self.0.iter().copied().sum()
    }

    /// All parts that took any time.
    pub fn parts(&self) -> impl Iterator<Item = (Part, Duration)> + '_ {
        Part::ALL.into_iter().map(|part| (part, self.of(part))).filter(|(_, time)| !time.is_zero())
    }
}

impl core::ops::AddAssign<&Times> for Times {
    fn add_assign(&mut self, other: &Times) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}
