//! What the parts of a root complex share while they handle an event.

use units::{Bytes, Time};

use super::ports::Ports;
use super::{RootCounters, RootEvent};
use crate::event::Event;
use crate::iommu::Iommu;
use crate::memory::{Cause, CoreId, MemorySystem, NodeId};
use crate::packet::PacketId;
use crate::wires::Context;

/// Links, root ports, memory and IOMMUs.
pub(super) struct Means<'a, 'w> {
    pub cx: &'a mut Context<'w>,
    pub ports: &'a mut Ports,
    pub memory: &'a mut MemorySystem,
    /// One for each socket, or none.
    pub iommus: &'a mut [Iommu],
    pub counters: &'a mut RootCounters,
}

impl Means<'_, '_> {
    /// Schedules an event of this root complex.
    pub fn at(&mut self, at: Time, event: RootEvent) {
        self.cx.scheduler.at(at, Event::Root(self.ports.host(), event));
    }

    /// The socket of a core.
    pub fn node_of(&self, core: CoreId) -> NodeId {
        self.memory.node_of_core(core).expect("accesses are made by cores of the host")
    }

    /// When a core receives the data of an access that leaves the port's socket at `at`.
    pub fn reach_core(&mut self, core: CoreId, at: Time, port: u8, bytes: usize) -> Time {
        let (from, to) = (self.ports[port].params().node, self.node_of(core));
        self.memory.charge_interconnect(at, Cause::MmioRegister, from, to, Bytes::new(bytes as u64))
    }

    /// Sends a TLP for a core through a port at `when`.
    pub fn send(&mut self, when: Time, port: u8, packet: PacketId) {
        let port = &self.ports[port];
        self.cx.wires.tie(port.end(), packet);
        port.send(self.cx, when + port.params().outbound_latency, packet);
    }

    /// Tells the IOMMU above a port that it has translated a request which is served only at `until`.
    pub fn translation_in_use(&mut self, port: u8, until: Time) {
        if let Some(iommu) = self.iommus.get_mut(self.ports[port].params().node.index()) {
            iommu.in_use_until(until);
        }
    }
}
