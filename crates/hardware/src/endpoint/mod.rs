//! A device on the fabric: its PCIe core, and the model of its registers and firmware.

mod bus;
mod completer;
mod core;
mod crossing;
mod event;
mod params;
mod registers;
mod requester;

use platform::device::{Device, DeviceBus, FunctionIndex, PortIndex, Reset};
use wire::pcie::{IntxLines, TlpKind};

pub use event::EndpointEvent;
pub use params::EndpointParams;
pub use registers::{Allowance, Registers};
use requester::Arrived;
pub use requester::{Life, PortLife, Requester, RequesterCounters};

use bus::Bus;

use crate::detected::Detected;
use crate::link::{DirectionCounters, LinkEnd, LinkId, Side};
use crate::ntb::Bridge;
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Number of a device in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(pub u16);

/// The PCIe core of a device: everything except the device model.
pub struct Core {
    id: EndpointId,
    ends: Vec<LinkEnd>,
    params: EndpointParams,
    /// Configuration spaces, BARs, interrupt tables.
    pub registers: Registers,
    /// DMA. Each port has its own tags, settings and order, so that a stalled port does not delay others.
    requesters: Vec<Requester>,
    /// By port: active legacy interrupt lines, as last signalled to the link partner.
    lines: Vec<IntxLines>,
    /// Counts resets of the whole device. Timers of an earlier epoch are dropped.
    epoch: u16,
    /// Unsupported requests from the host: malformed, or to an address that nothing decodes.
    pub unsupported_requests: u64,
}

/// A device on the fabric.
pub struct Endpoint {
    /// Its PCIe core.
    pub core: Core,
    device: Box<dyn Device>,
    /// Buffer for the data of one BAR access, reused.
    access: Vec<u8>,
    /// The non-transparent bridge of an adapter with one.
    bridge: Option<Box<Bridge>>,
    /// Links that ports were connected to before they moved to other slots.
    former: Vec<(PortIndex, LinkId)>,
}

impl Endpoint {
    /// Creates a device with its upstream ports at `ends`.
    pub fn new(id: EndpointId, params: EndpointParams, ends: Vec<LinkEnd>, device: Box<dyn Device>) -> Self {
        let registers = Registers::new(&*device);
        let ports = registers.ports().max(1) as u8;
        let requester = |port| Requester::new(id, port, params, device.data_mover(port));
        let requesters = (0..ports).map(|port| requester(PortIndex(port))).collect();
        let lines = vec![IntxLines::default(); ports.into()];
        let core = Core { id, ends, params, registers, requesters, lines, epoch: 0, unsupported_requests: 0 };
        Self { core, device, access: Vec::new(), bridge: None, former: Vec::new() }
    }

    /// Whether each port used by a function has a link.
    pub(crate) fn has_its_links(&self) -> bool {
        self.core.registers.ports() <= self.core.ends.len()
    }

    /// Disconnects it from its links.
    pub(crate) fn take_links(&mut self) -> Vec<LinkEnd> {
        std::mem::take(&mut self.core.ends)
    }

    /// Connects it, which has no links, to the ends of links.
    pub(crate) fn give_links(&mut self, ends: Vec<LinkEnd>) {
        assert!(self.core.ends.is_empty(), "a device is in one slot");
        self.core.ends = ends;
        assert!(self.has_its_links(), "a function of the device names a port without a link");
    }

    /// Moves one of its ports to another link.
    pub(crate) fn set_link(&mut self, port: PortIndex, link: LinkId) {
        let before = std::mem::replace(&mut self.core.ends[usize::from(port.0)].link, link);
        self.former.retain(|&(_, former)| former != link);
        self.former.push((port, before));
    }

