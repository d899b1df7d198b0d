//! Events of the simulated hardware.

use crate::detected::Detected;
use crate::endpoint::{EndpointEvent, EndpointId};
use crate::ethernet::EthernetEvent;
use crate::link::LinkEnd;
use crate::ntb::{ClusterSend, ClusterSwitchId};
use crate::packet::PacketId;
use crate::root::{HostId, RootEvent};
use crate::switch::{SwitchEvent, SwitchId};

/// An event of the [`Fabric`](crate::Fabric).
///
/// The kind has a byte of its own, as it is asked for with every event.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Event {
    /// A TLP arrives at an end of a link.
    Deliver {
        /// Receiving end.
        end: LinkEnd,
        /// The TLP, in the packet pool.
        packet: PacketId,
    },
    /// An end may be able to send waiting TLPs.
    LinkWake(LinkEnd),
    /// A Nak arrived at an end.
    Replay(LinkEnd),
    /// The replay timer of an end expired.
    ReplayTimer(LinkEnd),
    /// The link layer at an end detected a correctable error.
    LinkError(LinkEnd, Detected),
    /// An event inside an endpoint.
    Endpoint(EndpointId, EndpointEvent),
    /// An event inside a root complex.
    Root(HostId, RootEvent),
    /// An event inside a switch.
    Switch(SwitchId, SwitchEvent),
    /// An event inside a cluster switch.
    Cluster(ClusterSwitchId, ClusterSend),
    /// A frame arrives at the end of a cable.
    Ethernet(EthernetEvent),
}
