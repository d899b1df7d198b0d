//! A root port as a function of bus 0: its configuration space and what writes to it set off.

use engine::{Completion, Scheduler, oneshot};
use units::{Bytes, HostPhysical, Time};
use wire::pcie::config::header;
use wire::pcie::config::{
    ConfigEffect, ConfigSpace, PcieParams, PortType, SlotParams, acs, aer, pcie_cap, slot,
};
use wire::pcie::tlp::MessageCode;
use wire::pcie::{Bdf, Generation, IntxLines, Width};

use super::{Host, InterruptMessage, RootEvent, RootPortParams};
use crate::bridge;
use crate::detected::Detected;
use crate::event::Event;
use crate::iommu::{Delivery, Interrupt, MsiMessage, PostedDescriptor, PostedInterrupt};
use crate::link::{LinkEnd, Side};
use crate::memory::{Cause, CoreId, Coverage, NodeId};
use crate::wires::{Context, Wires};

/// The data of an interrupt message (base spec 6.1.4: a write of one doubleword).
const MESSAGE: Bytes = Bytes::new(4);

/// Vendor and device ID of root ports: Intel's Xeon E5 v4, port 2a.
const ROOT_PORT_ID: (u16, u16) = (0x8086, 0x6f04);

/// Access control services of root ports (lspci of the Xeon E5 machines of pcie-bench). All that comes up is judged by the IOMMU, and
/// so redirected by nature.
const ROOT_SERVICES: u16 = acs::USUAL & !acs::DIRECT_TRANSLATED;

/// The registers of root port `number`, which leads to `buses`.
pub(super) fn root_port(
    number: u8,
    params: &RootPortParams,
    link: (Generation, Width),
    buses: &std::ops::RangeInclusive<u8>,
) -> ConfigSpace {
    let mut port = PcieParams::port(PortType::RootPort, link.0, link.1);
    port.max_payload = params.max_payload;
    port.port_number = number + 1;
    port.slot = Some(SlotParams {
        number: u16::from(number) + 1,
        power_controller: false,
        attention_button: false,
        surprise: true,
        power_limit_w: 75,
    });
    port.access_control = params.access_control.then_some(ROOT_SERVICES);
    let mut config = ConfigSpace::bridge(ROOT_PORT_ID.0, ROOT_PORT_ID.1)
        .msi(1)
        .pcie(port)
        .power_management()
        .aer()
        .ecrc()
        .secondary_pcie(link.0, link.1)
        .build()
        .expect("the registers of a root port can be laid out");
    let numbers = u32::from(*buses.start()) << 8 | u32::from(*buses.end()) << 16;
    config.update(header::BUS_NUMBERS, 0x00ff_ffff, numbers);
    if params.split.boundary == 128
        && let Some(pcie) = config.pcie_offset()
    {
        config.update(pcie + pcie_cap::LINK_CONTROL, 0, pcie_cap::LINK_CONTROL_RCB_128.into());
    }
    config
}

impl Host {
    /// An interrupt message reached the root complex: it is remapped, if that is on, and goes to the cores.
    pub(super) fn interrupt(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        requester: Bdf,
        message: MsiMessage,
    ) {
        let now = scheduler.now();
        let port = self.ports.iter().find(|p| p.id == requester || p.buses.contains(&requester.bus()));
        let from = port.map_or(NodeId(0), |port| port.params.node);
        if let Some(iommu) = self.iommus.get_mut(from.index()).filter(|iommu| iommu.remaps_interrupts()) {
            let remapped = iommu.remap_interrupt(now, requester, message, &mut self.memory);
            match remapped.outcome {
                Ok(Delivery::Core(interrupt)) => {
                    self.send_interrupt(scheduler, remapped.ready.max(now), from, requester, interrupt);
                }
                Ok(Delivery::Posted(posted)) => {
                    self.post_interrupt(scheduler, remapped.ready.max(now), from, requester, posted);
                }
                Err(_) => self.counters.blocked_interrupts += 1,
            }
        } else if let Ok(interrupt) = message.unremapped() {
            self.send_interrupt(scheduler, now, from, requester, interrupt);
        } else {
            self.counters.blocked_interrupts += 1;
        }
    }

