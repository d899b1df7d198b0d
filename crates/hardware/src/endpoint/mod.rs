//! A device on the fabric: its PCIe core, and the model of its registers and firmware.
//!
//! [`Endpoint`] passes TLPs and events to parts with private state:
//!
//! | file | subject |
//! |---|---|
//! | `core` | the PCIe core: ports, registers, requesters, errors, interrupts |
//! | `registers` | configuration spaces, BARs, interrupt tables |
//! | `requester` | DMA and interrupts of a port |
//! | `completer` | requests of the host |
//! | `crossing` | TLPs that cross a non-transparent bridge |
//! | `means` | what parts use while they handle a TLP or an event |
//! | `bus` | the device model's view of the fabric |
//! | `event`, `params` | events, parameters |

mod bus;
mod completer;
mod core;
mod crossing;
mod event;
mod life;
mod means;
mod params;
mod registers;
mod requester;

use platform::device::{Device, DeviceBus, Function, FunctionIndex, PortIndex, Reset};
use units::Time;
use wire::pcie::TlpKind;

pub use self::core::Core;
pub use event::EndpointEvent;
pub use life::{EndpointId, Life, PortLife};
pub use params::EndpointParams;
pub use registers::{Allowance, Registers};
use requester::Arrived;
pub use requester::{Requester, RequesterCounters};

use completer::Completer;
use crossing::Crossing;
use means::Means;

use crate::detected::Detected;
use crate::link::{DirectionCounters, LinkEnd, LinkId, Side};
use crate::ntb::{Bridge, NtbCounters};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// A device on the fabric.
pub struct Endpoint {
    /// Its PCIe core.
    pub core: Core,
    device: Box<dyn Device>,
    completer: Completer,
    /// The non-transparent bridge of an adapter with one.
    crossing: Option<Box<Crossing>>,
    /// Links that ports were connected to before they moved to other slots.
    former: Vec<(PortIndex, LinkId)>,
}

impl Endpoint {
    /// Creates a device with its upstream ports at `ends`.
    pub fn new(id: EndpointId, params: EndpointParams, ends: Vec<LinkEnd>, device: Box<dyn Device>) -> Self {
        let core = Core::new(id, params, ends, &*device);
        Self { core, device, completer: Completer::default(), crossing: None, former: Vec::new() }
    }

    /// Moves one of its ports to another link.
    pub(crate) fn set_link(&mut self, port: PortIndex, link: LinkId) {
        let before = self.core.set_link(port, link);
        self.former.retain(|&(_, former)| former != link);
        self.former.push((port, before));
    }

    /// Traffic until `now` of all links that a port has been connected to, in the direction sent by `side`.
    pub fn carried(&self, wires: &Wires, port: PortIndex, side: Side, now: Time) -> DirectionCounters {
        let current = self.core.ends().get(usize::from(port.0)).map(|end| end.link);
        let former = self.former.iter().filter(|(of, _)| *of == port).map(|&(_, link)| link);
        let mut sum = DirectionCounters::default();
        let all = current.into_iter().chain(former);
        all.for_each(|link| sum += &wires.link(link).counters_until(side, now));
        sum
    }

