//! A port of a switch: a PCI-to-PCI bridge with a link and, below, a slot.

use units::{Duration, Time};
use wire::pcie::config::dpc::Reason;
use wire::pcie::config::header::{self, Window};
use wire::pcie::config::msi::MsiState;
use wire::pcie::config::{ConfigEffect, ConfigSpace, PcieParams, PortType, ResetKind, SlotParams, slot};
use wire::pcie::tlp::{CompletionStatus, MessageCode};
use wire::pcie::{Bdf, Generation, IntxLine, IntxLines, Tlp, Width};

use super::{SwitchEvent, SwitchId, SwitchParams};
use crate::bridge;
use crate::containment;
use crate::detected::Detected;
use crate::event::Event;
use crate::link::{LinkEnd, LinkState};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// A closed window.
const SHUT: Window = Window { base: u64::MAX, limit: 0 };

/// A port of a switch.
pub struct SwitchPort {
    switch: SwitchId,
    /// Its index among the ports; 0 is the upstream port.
    index: u8,
    end: LinkEnd,
    config: ConfigSpace,
    /// Downstream port: its device number on the internal bus.
    number: u8,
    /// Its secondary and subordinate bus numbers.
    buses: (u8, u8),
    /// Address windows; a closed one contains no address.
    windows: [Window; 2],
    /// By egress port: when the last TLP that arrived here is forwarded.
    last: Vec<Time>,
    /// Active legacy interrupt lines: as received from below at a downstream port, as sent at the upstream port.
    lines: IntxLines,
    /// Latencies that what is below requires, as it has reported; at the upstream port, as it was reported there.
    latencies: [Option<Duration>; 2],
    /// Whether something is in the slot.
    is_present: bool,
    /// Highest speed and width that both ends of the link support.
    negotiated: (Generation, Width),
}

/// Creates the registers of a port.
fn registers(params: &SwitchParams, is_upstream: bool, number: u8, link: (Generation, Width)) -> ConfigSpace {
    let kind = if is_upstream { PortType::UpstreamPort } else { PortType::DownstreamPort };
    let mut pcie = PcieParams::port(kind, link.0, link.1);
    (pcie.max_payload, pcie.port_number) = (params.max_payload, number);
    pcie.slot = (!is_upstream).then_some(SlotParams {
        number: u16::from(number),
        power_controller: false,
        attention_button: false,
        surprise: true,
        power_limit_w: 75,
    });
    pcie.access_control = (!is_upstream).then_some(params.acs);
    pcie.latency_reports = params.latency_reports;
    let config = ConfigSpace::bridge(params.ids.0, params.ids.1).msi(1).pcie(pcie).aer().ecrc();
    let config = if params.containment && !is_upstream { config.containment() } else { config };
    config.build().expect("the registers of a switch's port can be laid out")
}

impl SwitchPort {
    /// Creates port `index` of a switch, the first of which is the upstream port.
    pub(super) fn new(
        (switch, index): (SwitchId, u8),
        params: &SwitchParams,
        end: LinkEnd,
        number: u8,
        link: (Generation, Width),
    ) -> Self {
        let is_upstream = index == 0;
        Self {
            switch,
            index,
            end,
            config: registers(params, is_upstream, number, link),
            number,
            buses: (0, 0),
            windows: [SHUT; 2],
            last: Vec::new(),
            lines: IntxLines::default(),
            latencies: [None; 2],
            is_present: is_upstream,
            negotiated: link,
        }
    }

    /// The end of the link that is at this port.
    pub fn end(&self) -> LinkEnd {
        self.end
    }

    /// Registers of the port's bridge.
    pub fn config(&self) -> &ConfigSpace {
        &self.config
    }

    /// Downstream port: its device number on the internal bus.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// Number of the bus below.
    pub(super) fn secondary(&self) -> u8 {
        self.buses.0
    }

    /// Whether a bus is below the port.
    pub(super) fn leads_to(&self, bus: u8) -> bool {
        self.buses.0 != 0 && (self.buses.0..=self.buses.1).contains(&bus)
    }

