//! Outbound accesses of cores to devices: configuration space, BARs, and their completions.

use engine::{Completion, Scheduler, oneshot};
use thiserror::Error;
use units::{Bytes, HostPhysical, Time};
use wire::pcie::config::header::Window as BridgeWindow;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, ConfigRequest, ConfigType, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::tags::{Tags, Waiting};
use super::{Host, ReadCompleter, RootEvent};
use crate::bridge;
use crate::detected::Detected;
use crate::event::Event;
use crate::memory::{Cause, CoreId};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// An access of a core that has been sent to a device.
pub struct CoreAccess {
    /// Resolves to the bytes read; empty for a configuration write.
    pub data: Completion<Vec<u8>>,
}

/// Why a core's access cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OutboundError {
    /// No root port's window holds the address.
    #[error("no root port forwards {address}")]
    NoWindow {
        /// The address.
        address: HostPhysical,
    },
    /// The access exceeds the port's largest TLP or crosses a 4 KiB boundary.
    #[error("an access of {length} bytes at {address} does not fit into one TLP")]
    TooLong {
        /// The address.
        address: HostPhysical,
        /// The length.
        length: usize,
    },
}

/// An address window forwarded by a root port.
#[derive(Clone, Debug)]
struct Window {
    base: u64,
    end: u64,
    port: u8,
    /// Opened by the port's bridge registers.
    by_bridge: bool,
}

/// The root complex as a requester.
#[derive(Default)]
pub(super) struct Outbound {
    windows: Vec<Window>,
    pub(super) tags: Tags,
    /// Data on its way from the root complex to the requesting core.
    finished: Vec<Option<(ReadCompleter, Vec<u8>)>>,
}

impl Outbound {
    /// Holds data until it has reached the requesting core. Returns its slot.
    pub(super) fn park(&mut self, completer: ReadCompleter, data: Vec<u8>) -> u16 {
        let slot = self.finished.iter().position(Option::is_none).unwrap_or_else(|| {
            self.finished.push(None);
            self.finished.len() - 1
        });
        self.finished[slot] = Some((completer, data));
        slot as u16
    }

    /// Replaces the windows opened by a port's registers.
    pub(super) fn set_bridge_windows(&mut self, port: u8, windows: &[BridgeWindow]) {
        self.windows.retain(|w| !(w.by_bridge && w.port == port));
        let opened = windows.iter().map(|w| Window { base: w.base, end: w.limit + 1, port, by_bridge: true });
        self.windows.extend(opened);
    }

    /// The port that forwards an address.
    pub(super) fn port_of(&self, address: u64) -> Option<u8> {
        self.windows.iter().find(|w| (w.base..w.end).contains(&address)).map(|w| w.port)
    }
}

impl Host {
    /// The port that forwards an address.
    pub fn port_of(&self, address: HostPhysical) -> Option<u8> {
        self.outbound.port_of(address.get())
    }

    /// Forwards accesses to `[base, base + length)` through `port`.
    pub fn add_window(&mut self, base: HostPhysical, length: u64, port: u8) {
        self.outbound.windows.push(Window {
            base: base.get(),
            end: base.get() + length,
            port,
            by_bridge: false,
        });
    }

    pub(super) fn window(&self, address: HostPhysical, length: usize) -> Result<u8, OutboundError> {
        let crosses = address.offset_in(4096) + length as u64 > 4096;
        if crosses || length == 0 {
            return Err(OutboundError::TooLong { address, length });
        }
        self.outbound.port_of(address.get()).ok_or(OutboundError::NoWindow { address })
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
        let port = self.window(address, length)?;
        if !self.port(port).is_up(cx.wires) {
            let (completer, data) = oneshot();
            completer.complete(vec![0xff; length]);
            return Ok(CoreAccess { data });
        }
        let requester = self.ports[usize::from(port)].id;
        let request = MemoryRequest::for_bytes(requester, 0, address.get(), length as u32);
        let tlp = Tlp::new(TlpKind::MemoryRead(request));
        Ok(CoreAccess { data: self.ask(cx, (core, port), tlp, None) })
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
        let port = self.window(address, data.len())?;
        let packet = self.uncached_write(cx.wires, port, address.get(), data);
        let arrives = self.reach_port(core, cx.now(), port, Cause::MmioDoorbell, data.len());
        self.port_mut(port).send_posted(cx, arrives, packet);
        Ok(arrives + self.ports[usize::from(port)].params.outbound_latency)
    }

