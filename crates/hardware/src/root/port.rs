//! A root port: registers, slot, and outbound TLPs.

use engine::Scheduler;
use units::{Duration, Time};
use wire::pcie::config::{ConfigSpace, PcieParams, PortType, SlotParams, acs, aer, header, pcie_cap, slot};
use wire::pcie::tlp::MessageCode;
use wire::pcie::{Bdf, FlowClass, Generation, IntxLine, IntxLines, Width};

use super::intake::Intake;
use super::posted::PostedPlaces;
use super::{HostId, RootEvent, RootPortParams};
use crate::bridge;
use crate::detected::Detected;
use crate::event::Event;
use crate::link::{LinkEnd, LinkState, Side};
use crate::memory::CoreId;
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Vendor and device ID of root ports: Intel's Xeon E5 v4, port 2a.
const IDS: (u16, u16) = (0x8086, 0x6f04);

/// Access control services of root ports (lspci of the Xeon E5 machines of pcie-bench). The IOMMU checks everything
/// that comes upstream, so requests are always redirected.
const SERVICES: u16 = acs::USUAL & !acs::DIRECT_TRANSLATED;

/// A root port and the state of its stages.
pub struct RootPort {
    /// What the port was created with, from the machine file.
    pub params: RootPortParams,
    /// The link's upstream end, which is this port's.
    pub end: LinkEnd,
    /// Its own requester ID: root ports are functions of bus 0.
    pub id: Bdf,
    /// Buses below it.
    pub buses: std::ops::RangeInclusive<u8>,
    /// Registers of the port as a PCI-to-PCI bridge.
    pub config: ConfigSpace,
    host: HostId,
    /// Number in the machine file's order.
    number: u8,
    /// Its I/O stack.
    pub(super) stack: Option<usize>,
    /// Requests of devices on their way to memory.
    pub(super) intake: Intake,
    last_completion: Time,
    /// When the last TLP forwarded to a peer leaves.
    pub(super) last_to_peer: Time,
    /// Places for posted writes of cores.
    pub(super) places: PostedPlaces,
    /// Legacy interrupt lines that are active according to the last messages from below.
    pub(super) lines: IntxLines,
    /// Whether something is in the slot.
    is_present: bool,
    /// Highest speed and width that both ends support.
    negotiated: (Generation, Width),
}

