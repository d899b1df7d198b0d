//! Configuration spaces of a switch's ports, and effects of writes to them.

use engine::Scheduler;
use wire::pcie::config::{ConfigEffect, ConfigSpace, PcieParams, PortType, ResetKind, SlotParams, slot};
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Generation, IntxLines, Tlp, TlpKind, Width};

use super::{Switch, SwitchEvent, SwitchParams, UPSTREAM, route};
use crate::bridge;
use crate::event::Event;
use crate::link::{LinkEnd, LinkState, Side};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Creates the registers of a port.
pub(super) fn port(
    params: &SwitchParams,
    is_upstream: bool,
    number: u8,
    link: (Generation, Width),
) -> ConfigSpace {
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
    let config = ConfigSpace::bridge(params.ids.0, params.ids.1).msi(1).pcie(pcie).aer().ecrc();
    config.build().expect("the registers of a switch's port can be laid out")
}

impl Switch {
    /// Handles a configuration request for one of the ports.
    pub(super) fn configure(
        &mut self,
        cx: &mut Context<'_>,
        from: usize,
        port: usize,
        packet: PacketId,
        tlp: &Tlp,
    ) {
        let answer = |switch: &mut Self, cx: &mut Context<'_>, data: &[u8]| {
            let length_dw = (data.len() / 4) as u16;
            let (requester, tag) = (tlp.requester(), tlp.tag());
            let good = CompletionStatus::Successful;
            let header = CompletionHeader::for_register(switch.id(port), requester, tag, good, length_dw);
            switch.answer(cx, from, header, data);
        };
        match &tlp.kind {
            TlpKind::ConfigRead(request) => {
                let value = self.ports[port].config.dword(request.register);
                answer(self, cx, &value.to_le_bytes());
            }
            TlpKind::ConfigWrite(request) => {
                if port == UPSTREAM {
                    self.bus = request.target.bus();
                }
                let payload = cx.wires.packets.decode(packet);
                let value = payload.and_then(|(_, payload)| payload.first_chunk::<4>().copied());
                let value = u32::from_le_bytes(value.unwrap_or_default());
                answer(self, cx, &[]);
                let effects = self.ports[port].config.write(request.register, value, request.first_be);
                for effect in effects {
                    self.effect(cx, port, effect);
                }
            }
            _ => unreachable!("only configuration requests are for a port itself"),
        }
        self.drop(cx, from, packet);
    }

    fn effect(&mut self, cx: &mut Context<'_>, port: usize, effect: ConfigEffect) {
        let is_down = port != UPSTREAM;
        let number = port as u8;
        match effect {
            ConfigEffect::BusNumbers { .. } | ConfigEffect::WindowMoved | ConfigEffect::MemoryEnable(_) => {
                route::reach(&mut self.ports[port]);
            }
            ConfigEffect::ErrorReporting => {
                let state = &self.ports[port];
                cx.wires.set_protected(state.end, state.config.generates_ecrc());
            }
            ConfigEffect::LinkDisable(true) if is_down => self.drop_link(cx, number),
            ConfigEffect::SecondaryBusReset(true) if is_down && self.is_up(cx.wires, port) => {
                self.drop_link(cx, number);
            }
            ConfigEffect::LinkDisable(false) | ConfigEffect::SecondaryBusReset(false) if is_down => {
                self.train(cx, number);
            }
            ConfigEffect::RetrainLink if is_down => self.retrain(cx, port),
            ConfigEffect::SecondaryBusReset(true) if !is_down => self.reset_below(cx.scheduler, number),
            ConfigEffect::SecondaryBusReset(false) => {
                (1..self.ports.len() as u8).for_each(|port| self.train(cx, port));
            }
            ConfigEffect::SlotCommand { .. } if is_down => {
                self.slot_status(cx, port, 0, slot::STATUS_COMMAND_COMPLETED);
            }
            _ => {}
        }
    }

    /// Requests that the fabric resets the hierarchy below a port.
    fn reset_below(&self, scheduler: &mut Scheduler<Event>, port: u8) {
        scheduler.at(scheduler.now(), Event::Switch(self.id, SwitchEvent::HotReset { port }));
    }

    /// A downstream port takes its link down, which resets what is below.
    fn drop_link(&mut self, cx: &mut Context<'_>, port: u8) {
        self.link_lost(cx, port);
        self.reset_below(cx.scheduler, port);
    }

    fn is_up(&self, wires: &Wires, port: usize) -> bool {
        wires.link(self.ports[port].end.link).state() == LinkState::Up
    }

    fn retrain(&mut self, cx: &mut Context<'_>, port: usize) {
        if !self.is_up(cx.wires, port) {
            return;
        }
        let state = &mut self.ports[port];
        let (fastest, width) = state.negotiated;
        let generation = bridge::target_speed(&state.config, fastest);
        bridge::show_training(&mut state.config, true);
        let link = state.end.link;
        cx.with(link, |link, cx| link.retrain_to(cx, generation, width));
        bridge::show_speed(&mut state.config, generation, width);
        let link = cx.wires.link(link);
        let trained = link.wire_free(Side::Upstream).max(link.wire_free(Side::Downstream));
        cx.scheduler.at(trained, Event::Switch(self.id, SwitchEvent::Trained { port: port as u8 }));
    }

    pub(super) fn link_trained(&mut self, port: u8) {
        bridge::show_training(&mut self.ports[usize::from(port)].config, false);
    }

    /// The link below a port went down; everything in flight on it is lost.
    fn link_lost(&mut self, cx: &mut Context<'_>, port: u8) {
        let link = self.ports[usize::from(port)].end.link;
        cx.with(link, |link, cx| link.take_down(cx));
        self.ports[usize::from(port)].lines = IntxLines::default();
        self.drive_lines(cx);
        self.set_link_active(cx, port, false);
    }

    /// Trains the link below a port if there is something in its slot, and the port and the upstream port let it.
    fn train(&mut self, cx: &mut Context<'_>, port: u8) {
        let state = &self.ports[usize::from(port)];
        let lets_train =
            bridge::lets_train(&state.config) && !bridge::holds_reset(&self.ports[UPSTREAM].config);
        if !state.is_present || !lets_train {
            return;
        }
        let link = state.end.link;
        cx.with(link, |link, cx| link.bring_up(cx));
        self.set_link_active(cx, port, true);
    }

    fn set_link_active(&mut self, cx: &mut Context<'_>, port: u8, active: bool) {
        bridge::show_link(&mut self.ports[usize::from(port)].config, active);
        self.slot_status(cx, port.into(), 0, slot::STATUS_LINK_CHANGED);
    }

    /// Something was attached below a port at power-on.
    pub(crate) fn attach(&mut self, port: u8) {
        let state = &mut self.ports[usize::from(port)];
        state.is_present = true;
        bridge::show_link(&mut state.config, true);
        bridge::change_slot_status(&mut state.config, 0, slot::STATUS_PRESENT);
    }

    /// Something was inserted into the slot below a port.
    pub(crate) fn plug(&mut self, cx: &mut Context<'_>, port: u8) {
        self.ports[usize::from(port)].is_present = true;
        self.train(cx, port);
        self.slot_status(cx, port.into(), 0, slot::STATUS_PRESENT | slot::STATUS_PRESENCE_CHANGED);
    }

    /// What was in the slot below a port was removed.
    pub(crate) fn pull(&mut self, cx: &mut Context<'_>, port: u8) {
        self.link_lost(cx, port);
        self.ports[usize::from(port)].is_present = false;
        self.slot_status(cx, port.into(), slot::STATUS_PRESENT, slot::STATUS_PRESENCE_CHANGED);
    }

    /// Updates the slot status, and sends the port's interrupt if enabled.
    fn slot_status(&mut self, cx: &mut Context<'_>, port: usize, clear: u16, set: u16) {
        if !bridge::change_slot_status(&mut self.ports[port].config, clear, set) {
            return;
        }
        let state = &self.ports[port];
        let is_master = state.config.bus_master_enabled();
        let Some(msi) = state.config.msi().filter(|msi| msi.enabled && is_master) else { return };
        let request = MemoryRequest::for_bytes(self.id(port), 0, msi.address, 4);
        let data = u32::from(msi.data).to_le_bytes();
        let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::MemoryWrite(request)), &data);
        self.send_at(cx, UPSTREAM, packet, cx.now());
    }

    /// Index and link end of each downstream port.
    pub(crate) fn downstream_ports(&self) -> impl Iterator<Item = (u8, LinkEnd)> + use<> {
        let ports: Vec<_> = (0..).zip(&self.ports).skip(1).map(|(n, port)| (n, port.end)).collect();
        ports.into_iter()
    }

    /// Resets the registers of the downstream ports and, if `all` of the switch is reset, of the upstream port. Links
    /// below have gone down, and come up again where something is attached and the upstream port allows it.
    pub(crate) fn reset(&mut self, cx: &mut Context<'_>, all: bool) {
        let first = if all { UPSTREAM } else { UPSTREAM + 1 };
        let stays_in_reset = !all && bridge::holds_reset(&self.ports[UPSTREAM].config);
        for port in first..self.ports.len() {
            let state = &mut self.ports[port];
            state.config.reset(ResetKind::Hot);
            // Those above have cleared the upstream port's lines with its link.
            state.lines = IntxLines::default();
            cx.wires.set_protected(state.end, false);
            route::reach(state);
            if port == UPSTREAM {
                continue;
            }
            let is_present = state.is_present;
            let trains = is_present && !stays_in_reset;
            bridge::show_link(&mut state.config, trains);
            let (clear, set) = if is_present { (0, slot::STATUS_PRESENT) } else { (slot::STATUS_PRESENT, 0) };
            bridge::change_slot_status(&mut state.config, clear, set);
            if trains {
                let link = state.end.link;
                cx.with(link, |link, cx| link.bring_up(cx));
            }
        }
        self.drive_lines(cx);
    }
}