    /// Builds the write request for a few bytes.
    pub(super) fn uncached_write(&self, wires: &mut Wires, port: u8, address: u64, data: &[u8]) -> PacketId {
        let requester = self.ports[usize::from(port)].id;
        let request = MemoryRequest::for_bytes(requester, 0, address, data.len() as u32);
        let lead = (address & 3) as usize;
        wires.packets.encode_with(&Tlp::new(TlpKind::MemoryWrite(request)), |payload| {
            payload[lead..lead + data.len()].copy_from_slice(data);
        })
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
            return CoreAccess { data: self.root_port_access(cx, core, target, register, write) };
        }
        let port = self.ports.iter().position(|port| port.buses.contains(&target.bus()));
        let Some(port) = port.filter(|&p| self.ports[p].is_up(cx.wires)) else {
            let (completer, data) = oneshot();
            completer.complete(vec![0xff; 4]);
            return CoreAccess { data };
        };
        // The bus directly below the port is addressed with type 0, buses beyond it with type 1.
        let is_next_bus = *self.ports[port].buses.start() == target.bus();
        if is_next_bus && target.device() != 0 && !bridge::forwards_ari(&self.ports[port].config) {
            // A link leads to device 0 only (base spec 7.3.1).
            let (completer, data) = oneshot();
            completer.complete(vec![0xff; 4]);
            return CoreAccess { data };
        }
        let request = ConfigRequest {
            requester: self.ports[port].id,
            tag: 0,
            target,
            register,
            first_be: write.map_or(0xf, |(_, enables)| enables),
            config_type: if is_next_bus { ConfigType::Type0 } else { ConfigType::Type1 },
        };
        let kind = match write {
            Some(_) => TlpKind::ConfigWrite(request),
            None => TlpKind::ConfigRead(request),
        };
        let value = write.map(|(value, _)| value);
        CoreAccess { data: self.ask(cx, (core, port as u8), Tlp::new(kind), value) }
    }

    pub(super) fn send_outbound(
        &mut self,
        cx: &mut Context<'_>,
        when: Time,
        port: u8,
        packet: PacketId,
    ) -> Time {
        let state = &self.ports[usize::from(port)];
        cx.wires.tie(state.end, packet);
        let at = when + state.params.outbound_latency;
        state.send(cx.scheduler, at, packet);
        at
    }

    /// Resumes a completion that was held behind earlier posted writes.
    pub(super) fn held_completion(&mut self, cx: &mut Context<'_>, port: u8, packet: PacketId) {
        let link = cx.wires.link(self.ports[usize::from(port)].end.link);
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

    /// Handles a completion after earlier posted writes have been translated. It is forwarded once they are globally
    /// ordered, unless it may pass them (base spec 2.4.1).
    pub(super) fn completion(
        &mut self,
        cx: &mut Context<'_>,
        port: u8,
        packet: PacketId,
        tlp: &Tlp,
        header: &CompletionHeader,
    ) {
        let now = cx.now();
        let ordered = match tlp.common.relaxed_ordering {
            true => now,
            false => self.port(port).intake.ordered().max(now),
        };
        if self.send_to_requester(cx, port, packet, header, ordered) {
            return;
        }
        let is_ours = header.requester == self.ports[usize::from(port)].id;
        match is_ours.then(|| self.outbound.tags.answered(port, header)).flatten() {
            None => {
                self.counters.unexpected_completions += 1;
                let tlp = cx.wires.packets.bytes(packet);
                self.port_mut(port).detect(cx.scheduler, Detected::UnexpectedCompletion, Some(tlp));
            }
            Some(mut waiting) => {
                if header.status == CompletionStatus::Successful
                    && let Some((tlp, payload)) = cx.wires.packets.decode(packet)
                    && !tlp.common.poisoned
                {
                    let lead = usize::from(header.lower_address & 3);
                    let here = (header.bytes_here() as usize).min(waiting.data.len() - waiting.received);
                    if let Some(bytes) = payload.get(lead..lead + here) {
                        waiting.data[waiting.received..waiting.received + here].copy_from_slice(bytes);
                        waiting.received += here;
                    }
                } else {
                    // An error, or the completion of a configuration write: no data will follow.
                    waiting.received = waiting.data.len();
                }
                if waiting.received < waiting.data.len()
                    && matches!(header.status, CompletionStatus::Successful)
                    && header.length_dw > 0
                {
                    self.outbound.tags.put_back(header.tag, port, waiting);
                } else {
                    let latency = self.ports[usize::from(port)].params.inbound_completion_latency;
                    let there = self.answer_core(waiting.core, ordered + latency, port, waiting.data.len());
                    self.finish_access(cx.scheduler, waiting, there);
                    self.issue(cx);
                }
            }
        }
        cx.consume(packet, now);
    }

    /// When a core receives the data of an access that leaves the port's socket at `at`.
    pub(super) fn answer_core(&mut self, core: CoreId, at: Time, port: u8, bytes: usize) -> Time {
        let (from, to) = (self.ports[usize::from(port)].params.node, self.node_of(core));
        self.memory.charge_interconnect(at, Cause::MmioRegister, from, to, Bytes::new(bytes as u64))
    }

    /// Delivers an access's data to its core at `at`.
    fn finish_access(&mut self, scheduler: &mut Scheduler<Event>, waiting: Waiting, at: Time) {
        if at == scheduler.now() {
            waiting.completer.complete(waiting.data);
        } else {
            let slot = self.outbound.park(waiting.completer, waiting.data);
            scheduler.at(at, Event::Root(self.id, RootEvent::CoreHasData { slot }));
        }
    }

    /// The data of an access has reached the core.
    pub(super) fn core_has_data(&mut self, slot: u16) {
        if let Some((completer, data)) = self.outbound.finished[usize::from(slot)].take() {
            completer.complete(data);
        }
    }

    /// A core's access timed out: it reads all ones, as from a removed device.
    pub(super) fn access_timeout(&mut self, scheduler: &mut Scheduler<Event>, tag: u16, generation: u32) {
        let Some(port) = self.outbound.tags.waits(tag, generation) else { return };
        let until = self.quarantine(scheduler, port);
        self.outbound.tags.expire(tag, until);
        self.counters.timeouts += 1;
        self.port_mut(port).detect(scheduler, Detected::CompletionTimeout, None);
    }

    /// No completion will come through a port any more: outstanding accesses read all ones.
    pub(super) fn abandon(&mut self, scheduler: &mut Scheduler<Event>, port: u8) {
        let until = self.quarantine(scheduler, port);
        self.outbound.tags.abandon(port, until);
    }
}