    /// An interrupt for a guest's core is noted in its descriptor, which the IOMMU reads, changes and writes at once; who is to be
    /// notified is.
    fn post_interrupt(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        at: Time,
        from: NodeId,
        requester: Bdf,
        posted: PostedInterrupt,
    ) {
        let place = posted.descriptor;
        let mut bytes = [0; PostedDescriptor::BYTES];
        if self.memory.bytes().read(place, &mut bytes).is_err() {
            self.counters.blocked_interrupts += 1;
            return;
        }
        let read = self.memory.dma_read(at, from, place);
        let done = self.memory.dma_write(read.ready, from, place, Coverage::FullLine).ready;
        let mut descriptor = PostedDescriptor::decode(&bytes);
        let notification = descriptor.post(posted.vector, posted.urgent);
        // It was read there.
        let _ = self.memory.bytes_mut().write(place, &descriptor.encode());
        self.counters.posted_interrupts += 1;
        if let Some(interrupt) = notification {
            self.send_interrupt(scheduler, done, from, requester, interrupt);
        }
    }

    /// An interrupt whose core is known leaves the socket `from` for that of the core.
    fn send_interrupt(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        at: Time,
        from: NodeId,
        requester: Bdf,
        interrupt: Interrupt,
    ) {
        // A set of cores is told at once: no kernel here asks for one.
        let core = (!interrupt.logical).then_some(CoreId(interrupt.destination as u16));
        let to = core.and_then(|core| self.memory.node_of_core(core)).unwrap_or(from);
        let there = self.memory.charge_interconnect(at, Cause::Interrupt, from, to, MESSAGE);
        if there == scheduler.now() {
            self.deliver_interrupt(there, requester, interrupt);
        } else {
            scheduler.at(there, Event::Root(self.id, RootEvent::CoreInterrupt { requester, interrupt }));
        }
    }

    pub(super) fn deliver_interrupt(&mut self, at: Time, requester: Bdf, interrupt: Interrupt) {
        self.counters.interrupts += 1;
        if let Some(sink) = &mut self.interrupts {
            sink.deliver(InterruptMessage { at, requester, interrupt });
        }
    }

    /// A core reads or writes the registers of a root port.
    pub(super) fn root_port_access(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        target: Bdf,
        register: u16,
        write: Option<(u32, u8)>,
    ) -> Completion<Vec<u8>> {
        let (completer, completion) = oneshot();
        let Some(number) = self.ports.iter().position(|port| port.id == target) else {
            completer.complete(vec![0xff; 4]);
            return completion;
        };
        let port = &mut self.ports[number];
        let data = port.config.dword(register).to_le_bytes().to_vec();
        if let Some((value, enables)) = write {
            let effects = port.config.write(register, value, enables);
            for effect in effects {
                self.root_port_effect(cx, number as u8, effect);
            }
        }
        let bytes = if write.is_some() { 4 } else { 0 };
        let there = self.reach_port(core, cx.now(), number as u8, Cause::MmioRegister, bytes);
        let done = there + self.ports[number].params.outbound_latency;
        let back = self.answer_core(core, done, number as u8, data.len());
        let slot = self.outbound.park(completer, data);
        cx.scheduler.at(back, Event::Root(self.id, RootEvent::CoreHasData { slot }));
        completion
    }

