//! Events inside a switch.

use crate::packet::PacketId;

/// Number of a switch in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u16);

/// Events inside a switch.
#[derive(Clone, Copy, Debug)]
pub enum SwitchEvent {
    /// A TLP has reached its egress port.
    Send {
        /// 0 is the upstream port.
        port: u8,
        /// The TLP.
        packet: PacketId,
    },
    /// A TLP can be passed on from a port's input queue.
    Cross {
        /// Where it arrived.
        from: u8,
        /// Where it leaves.
        to: u8,
        /// The TLP.
        packet: PacketId,
    },
    /// A port's link may be free for what waits in input queues.
    Look {
        /// 0 is the upstream port.
        port: u8,
    },
    /// A downstream port contains what is below it: its link goes down.
    Contain {
        /// Its index.
        port: u8,
    },
    /// Resets the hierarchy below a port; for the upstream port, everything below the switch.
    HotReset {
        /// 0 is the upstream port.
        port: u8,
    },
    /// The link below a port has been retrained.
    Trained {
        /// 0 is the upstream port.
        port: u8,
    },
}
