//! What keeps the lines of a queue in order: a core's stores leave it in any order, and several cores may write.

use std::cell::Cell;

use platform::cpu::{Barrier, Cpu, Published};
use platform::lock::{SpinLock, SpinLockGuard};
use platform::memory::PhysAddr;

/// The order of a queue's lines.
pub struct Order {
    /// The lock's word in memory.
    word: PhysAddr,
    /// Lock for cores that share the queue.
    spin: SpinLock,
    /// The core that wrote last, and when it finished.
    writer: Cell<Option<Published>>,
    /// All lines before this count left the core before any later one.
    fenced: Cell<u32>,
}

impl Order {
    /// For a queue without lines, with the word of its lock in memory.
    pub fn new(word: PhysAddr) -> Self {
        Self { word, spin: SpinLock::default(), writer: Cell::new(None), fenced: Cell::new(0) }
    }

    /// Takes the lock: waits for the holder and fetches its cache line.
    pub fn lock<'a>(&'a self, cpu: &'a Cpu) -> SpinLockGuard<'a> {
        // A locked instruction drains the write-combining buffers.
        cpu.barrier(Barrier::Locked);
        cpu.store_u32(self.word, 1);
        self.spin.lock(cpu)
    }

    /// This core has written lines.
    pub fn wrote(&self, cpu: &Cpu) {
        self.writer.set(Some(cpu.publish()));
    }

    /// Whether no other core wrote last.
    pub fn is_mine(&self, cpu: &Cpu) -> bool {
        self.writer.get().is_none_or(|last| last.core == cpu.id())
    }

    /// Waits for the lines of the core that wrote last, whose clock may be ahead.
    pub fn observe(&self, cpu: &Cpu) {
        self.writer.get().iter().for_each(|last| cpu.observe(last));
    }

    /// Orders all lines so far, up to a count, before those written from now on.
    pub fn fence(&self, cpu: &Cpu, line: u32) {
        cpu.sfence();
        self.set_fenced(line);
    }

    /// No line before this count leaves a core after a later one.
    pub fn set_fenced(&self, line: u32) {
        self.fenced.set(line);
    }

    /// See [`set_fenced`](Self::set_fenced).
    pub fn fenced(&self) -> u32 {
        self.fenced.get()
    }
}