    fn root_port_effect(&mut self, cx: &mut Context<'_>, number: u8, effect: ConfigEffect) {
        let port = &mut self.ports[usize::from(number)];
        match effect {
            ConfigEffect::BusNumbers { secondary, subordinate, .. } => {
                port.buses = secondary.max(1)..=subordinate;
            }
            ConfigEffect::WindowMoved | ConfigEffect::MemoryEnable(_) => {
                let windows: Vec<_> = bridge::windows(&port.config).collect();
                self.outbound.set_bridge_windows(number, &windows);
            }
            ConfigEffect::LinkDisable(true) => {
                self.link_lost(cx, number);
                // A device whose link goes down is reset (base spec 5.2, 6.6.1).
                cx.scheduler.at(cx.now(), Event::Root(self.id, RootEvent::HotReset { port: number }));
            }
            ConfigEffect::ErrorReporting => cx.wires.set_protected(port.end, port.config.generates_ecrc()),
            ConfigEffect::RetrainLink => self.retrain(cx, number),
            ConfigEffect::LinkDisable(false) => self.link_back(cx, number),
            ConfigEffect::SecondaryBusReset(on) => self.hot_reset(cx, number, on),
            ConfigEffect::SlotCommand { .. } => {
                self.slot_status(cx.scheduler, number, 0, slot::STATUS_COMMAND_COMPLETED);
            }
            _ => {}
        }
    }

    /// The link below a port went down, with whatever was under way on it.
    pub fn link_lost(&mut self, cx: &mut Context<'_>, number: u8) {
        let end = self.ports[usize::from(number)].end;
        cx.with(end.link, |link, cx, released| link.take_down(cx, released));
        self.abandon(cx.scheduler, number);
        self.abandon_peers(cx, number);
        self.link_drained(cx, number);
        // What is below makes no line active any more (base spec 2.2.8.1).
        self.ports[usize::from(number)].lines = IntxLines::default();
        self.heed_lines(cx.scheduler);
        self.set_link_active(cx.scheduler, number, false);
    }

    /// Resets what is below a port as long as its bit is set (base spec 7.5.1.3.13); then the link trains anew.
    fn hot_reset(&mut self, cx: &mut Context<'_>, number: u8, on: bool) {
        let is_up = self.link_is_up(cx.wires, number);
        let port = &mut self.ports[usize::from(number)];
        if on && is_up {
            port.in_reset = true;
            self.link_lost(cx, number);
            cx.scheduler.at(cx.now(), Event::Root(self.id, RootEvent::HotReset { port: number }));
        } else if !on && std::mem::take(&mut port.in_reset) {
            self.link_back(cx, number);
        }
    }

    /// Trains the link below a port again, at the speed that Link Control 2 asks for if both ends can (base spec
    /// 7.5.3.7, 7.5.3.19).
    fn retrain(&mut self, cx: &mut Context<'_>, number: u8) {
        if !self.link_is_up(cx.wires, number) {
            return;
        }
        let port = &mut self.ports[usize::from(number)];
        let (fastest, width) = port.negotiated;
        let generation = bridge::target_speed(&port.config, fastest);
        bridge::show_training(&mut port.config, true);
        let link = port.end.link;
        cx.with(link, |link, cx, released| {
            link.retrain_to(cx, generation, width, released);
        });
        let link = cx.wires.link(link);
        bridge::show_speed(&mut port.config, generation, width);
        let trained = link.wire_free(Side::Upstream).max(link.wire_free(Side::Downstream));
        cx.scheduler.at(trained, Event::Root(self.id, RootEvent::Trained { port: number }));
    }

    /// The link below a port carries TLPs again.
    pub(super) fn link_trained(&mut self, number: u8) {
        bridge::show_training(&mut self.ports[usize::from(number)].config, false);
    }

    /// The upper end of the link below a port.
    pub(crate) fn link_end(&self, number: u8) -> LinkEnd {
        self.ports[usize::from(number)].end
    }

    /// The link below a port came up again.
    pub fn link_back(&mut self, cx: &mut Context<'_>, number: u8) {
        let end = self.ports[usize::from(number)].end;
        cx.with(end.link, |link, cx, _| link.bring_up(cx));
        self.set_link_active(cx.scheduler, number, true);
    }

    /// A device was there before the power came on.
    pub(crate) fn attach(&mut self, number: u8) {
        let port = &mut self.ports[usize::from(number)];
        bridge::show_link(&mut port.config, true);
        bridge::change_slot_status(&mut port.config, 0, slot::STATUS_PRESENT);
    }

