//! Channels that wait until lines are free.

use std::cell::RefCell;

use platform::cpu::Cpu;
use units::Time;

/// Channels that wait until enough lines are free, or until the queue is empty.
#[derive(Default)]
pub struct Waiters(RefCell<Vec<Waiter>>);

/// A channel that waits until lines up to a count are free.
#[derive(Clone, Copy)]
struct Waiter {
    channel: u16,
    line: u32,
    /// Time on the clock of its core.
    since: Time,
}

impl Waiters {
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// A channel waits until lines up to a count are free.
    pub fn add(&self, cpu: &Cpu, channel: u16, line: u32) {
        self.0.borrow_mut().push(Waiter { channel, line, since: cpu.now() });
    }

    /// The lowest count that a channel waits for, `freed` lines being free. A waiter whose core is ahead of the clock does not
    /// count: it asks by itself when its time comes.
    pub fn lowest(&self, cpu: &Cpu, freed: u32) -> Option<u32> {
        let waiting = self.0.borrow();
        let lines = waiting.iter().filter(|waiter| waiter.since <= cpu.now()).map(|waiter| waiter.line);
        lines.min_by_key(|line| line.wrapping_sub(freed))
    }

    /// The count that the first of them waits for.
    pub fn first(&self) -> Option<u32> {
        self.0.borrow().first().map(|waiter| waiter.line)
    }

    /// Removes the channels whose lines `are_free`.
    pub fn take(&self, are_free: impl Fn(u32) -> bool) -> Vec<u16> {
        let mut taken = Vec::new();
        self.0.borrow_mut().retain(|&Waiter { channel, line, .. }| {
            let is_due = are_free(line);
            if is_due {
                taken.push(channel);
            }
            !is_due
        });
        taken
    }
}
