//! The PCIe core of a device: registers, requesters, errors, interrupts of all functions.

use engine::Epoch;
use platform::device::{Device, FunctionIndex, PortIndex, Reset};
use units::Duration;
use wire::pcie::tlp::{MemoryRequest, Message};
use wire::pcie::{Bdf, IntxLines, Tlp, TlpKind};
use wire::vtd::MsiMessage;

use super::{EndpointEvent, EndpointId, EndpointParams, PortLife, Registers, Requester};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::{LinkEnd, LinkId};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// The PCIe core of a device: everything except the device model.
pub struct Core {
    id: EndpointId,
    ends: Vec<LinkEnd>,
    config_latency: Duration,
    /// Configuration spaces, BARs, interrupt tables.
    pub registers: Registers,
    /// DMA. Each port has its own tags, settings and order, so that a stalled port does not delay others.
    requesters: Vec<Requester>,
    /// By port: active legacy interrupt lines, as last signalled to the link partner.
    lines: Vec<IntxLines>,
    /// By port: whether it has reported the latency that it tolerates.
    reported_latency: Vec<bool>,
    /// Counts resets of the whole device. Timers of an earlier epoch are dropped.
    epoch: Epoch,
    /// Unsupported requests from the host: malformed, or to an address that nothing decodes.
    pub unsupported_requests: u64,
}

impl Core {
    /// The core of a device with its upstream ports at `ends`.
    pub(super) fn new(
        id: EndpointId,
        params: EndpointParams,
        ends: Vec<LinkEnd>,
        device: &dyn Device,
    ) -> Self {
        let registers = Registers::new(device);
        let ports = registers.ports().max(1) as u8;
        let requester = |port| Requester::new(id, port, params, device.data_mover(port));
        Self {
            id,
            ends,
            config_latency: params.config_latency,
            registers,
            requesters: (0..ports).map(|port| requester(PortIndex(port))).collect(),
            lines: vec![IntxLines::default(); ports.into()],
            reported_latency: vec![false; ports.into()],
            epoch: Epoch::default(),
            unsupported_requests: 0,
        }
    }

    /// Number of the device in the simulation.
    pub(super) fn id(&self) -> EndpointId {
        self.id
    }

