//! CPU time accounting.

use platform::cpu::{CpuId, Part};
use platform::kernel::TaskId;
use units::{Duration, Time};

/// Busy time by part of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times([Duration; Part::ALL.len()]);

impl Times {
    /// Adds busy time of one part.
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

    /// Parts with a nonzero time.
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

/// A span of uninterrupted work of a core on one part, for observers.
///
/// Programs run ahead of the clock, so a task that an interrupt preempted appears to run alongside the handler, on
/// its own level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The core that did the work.
    pub core: CpuId,
    /// 0 for tasks, 1 for deferred interrupt work, 2 for handlers.
    pub level: u8,
    /// The task, if it was one.
    pub task: Option<TaskId>,
    /// The part that the time is accounted to.
    pub part: Part,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
}