    /// Traffic of all links that a port has been connected to, in the direction sent by `side`.
    pub fn carried(&self, wires: &Wires, port: PortIndex, side: Side) -> DirectionCounters {
        let now = self.core.ends.get(usize::from(port.0)).map(|end| end.link);
        let former = self.former.iter().filter(|(of, _)| *of == port).map(|&(_, link)| link);
        let mut sum = DirectionCounters::default();
        now.into_iter().chain(former).for_each(|link| sum += wires.link(link).counters(side));
        sum
    }

    /// Links of which it is the downstream end, port 0 first.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.core.ends.iter().map(|end| end.link)
    }

    /// The device model.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Runs `act` on the device model, as if from inside: it may start DMA.
    pub fn with_device<R>(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Device, &mut dyn DeviceBus) -> R,
    ) -> R {
        let Self { core, device, .. } = self;
        act(&mut **device, &mut Bus { core, cx })
    }

    /// Handles a TLP that arrived at one of the device's ports.
    #[inline(always)]
    pub fn deliver(&mut self, cx: &mut Context<'_>, end: LinkEnd, packet: PacketId) {
        if self.bridge.is_some() && self.cross_out(cx, end, packet) {
            return;
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
                let arrived = Arrived { end, header, poisoned, padding, payload };
                let (at, fault) = requester.completion(cx.wires, cx.scheduler, arrived);
                if let Some((function, error)) = fault {
                    self.core.report(cx, function, error, Some(packet));
                }
                cx.consume(packet, at);
            }
            _ => {
                let tlp = *tlp;
                let held = self.host_request(cx, end, packet, &tlp);
                cx.consume(packet, now + held);
            }
        }
    }

    /// The link layer of one of the device's ports detected a correctable error.
    pub fn link_error(&mut self, cx: &mut Context<'_>, end: LinkEnd, error: Detected) {
        let function = self.core.registers.first_below(self.core.port_at(end));
        self.core.report(cx, function, error, None);
    }

    /// Resets the device.
    pub fn reset(&mut self, cx: &mut Context<'_>, reset: Reset) {
        match reset {
            // The device's other functions continue, except those reset with it.
            Reset::Function(function) => {
                self.reset_virtual_functions(cx, function);
                let (port, _) = self.core.registers.port_and_id(function);
                self.core.requester_mut(port).reset_function(function);
            }
            Reset::Fundamental | Reset::Hot => {
                self.core.ends.iter().for_each(|&end| cx.recall(end));
                self.core.requesters.iter_mut().for_each(Requester::reset);
                // The link partners have cleared them with the link (base spec 2.2.8.1).
                self.core.lines.fill(IntxLines::default());
                self.core.epoch = self.core.epoch.wrapping_add(1);
            }
        }
        self.core.registers.reset(reset);
        self.core.heed_registers();
        self.core.protect(cx.wires);
        self.core.drive_lines(cx);
        self.with_device(cx, |device, bus| device.reset(bus, reset));
    }

    /// The link at a port went down or was reset: resets the functions below it, and the whole device if it has no
    /// other port.
    pub fn reset_port(&mut self, cx: &mut Context<'_>, end: LinkEnd) {
        let port = self.core.port_at(end);
        let Some(functions) = self.core.registers.alone_below(port) else {
            return self.reset(cx, Reset::Hot);
        };
        cx.recall(end);
        // No completion will come for requests sent through it.
        self.core.requester_mut(port).reset();
        self.core.lines[usize::from(port.0)] = IntxLines::default();
        for function in functions {
            self.reset(cx, Reset::Function(function));
        }
    }

    /// Resets the virtual functions of a physical one that is reset or has disabled them.
    fn reset_virtual_functions(&mut self, cx: &mut Context<'_>, of: FunctionIndex) {
        for function in self.core.registers.virtual_functions(of) {
            self.reset(cx, Reset::Function(function));
        }
    }

    /// The link at one of the device's ports has sent waiting packets.
    pub fn link_drained(&mut self, cx: &mut Context<'_>, end: LinkEnd) {
        let port = self.core.port_at(end);
        self.core.requester_mut(port).start_writes(cx);
    }
}
