//! Events inside a cluster switch.

use crate::link::LinkEnd;
use crate::packet::PacketId;

/// Number of a cluster switch in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterSwitchId(pub u16);

/// A TLP has reached its egress port of a cluster switch.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSend {
    /// Egress end.
    pub end: LinkEnd,
    /// The TLP.
    pub packet: PacketId,
}
