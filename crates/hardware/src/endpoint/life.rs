//! Which device, and between which of its resets.

use platform::device::{FunctionIndex, PortIndex};

/// Number of a device in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u16);

/// A function between two of its own resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The function.
    pub function: FunctionIndex,
    pub(super) number: u16,
}

/// A port of a device between two resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLife {
    /// The port.
    pub port: PortIndex,
    pub(super) number: u16,
}

/// Counts the resets of each function.
#[derive(Default)]
pub(super) struct Lives(Vec<u16>);

impl Lives {
    /// Current life of a function, since its last reset.
    pub fn of(&self, function: FunctionIndex) -> Life {
        Life { function, number: self.0.get(usize::from(function.0)).copied().unwrap_or_default() }
    }

    /// A function was reset.
    pub fn end(&mut self, function: FunctionIndex) {
        let index = usize::from(function.0);
        self.0.resize(self.0.len().max(index + 1), 0);
        self.0[index] = self.0[index].wrapping_add(1);
    }
}
