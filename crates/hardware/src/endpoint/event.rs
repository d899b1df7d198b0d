//! Events inside an endpoint.

use engine::Epoch;
use platform::device::{PortIndex, Token};

use super::life::{Life, PortLife};
use crate::link::LinkEnd;
use crate::packet::PacketId;

/// Events inside an endpoint. Events from before a reset carry an older life or epoch, and are dropped.
#[derive(Clone, Copy, Debug)]
pub enum EndpointEvent {
    /// The core can send a TLP.
    Transmit {
        /// Port through which it leaves.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The oldest waiting read may be able to proceed.
    IssueReads {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The oldest waiting write may be able to proceed.
    StartWrites {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The data of a write has been fetched.
    WriteFetched {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// The data of a tag has been processed.
    TagFree {
        /// Tag of a request whose data is complete.
        tag: u16,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// Reports the end of a read to the device.
    ReadDone {
        /// Index of the read in the requester.
        read: u32,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// Reports to the device that a write has left.
    WriteDone {
        /// The device's token for it.
        token: Token,
        /// Port through which it left.
        port: PortIndex,
        /// Life of the function when it requested the write.
        of: Life,
    },
    /// A timer of the device has expired.
    Timer {
        /// The device's token for it.
        token: Token,
        /// Epoch of the device when the timer was set.
        epoch: Epoch,
    },
    /// A completion of the device for the host is ready.
    Answer {
        /// Port through which it leaves.
        end: LinkEnd,
        /// The completion.
        packet: PacketId,
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
    /// A TLP that crosses the bridge has reached its egress port.
    Pass {
        /// Egress port.
        end: LinkEnd,
        /// The TLP.
        packet: PacketId,
    },
    /// Another node's request for the bridge's registers is due.
    CableAccess {
        /// Cable through which it arrived.
        cable: LinkEnd,
        /// The request.
        packet: PacketId,
    },
    /// Check for completion timeouts.
    CheckTimeouts {
        /// Life of the port when this was scheduled.
        of: PortLife,
    },
}