/// Configuration space of root port `number`, which forwards to `buses`.
fn registers(
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
    port.access_control = params.access_control.then_some(SERVICES);
    let mut config = ConfigSpace::bridge(IDS.0, IDS.1)
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

impl RootPort {
    /// Creates port `number` of `host` at `end`, which forwards to `buses`.
    pub(super) fn new(
        (host, number): (HostId, u8),
        params: RootPortParams,
        end: LinkEnd,
        link: (Generation, Width),
        buses: std::ops::RangeInclusive<u8>,
    ) -> Self {
        let config = registers(number, &params, link, &buses);
        Self {
            params,
            end,
            id: Bdf::new(0, number + 1, 0),
            buses,
            config,
            host,
            number,
            stack: None,
            intake: Intake::default(),
            last_completion: Time::ZERO,
            last_to_peer: Time::ZERO,
            places: PostedPlaces::default(),
            lines: IntxLines::default(),
            is_present: false,
            negotiated: link,
        }
    }

    /// Power-on reset of its registers.
    pub(super) fn reset(&mut self) {
        self.buses = 0..=0;
        self.lines = IntxLines::default();
        self.config = registers(self.number, &self.params, self.negotiated, &self.buses);
    }

    fn at(&self, scheduler: &mut Scheduler<Event>, at: Time, event: RootEvent) {
        scheduler.at(at, Event::Root(self.host, event));
    }

    /// Whether a request to it can be sent at all.
    pub(super) fn is_up(&self, wires: &Wires) -> bool {
        wires.link(self.end.link).state() == LinkState::Up
    }

    /// Sends a TLP, tied to the link, at `at`.
    pub(super) fn send(&self, scheduler: &mut Scheduler<Event>, at: Time, packet: PacketId) {
        self.at(scheduler, at, RootEvent::Send { port: self.number, packet });
    }

    /// Sends a completion, tied to the link, once its data is available and earlier completions have left.
    #[inline]
    pub(super) fn queue_completion(&mut self, cx: &mut Context<'_>, ready: Time, packet: PacketId) {
        let mut at = ready + self.params.completion_latency;
        if self.params.completions_in_order {
            at = at.max(self.last_completion);
            self.last_completion = at;
        }
        if !cx.plan(self.end, packet, at) {
            self.send(cx.scheduler, at, packet);
        }
    }

    /// Whether completions are still leaving when a read starts at `start`.
    pub(super) fn is_busy(&self, start: Time) -> bool {
        self.last_completion + self.params.split.busy_hold > start
    }

    /// Completion timeout of its requests; `None` is none.
    pub(super) fn completion_timeout(&self) -> Option<Duration> {
        self.config.completion_timeout().longest(self.params.completion_timeout)
    }

    /// A device was present at power-on.
    pub(crate) fn attach(&mut self) {
        self.is_present = true;
        bridge::show_link(&mut self.config, true);
        bridge::change_slot_status(&mut self.config, 0, slot::STATUS_PRESENT);
    }

    /// A device was inserted into the slot.
    pub(crate) fn plug(&mut self, cx: &mut Context<'_>) {
        self.is_present = true;
        self.train(cx);
        self.show_present(cx.scheduler, true);
    }

    /// The device was removed from the slot, whose link has gone down.
    pub(crate) fn pull(&mut self, scheduler: &mut Scheduler<Event>) {
        self.is_present = false;
        self.show_present(scheduler, false);
    }

    fn show_present(&mut self, scheduler: &mut Scheduler<Event>, present: bool) {
        let (clear, set) = if present { (0, slot::STATUS_PRESENT) } else { (slot::STATUS_PRESENT, 0) };
        self.slot_status(scheduler, clear, set | slot::STATUS_PRESENCE_CHANGED);
    }

    /// Updates the slot status and sends the interrupt if enabled.
    pub(super) fn slot_status(&mut self, scheduler: &mut Scheduler<Event>, clear: u16, set: u16) {
        if bridge::change_slot_status(&mut self.config, clear, set) {
            self.interrupt(scheduler);
        }
    }

    fn set_link_active(&mut self, scheduler: &mut Scheduler<Event>, active: bool) {
        bridge::show_link(&mut self.config, active);
        self.slot_status(scheduler, 0, slot::STATUS_LINK_CHANGED);
    }

    /// Takes the link down; everything in flight on it is lost.
    pub(super) fn take_link_down(&mut self, cx: &mut Context<'_>) {
        cx.with(self.end.link, |link, cx| link.take_down(cx));
        // Link down deasserts all lines from below (base spec 2.2.8.1).
        self.lines = IntxLines::default();
    }

    /// Reports in its registers that the link went down.
    pub(super) fn show_link_lost(&mut self, scheduler: &mut Scheduler<Event>) {
        self.set_link_active(scheduler, false);
    }

    /// Trains the link if there is something in the slot and the port lets it.
    pub(super) fn train(&mut self, cx: &mut Context<'_>) {
        if !self.is_present || !bridge::lets_train(&self.config) {
            return;
        }
        cx.with(self.end.link, |link, cx| link.bring_up(cx));
        self.set_link_active(cx.scheduler, true);
    }

    /// Resets the hierarchy below, which takes the link down.
    pub(super) fn reset_below(&self, scheduler: &mut Scheduler<Event>) {
        self.at(scheduler, scheduler.now(), RootEvent::HotReset { port: self.number });
    }

    /// Retrains the link at the target speed of Link Control 2 if both ends support it (base spec 7.5.3.7, 7.5.3.19).
    pub(super) fn retrain(&mut self, cx: &mut Context<'_>) {
        if !self.is_up(cx.wires) {
            return;
        }
        let (fastest, width) = self.negotiated;
        let generation = bridge::target_speed(&self.config, fastest);
        bridge::show_training(&mut self.config, true);
        cx.with(self.end.link, |link, cx| link.retrain_to(cx, generation, width));
        bridge::show_speed(&mut self.config, generation, width);
        let link = cx.wires.link(self.end.link);
        let trained = link.wire_free(Side::Upstream).max(link.wire_free(Side::Downstream));
        self.at(cx.scheduler, trained, RootEvent::Trained { port: self.number });
    }

    /// The link carries TLPs again.
    pub(super) fn trained(&mut self) {
        bridge::show_training(&mut self.config, false);
    }

    /// Handles a legacy line message. It takes effect behind earlier posted writes, the last of which may be waiting.
    pub(super) fn line_message(&self, scheduler: &mut Scheduler<Event>, line: IntxLine, active: bool) {
        let at = self.intake.writes_done().max(scheduler.now());
        self.at(scheduler, at, RootEvent::Line { port: self.number, line, active });
    }

    /// A line message is due. Returns whether it takes effect now, which it does not if earlier writes have been
    /// delayed.
    pub(super) fn line_due(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        line: IntxLine,
        active: bool,
    ) -> bool {
        let is_due = self.intake.writes_done() <= scheduler.now();
        match is_due {
            true => self.lines.set(line, active),
            false => self.line_message(scheduler, line, active),
        }
        is_due
    }

    /// Handles an error message: records its source and sends the port's interrupt if enabled (base spec 7.8.4.9 to
    /// 7.8.4.11).
    pub fn report(&mut self, scheduler: &mut Scheduler<Event>, source: Bdf, code: MessageCode) {
        let Some(aer) = self.config.aer_offset() else { return };
        let before = self.config.dword(aer + aer::ROOT_STATUS);
        let correctable = code == MessageCode::ERR_COR;
        // Status bits: received, multiple received, first fatal, non-fatal received, fatal received.
        let (enable, first, kinds) = match code {
            MessageCode::ERR_COR => (1 << 0, 1 << 0, 0),
            MessageCode::ERR_NONFATAL => (1 << 1, 1 << 2, 1 << 5),
            MessageCode::ERR_FATAL => (1 << 2, 1 << 2, 1 << 6 | 1 << 4),
            _ => return,
        };
        if before & first == 0 {
            let shift = if correctable { 0 } else { 16 };
            self.config.update(aer + aer::ROOT_SOURCE, 0xffff << shift, u32::from(source.bits()) << shift);
            self.config.update(aer + aer::ROOT_STATUS, 0, first | kinds);
        } else {
            self.config.update(aer + aer::ROOT_STATUS, 0, first << 1 | kinds & !(1 << 4));
        }
        if self.config.dword(aer + aer::ROOT_COMMAND) & enable != 0 {
            self.interrupt(scheduler);
        }
    }

    /// The port itself detected an error and reports it to itself.
    pub(crate) fn detect(&mut self, scheduler: &mut Scheduler<Event>, error: Detected, tlp: Option<&[u8]>) {
        if let Some(code) = error.record(&mut self.config, tlp) {
            self.report(scheduler, self.id, code);
        }
    }

    /// Sends the port's own interrupt, if enabled.
    fn interrupt(&self, scheduler: &mut Scheduler<Event>) {
        let Some(msi) = self.config.msi().filter(|msi| msi.enabled) else { return };
        let event = RootEvent::Interrupt { requester: self.id, address: msi.address, data: msi.data.into() };
        self.at(scheduler, scheduler.now(), event);
    }

    /// Whether it has room for another posted write of a core.
    pub(super) fn has_place(&mut self, now: Time) -> bool {
        self.places.taken(now) < self.params.posted_places
    }

    /// Sends a posted write that reaches the port at `when`. It has held a place since its core requested one.
    pub(super) fn send_posted(&mut self, cx: &mut Context<'_>, when: Time, packet: PacketId) {
        cx.wires.tie(self.end, packet);
        self.places.grant();
        let at = when + self.params.outbound_latency;
        self.at(cx.scheduler, at, RootEvent::SendPosted { port: self.number, packet });
    }

    /// A core's posted write has reached the port.
    pub(super) fn posted_arrived(&mut self, cx: &mut Context<'_>, packet: PacketId) {
        cx.send_tied(self.end, packet);
        self.places.handed_over();
        self.count_places(cx.wires);
    }

    /// The link may have sent or lost waiting TLPs.
    pub(super) fn count_places(&mut self, wires: &Wires) {
        let link = wires.link(self.end.link);
        let starved = link.waiting_of(Side::Upstream, FlowClass::Posted);
        self.places.starved(starved, link.wire_free(Side::Upstream));
    }

    /// A core's stores wait for a place.
    pub(super) fn wait_for_place(&mut self, scheduler: &mut Scheduler<Event>, core: CoreId) {
        let waiting = &mut self.places.waiting;
        if !waiting.contains(&core) {
            waiting.push_back(core);
        }
        self.arrange_look(scheduler);
    }

    /// Schedules a look at the port when its next TLP has left, if a core waits for that.
    pub(super) fn arrange_look(&mut self, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        if self.places.waiting.is_empty() {
            return;
        }
        // Without a known departure, this is called again by the link or when a TLP reaches it.
        let Some(at) = self.places.next_departure().filter(|&at| at > now) else { return };
        if self.places.wake.is_none_or(|wake| wake > at) {
            self.places.wake = Some(at);
            self.at(scheduler, at, RootEvent::PlaceFree { port: self.number });
        }
    }
}