    /// An event of the device.
    pub(super) fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.id, event)
    }

    /// Latency of completing a configuration request.
    pub(super) fn config_latency(&self) -> Duration {
        self.config_latency
    }

    /// Ends of the device's links, port 0 first.
    pub(super) fn ends(&self) -> &[LinkEnd] {
        &self.ends
    }

    /// Whether each port used by a function has a link.
    pub(crate) fn has_its_links(&self) -> bool {
        self.registers.ports() <= self.ends.len()
    }

    /// Disconnects it from its links.
    pub(crate) fn take_links(&mut self) -> Vec<LinkEnd> {
        std::mem::take(&mut self.ends)
    }

    /// Connects it, which has no links, to the ends of links.
    pub(crate) fn give_links(&mut self, ends: Vec<LinkEnd>) {
        assert!(self.ends.is_empty(), "a device is in one slot");
        self.ends = ends;
        assert!(self.has_its_links(), "a function of the device names a port without a link");
    }

    /// Moves a port to another link. Returns the former one.
    pub(super) fn set_link(&mut self, port: PortIndex, link: LinkId) -> LinkId {
        std::mem::replace(&mut self.ends[usize::from(port.0)].link, link)
    }

    /// Number of resets of the whole device, which the device's timers carry.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Drops what a reset ends, and resets the registers. A port whose link is up signals its lines again.
    pub(super) fn reset(&mut self, cx: &mut Context<'_>, reset: Reset) {
        match reset {
            // The device's other functions continue, except those reset with it.
            Reset::Function(function) => self.requester_of(function).reset_function(function),
            Reset::Fundamental | Reset::Hot => {
                self.ends.iter().for_each(|&end| cx.recall(end));
                let now = cx.now();
                self.requesters.iter_mut().for_each(|requester| requester.reset(now));
                // The link partners have cleared them with the link (base spec 2.2.8.1).
                self.lines.fill(IntxLines::default());
                self.reported_latency.fill(false);
                self.epoch.end();
            }
        }
        self.registers.reset(reset);
        self.heed_registers();
        self.protect(cx.wires);
        self.drive_lines(cx);
    }

    /// Drops what is sent through a port that is reset alone.
    pub(super) fn reset_port(&mut self, cx: &mut Context<'_>, end: LinkEnd) {
        let port = self.port_at(end);
        cx.recall(end);
        // No completion will come for requests sent through it.
        self.requester_mut(port).reset(cx.now());
        self.lines[usize::from(port.0)] = IntxLines::default();
        self.reported_latency[usize::from(port.0)] = false;
    }

    /// The requester, link end and requester ID for a function's requests, if it has bus master enable.
    #[inline(always)]
    pub(super) fn master(&mut self, function: FunctionIndex) -> Option<(&mut Requester, LinkEnd, Bdf)> {
        let (port, id) = self.registers.master(function)?;
        let end = *self.ends.get(usize::from(port.0))?;
        Some((self.requester_mut(port), end, id))
    }

    /// The requester of a port.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn requester(&self, port: PortIndex) -> &Requester {
        &self.requesters[usize::from(port.0)]
    }

    pub(super) fn requester_mut(&mut self, port: PortIndex) -> &mut Requester {
        &mut self.requesters[usize::from(port.0)]
    }

    /// The requester of a port, if the port has not been reset since.
    #[inline]
    pub(super) fn current(&mut self, of: PortLife) -> Option<&mut Requester> {
        self.requesters.get_mut(usize::from(of.port.0)).filter(|requester| requester.life() == of)
    }

    /// The requester that a function uses; the first one for a function that the device does not have.
    pub(super) fn requester_of(&mut self, function: FunctionIndex) -> &mut Requester {
        let port = self.registers.port_of(function);
        self.requester_mut(port)
    }

    /// Applies the register settings to the requesters.
    pub fn heed_registers(&mut self) {
        for (port, requester) in (0..).zip(&mut self.requesters) {
            requester.allow(self.registers.allowance(PortIndex(port)));
            requester.set_timeouts(self.registers.completion_timeouts());
        }
    }

    /// Enables ECRC generation on the links as the registers say.
    pub(super) fn protect(&self, wires: &mut Wires) {
        for (port, &end) in (0..).zip(&self.ends) {
            wires.set_protected(end, self.registers.ecrc(PortIndex(port)).generated);
        }
    }

    pub(super) fn send_interrupt(
        &mut self,
        cx: &mut Context<'_>,
        function: FunctionIndex,
        message: MsiMessage,
    ) {
        let Some((port, end, requester)) = self.master(function) else { return };
        let request = MemoryRequest::for_bytes(requester, 0, message.address, 4);
        let (tlp, data) = (Tlp::new(TlpKind::MemoryWrite(request)), message.data.to_le_bytes());
        port.send_message(cx, end, &tlp, &data);
    }

    /// Signals changed legacy interrupt lines to the link partners.
    pub(super) fn drive_lines(&mut self, cx: &mut Context<'_>) {
        for ((port, &end), driven) in (0..).zip(&self.ends).zip(&mut self.lines) {
            let now = self.registers.lines(PortIndex(port));
            for (line, active) in now.changes(std::mem::replace(driven, now)) {
                // The lines belong to the port; the function number is reserved (base spec 2.2.8.1).
                let id = self.registers.id(self.registers.first_below(PortIndex(port)));
                let message = Message::intx(Bdf::new(id.bus(), id.device(), 0), line, active);
                let tlp = Tlp::new(TlpKind::Message(message));
                self.requesters[usize::from(port)].send_message(cx, end, &tlp, &[]);
            }
        }
    }

    /// Reports the latency that it tolerates when software lets it, and that it requires nothing when that ends (base spec 6.18). The
    /// first function at each port does that for all.
    pub(super) fn report_latency(&mut self, cx: &mut Context<'_>) {
        for ((port, &end), reported) in (0..).zip(&self.ends).zip(&mut self.reported_latency) {
            let first = self.registers.first_below(PortIndex(port));
            let Some(config) = self.registers.get(first) else { continue };
            let Some(latencies) = config.tolerated_latencies() else { continue };
            let is_on = config.latency_enabled();
            if std::mem::replace(reported, is_on) != is_on {
                let latencies = latencies.map(|latency| Some(latency).filter(|_| is_on));
                let tlp = Tlp::new(TlpKind::Message(Message::latency(self.registers.id(first), latencies)));
                self.requesters[usize::from(port)].send_message(cx, end, &tlp, &[]);
            }
        }
    }

    /// Records an error in a function's registers, and reports it to the root complex if enabled.
    pub(super) fn report(
        &mut self,
        cx: &mut Context<'_>,
        function: FunctionIndex,
        error: Detected,
        packet: Option<PacketId>,
    ) {
        let tlp = packet.map(|packet| cx.wires.packets.bytes(packet));
        let function = self.registers.reporter(function);
        let Some(code) = error.record(self.registers.config_mut(function), tlp) else { return };
        let (port, id) = self.registers.port_and_id(function);
        let message = Tlp::new(TlpKind::Message(Message::error(id, code)));
        // A device in no slot cannot report.
        let Some(&end) = self.ends.get(usize::from(port.0)) else { return };
        let packet = cx.wires.packets.encode(&message, &[]);
        cx.send(end, packet);
    }

    /// The port whose link ends at `end`.
    #[inline]
    pub(super) fn port_at(&self, end: LinkEnd) -> PortIndex {
        if self.ends.len() == 1 {
            return PortIndex(0);
        }
        PortIndex(self.ends.iter().position(|&own| own == end).unwrap_or(0) as u8)
    }
}
