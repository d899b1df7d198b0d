//! Where the cores' time went.

use platform::cpu::{CpuId, Part};
use platform::kernel::TaskId;
use units::{Duration, Time};

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

/// A core's work on one part without a break, for who watches.
///
/// Programs run ahead of the clock: what an interrupt stopped seems to have gone on beside it, on another level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The core whose time it is.
    pub core: CpuId,
    /// 0 for tasks, 1 for deferred interrupt work, 2 for handlers.
    pub level: u8,
    /// The task, if it was one.
    pub task: Option<TaskId>,
    /// On whose account.
    pub part: Part,
    /// From then.
    pub from: Time,
    /// Until then.
    pub to: Time,
}