    /// Links of which it is the downstream end, port 0 first.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.core.ends().iter().map(|end| end.link)
    }

    /// Its ends of cables to other adapters; none if it is no adapter.
    pub fn cables(&self) -> &[LinkEnd] {
        self.bridge().map_or(&[], |bridge| &bridge.cables)
    }

    /// Adds a non-transparent bridge to the device.
    pub(crate) fn set_bridge(&mut self, bridge: Bridge) {
        self.crossing = Some(Box::new(Crossing { bridge }));
    }

    pub(crate) fn bridge(&self) -> Option<&Bridge> {
        self.crossing.as_ref().map(|crossing| &crossing.bridge)
    }

    pub(crate) fn bridge_mut(&mut self) -> Option<&mut Bridge> {
        self.crossing.as_mut().map(|crossing| &mut crossing.bridge)
    }

    /// Counters of its bridge, if it has one.
    pub fn ntb_counters(&self) -> Option<NtbCounters> {
        self.bridge().map(|bridge| bridge.counters)
    }

    /// The device model.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Puts a wrapper around the device model, which has the same functions.
    pub fn wrap(&mut self, wrapper: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>) {
        let device = std::mem::replace(&mut self.device, Box::new(WrappedDevice));
        self.device = wrapper(device);
    }

    /// Runs `act` on the device model, as if from inside: it may start DMA.
    #[inline(always)]
    pub fn with_device<R>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        Means { cx, core: &mut self.core, device: &mut *self.device }.with_device(act)
    }

    /// Handles a TLP that arrived at one of the device's ports.
    #[inline(always)]
    pub fn deliver(&mut self, cx: &mut Context<'_>, end: LinkEnd, packet: PacketId) {
        if let Some(crossing) = &mut self.crossing {
            let means = &mut Means { cx, core: &mut self.core, device: &mut *self.device };
            if crossing.cross_out(means, end, packet) {
                return;
            }
        }
        let now = cx.now();
        let Some((tlp, payload)) = cx.wires.packets.decode(packet) else {
            self.core.unsupported_requests += 1;
            self.core.report(cx, FunctionIndex(0), Detected::Malformed, Some(packet));
            cx.consume(packet, now);
            return;
        };
        if cx.wires.is_damaged(tlp, packet) && self.core.registers.ecrc(self.core.port_at(end)).checked {
            let function = self.core.registers.first_below(self.core.port_at(end));
            self.core.report(cx, function, Detected::Ecrc, Some(packet));
            // The requester ID cannot be trusted either, so there is no completion (base spec 2.7.1).
            cx.consume(packet, now);
            return;
        }
        match &tlp.kind {
            TlpKind::CompletionData(header) | TlpKind::Completion(header) => {
                let poisoned = tlp.common.poisoned;
                let padding = cx.wires.packets.hop(packet).padding;
                let port = self.core.port_at(end);
                let requester = self.core.requester_mut(port);
                let (link, side) = (cx.wires.link(end.link), end.side);
                let arrived = Arrived { link, side, header, poisoned, padding, payload };
                let (at, fault) = requester.completion(cx.scheduler, arrived);
                if let Some((function, error)) = fault {
                    self.core.report(cx, function, error, Some(packet));
                }
                cx.consume(packet, at);
            }
            _ => {
                let tlp = *tlp;
                let means = &mut Means { cx, core: &mut self.core, device: &mut *self.device };
                let held = self.completer.request(means, end, packet, &tlp);
                cx.consume(packet, now + held);
            }
        }
    }

    /// The link layer of one of the device's ports detected a correctable error.
    pub fn link_error(&mut self, cx: &mut Context<'_>, end: LinkEnd, error: Detected) {
        let function = self.core.registers.first_below(self.core.port_at(end));
        self.core.report(cx, function, error, None);
    }

    /// Handles a TLP that arrived through a cable.
    pub(crate) fn deliver_from_cable(&mut self, cx: &mut Context<'_>, end: LinkEnd, packet: PacketId) {
        let Some(crossing) = &mut self.crossing else { return crate::ntb::consume_whole(cx, end, packet) };
        let means = &mut Means { cx, core: &mut self.core, device: &mut *self.device };
        crossing.deliver_from_cable(means, end, packet);
    }

    /// Updates which nodes the cables that are up lead to, and notifies the host of a change.
    pub(crate) fn heed_cables(&mut self, cx: &mut Context<'_>) {
        let Some(crossing) = &mut self.crossing else { return };
        let means = &mut Means { cx, core: &mut self.core, device: &mut *self.device };
        crossing.heed_cables(means);
    }

    /// Resets the device.
    pub fn reset(&mut self, cx: &mut Context<'_>, reset: Reset) {
        Means { cx, core: &mut self.core, device: &mut *self.device }.reset(reset);
    }

    /// The link at a port went down or was reset: resets the functions below it, and the whole device if it has no
    /// other port.
    pub fn reset_port(&mut self, cx: &mut Context<'_>, end: LinkEnd) {
        let Some(functions) = self.core.registers.alone_below(self.core.port_at(end)) else {
            return self.reset(cx, Reset::Hot);
        };
        self.core.reset_port(cx, end);
        for function in functions {
            self.reset(cx, Reset::Function(function));
        }
    }

    /// The link at one of the device's ports has sent waiting packets.
    pub fn link_drained(&mut self, cx: &mut Context<'_>, end: LinkEnd) {
        let port = self.core.port_at(end);
        self.core.requester_mut(port).start_writes(cx);
    }

    /// Handles an event inside the endpoint.
    // Events of every read come first; others are out of line.
    #[inline(always)]
    pub fn handle(&mut self, cx: &mut Context<'_>, event: EndpointEvent) {
        match event {
            EndpointEvent::TagFree { tag, of } => self.tag_free(cx, tag, of),
            EndpointEvent::ReadDone { read, of } => self.read_done(cx, read, of),
            other => self.handle_other(cx, other),
        }
    }

    /// The data of a tag has been processed.
    #[inline(never)]
    fn tag_free(&mut self, cx: &mut Context<'_>, tag: u16, of: PortLife) {
        if let Some(requester) = self.core.current(of) {
            requester.tag_free(cx, tag);
        }
    }

    /// Reports the end of a read to the device.
    #[inline(never)]
    fn read_done(&mut self, cx: &mut Context<'_>, read: u32, of: PortLife) {
        if let Some(read) = self.core.current(of).and_then(|requester| requester.take_finished(read)) {
            let outcome = read.failed.map_or(Ok(&read.data[..]), Err);
            self.with_device(cx, |device, bus| device.read_done(bus, read.token, outcome));
            self.core.requester_mut(of.port).recycle(read);
        }
    }

    #[inline(never)]
    fn handle_other(&mut self, cx: &mut Context<'_>, event: EndpointEvent) {
        // Events from before a reset are dropped.
        match event {
            EndpointEvent::TagFree { .. } | EndpointEvent::ReadDone { .. } => unreachable!("handled before"),
            EndpointEvent::Transmit { end, packet, of } | EndpointEvent::Answer { end, packet, of } => {
                match self.core.current(of) {
                    Some(_) => cx.send(end, packet),
                    None => cx.wires.packets.free(packet),
                }
            }
            EndpointEvent::IssueReads { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.issue_reads(cx);
                }
            }
            EndpointEvent::StartWrites { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.start_writes(cx);
                }
            }
            EndpointEvent::WriteFetched { of } => {
                if let Some(requester) = self.core.current(of) {
                    requester.write_fetched(cx);
                }
            }
            EndpointEvent::WriteDone { token, port, of } => {
                if self.core.requester(port).function_life(of.function) == of {
                    self.with_device(cx, |device, bus| device.write_done(bus, token));
                }
            }
            EndpointEvent::Timer { token, epoch } => {
                if epoch == self.core.epoch() {
                    self.with_device(cx, |device, bus| device.timer(bus, token));
                }
            }
            EndpointEvent::Pass { end, packet } => cx.send_tied(end, packet),
            EndpointEvent::CableAccess { cable, packet } => {
                let Some(crossing) = &mut self.crossing else { return };
                let means = &mut Means { cx, core: &mut self.core, device: &mut *self.device };
                crossing.cable_access(means, cable, packet);
            }
            EndpointEvent::CheckTimeouts { of } => {
                let Some(requester) = self.core.current(of) else { return };
                for function in requester.check_timeouts(cx) {
                    self.core.report(cx, function, Detected::CompletionTimeout, None);
                }
            }
        }
    }
}

/// Stands for a device model while that is wrapped.
struct WrappedDevice;

impl Device for WrappedDevice {
    fn functions(&self) -> Vec<Function> {
        Vec::new()
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
}
