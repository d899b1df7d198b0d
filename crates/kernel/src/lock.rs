//! A spinlock between cores.
//!
//! Code of a simulated kernel never runs into itself between two waits, so that nothing need be locked for the sake of
//! its data. But a core may be ahead of another on its own clock: who takes the lock waits until whoever had it before
//! has let it go, as it would on hardware, and what both do to a device happens in that order.

use std::cell::Cell;

use platform::cpu::Cpu;
use units::Time;

/// When the lock is free again.
#[derive(Default)]
pub(crate) struct SpinLock(Cell<Time>);

/// A lock that is held. Dropping it lets it go.
pub(crate) struct Held<'a> {
    lock: &'a SpinLock,
    cpu: &'a Cpu,
}

impl SpinLock {
    /// Waits for the lock, and takes it. Whoever has it already may take it again.
    pub fn lock<'a>(&'a self, cpu: &'a Cpu) -> Held<'a> {
        let now = cpu.now();
        if self.0.get() > now {
            cpu.stall(self.0.get() - now);
        }
        Held { lock: self, cpu }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.0.set(self.cpu.now().max(self.lock.0.get()));
    }
}
