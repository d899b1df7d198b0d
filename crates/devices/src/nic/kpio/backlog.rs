//! Writes that wait in the PCIe port, and keep their credits, until there is room for their lines.

use std::collections::VecDeque;

use units::Time;

use crate::nic::spare::Spare;

/// A queue's waiting writes, in order.
#[derive(Default)]
pub struct Backlog {
    writes: VecDeque<(u64, Vec<u8>)>,
    /// When the port returns the last credits that it withholds.
    credits_back: Time,
}

impl Backlog {
    /// Drops all writes. The port returns their credits as it would have.
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.writes.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    pub fn push(&mut self, at: u64, piece: &[u8], spare: &mut Spare) {
        self.writes.push_back((at, spare.copy(piece)));
    }

    /// Takes the first write if it no longer has to wait.
    pub fn take(&mut self, waits: impl Fn(u64) -> bool) -> Option<(u64, Vec<u8>)> {
        self.writes.front().is_some_and(|(at, _)| !waits(*at)).then(|| self.writes.pop_front())?
    }

    /// The port will return credits then.
    pub fn withhold(&mut self, until: Time) {
        self.credits_back = self.credits_back.max(until);
    }

    /// When the port returns, or has returned, the last credits that it withholds.
    pub fn credits_back(&self) -> Time {
        self.credits_back
    }
}
