//! Requests of a device to another one below another root port.
//!
//! The root complex sends them on with the requester's ID and tag; the answer comes back by that ID. A port sends something back
//! by which it came only where the machine's do: with a switch below that redirects to the root. What is simpler than in real
//! ones: a read goes on as it is, where Intel's roots cut it into pieces of 64 B.

use engine::Scheduler;
use units::{HostPhysical, Time};
use wire::pcie::tlp::{AddressType, CompletionHeader, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::{Deferred, Host, RootEvent};
use crate::event::Event;
use crate::packet::PacketId;
use crate::wires::Wires;

impl Host {
    /// The port behind which a range is, for a request that came in by another.
    pub(super) fn peer_port(&self, wires: &Wires, from: u8, at: HostPhysical, length: u32) -> Option<u8> {
        let last = at.get().checked_add(u64::from(length.max(1)) - 1)?;
        let port = self
            .outbound
            .port_of(at.get())
            .filter(|&port| port != from || self.ports[usize::from(from)].params.reflects_peers)?;
        (self.outbound.port_of(last) == Some(port) && self.link_is_up(wires, port)).then_some(port)
    }

    /// Sends a request on to a peer at `start`, if it is for one; it is used up then but for its credits.
    pub(super) fn send_to_peer(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        what: &Deferred,
        tlp: &Tlp,
        request: &MemoryRequest,
        start: Time,
    ) -> bool {
        let (address, length) = request.byte_range();
        let Some(target) = what.target else { return false };
        let Some(port) = self.peer_port(wires, what.port, target, length) else { return false };
        let request = MemoryRequest { address: target.get() - (address - request.address), ..*request };
        let kind = match tlp.kind {
            TlpKind::MemoryWrite(_) => TlpKind::MemoryWrite(request),
            _ => TlpKind::MemoryRead(request),
        };
        let mut common = tlp.common;
        common.address_type = AddressType::Untranslated;
        self.copy_on(wires, scheduler, what.packet, &Tlp { common, kind }, (port, start));
        true
    }

    /// Sends a completion on at `start` that is for a device below another port; `false` if it is for this root complex.
    pub(super) fn send_to_requester(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        start: Time,
    ) -> bool {
        let bus = |requester: Bdf| requester.bus();
        let to = self.ports.iter().position(|port| port.buses.contains(&bus(header.requester)));
        let reflects = self.ports[usize::from(port)].params.reflects_peers;
        let Some(to) = to.filter(|&to| to != usize::from(port) || reflects) else { return false };
        if self.ports[usize::from(port)].id == header.requester {
            return false;
        }
        let now = scheduler.now();
        if let Ok((tlp, _)) = wires.packets.decode(packet) {
            self.copy_on(wires, scheduler, packet, &tlp, (to as u8, start));
        }
        wires.consume(scheduler, packet, now);
        true
    }

    /// Sends `tlp` with the payload of `packet` through another port.
    fn copy_on(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        packet: PacketId,
        tlp: &Tlp,
        (port, start): (u8, Time),
    ) {
        let mut bytes = std::mem::take(&mut self.scratch.payload);
        bytes.clear();
        if let Ok((_, payload)) = wires.packets.decode(packet) {
            bytes.extend_from_slice(payload);
        }
        let copy = wires.packets.encode(tlp, &bytes);
        self.scratch.payload = bytes;
        let state = &self.ports[usize::from(port)];
        wires.tie(state.end, copy);
        let at = start.max(scheduler.now()) + state.params.outbound_latency;
        scheduler.at(at, Event::Root(self.id, RootEvent::Send { port, packet: copy }));
    }

    /// Whether a device below the root port `from` can reach all of a range of another device's.
    pub fn has_way_to(&self, from: Bdf, at: HostPhysical, length: u64) -> bool {
        let from = self.ports.iter().position(|port| port.id == from);
        let (first, last) =
            (self.outbound.port_of(at.get()), self.outbound.port_of(at.get() + length.max(1) - 1));
        first.is_some()
            && first == last
            && from.is_some_and(|from| first != Some(from as u8) || self.ports[from].params.reflects_peers)
    }
}
