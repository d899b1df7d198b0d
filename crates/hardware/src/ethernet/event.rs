//! Cables and their ends, and what happens there.

use platform::ethernet::EthernetPort;
use units::Duration;

use super::frames::FrameId;
use crate::endpoint::EndpointId;

/// Number of a cable between two ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CableId(pub u16);

/// An end of a cable; also stands for the direction that begins there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CableEnd {
    /// The cable, numbered in order of connection.
    pub cable: CableId,
    /// 0 or 1, in the order given at connection.
    pub end: u8,
}

impl CableEnd {
    /// The opposite end.
    pub const fn other(self) -> Self {
        Self { end: 1 - self.end, ..self }
    }
}

/// Number of an Ethernet switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EthernetSwitchId(pub u16);

/// A port to which a cable can be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plug {
    /// A device's port, with its constant receive latency.
    Device(EndpointId, EthernetPort, Duration),
    /// A switch's port.
    Switch(EthernetSwitchId, u8),
}

/// What happens on the Ethernet at a time of its own.
#[derive(Clone, Copy, Debug)]
pub enum EthernetEvent {
    /// The last bit of a frame arrives.
    Arrive {
        /// Receiving end.
        at: CableEnd,
        /// The frame, in the pool.
        frame: FrameId,
    },
}
