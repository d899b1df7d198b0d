//! A root port: registers, slot, and outbound TLPs.

use std::ops::RangeInclusive;

use engine::Busy;
use units::{Bytes, Duration, Time};
use wire::pcie::config::dpc::Reason;
use wire::pcie::config::{
    ConfigEffect, ConfigSpace, PcieParams, PortType, SlotParams, acs, header, pcie_cap, slot,
};
use wire::pcie::tlp::{CompletionStatus, ConfigType, MessageCode};
use wire::pcie::{Bdf, FlowClass, Generation, IntxLine, IntxLines, Tlp, Width};

use super::inbound::PortShares;
use super::intake::Intake;
use super::ordered::OrderedWrites;
use super::posted::PostedPlaces;
use super::{HostId, RootEvent, RootPortParams};
use crate::bridge;
use crate::containment;
use crate::detected::{self, Detected};
use crate::event::Event;
use crate::link::{LinkEnd, LinkState, Side};
use crate::memory::{CoreId, LINE};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Vendor and device ID of root ports: Intel's Xeon E5 v4, port 2a.
const IDS: (u16, u16) = (0x8086, 0x6f04);

/// Access control services of root ports (lspci of the Xeon E5 machines of pcie-bench). The IOMMU checks everything
/// that comes upstream, so requests are always redirected.
const SERVICES: u16 = acs::USUAL & !acs::DIRECT_TRANSLATED;

/// A root port: its registers, its end of a link, what of devices' requests it holds, and room for cores' writes.
pub struct RootPort {
    host: HostId,
    /// Number in the machine file's order.
    number: u8,
    params: RootPortParams,
    /// What it shares with other ports.
    shares: PortShares,
    /// Its end of the link.
    end: LinkEnd,
    /// Highest speed and width that both ends support.
    negotiated: (Generation, Width),
    config: ConfigSpace,
    /// Buses below it.
    buses: RangeInclusive<u8>,
    /// Legacy interrupt lines that are active according to the last messages from below.
    lines: IntxLines,
    /// Latency that the device below tolerates, as it has reported.
    tolerated: Option<Duration>,
    /// Latency reports received.
    latency_reports: u64,
    /// Whether something is in the slot.
    is_present: bool,
    /// Requests of devices on their way to memory.
    pub(super) intake: Intake,
    /// Strictly ordered writes on their way to memory.
    ordered: OrderedWrites,
    /// Strictly ordered writes on their way to peers.
    pub(super) ordered_to_peers: OrderedWrites,
    last_completion: Time,
    /// When the interconnect's link for its peers at other sockets is free.
    peer_link_free: Time,
    peer_link_busy: Busy,
    /// When the last TLP forwarded to a peer leaves.
    last_to_peer: Time,
    /// How long its path for writes to peers has been occupied.
    peer_writes: Busy,
    /// Places for posted writes of cores.
    places: PostedPlaces,
}

