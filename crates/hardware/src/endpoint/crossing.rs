//! TLPs that cross an adapter with a non-transparent bridge, from host to cable or from cable to host.

use platform::device::{BarAccess, FunctionIndex, PortIndex};
use units::{BarOffset, Time};
use wire::ntb::{self, CableAddress};
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::EndpointEvent;
use super::completer;
use super::means::Means;
use crate::detected::Detected;
use crate::enables::enabled_runs;
use crate::link::{LinkEnd, LinkState};
use crate::ntb::{self as bridge, Bridge};
use crate::packet::PacketId;

/// Why a TLP is not forwarded.
#[derive(Clone, Copy)]
enum BridgeRefusal {
    Unmapped,
    UnknownRequester,
    Unreachable,
}

/// Crossing of a non-transparent bridge.
pub(super) struct Crossing {
    pub bridge: Bridge,
}

impl Crossing {
    /// Forwards a TLP from its host to a cable, unless it is for the adapter itself.
    pub fn cross_out(&mut self, means: &mut Means<'_, '_>, ingress: LinkEnd, packet: PacketId) -> bool {
        let Some(tlp) = &means.cx.wires.packets.header(packet).copied() else { return false };
        let bridge = &mut self.bridge;
        let rewritten = match &tlp.kind {
            TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
                let (address, length) = request.byte_range();
                let Some((_, ntb::WINDOW_BAR, offset)) =
                    means.core.registers.decode(PortIndex(0), address, length)
                else {
                    return false;
                };
                out_request(bridge, request, offset, length)
                    .map(|(node, request)| (node, with_request(tlp, request)))
            }
            TlpKind::Completion(header) | TlpKind::CompletionData(header) => {
                let requester = bridge.tables.borrow().remote.get(ntb::place_of(header.requester));
                let own = Bdf::new_ari(bridge.params.node, 0);
                requester
                    .ok_or(BridgeRefusal::UnknownRequester)
                    .map(|(node, index)| (node, with_parties(tlp, header, own, Bdf::new_ari(node, index))))
            }
            _ => return false,
        };
        let is_up = |end: &LinkEnd| means.cx.wires.link(end.link).state() == LinkState::Up;
        let way = rewritten.and_then(|(node, rewritten)| {
            let cable = bridge.routes.get(&node).copied();
            let cable = cable.filter(|&cable| is_up(&bridge.cables[cable]));
            cable.map(|cable| (cable, rewritten)).ok_or(BridgeRefusal::Unreachable)
        });
        match way {
            Ok((cable, rewritten)) => {
                let egress = bridge.cables[cable];
                means.cx.wires.packets.rewrite(packet, &rewritten);
                let timing = (bridge.params.latency, bridge.params.cut_through);
                let last = &mut bridge.last_out[cable];
                let at = bridge::crossing_time(means.cx, (ingress, egress), packet, timing, last);
                bridge.counters.sent += 1;
                pass(means, egress, packet, at);
            }
            Err(why) => self.refuse_out(means, ingress, packet, tlp, why),
        }
        true
    }

    /// Handles a TLP that arrived through a cable.
    pub fn deliver_from_cable(&mut self, means: &mut Means<'_, '_>, ingress: LinkEnd, packet: PacketId) {
        let header = means.cx.wires.packets.header(packet).copied();
        let (Some(tlp), Some(&host)) = (header, means.core.ends().first()) else {
            return bridge::consume_whole(means.cx, ingress, packet);
        };
        let bridge = &mut self.bridge;
        let timing = (bridge.params.latency, bridge.params.cut_through);
        let master = means.core.registers.master(FunctionIndex(0));
        let is_up = means.cx.wires.link(host.link).state() == LinkState::Up;
        let own = master.filter(|_| is_up).map(|(_, id)| id);
        let rewritten = match &tlp.kind {
            TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
                let at = CableAddress::from_bits(request.address);
                let from = (request.requester.bus(), request.requester.ari_function());
                let is_open = bridge.is_open(from.0);
                if at.registers && is_open {
                    // Keep order towards the host: an interrupt must follow the data that it signals.
                    let last = &mut bridge.last_in;
                    let at = bridge::crossing_time(means.cx, (ingress, host), packet, timing, last);
                    let event = EndpointEvent::CableAccess { cable: ingress, packet };
                    means.cx.scheduler.at(at, means.core.event(event));
                    return;
                }
                own.filter(|_| is_open).ok_or(BridgeRefusal::Unreachable).and_then(|own| {
                    let place = bridge.remote_place(from).ok_or(BridgeRefusal::UnknownRequester)?;
                    let requester = ntb::alias(own.bus(), place);
                    Ok(with_request(&tlp, MemoryRequest { requester, address: at.address, ..*request }))
                })
            }
            TlpKind::Completion(header) | TlpKind::CompletionData(header) => {
                own.ok_or(BridgeRefusal::Unreachable).and_then(|own| {
                    let place = header.requester.ari_function();
                    let requester = bridge.tables.borrow().local.get(place);
                    let requester = requester.ok_or(BridgeRefusal::UnknownRequester)?;
                    Ok(with_parties(&tlp, header, own, requester))
                })
            }
            _ => Err(BridgeRefusal::Unreachable),
        };
        match rewritten {
            Ok(rewritten) => {
                means.cx.wires.packets.rewrite(packet, &rewritten);
                let last = &mut bridge.last_in;
                let at = bridge::crossing_time(means.cx, (ingress, host), packet, timing, last);
                bridge.counters.received += 1;
                pass(means, host, packet, at);
            }
            Err(why) => {
                self.count(why);
                if let TlpKind::MemoryRead(request) = &tlp.kind {
                    self.answer_cable(means, ingress, unsupported(self.cable_id(), request), &[]);
                }
                bridge::consume_whole(means.cx, ingress, packet);
            }
        }
    }

    /// Requester ID of the adapter on its cables.
    fn cable_id(&self) -> Bdf {
        Bdf::new_ari(self.bridge.params.node, 0)
    }

    fn count(&mut self, why: BridgeRefusal) {
        let bridge = &mut self.bridge;
        match why {
            BridgeRefusal::Unmapped => bridge.counters.unmapped += 1,
            BridgeRefusal::UnknownRequester => bridge.counters.unknown_requesters += 1,
            BridgeRefusal::Unreachable => bridge.counters.unreachable += 1,
        }
    }

    /// Reports to the host that its TLP is not forwarded, and completes a non-posted one (base spec 2.3.1).
    fn refuse_out(
        &mut self,
        means: &mut Means<'_, '_>,
        ingress: LinkEnd,
        packet: PacketId,
        tlp: &Tlp,
        why: BridgeRefusal,
    ) {
        self.count(why);
        match &tlp.kind {
            TlpKind::MemoryRead(request) => {
                let id = means.core.registers.id(FunctionIndex(0));
                let status = CompletionStatus::UnsupportedRequest;
                let answer = CompletionHeader::for_read_error(id, request, status);
                completer::refuse(means, ingress, packet, answer);
            }
            TlpKind::MemoryWrite(_) => {
                let error = Detected::UnsupportedPosted;
                means.core.report(means.cx, FunctionIndex(0), error, Some(packet));
            }
            _ => {
                let error = Detected::UnexpectedCompletion;
                means.core.report(means.cx, FunctionIndex(0), error, Some(packet));
            }
        }
        bridge::consume_whole(means.cx, ingress, packet);
    }

    /// Another node reads or writes the adapter's registers.
    pub fn cable_access(&mut self, means: &mut Means<'_, '_>, cable: LinkEnd, packet: PacketId) {
        if let Some(tlp) = means.cx.wires.packets.header(packet)
            && let TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) = tlp.kind
        {
            let (address, length) = request.byte_range();
            let at = CableAddress::from_bits(address).address;
            let is_shared = (ntb::SHARED..ntb::SHARED_END).contains(&at)
                && at + u64::from(length) <= ntb::SHARED_END
                // One or two doublewords.
                && (1..=8).contains(&length);
            let access = |offset: u64| BarAccess {
                function: FunctionIndex(0),
                bar: ntb::REGISTER_BAR,
                offset: BarOffset::new(offset),
            };
            match (&tlp.kind, is_shared) {
                (TlpKind::MemoryRead(_), true) => {
                    let mut data = [0; 8];
                    let data = &mut data[..length as usize];
                    means.with_device(|device, bus| device.bar_read(bus, access(at), data));
                    let id = self.cable_id();
                    let header = CompletionHeader::with_data(id, &request, address, length, length);
                    self.answer_cable(means, cable, header, data);
                }
                (TlpKind::MemoryRead(_), false) => {
                    self.count(BridgeRefusal::Unmapped);
                    let answer = unsupported(self.cable_id(), &request);
                    self.answer_cable(means, cable, answer, &[]);
                }
                (_, true) => {
                    let mut data = [0; 12];
                    if let Some((_, payload)) = means.cx.wires.packets.decode(packet) {
                        let here = payload.len().min(data.len());
                        data[..here].copy_from_slice(&payload[..here]);
                    }
                    let lead = at & 3;
                    for run in enabled_runs(&request).filter(|run| run.end <= data.len()) {
                        let at = access(at - lead + run.start as u64);
                        let bytes = &data[run];
                        means.with_device(|device, bus| device.bar_write(bus, at, bytes));
                    }
                }
                (_, false) => self.count(BridgeRefusal::Unmapped),
            }
        }
        let now = means.cx.now();
        means.cx.consume(packet, now);
    }

    /// Completes a request that arrived through a cable.
    fn answer_cable(&self, means: &mut Means<'_, '_>, cable: LinkEnd, header: CompletionHeader, data: &[u8]) {
        let kind = match data {
            [] => TlpKind::Completion(header),
            _ => TlpKind::CompletionData(header),
        };
        let lead = usize::from(header.lower_address & 3);
        let packet = means.cx.wires.packets.encode_with(&Tlp::new(kind), |room| {
            if !data.is_empty() {
                room[lead..lead + data.len()].copy_from_slice(data);
            }
        });
        let at = means.cx.now() + self.bridge.params.register_latency;
        pass(means, cable, packet, at);
    }

    /// Updates which nodes the cables that are up lead to, and notifies the host of a change.
    pub fn heed_cables(&mut self, means: &mut Means<'_, '_>) {
        let bridge = &self.bridge;
        let is_up = |&cable: &usize| means.cx.wires.link(bridge.cables[cable].link).state() == LinkState::Up;
        let up = bridge.routes.iter().filter(|(_, cable)| is_up(cable)).map(|(&node, _)| 1u64 << (node % 64));
        let up = up.fold(0, |all, bit| all | bit);
        let before = bridge.reach.borrow().open();
        bridge.reach.borrow_mut().set_up(up);
        if bridge.reach.borrow().open() != before {
            let at = BarAccess {
                function: FunctionIndex(0),
                bar: ntb::REGISTER_BAR,
                offset: BarOffset::new(ntb::DOORBELL),
            };
            let bit = ntb::LINK_CHANGED.to_le_bytes();
            means.with_device(|device, bus| device.bar_write(bus, at, &bit));
        }
    }
}

