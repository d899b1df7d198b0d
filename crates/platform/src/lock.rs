//! A spinlock between cores.
//!
//! Simulated kernel code is never interrupted between two waits, so its data needs no locks. But cores may be ahead
//! of each other on their own clocks. A core that takes the lock waits until the previous holder has released it, as
//! on hardware, and their accesses to a device come in that order: a release is visible once the holder's uncached
//! stores have been accepted. Taking the lock is a locked instruction, which also waits for the core's own stores.

use core::cell::Cell;

use crate::cpu::{Barrier, Cpu, Published};

/// A spinlock, with the point of its last release.
#[derive(Default)]
pub struct SpinLock(Cell<Published>);

/// A held lock, released on drop.
#[must_use = "the lock is held until this is dropped"]
pub struct SpinLockGuard<'a> {
    lock: &'a SpinLock,
    cpu: &'a Cpu,
}

impl SpinLock {
    /// Waits for the lock and takes it. The holder may take it again.
    pub fn lock<'a>(&'a self, cpu: &'a Cpu) -> SpinLockGuard<'a> {
        cpu.barrier(Barrier::Locked);
        cpu.observe(&self.0.get());
        SpinLockGuard { lock: self, cpu }
    }
}

impl Drop for SpinLockGuard<'_> {
    fn drop(&mut self) {
        let (now, before) = (self.cpu.publish(), self.lock.0.get());
        // An interrupt on another core may have been ahead of this one.
        self.lock.0.set(Published { at: now.at.max(before.at), ..now });
    }
}
