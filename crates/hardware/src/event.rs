//! What can happen in the simulated hardware.

use crate::detected::Detected;
use crate::endpoint::{EndpointEvent, EndpointId};
use crate::ethernet::EthernetEvent;
use crate::link::LinkEnd;
use crate::ntb::ClusterSwitchId;
use crate::ntb::cluster::ClusterSend;
use crate::packet::PacketId;
use crate::root::{HostId, RootEvent};
use crate::switch::{SwitchEvent, SwitchId};

/// An event of the [`Fabric`](crate::Fabric).
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A TLP arrives at an end of a link.
    Deliver {
        /// Where.
        end: LinkEnd,
        /// The TLP, in the fabric's arena.
        packet: PacketId,
    },
    /// An end may be able to send what waits there.
    LinkWake(LinkEnd),
    /// A Nak arrived at an end.
    Replay(LinkEnd),
    /// An end waited too long for an Ack.
    ReplayTimer(LinkEnd),
    /// The link layer at an end noticed an error that it corrects.
    LinkError(LinkEnd, Detected),
    /// Something inside an endpoint.
    Endpoint(EndpointId, EndpointEvent),
    /// Something inside a root complex.
    Root(HostId, RootEvent),
    /// Something inside a switch.
    Switch(SwitchId, SwitchEvent),
    /// Something inside a cluster switch.
    Cluster(ClusterSwitchId, ClusterSend),
    /// Something on the Ethernet.
    Ethernet(EthernetEvent),
}
