//! A host as the fabric and its cores see it: passes TLPs, events and accesses to its parts.

use std::rc::Rc;

use engine::{Completion, oneshot};
use platform::cpu::StoreMark;
use platform::mmio::Store;
use units::{Duration, HostPhysical, Time};
use wire::pcie::config::ConfigEffect;
use wire::pcie::tlp::{CompletionHeader, ConfigRequest, MemoryRequest};
use wire::pcie::{Bdf, Generation, Tlp, TlpKind, Width};
use wire::vtd::MsiMessage;

use super::inbound::{self, Inbound};
use super::means::Means;
use super::ports::Ports;
use super::requests::Requests;
use super::{
    HostId, Interrupts, OutboundError, OutsideMemory, Power, RootCounters, RootEvent, RootPort,
    RootPortParams, Stores,
};
use crate::core::StoreParams;
use crate::detected::Detected;
use crate::iommu::Iommu;
use crate::link::LinkEnd;
use crate::memory::{Cause, CoreId, MemorySystem};
use crate::packet::PacketId;
use crate::wires::Context;

/// An access of a core that has been sent to a device.
pub struct CoreAccess {
    /// Resolves to the bytes read; empty for a configuration write.
    pub data: Completion<Vec<u8>>,
}

impl CoreAccess {
    /// All ones, as nothing answers.
    fn unanswered(length: usize) -> Self {
        let (completer, data) = oneshot();
        completer.complete(vec![0xff; length]);
        Self { data }
    }
}

/// A host: memory, IOMMUs and root ports.
pub struct Host {
    id: HostId,
    /// Caches, DRAM, interconnect.
    pub memory: MemorySystem,
    /// One IOMMU for each socket; empty if translation is off.
    pub iommus: Vec<Iommu>,
    /// Delivery of interrupt messages and legacy lines.
    pub interrupts: Interrupts,
    /// Stores of cores to devices.
    pub stores: Stores,
    ports: Ports,
    /// Requests of devices.
    inbound: Inbound,
    /// Requests of cores that wait for completions.
    requests: Requests,
    counters: RootCounters,
}

impl Host {
    /// Creates a host without root ports.
    pub fn new(id: HostId, memory: MemorySystem, iommus: Vec<Iommu>) -> Self {
        Self {
            id,
            stores: Stores::new(id, &memory, &StoreParams::ideal()),
            memory,
            iommus,
            interrupts: Interrupts::new(id),
            ports: Ports::new(id),
            inbound: Inbound::default(),
            requests: Requests::new(),
            counters: RootCounters::default(),
        }
    }

    /// Adds a root port at `end` that forwards to `buses`. Returns its number.
    pub fn add_port(
        &mut self,
        params: RootPortParams,
        end: LinkEnd,
        link: (Generation, Width),
        buses: std::ops::RangeInclusive<u8>,
    ) -> u8 {
        let shares = self.inbound.add_port(&params);
        self.requests.leave(self.inbound.peers.tags());
        self.ports.add(params, shares, end, link, buses)
    }

    /// Returns a root port.
    pub fn port(&self, number: u8) -> &RootPort {
        &self.ports[number]
    }

    /// Returns a root port mutably.
    pub fn port_mut(&mut self, number: u8) -> &mut RootPort {
        &mut self.ports[number]
    }

    /// The first core of a port's socket.
    ///
    /// # Panics
    /// If the socket has no cores.
    pub fn core_near(&self, number: u8) -> CoreId {
        let node = self.ports[number].params().node;
        let mut cores = (0..).map(CoreId);
        cores
            .find(|&core| self.memory.node_of_core(core).is_none_or(|of| of == node))
            .filter(|&core| self.memory.node_of_core(core).is_some())
            .expect("every socket has cores")
    }

    /// All root ports, by number.
    pub fn ports(&self) -> &[RootPort] {
        self.ports.all()
    }

    /// Counts so far.
    pub fn counters(&self) -> &RootCounters {
        &self.counters
    }

