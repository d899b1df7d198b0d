//! Exits from guests, counted by cause.

use std::cell::Cell;

/// Cause of an exit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Access to configuration space.
    Config,
    /// Access to emulated registers: an MSI-X table, or a paravirtual device.
    Mmio,
    /// Access to an unmapped address.
    Unmapped,
    /// The vCPU is idle.
    Halt,
    /// Interrupt of a device or timer.
    Interrupt,
    /// The guest's handler has ended and tells the interrupt controller (EOI).
    EndOfInterrupt,
    /// Access to a page that is being moved (EPT violation).
    Violation,
    /// Hypercall: a virtual device starts, stops or has work.
    Call,
}

impl Exit {
    /// All causes.
    pub const ALL: [Self; 8] = [
        Self::Config,
        Self::Mmio,
        Self::Unmapped,
        Self::Halt,
        Self::Interrupt,
        Self::EndOfInterrupt,
        Self::Violation,
        Self::Call,
    ];

    /// Name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Mmio => "mmio",
            Self::Unmapped => "unmapped",
            Self::Halt => "halt",
            Self::Interrupt => "interrupt",
            Self::EndOfInterrupt => "end-of-interrupt",
            Self::Violation => "violation",
            Self::Call => "call",
        }
    }
}

/// Number of exits by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exits([u64; Exit::ALL.len()]);

impl Exits {
    /// Exits of one cause.
    pub const fn of(&self, exit: Exit) -> u64 {
        self.0[exit as usize]
    }

    /// Difference to an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] - before.0[n]))
    }
}

#[derive(Default)]
pub struct ExitCounter(Cell<Exits>);

impl ExitCounter {
    pub fn count(&self, exit: Exit) {
        let mut exits = self.0.get();
        exits.0[exit as usize] += 1;
        self.0.set(exits);
    }

    pub fn get(&self) -> Exits {
        self.0.get()
    }
}
