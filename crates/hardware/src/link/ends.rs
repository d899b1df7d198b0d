//! Names of links and of their ends, and what a TLP holds at one of them.

use engine::Epoch;
use wire::pcie::FlowClass;

use super::params::Credits;

/// Number of a link in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// One of a link's two ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The end nearer the root: a root port or a switch's downstream port.
    Upstream = 0,
    /// The end farther from the root: a device or a switch's upstream port.
    Downstream = 1,
}

impl Side {
    /// Both ends, in the order of `Side as usize`.
    pub const BOTH: [Self; 2] = [Self::Upstream, Self::Downstream];

    /// The opposite end.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Upstream => Self::Downstream,
            Self::Downstream => Self::Upstream,
        }
    }
}

/// One end of one link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkEnd {
    /// Which link.
    pub link: LinkId,
    /// Upstream or downstream.
    pub side: Side,
}

impl LinkEnd {
    /// The other end of the same link.
    pub const fn opposite(self) -> Self {
        Self { link: self.link, side: self.side.opposite() }
    }
}

/// Receive buffer space that a TLP holds at the end where it arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveSpace {
    /// The receiving end.
    pub end: LinkEnd,
    /// Flow class.
    pub class: FlowClass,
    /// Credits held.
    pub credits: Credits,
    /// Link epoch: space of an earlier epoch was discarded when the link went down.
    pub epoch: Epoch,
}