/// Configuration space of root port `number`, which forwards to `buses`.
fn registers(
    number: u8,
    params: &RootPortParams,
    link: (Generation, Width),
    buses: &RangeInclusive<u8>,
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
    port.ari_forwarding = params.ari_forwarding;
    port.latency_reports = params.latency_reports;
    let built = ConfigSpace::bridge(IDS.0, IDS.1)
        .msi(1)
        .pcie(port)
        .power_management()
        .aer()
        .ecrc()
        .secondary_pcie(link.0, link.1);
    let built = if params.containment { built.containment() } else { built };
    let mut config = built.build().expect("the registers of a root port can be laid out");
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
    /// Creates port `number` of `host` at `end`, which forwards to `buses`, and what it `shares`.
    pub(super) fn new(
        (host, number): (HostId, u8),
        params: RootPortParams,
        shares: PortShares,
        end: LinkEnd,
        link: (Generation, Width),
        buses: RangeInclusive<u8>,
    ) -> Self {
        let config = registers(number, &params, link, &buses);
        Self {
            host,
            number,
            shares,
            end,
            negotiated: link,
            config,
            buses,
            lines: IntxLines::default(),
            tolerated: None,
            latency_reports: 0,
            is_present: false,
            intake: Intake::new(&params),
            ordered: OrderedWrites::new(params.ordered_writes),
            ordered_to_peers: OrderedWrites::new(params.ordered_peer_writes),
            last_completion: Time::ZERO,
            peer_link_free: Time::ZERO,
            peer_link_busy: Busy::default(),
            last_to_peer: Time::ZERO,
            peer_writes: Busy::default(),
            places: PostedPlaces::new(params.posted_places),
            params,
        }
    }

    /// What the port was created with, from the machine file.
    #[inline(always)]
    pub fn params(&self) -> &RootPortParams {
        &self.params
    }

    /// Its end of the link, the upstream one.
    #[inline(always)]
    pub fn end(&self) -> LinkEnd {
        self.end
    }

    /// Its own requester ID: root ports are functions of bus 0.
    #[inline(always)]
    pub fn id(&self) -> Bdf {
        Bdf::new(0, self.number + 1, 0)
    }

    /// Registers of the port as a PCI-to-PCI bridge.
    pub fn config(&self) -> &ConfigSpace {
        &self.config
    }

    /// What it shares with other ports.
    #[inline(always)]
    pub(super) fn shares(&self) -> PortShares {
        self.shares
    }

    /// Whether a bus is below the port.
    pub(super) fn leads_to(&self, bus: u8) -> bool {
        self.buses.contains(&bus)
    }

    /// How a function is addressed through the port; `None` if there cannot be one.
    pub(super) fn way_to(&self, target: Bdf) -> Option<ConfigType> {
        // The bus directly below the port is addressed with type 0, buses beyond it with type 1.
        if *self.buses.start() != target.bus() {
            return Some(ConfigType::Type1);
        }
        // A link leads to device 0 only (base spec 7.3.1).
        (target.device() == 0 || bridge::forwards_ari(&self.config)).then_some(ConfigType::Type0)
    }

    /// Whether the port's access control blocks a request from below.
    #[inline(always)]
    pub(super) fn forbids(&self, tlp: &Tlp) -> bool {
        bridge::forbids(&self.config, || self.leads_to(tlp.requester().bus()), tlp)
    }

    /// Its active legacy interrupt lines, with the device number by which they are swizzled.
    pub(super) fn lines(&self) -> (u8, IntxLines) {
        (self.id().device(), self.lines)
    }

    /// Writes a register. Returns the effects.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        register: u16,
        value: u32,
        enables: u8,
    ) -> Vec<ConfigEffect> {
        self.change(cx, |config| config.write(register, value, enables))
    }

    /// Changes registers, and sends the port's interrupt if the slot or an error demands it and did not before (base spec
    /// 6.2.4.1.2, 6.7.3.4).
    fn change<T>(&mut self, cx: &mut Context<'_>, change: impl FnOnce(&mut ConfigSpace) -> T) -> T {
        let had_error = detected::demands_interrupt(&self.config);
        let (changed, slot) = bridge::change(&mut self.config, change);
        if slot || !had_error && detected::demands_interrupt(&self.config) {
            self.interrupt(cx);
        }
        changed
    }

    /// An effect that concerns this port only.
    pub(super) fn heed(&mut self, cx: &mut Context<'_>, effect: ConfigEffect) {
        match effect {
            ConfigEffect::BusNumbers { secondary, subordinate, .. } => {
                self.buses = secondary.max(1)..=subordinate;
            }
            ConfigEffect::LinkDisable(false)
            | ConfigEffect::SecondaryBusReset(false)
            | ConfigEffect::Containment(false) => self.train(cx),
            ConfigEffect::Containment(true) if containment::is_armed(&self.config) => {
                self.contain(cx, Reason::Software, self.id());
            }
            ConfigEffect::ErrorReporting => {
                cx.wires.set_protected(self.end, self.config.generates_ecrc());
            }
            ConfigEffect::RetrainLink => self.retrain(cx),
            ConfigEffect::SlotCommand { .. } => {
                self.slot_status(cx, 0, slot::STATUS_COMMAND_COMPLETED);
            }
            _ => {}
        }
    }

    /// Power-on reset of its registers.
    pub(super) fn reset(&mut self) {
        self.buses = 0..=0;
        self.lines = IntxLines::default();
        self.tolerated = None;
        self.config = registers(self.number, &self.params, self.negotiated, &self.buses);
    }

    fn at(&self, cx: &mut Context<'_>, at: Time, event: RootEvent) {
        cx.scheduler.at(at, Event::Root(self.host, event));
    }

    /// Whether a request to it can be sent at all.
    pub(super) fn is_up(&self, wires: &Wires) -> bool {
        wires.link(self.end.link).state() == LinkState::Up
    }

    /// Sends a TLP, tied to the link, at `at`.
    pub(super) fn send(&self, cx: &mut Context<'_>, at: Time, packet: PacketId) {
        self.at(cx, at, RootEvent::Send { port: self.number, packet });
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
            self.send(cx, at, packet);
        }
    }

    /// What writes to memory need of the port.
    pub(super) fn for_writes(&mut self) -> (&RootPortParams, &mut OrderedWrites) {
        (&self.params, &mut self.ordered)
    }

    /// How long strictly ordered writes have waited for earlier ones until `now`: those to memory, and those to peers. `None` where
    /// they never do.
    pub fn ordered_writes_waited(&self, now: Time) -> [Option<Duration>; 2] {
        [self.ordered.waited(now), self.ordered_to_peers.waited(now)]
    }

    /// How long its intake was busy up to `now`.
    pub fn intake_busy(&self, now: Time) -> Duration {
        self.intake.busy(now)
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
        self.show_present(cx, true);
    }

    /// The device was removed from the slot, whose link has gone down.
    pub(crate) fn pull(&mut self, cx: &mut Context<'_>) {
        self.is_present = false;
        self.show_present(cx, false);
    }

    fn show_present(&mut self, cx: &mut Context<'_>, present: bool) {
        let (clear, set) = if present { (0, slot::STATUS_PRESENT) } else { (slot::STATUS_PRESENT, 0) };
        self.slot_status(cx, clear, set | slot::STATUS_PRESENCE_CHANGED);
    }

    fn slot_status(&mut self, cx: &mut Context<'_>, clear: u16, set: u16) {
        self.change(cx, |config| bridge::change_slot_status(config, clear, set));
    }

    fn set_link_active(&mut self, cx: &mut Context<'_>, active: bool) {
        bridge::show_link(&mut self.config, active);
        self.slot_status(cx, 0, slot::STATUS_LINK_CHANGED);
    }

    /// Takes the link down; everything in flight on it is lost.
    pub(super) fn take_link_down(&mut self, cx: &mut Context<'_>) {
        cx.with(self.end.link, |link, cx| link.take_down(cx));
        // Link down deasserts all lines from below (base spec 2.2.8.1), and ends what was required (6.18).
        self.lines = IntxLines::default();
        self.tolerated = None;
    }

    /// Reports in its registers that the link went down.
    pub(super) fn show_link_lost(&mut self, cx: &mut Context<'_>) {
        self.set_link_active(cx, false);
    }

    /// Trains the link if there is something in the slot and the port lets it.
    fn train(&mut self, cx: &mut Context<'_>) {
        if !self.is_present || !bridge::lets_train(&self.config) {
            return;
        }
        cx.with(self.end.link, |link, cx| link.bring_up(cx));
        self.set_link_active(cx, true);
    }

    /// Resets the hierarchy below, which takes the link down.
    pub(super) fn reset_below(&self, cx: &mut Context<'_>) {
        self.at(cx, cx.now(), RootEvent::HotReset { port: self.number });
    }

    fn retrain(&mut self, cx: &mut Context<'_>) {
        if let Some(trained) = bridge::retrain(&mut self.config, cx, self.end.link, self.negotiated) {
            self.at(cx, trained, RootEvent::Trained { port: self.number });
        }
    }

    /// The link carries TLPs again.
    pub(super) fn trained(&mut self) {
        bridge::show_training(&mut self.config, false);
    }

    /// Handles a legacy line message. It takes effect behind earlier posted writes, the last of which may be waiting.
    pub(super) fn line_message(&self, cx: &mut Context<'_>, line: IntxLine, active: bool) {
        let at = self.intake.writes_done().max(cx.now());
        self.at(cx, at, RootEvent::Line { port: self.number, line, active });
    }

    /// A line message is due. Returns whether it takes effect now, which it does not if earlier writes have been
    /// delayed.
    pub(super) fn line_due(&mut self, cx: &mut Context<'_>, line: IntxLine, active: bool) -> bool {
        let is_due = self.intake.writes_done() <= cx.now();
        match is_due {
            true => self.lines.set(line, active),
            false => self.line_message(cx, line, active),
        }
        is_due
    }

    /// Handles an error message: contains the error, or records it and sends the port's interrupt if enabled.
    pub fn report(&mut self, cx: &mut Context<'_>, source: Bdf, code: MessageCode) {
        match containment::reason(&self.config, code) {
            Some(reason) => self.contain(cx, reason, source),
            None => self.change(cx, |config| detected::collect(config, source, code)),
        }
    }

    /// Contains what is below, for a reason that is no longer reported otherwise (base spec 6.2.11).
    fn contain(&mut self, cx: &mut Context<'_>, reason: Reason, source: Bdf) {
        self.change(cx, |config| containment::trigger(config, reason, source));
        self.at(cx, cx.now(), RootEvent::Contain { port: self.number });
    }

    /// How requests to below are completed while it contains that; `None` if it does not.
    pub(super) fn contains_as(&self) -> Option<CompletionStatus> {
        containment::completes_as(&self.config)
    }

    /// Takes a report of the latency that the device below tolerates, if software lets it. Memory is snooped, so the latency of other
    /// requests does not matter here.
    pub(super) fn take_latency(&mut self, [snoop, _]: [Option<Duration>; 2]) {
        if self.config.latency_enabled() {
            self.latency_reports += 1;
            self.tolerated = snoop;
        }
    }

    /// Latency that what is below tolerates; `None` if it requires nothing.
    pub fn tolerated(&self) -> Option<Duration> {
        self.tolerated
    }

    /// Latency reports that it has received.
    pub fn latency_reports(&self) -> u64 {
        self.latency_reports
    }

    /// The port itself detected an error, in a TLP that it received or without one, and reports it to itself.
    pub(crate) fn detect(&mut self, cx: &mut Context<'_>, error: Detected, packet: Option<PacketId>) {
        let tlp = packet.map(|packet| cx.wires.packets.bytes(packet));
        let Some(code) = error.record(&mut self.config, tlp) else { return };
        match containment::reason(&self.config, code) {
            Some(_) => self.contain(cx, Reason::Detected, self.id()),
            None => self.report(cx, self.id(), code),
        }
    }

    /// Sends the port's own interrupt, if enabled.
    fn interrupt(&self, cx: &mut Context<'_>) {
        let Some(msi) = self.config.msi().filter(|msi| msi.enabled) else { return };
        let event =
            RootEvent::Interrupt { requester: self.id(), address: msi.address, data: msi.data.into() };
        self.at(cx, cx.now(), event);
    }

    /// When a TLP for a peer that could leave at `at` follows those before it.
    pub(super) fn in_order_to_peer(&mut self, at: Time) -> Time {
        self.last_to_peer = at.max(self.last_to_peer);
        self.last_to_peer
    }

    /// When a TLP with so many `bytes` for a peer at another socket has passed the one link of the interconnect that the port's
    /// peers use, where parallel ones are not shared. It goes in packets of a line: its header takes one.
    pub(super) fn on_peer_link(&mut self, at: Time, bytes: u64) -> Time {
        let Some(rate) = self.params.peer_link else { return at };
        let all = LINE + bytes.next_multiple_of(LINE);
        let (begin, time) = (at.max(self.peer_link_free), rate.time_for(Bytes::new(all)));
        self.peer_link_busy.add(begin, time);
        self.peer_link_free = begin + time;
        self.peer_link_free
    }

    /// How long its peers' link of the interconnect has been occupied until `now`; `None` if they have all of it.
    pub fn peer_link_busy(&self, now: Time) -> Option<Duration> {
        self.params.peer_link.map(|_| self.peer_link_busy.until(now))
    }

    /// Lets time pass between the pieces of writes to peers.
    pub(super) fn space_peer_writes(&mut self) {
        let interval = self.params.peer_write_interval;
        self.peer_writes.add(self.last_to_peer, interval);
        self.last_to_peer += interval;
    }

    /// How long its path for writes to peers has been occupied, until `now`.
    pub fn peer_writes_busy(&self, now: Time) -> Duration {
        self.peer_writes.until(now)
    }

    /// Whether it has room for another posted write of a core.
    pub(super) fn has_place(&mut self, now: Time) -> bool {
        self.places.has_free(now)
    }

    /// Sends a posted write that reaches the port at `when`. It has held a place since its core requested one.
    pub(super) fn send_posted(&mut self, cx: &mut Context<'_>, when: Time, packet: PacketId) {
        cx.wires.tie(self.end, packet);
        self.places.grant();
        let at = when + self.params.outbound_latency;
        self.at(cx, at, RootEvent::SendPosted { port: self.number, packet });
    }

    /// A core's posted write has reached the port.
    pub(super) fn posted_arrived(&mut self, cx: &mut Context<'_>, packet: PacketId) {
        cx.send_tied(self.end, packet);
        self.places.handed_over();
        self.count_places(cx);
    }

    /// The link may have sent or lost waiting TLPs.
    pub(super) fn count_places(&mut self, cx: &Context<'_>) {
        let link = cx.wires.link(self.end.link);
        let starved = link.waiting_of(Side::Upstream, FlowClass::Posted);
        self.places.starved(starved, link.wire_free(Side::Upstream));
    }

    /// A core's stores wait for a place.
    pub(super) fn wait_for_place(&mut self, cx: &mut Context<'_>, core: CoreId) {
        self.places.wait(core);
        self.arrange_look(cx);
    }

    /// The number of cores that wait for a place. Whoever asks lets them [go on](Self::next_waiting), and then
    /// [arranges](Self::arrange_look) to be called again.
    pub(super) fn waiting(&mut self, now: Time) -> usize {
        self.places.waiting(now)
    }

    /// The next core that waited for a place, if there is one now.
    pub(super) fn next_waiting(&mut self, now: Time) -> Option<CoreId> {
        self.places.next_waiting(now)
    }

    /// Schedules a look at the port when its next TLP has left, if a core waits for that.
    pub(super) fn arrange_look(&mut self, cx: &mut Context<'_>) {
        // Without a known departure, this is called again by the link or when a TLP reaches it.
        if let Some(at) = self.places.next_look(cx.now()) {
            self.at(cx, at, RootEvent::PlaceFree { port: self.number });
        }
    }
}