    /// How long reads of peers have waited for a place among the pieces under way, until `now`.
    pub fn peer_reads_waited(&self, now: Time) -> Duration {
        self.inbound.peers.waited(now)
    }

    /// How long the ways of quadrants of an I/O die have carried lines from memory and to it, until `now`.
    pub fn quadrants_busy(&self, now: Time) -> impl Iterator<Item = [Duration; 2]> {
        self.inbound.quadrants_busy(now)
    }

    /// How long devices' writes have waited for a place in each I/O stack, until `now`.
    pub fn stacks_waited(&self, now: Time) -> impl Iterator<Item = Duration> {
        self.inbound.stacks_waited(now)
    }

    /// Requests of cores that wait for completions, and of devices that wait for a translation or a peer; 0 at rest.
    pub fn requests_under_way(&self) -> usize {
        self.requests.under_way() + self.inbound.under_way()
    }

    /// Enables power management of the fabric between ports and memory.
    pub fn manage_power(&mut self, power: Power) {
        self.inbound.power = Some(power);
    }

    /// Devices access other memory than the host's own from now on. IOMMUs do not translate their requests then.
    pub fn use_outside_memory(&mut self, memory: Rc<dyn OutsideMemory>) {
        self.inbound.outside = Some(memory);
    }

    /// Configures all cores' store units, which start empty.
    pub fn set_store_params(&mut self, params: &StoreParams) {
        self.stores = Stores::new(self.id, &self.memory, params);
    }

    /// The port that forwards an address.
    pub fn port_of(&self, address: HostPhysical) -> Option<u8> {
        self.ports.of_address(address.get())
    }

    /// Forwards accesses to `[base, base + length)` through `port`.
    pub fn add_window(&mut self, base: HostPhysical, length: u64, port: u8) {
        self.ports.add_window(base, length, port);
    }

    /// Whether a device below the root port `from` can reach all of a range of another device.
    pub fn has_way_to(&self, from: Bdf, at: HostPhysical, length: u64) -> bool {
        let to = self.ports.of_range(at, length);
        self.ports.of_id(from).zip(to).is_some_and(|(from, to)| self.ports.joins(from, to))
    }

    /// Power-on reset of memory, caches, IOMMUs and root port registers. Nothing may be in flight.
    pub fn reset(&mut self) {
        let params = self.memory.params().clone();
        self.memory = MemorySystem::new(&params);
        self.iommus.iter_mut().for_each(Iommu::reset);
        self.interrupts.reset();
        self.ports.reset();
    }

