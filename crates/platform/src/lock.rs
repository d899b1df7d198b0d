//! A spinlock between cores.
//!
//! Code of a simulated kernel never runs into itself between two waits, so that nothing need be locked for the sake of
//! its data. But a core may be ahead of another on its own clock: who takes the lock waits until whoever had it before
//! has let it go, as it would on hardware, and what both do to a device happens in that order: the release is seen
//! when the holder's uncached stores have been accepted. Taking it is a locked instruction, which waits for the core's own.

use core::cell::Cell;

use crate::cpu::{Barrier, Cpu, Published};

/// A lock, and who let it go last.
#[derive(Default)]
pub struct SpinLock(Cell<Published>);

/// A lock that is held. Dropping it lets it go.
#[must_use = "the lock is held as long as this lives"]
pub struct Held<'a> {
    lock: &'a SpinLock,
    cpu: &'a Cpu,
}

impl SpinLock {
    /// Waits for the lock, and takes it. Whoever has it already may take it again.
    pub fn lock<'a>(&'a self, cpu: &'a Cpu) -> Held<'a> {
        cpu.barrier(Barrier::Locked);
        cpu.observe(&self.0.get());
        Held { lock: self, cpu }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let (now, before) = (self.cpu.publish(), self.lock.0.get());
        // An interrupt on another core may have been ahead of this one.
        self.lock.0.set(Published { at: now.at.max(before.at), ..now });
    }
}