/// Translates a request for a cable. Returns it with its destination node.
fn out_request(
    bridge: &Bridge,
    request: &MemoryRequest,
    offset: u64,
    length: u32,
) -> Result<(u8, MemoryRequest), BridgeRefusal> {
    let to = bridge.translate(offset, length).ok_or(BridgeRefusal::Unmapped)?;
    if !bridge.is_open(to.node) {
        return Err(BridgeRefusal::Unreachable);
    }
    let place = bridge.local_place(request.requester).ok_or(BridgeRefusal::UnknownRequester)?;
    let (address, _) = request.byte_range();
    let requester = Bdf::new_ari(bridge.params.node, place);
    let address = to.bits() - (address - request.address);
    Ok((to.node, MemoryRequest { requester, address, ..*request }))
}

/// Sends a TLP on through its egress port at `at`.
fn pass(means: &mut Means<'_, '_>, egress: LinkEnd, packet: PacketId, at: Time) {
    bridge::tie(means.cx, egress, packet);
    means.cx.scheduler.at(at, means.core.event(EndpointEvent::Pass { end: egress, packet }));
}

fn unsupported(id: Bdf, request: &MemoryRequest) -> CompletionHeader {
    CompletionHeader::for_read_error(id, request, CompletionStatus::UnsupportedRequest)
}

fn with_request(tlp: &Tlp, request: MemoryRequest) -> Tlp {
    let kind = match tlp.kind {
        TlpKind::MemoryRead(_) => TlpKind::MemoryRead(request),
        _ => TlpKind::MemoryWrite(request),
    };
    Tlp { kind, ..*tlp }
}

/// Replaces completer and requester of a completion.
fn with_parties(tlp: &Tlp, header: &CompletionHeader, completer: Bdf, requester: Bdf) -> Tlp {
    let header = CompletionHeader { completer, requester, ..*header };
    let kind = match tlp.kind {
        TlpKind::Completion(_) => TlpKind::Completion(header),
        _ => TlpKind::CompletionData(header),
    };
    Tlp { kind, ..*tlp }
}