    /// Handles a TLP that arrived at a root port.
    pub fn deliver(&mut self, cx: &mut Context<'_>, port: u8, packet: PacketId) {
        let Self { memory, iommus, ports, counters, inbound, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        let (now, state) = (means.cx.now(), &mut means.ports[port]);
        let Some(&tlp) = means.cx.wires.packets.header(packet) else {
            means.counters.malformed += 1;
            state.detect(means.cx, Detected::Malformed, Some(packet));
            means.cx.consume(packet, now);
            return;
        };
        if means.cx.wires.is_damaged(&tlp, packet) && state.config().checks_ecrc() {
            means.counters.damaged += 1;
            state.detect(means.cx, Detected::Ecrc, Some(packet));
            means.cx.consume(packet, now);
            return;
        }
        match &tlp.kind {
            TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
                if state.forbids(&tlp) {
                    inbound::forbid(means, port, packet, &tlp);
                } else {
                    inbound.memory_request(means, port, packet, &tlp, request);
                }
            }
            TlpKind::Completion(header) | TlpKind::CompletionData(header) => {
                let held = state.intake.held_until(now).filter(|_| !tlp.common.relaxed_ordering);
                match held {
                    Some(until) => means.at(until, RootEvent::Completion { port, packet }),
                    None => self.completion(cx, port, packet, &tlp, header),
                }
            }
            TlpKind::Message(message) => {
                match message.line() {
                    Some((line, active)) => state.line_message(means.cx, line, active),
                    None => match message.latencies() {
                        Some(latencies) => {
                            state.take_latency(latencies);
                            inbound.heed_latencies(means.ports);
                        }
                        None => state.report(means.cx, message.requester, message.code),
                    },
                }
                means.cx.consume(packet, now);
            }
            TlpKind::IoRead(request) | TlpKind::IoWrite(request) => {
                inbound::refuse(means, port, &tlp, (request.requester, request.tag));
                means.cx.consume(packet, now);
            }
            TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request) => {
                inbound::refuse(means, port, &tlp, (request.requester, request.tag));
                means.cx.consume(packet, now);
            }
        }
    }

    /// Handles a completion after earlier posted writes have been translated. It is forwarded once they are globally
    /// ordered, unless it may pass them (base spec 2.4.1).
    fn completion(
        &mut self,
        cx: &mut Context<'_>,
        port: u8,
        packet: PacketId,
        tlp: &Tlp,
        header: &CompletionHeader,
    ) {
        let Self { memory, iommus, ports, counters, inbound, requests, .. } = self;
        let ordered = match tlp.common.relaxed_ordering {
            true => cx.now(),
            false => ports[port].intake.ordered().max(cx.now()),
        };
        let means = &mut Means { cx, ports, memory, iommus, counters };
        if !inbound.peers.answered(means, port, packet, header, ordered) {
            requests.answered(means, port, packet, header, ordered);
        }
    }

    /// Resumes a completion that was held behind earlier posted writes.
    fn held_completion(&mut self, cx: &mut Context<'_>, port: u8, packet: PacketId) {
        let link = cx.wires.link(self.ports[port].end().link);
        if cx.wires.packets.hop(packet).epoch != link.epoch() {
            // The access was given up with the link, and its tag may have been reused.
            cx.consume(packet, cx.now());
            return;
        }
        match cx.wires.packets.header(packet).copied() {
            Some(tlp) if let TlpKind::Completion(header) | TlpKind::CompletionData(header) = &tlp.kind => {
                self.completion(cx, port, packet, &tlp, header);
            }
            _ => unreachable!("what was held is a completion"),
        }
    }

    /// Handles an event inside the root complex.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: RootEvent) {
        let Self { memory, iommus, ports, counters, inbound, stores, requests, interrupts, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        match event {
            RootEvent::Access { slot } => inbound.deferred_access(means, slot),
            RootEvent::Completion { port, packet } => self.held_completion(cx, port, packet),
            RootEvent::Send { port, packet } => means.cx.send_tied(means.ports[port].end(), packet),
            RootEvent::Trained { port } => means.ports[port].trained(),
            RootEvent::Contain { port } if means.ports[port].is_up(means.cx.wires) => {
                self.drop_link(cx, port)
            }
            RootEvent::Contain { .. } => {}
            RootEvent::Interrupt { requester, address, data } => {
                interrupts.message(means, requester, MsiMessage { address, data });
            }
            RootEvent::Line { port, line, active } => {
                if means.ports[port].line_due(means.cx, line, active) {
                    interrupts.set_active(means.cx, means.ports.lines());
                }
            }
            RootEvent::CoreInterrupt { requester, interrupt } => {
                interrupts.deliver(means.cx.now(), requester, interrupt);
            }
            RootEvent::SendPosted { port, packet } => stores.posted_arrived(means, port, packet),
            RootEvent::PlaceFree { port } => stores.places_freed(means, port),
            RootEvent::Stores { core } => stores.run(means, core),
            // Handled by the fabric, which knows the topology below.
            RootEvent::HotReset { .. } => {}
            RootEvent::CoreHasData { slot } => requests.delivered(slot),
            RootEvent::PeerTimeout { place, epoch } => inbound.peers.timeout(means, place, epoch),
            RootEvent::TagsFree => requests.issue(means),
            RootEvent::Timeout { tag, epoch } => requests.timeout(means, tag, epoch),
        }
    }

    /// Stores to a device from a core at time `when`, which is now or later.
    ///
    /// # Errors
    /// If no port forwards the address or the bytes span more than one line: the store is lost.
    pub fn store(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        when: Time,
        store: Store<'_>,
    ) -> Result<(), OutboundError> {
        self.stores.store(cx, &self.ports, core, when, store)
    }

    /// When a core's uncached stores and fences so far have been accepted, as far as known, but not before `when`.
    /// Locked instructions and `mfence` wait for that.
    pub fn uncached_accepted_by(&self, core: CoreId, when: Time) -> Time {
        let mark = self.stores.of(core).mark(when);
        self.stores.accepted_before(&self.ports, &self.memory, core, mark).max(when)
    }

    /// Orders a core's stores after those of another core whose ordinary store it has seen at a mark. x86 stores are
    /// seen in program order (SDM volume 3, 8.2.2), so the other core's earlier uncached stores and fences have been
    /// accepted, and later stores of this core follow them. Returns when they have been accepted, as far as known.
    pub fn follow_stores(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        when: Time,
        (other, mark): (CoreId, StoreMark),
    ) -> Time {
        if core == other {
            return when;
        }
        let seen = self.stores.accepted_before(&self.ports, &self.memory, other, mark).max(when);
        self.stores.follow(cx, core, when, (other, mark));
        seen
    }

    /// Reads `length` bytes of a device's BAR for a core.
    ///
    /// # Errors
    /// If no port forwards the address or the access does not fit into one TLP.
    pub fn mmio_read(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        address: HostPhysical,
        length: usize,
    ) -> Result<CoreAccess, OutboundError> {
        let port = self.ports.of_access(address, length)?;
        if !self.ports[port].is_up(cx.wires) {
            return Ok(CoreAccess::unanswered(length));
        }
        let request = MemoryRequest::for_bytes(self.ports[port].id(), 0, address.get(), length as u32);
        Ok(self.ask(cx, (core, port), TlpKind::MemoryRead(request), None))
    }

    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        (core, port): (CoreId, u8),
        kind: TlpKind,
        value: Option<u32>,
    ) -> CoreAccess {
        let Self { memory, iommus, ports, counters, stores, requests, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        let bytes = if value.is_some() { 4 } else { 0 };
        let arrives = stores.reach_port(means, core, port, Cause::MmioRegister, bytes);
        CoreAccess { data: requests.ask(means, (core, port), arrives, Tlp::new(kind), value) }
    }

    /// Writes `data` to a device's BAR in one TLP for a core, bypassing the core's store unit. Returns when the TLP can
    /// leave the root complex.
    ///
    /// # Errors
    /// If no port forwards the address or the access does not fit into one TLP.
    pub fn mmio_write(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        address: HostPhysical,
        data: &[u8],
    ) -> Result<Time, OutboundError> {
        let port = self.ports.of_access(address, data.len())?;
        let Self { memory, iommus, ports, counters, stores, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        let arrives = stores.reach_port(means, core, port, Cause::MmioDoorbell, data.len());
        let state = &mut means.ports[port];
        let request = MemoryRequest::for_bytes(state.id(), 0, address.get(), data.len() as u32);
        let lead = (address.get() & 3) as usize;
        let tlp = Tlp::new(TlpKind::MemoryWrite(request));
        let packet = means.cx.wires.packets.encode_with(&tlp, |payload| {
            payload[lead..lead + data.len()].copy_from_slice(data);
        });
        state.send_posted(means.cx, arrives, packet);
        Ok(arrives + state.params().outbound_latency)
    }

    /// Reads a doubleword of a function's configuration space for a core; all ones if nothing answers.
    pub fn config_read(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        target: Bdf,
        register: u16,
    ) -> CoreAccess {
        self.config_request(cx, core, target, register, None)
    }

    /// Writes the bytes of a doubleword of configuration space selected by `byte_enables`, for a core.
    #[allow(clippy::too_many_arguments)]
    pub fn config_write(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        target: Bdf,
        register: u16,
        value: u32,
        byte_enables: u8,
    ) -> CoreAccess {
        self.config_request(cx, core, target, register, Some((value, byte_enables)))
    }

    fn config_request(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        target: Bdf,
        register: u16,
        write: Option<(u32, u8)>,
    ) -> CoreAccess {
        if target.bus() == 0 {
            return match self.ports.of_id(target) {
                Some(port) => self.root_port_access(cx, (core, port), register, write),
                None => CoreAccess::unanswered(4),
            };
        }
        let Some(port) = self.ports.of_bus(target.bus()).filter(|&port| self.ports[port].is_up(cx.wires))
        else {
            return CoreAccess::unanswered(4);
        };
        let state = &self.ports[port];
        let Some(config_type) = state.way_to(target) else { return CoreAccess::unanswered(4) };
        let request = ConfigRequest {
            requester: state.id(),
            tag: 0,
            target,
            register,
            first_be: write.map_or(0xf, |(_, enables)| enables),
            config_type,
        };
        let kind = match write {
            Some(_) => TlpKind::ConfigWrite(request),
            None => TlpKind::ConfigRead(request),
        };
        self.ask(cx, (core, port), kind, write.map(|(value, _)| value))
    }

    /// Handles a core's read or write of a root port's registers.
    fn root_port_access(
        &mut self,
        cx: &mut Context<'_>,
        (core, port): (CoreId, u8),
        register: u16,
        write: Option<(u32, u8)>,
    ) -> CoreAccess {
        let own = &mut self.ports[port];
        let value = own.config().dword(register).to_le_bytes().to_vec();
        if let Some((value, enables)) = write {
            for effect in own.write(cx, register, value, enables) {
                self.root_port_effect(cx, port, effect);
            }
        }
        let Self { memory, iommus, ports, counters, stores, requests, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        let bytes = if write.is_some() { 4 } else { 0 };
        let there = stores.reach_port(means, core, port, Cause::MmioRegister, bytes);
        let done = there + means.ports[port].params().outbound_latency;
        let back = means.reach_core(core, done, port, value.len());
        let (completer, data) = oneshot();
        requests.deliver(means, back, completer, value);
        CoreAccess { data }
    }

    fn root_port_effect(&mut self, cx: &mut Context<'_>, number: u8, effect: ConfigEffect) {
        let port = &mut self.ports[number];
        match effect {
            ConfigEffect::WindowMoved | ConfigEffect::MemoryEnable(_) => self.ports.heed_windows(number),
            ConfigEffect::LinkDisable(true) => self.drop_link(cx, number),
            ConfigEffect::SecondaryBusReset(true) if port.is_up(cx.wires) => self.drop_link(cx, number),
            _ => port.heed(cx, effect),
        }
    }

    /// A port takes its link down. A device whose link goes down is reset (base spec 5.2, 6.6.1).
    fn drop_link(&mut self, cx: &mut Context<'_>, number: u8) {
        self.link_lost(cx, number);
        self.ports[number].reset_below(cx);
    }

    /// The link below a port went down; everything in flight on it is lost.
    pub fn link_lost(&mut self, cx: &mut Context<'_>, port: u8) {
        self.ports[port].take_link_down(cx);
        let Self { memory, iommus, ports, counters, inbound, stores, requests, interrupts, .. } = self;
        let means = &mut Means { cx, ports, memory, iommus, counters };
        requests.abandon(means, port);
        inbound.peers.abandon(means, port);
        stores.link_drained(means, port);
        interrupts.set_active(means.cx, means.ports.lines());
        inbound.heed_latencies(means.ports);
        means.ports[port].show_link_lost(means.cx);
    }

    /// A port's link may have sent or lost waiting packets.
    pub fn link_drained(&mut self, cx: &mut Context<'_>, port: u8) {
        let Self { memory, iommus, ports, counters, stores, .. } = self;
        stores.link_drained(&mut Means { cx, ports, memory, iommus, counters }, port);
    }
}