    /// Shows in a port's registers whether its link is active.
    fn set_link_active(&mut self, scheduler: &mut Scheduler<Event>, number: u8, active: bool) {
        bridge::show_link(&mut self.ports[usize::from(number)].config, active);
        self.slot_status(scheduler, number, 0, slot::STATUS_LINK_CHANGED);
    }

    /// Something was put into the slot below a port, or taken out.
    pub fn set_present(&mut self, scheduler: &mut Scheduler<Event>, number: u8, present: bool) {
        self.ports[usize::from(number)].in_reset = false;
        let (clear, set) = if present { (0, slot::STATUS_PRESENT) } else { (slot::STATUS_PRESENT, 0) };
        self.slot_status(scheduler, number, clear, set | slot::STATUS_PRESENCE_CHANGED);
    }

    /// Changes slot status and interrupts if the slot is to.
    fn slot_status(&mut self, scheduler: &mut Scheduler<Event>, number: u8, clear: u16, set: u16) {
        let port = &mut self.ports[usize::from(number)];
        if bridge::change_slot_status(&mut port.config, clear, set) {
            self.port_interrupt(scheduler, number);
        }
    }

    /// An error message reached a port: its source is kept, and the port interrupts if it is to (base spec 7.8.4.9
    /// to 7.8.4.11).
    pub fn report_error(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        number: u8,
        source: Bdf,
        code: MessageCode,
    ) {
        let port = &mut self.ports[usize::from(number)];
        let Some(aer) = port.config.aer_offset() else { return };
        let before = port.config.dword(aer + aer::ROOT_STATUS);
        let correctable = code == MessageCode::ERR_COR;
        // Received, received again, first was fatal, non-fatal seen, fatal seen.
        let (enable, first, kinds) = match code {
            MessageCode::ERR_COR => (1 << 0, 1 << 0, 0),
            MessageCode::ERR_NONFATAL => (1 << 1, 1 << 2, 1 << 5),
            MessageCode::ERR_FATAL => (1 << 2, 1 << 2, 1 << 6 | 1 << 4),
            _ => return,
        };
        if before & first == 0 {
            let shift = if correctable { 0 } else { 16 };
            port.config.update(aer + aer::ROOT_SOURCE, 0xffff << shift, u32::from(source.bits()) << shift);
            port.config.update(aer + aer::ROOT_STATUS, 0, first | kinds);
        } else {
            port.config.update(aer + aer::ROOT_STATUS, 0, first << 1 | kinds & !(1 << 4));
        }
        if port.config.dword(aer + aer::ROOT_COMMAND) & enable != 0 {
            self.port_interrupt(scheduler, number);
        }
    }

    /// A port itself detected an error: it reports to itself.
    pub(crate) fn port_error(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        number: u8,
        error: Detected,
        tlp: Option<&[u8]>,
    ) {
        let port = &mut self.ports[usize::from(number)];
        let id = port.id;
        if let Some(code) = error.record(&mut port.config, tlp) {
            self.report_error(scheduler, number, id, code);
        }
    }

    /// A root port's own interrupt, if it may send one.
    pub(crate) fn port_interrupt(&mut self, scheduler: &mut Scheduler<Event>, number: u8) {
        let port = &self.ports[usize::from(number)];
        let Some(msi) = port.config.msi().filter(|msi| msi.enabled) else { return };
        let event = RootEvent::Interrupt { requester: port.id, address: msi.address, data: msi.data.into() };
        scheduler.at(scheduler.now(), Event::Root(self.id, event));
    }

    /// Whether a request for a port can be sent at all.
    pub(super) fn link_is_up(&self, wires: &Wires, number: u8) -> bool {
        let link = self.ports[usize::from(number)].end.link;
        wires.link(link).state() == crate::link::LinkState::Up
    }

    /// The port whose windows hold an address.
    pub fn port_of(&self, address: HostPhysical) -> Option<u8> {
        self.outbound.port_of(address.get())
    }
}