    /// Whether an address is below the port.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.windows.iter().any(|window| window.contains(address))
    }

    /// Whether an access control service is on.
    pub(super) fn controls(&self, service: u16) -> bool {
        self.config.acs_control() & service != 0
    }

    /// Whether the port's access control blocks a request from below.
    pub(super) fn forbids(&self, tlp: &Tlp) -> bool {
        bridge::forbids(&self.config, || self.leads_to(tlp.requester().bus()), tlp)
    }

    /// State of its link.
    pub(super) fn link_state(&self, wires: &Wires) -> LinkState {
        wires.link(self.end.link).state()
    }

    /// Sends a TLP from this port at `at`.
    pub(super) fn send_at(&self, cx: &mut Context<'_>, packet: PacketId, at: Time) {
        cx.wires.tie(self.end, packet);
        self.at(cx, at, SwitchEvent::Send { port: self.index, packet });
    }

    fn at(&self, cx: &mut Context<'_>, at: Time, event: SwitchEvent) {
        cx.scheduler.at(at, Event::Switch(self.switch, event));
    }

    /// When a TLP that arrived here and could be sent by port `to` at `at` follows those before it.
    pub(super) fn in_order(&mut self, to: usize, at: Time) -> Time {
        if to >= self.last.len() {
            self.last.resize(to + 1, Time::ZERO);
        }
        let last = &mut self.last[to];
        *last = at.max(*last);
        *last
    }

    /// When the last TLP that arrived here is sent upstream.
    pub(super) fn last_upstream(&self) -> Time {
        self.last.first().copied().unwrap_or_default()
    }

    /// Logs an error. Returns the message that reports it, if enabled.
    pub(super) fn record(&mut self, error: Detected, tlp: Option<&[u8]>) -> Option<MessageCode> {
        error.record(&mut self.config, tlp)
    }

    /// Why it contains what is below after an error message from there, if it does.
    pub(super) fn reason_to_contain(&self, code: MessageCode) -> Option<Reason> {
        containment::reason(&self.config, code)
    }

    /// Contains what is below. Returns the interrupt that this causes.
    pub(super) fn contain(&mut self, cx: &mut Context<'_>, reason: Reason, source: Bdf) -> Option<MsiState> {
        self.at(cx, cx.now(), SwitchEvent::Contain { port: self.index });
        self.change(|config| containment::trigger(config, reason, source)).1
    }

    /// How requests to below are completed while it contains that; `None` if it does not.
    pub(super) fn contains_as(&self) -> Option<CompletionStatus> {
        containment::completes_as(&self.config)
    }

    /// Whether software can let it contain what is below.
    pub(super) fn is_armed(&self) -> bool {
        containment::is_armed(&self.config)
    }

    /// Sets a legacy interrupt line, as a message from below says.
    pub(super) fn set_line(&mut self, line: IntxLine, active: bool) {
        self.lines.set(line, active);
    }

    /// Sets all legacy interrupt lines. Returns the previous ones.
    pub(super) fn replace_lines(&mut self, lines: IntxLines) -> IntxLines {
        std::mem::replace(&mut self.lines, lines)
    }

    /// Its active lines, with the device number by which those above swizzle them.
    pub(super) fn lines(&self) -> (u8, IntxLines) {
        (self.number, self.lines)
    }

    /// Takes a report of the latencies that what is below requires, if software lets it.
    pub(super) fn take_latencies(&mut self, latencies: [Option<Duration>; 2]) {
        if self.config.latency_enabled() {
            self.latencies = latencies;
        }
    }

    /// Latencies that what is below requires.
    pub(super) fn latencies(&self) -> [Option<Duration>; 2] {
        self.latencies
    }

    /// Writes a register. Returns the effects, and the interrupt that this causes.
    pub(super) fn write(
        &mut self,
        register: u16,
        value: u32,
        enables: u8,
    ) -> (Vec<ConfigEffect>, Option<MsiState>) {
        self.change(|config| config.write(register, value, enables))
    }

    /// Changes registers. Also returns the interrupt that this causes.
    fn change<T>(&mut self, change: impl FnOnce(&mut ConfigSpace) -> T) -> (T, Option<MsiState>) {
        let (changed, interrupts) = bridge::change(&mut self.config, change);
        let may_send = interrupts && self.config.bus_master_enabled();
        (changed, self.config.msi().filter(|msi| may_send && msi.enabled))
    }

    /// An effect that concerns this port only. Returns the interrupt that it causes.
    pub(super) fn heed(&mut self, cx: &mut Context<'_>, effect: ConfigEffect) -> Option<MsiState> {
        match effect {
            ConfigEffect::BusNumbers { .. } | ConfigEffect::WindowMoved | ConfigEffect::MemoryEnable(_) => {
                self.reach();
            }
            ConfigEffect::ErrorReporting => {
                cx.wires.set_protected(self.end, self.config.generates_ecrc());
            }
            ConfigEffect::RetrainLink if self.index != 0 => self.retrain(cx),
            ConfigEffect::SlotCommand { .. } if self.index != 0 => {
                return self.slot_status(0, slot::STATUS_COMMAND_COMPLETED);
            }
            _ => {}
        }
        None
    }

    /// Updates the bus and address ranges from the registers.
    fn reach(&mut self) {
        let numbers = self.config.dword(header::BUS_NUMBERS);
        self.buses = ((numbers >> 8) as u8, (numbers >> 16) as u8);
        self.windows = [SHUT; 2];
        for (place, window) in self.windows.iter_mut().zip(bridge::windows(&self.config)) {
            *place = window;
        }
    }

    /// Requests that the fabric resets the hierarchy below.
    pub(super) fn reset_below(&self, cx: &mut Context<'_>) {
        self.at(cx, cx.now(), SwitchEvent::HotReset { port: self.index });
    }

    fn retrain(&mut self, cx: &mut Context<'_>) {
        if let Some(trained) = bridge::retrain(&mut self.config, cx, self.end.link, self.negotiated) {
            self.at(cx, trained, SwitchEvent::Trained { port: self.index });
        }
    }

    /// The link has been retrained.
    pub(super) fn trained(&mut self) {
        bridge::show_training(&mut self.config, false);
    }

    /// Takes the link down; everything in flight on it is lost.
    pub(super) fn take_link_down(&mut self, cx: &mut Context<'_>) {
        cx.with(self.end.link, |link, cx| link.take_down(cx));
        self.lines = IntxLines::default();
        self.latencies = [None; 2];
    }

    /// Trains the link if there is something in the slot and the port lets it. Returns the interrupt that this causes.
    pub(super) fn train(&mut self, cx: &mut Context<'_>) -> Option<MsiState> {
        if !self.is_present || !bridge::lets_train(&self.config) {
            return None;
        }
        cx.with(self.end.link, |link, cx| link.bring_up(cx));
        self.show_link(true)
    }

    /// Shows in the registers that the link came up or went down. Returns the interrupt that this causes.
    pub(super) fn show_link(&mut self, active: bool) -> Option<MsiState> {
        bridge::show_link(&mut self.config, active);
        self.slot_status(0, slot::STATUS_LINK_CHANGED)
    }

    /// Something is in the slot at power-on.
    pub(super) fn attach(&mut self) {
        self.is_present = true;
        bridge::show_link(&mut self.config, true);
        bridge::change_slot_status(&mut self.config, 0, slot::STATUS_PRESENT);
    }

    /// Something was inserted into the slot, or removed. Returns the interrupt that this causes.
    pub(super) fn set_present(&mut self, present: bool) -> Option<MsiState> {
        self.is_present = present;
        self.show_present(slot::STATUS_PRESENCE_CHANGED)
    }

    /// Shows in the slot's status whether there is something, and sets `changed` there. Returns the interrupt that this
    /// causes.
    fn show_present(&mut self, changed: u16) -> Option<MsiState> {
        let (clear, set) =
            if self.is_present { (0, slot::STATUS_PRESENT) } else { (slot::STATUS_PRESENT, 0) };
        self.slot_status(clear, set | changed)
    }

    /// Updates the slot status. Returns the interrupt that this causes.
    fn slot_status(&mut self, clear: u16, set: u16) -> Option<MsiState> {
        self.change(|config| bridge::change_slot_status(config, clear, set)).1
    }

    /// Resets the registers. The link below has gone down, and comes up again if something is attached and it `trains`.
    pub(super) fn reset(&mut self, cx: &mut Context<'_>, trains: bool) {
        self.config.reset(ResetKind::Hot);
        // Those above have cleared the upstream port's lines with its link.
        self.lines = IntxLines::default();
        self.latencies = [None; 2];
        cx.wires.set_protected(self.end, false);
        self.reach();
        if self.index == 0 {
            return;
        }
        let trains = trains && self.is_present && bridge::lets_train(&self.config);
        bridge::show_link(&mut self.config, trains);
        self.show_present(0);
        if trains {
            cx.with(self.end.link, |link, cx| link.bring_up(cx));
        }
    }
}
