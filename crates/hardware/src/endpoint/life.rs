//! Which device, and between which of its resets.

use engine::Epoch;
use platform::device::{FunctionIndex, PortIndex};

/// Number of a device in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u16);

/// A function between two resets: its own, or of its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// Whose life.
    pub function: FunctionIndex,
    epoch: Epoch,
}

/// A port of a device between two resets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortLife {
    /// Whose life.
    pub port: PortIndex,
    pub(super) epoch: Epoch,
}

/// The lives of all functions at a port.
pub(super) struct Lives([Epoch; 256]);

impl Default for Lives {
    fn default() -> Self {
        Self([Epoch::default(); 256])
    }
}

impl Lives {
    /// Current life of a function.
    pub fn of(&self, function: FunctionIndex) -> Life {
        Life { function, epoch: self.0[usize::from(function.0)] }
    }

    /// A function was reset.
    pub fn end(&mut self, function: FunctionIndex) {
        self.0[usize::from(function.0)].end();
    }

    /// The port was reset.
    pub fn end_all(&mut self) {
        self.0.iter_mut().for_each(Epoch::end);
    }
}
