//! How many lines of a queue have been written, and how many of them are free again.

use std::cell::Cell;

use platform::cpu::Cpu;
use platform::memory::PhysAddr;

/// Counts of lines, which wrap. The device writes to memory how many are free.
pub struct LineCount {
    free: PhysAddr,
    /// Whether no line is written before there is room for it.
    is_exact: bool,
    written: Cell<u32>,
    /// Known to be free again.
    freed: Cell<u32>,
    is_lost: Cell<bool>,
}

impl LineCount {
    /// No lines yet. The device writes the free ones to memory at `free`; `is_exact` says that none is written before there
    /// is room for it.
    pub fn new(free: PhysAddr, is_exact: bool) -> Self {
        Self { free, is_exact, written: Cell::new(0), freed: Cell::new(0), is_lost: Cell::new(false) }
    }

    /// Lines written.
    pub fn written(&self) -> u32 {
        self.written.get()
    }

    /// The lines up to a count have been written.
    pub fn set_written(&self, line: u32) {
        self.written.set(line);
    }

    /// Lines known to be free again.
    pub fn freed(&self) -> u32 {
        self.freed.get()
    }

    /// Whether the device's count no longer matches: nothing may be sent until it has been read.
    pub fn is_lost(&self) -> bool {
        self.is_lost.get()
    }

    /// The device's count may no longer match.
    pub fn lose(&self) {
        self.is_lost.set(true);
    }

    /// Goes on at the device's position, if it answered.
    pub fn found(&self, position: Option<(u32, u32)>) {
        if let Some((next, freed)) = position {
            self.written.set(next);
            self.freed.set(freed);
        }
        self.is_lost.set(false);
    }

    /// Limits a mark to the lines written.
    pub fn within_written(&self, mark: u32) -> u32 {
        if is_past(self.written.get(), mark) { mark } else { self.written.get() }
    }

    /// Whether all lines up to a count are free, as far as known.
    pub fn are_known_free(&self, line: u32) -> bool {
        is_past(self.freed.get(), line)
    }

    /// Whether all lines up to a count are free, so that their frames have left.
    pub fn are_free(&self, cpu: &Cpu, line: u32) -> bool {
        self.are_known_free(line) || is_past(self.load_freed(cpu), line)
    }

    /// Reads how many lines are free. If the count exceeds the lines written, the device has mistaken a late line for
    /// one of the next round.
    pub fn load_freed(&self, cpu: &Cpu) -> u32 {
        self.freed.set(cpu.load_u32(self.free));
        // With flow control by credits, the port may still hold lines, so the device's position can be behind them.
        if self.is_exact && !is_past(self.written.get(), self.freed.get()) {
            self.is_lost.set(true);
        }
        self.freed.get()
    }
}

/// Whether a wrapping count has reached `line`.
fn is_past(count: u32, line: u32) -> bool {
    count.wrapping_sub(line) < 1 << 31
}
