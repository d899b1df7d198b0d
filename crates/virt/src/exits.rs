//! Why guests are left, and how often.

use std::cell::Cell;

/// Why a guest was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// An access to configuration space.
    Config,
    /// An access to registers that the hypervisor answers for: an MSI-X table, a paravirtual device.
    Mmio,
    /// An access to an address where nothing is.
    Unmapped,
    /// Nothing to do.
    Halt,
    /// A device's interrupt, or a timer's.
    Interrupt,
    /// The end of one.
    EndOfInterrupt,
    /// A page was met while it was being moved.
    Violation,
    /// A call of the hypervisor: a virtual NIC starts or stops, or has something to send.
    Call,
}

impl Exit {
    /// All of them.
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

    /// What counters call it.
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

/// How often a guest was left, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exits([u64; Exit::ALL.len()]);

impl Exits {
    /// For one cause.
    pub const fn of(&self, exit: Exit) -> u64 {
        self.0[exit as usize]
    }

    /// Those since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|n| self.0[n] - before.0[n]))
    }
}

/// Counts them.
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
