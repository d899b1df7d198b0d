//! A transparent switch: an upstream bridge, an internal bus, and a bridge for each downstream port.
//!
//! A TLP that arrives is routed by address or ID, delayed by the switch's latency, and passed to another port's link.
//! Until it has left, it holds the receive buffer of its ingress port, so that its sender runs out of credits before
//! the switch runs out of space. The links' queues implement the ordering rules. Nothing else is stored here, so a
//! surprise removal leaves no stale state.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | forwarding, requests to the ports, what happens to several |
//! | `port` | a port: registers, link, slot |
//! | `route` | routing |
//! | `crossbar` | input queues, in which a TLP blocks those behind it |
//! | `params` | parameters |

mod crossbar;
mod event;
mod params;
mod port;
mod route;

use units::Time;
use wire::pcie::config::ConfigEffect;
use wire::pcie::config::dpc::Reason;
use wire::pcie::config::msi::MsiState;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, MemoryRequest, Message};
use wire::pcie::{Bdf, Generation, IntxLines, Tlp, TlpKind, Width};

pub use params::SwitchParams;
pub use port::SwitchPort;

use crate::bridge;
use crate::detected::Detected;
use crate::event::Event;
use crate::link::{LinkEnd, LinkState};
use crate::packet::PacketId;
use crate::wires::Context;
use crossbar::Crossbar;
pub use event::{SwitchEvent, SwitchId};
use route::{Route, Routing};

/// The port towards the root.
pub const UPSTREAM: usize = 0;

/// What a switch has done with the TLPs that it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// TLPs forwarded.
    pub forwarded: u64,
    /// Of these, TLPs between downstream ports.
    pub peer_to_peer: u64,
    /// Requests without a target.
    pub unsupported_requests: u64,
    /// Requests and completions blocked by access control.
    pub acs_violations: u64,
    /// TLPs for what a port contained after an error.
    pub contained: u64,
    /// TLPs dropped for other reasons: invalid, or a completion without a requester below.
    pub dropped: u64,
}

/// A transparent switch.
pub struct Switch {
    id: SwitchId,
    params: SwitchParams,
    /// The upstream port first.
    ports: Vec<SwitchPort>,
    /// Input queues, if it has them.
    crossbar: Crossbar,
    /// Bus of the upstream port, captured from the last configuration write.
    bus: u8,
    counters: SwitchCounters,
}

impl Switch {
    /// Creates a switch with its upstream port at `end`.
    pub fn new(id: SwitchId, params: SwitchParams, end: LinkEnd, link: (Generation, Width)) -> Self {
        let mut switch = Self {
            id,
            params,
            ports: Vec::new(),
            crossbar: Crossbar::default(),
            bus: 0,
            counters: SwitchCounters::default(),
        };
        switch.add(end, 0, link);
        switch
    }

    /// Adds a downstream port at `end`, device `number` of the internal bus. Returns its index.
    ///
    /// # Panics
    /// If the number is in use.
    pub fn add_port(&mut self, end: LinkEnd, number: u8, link: (Generation, Width)) -> u8 {
        let mut others = self.ports.iter().skip(1);
        assert!(others.all(|port| port.number() != number), "a switch has each port once");
        self.add(end, number, link);
        self.ports.len() as u8 - 1
    }

    fn add(&mut self, end: LinkEnd, number: u8, link: (Generation, Width)) {
        let index = self.ports.len() as u8;
        self.ports.push(SwitchPort::new((self.id, index), &self.params, end, number, link));
    }

    /// What it was created with.
    pub fn params(&self) -> &SwitchParams {
        &self.params
    }

    /// All ports, the upstream one first.
    pub fn ports(&self) -> &[SwitchPort] {
        &self.ports
    }

    /// Counters so far.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// A port's ID. The upstream port is on the bus above, the others are on the internal bus.
    pub fn id(&self, port: usize) -> Bdf {
        match port {
            UPSTREAM => Bdf::new(self.bus, 0, 0),
            port => Bdf::new(self.ports[UPSTREAM].secondary(), self.ports[port].number(), 0),
        }
    }

    /// Handles a TLP that arrived at a port.
    pub fn deliver(&mut self, cx: &mut Context<'_>, from: u8, packet: PacketId) {
        let from = usize::from(from);
        let Some(&tlp) = cx.wires.packets.header(packet) else {
            self.counters.dropped += 1;
            self.report(cx, from, Detected::Malformed, Some(packet));
            return self.drop(cx, from, packet);
        };
        if cx.wires.is_damaged(&tlp, packet) && self.ports[from].config().checks_ecrc() {
            // It is forwarded nevertheless; its receiver handles the error (base spec 2.7.1).
            self.report(cx, from, Detected::Ecrc, Some(packet));
        }
        match Routing(&self.ports).route(from, &tlp) {
            Route::To(to) => match self.reason_to_contain(from, &tlp) {
                Some((reason, source)) => {
                    self.drop(cx, from, packet);
                    self.contain(cx, from, reason, source);
                }
                None => self.pass(cx, (from, to), packet, &tlp),
            },
            Route::Here(port) => self.configure(cx, from, port, packet, &tlp),
            Route::Nowhere => self.refuse(cx, from, packet, &tlp, CompletionStatus::UnsupportedRequest),
            Route::Forbidden => self.refuse(cx, from, packet, &tlp, CompletionStatus::CompleterAbort),
            Route::Line(line, active) => {
                self.ports[from].set_line(line, active);
                self.drive_lines(cx, Some(from));
                self.drop(cx, from, packet);
            }
            Route::Latencies(latencies) => {
                self.ports[from].take_latencies(latencies);
                self.report_latencies(cx);
                self.drop(cx, from, packet);
            }
            Route::Ends => self.drop(cx, from, packet),
        }
    }

    /// Why the port at which a TLP arrived contains what is below: it is an error message whose kind triggers. Also its sender.
    fn reason_to_contain(&self, from: usize, tlp: &Tlp) -> Option<(Reason, Bdf)> {
        let TlpKind::Message(message) = &tlp.kind else { return None };
        Some((self.ports[from].reason_to_contain(message.code)?, message.requester))
    }

    fn contain(&mut self, cx: &mut Context<'_>, port: usize, reason: Reason, source: Bdf) {
        let interrupt = self.ports[port].contain(cx, reason, source);
        self.interrupt(cx, port, interrupt);
    }

    /// Forwards a TLP to another port, if the link there is up.
    fn pass(&mut self, cx: &mut Context<'_>, (from, to): (usize, usize), packet: PacketId, tlp: &Tlp) {
        let (ingress, egress) = (self.ports[from].end(), self.ports[to].end());
        if self.ports[to].link_state(cx.wires) == LinkState::Down {
            return match self.ports[to].contains_as() {
                Some(status) => self.complete_contained(cx, from, packet, tlp, status),
                None => self.refuse(cx, from, packet, tlp, CompletionStatus::UnsupportedRequest),
            };
        }
        if let Some(request) = route::as_type_0(tlp, self.ports[to].secondary(), to != UPSTREAM) {
            cx.wires.packets.rewrite(packet, &request);
        }
        // A faster egress link would run dry, so the TLP is stored first.
        let [came, goes] = [ingress, egress].map(|end| cx.wires.link(end.link).wire_time_per_byte_ps());
        let is_stored = !self.params.cut_through || goes < came;
        let there = cx.now() + cx.wires.tail(ingress, packet) * u64::from(is_stored);
        let at = self.ports[from].in_order(to, there + self.params.latency);
        self.counters.forwarded += 1;
        self.counters.peer_to_peer += u64::from(from != UPSTREAM && to != UPSTREAM);
        // Padding and LCRC belong to the ingress link.
        let hop = cx.wires.packets.hop_mut(packet);
        (hop.padding, hop.lcrc) = (0, None);
        match self.params.input_queued {
            true => self.cross_at(cx, (from, to), packet, at),
            false => self.ports[to].send_at(cx, packet, at),
        }
    }

    /// Lets a TLP join the input queue of a port at `at`.
    fn cross_at(&self, cx: &mut Context<'_>, (from, to): (usize, usize), packet: PacketId, at: Time) {
        cx.wires.tie(self.ports[to].end(), packet);
        let (from, to) = (from as u8, to as u8);
        cx.scheduler.at(at, Event::Switch(self.id, SwitchEvent::Cross { from, to, packet }));
    }

    /// Drops a TLP; its buffer is released once all of it has arrived.
    fn drop(&self, cx: &mut Context<'_>, from: usize, packet: PacketId) {
        let whole = cx.now() + cx.wires.tail(self.ports[from].end(), packet);
        cx.consume(packet, whole);
    }

    /// Reports a TLP that cannot be forwarded, and completes a non-posted request (base spec 2.3.1, 6.12.3).
    fn refuse(
        &mut self,
        cx: &mut Context<'_>,
        from: usize,
        packet: PacketId,
        tlp: &Tlp,
        status: CompletionStatus,
    ) {
        let answer = self.error_for(from, tlp, status);
        let is_completion = matches!(tlp.kind, TlpKind::Completion(_) | TlpKind::CompletionData(_));
        let error = match (status, &answer) {
            (CompletionStatus::CompleterAbort, _) => Detected::AcsViolation,
            (_, Some(_)) => Detected::UnsupportedNonPosted,
            _ if is_completion => Detected::UnexpectedCompletion,
            _ => Detected::UnsupportedPosted,
        };
        match error {
            Detected::AcsViolation => self.counters.acs_violations += 1,
            Detected::UnexpectedCompletion => self.counters.dropped += 1,
            _ => self.counters.unsupported_requests += 1,
        }
        self.report(cx, from, error, Some(packet));
        if let Some(answer) = answer {
            self.answer(cx, from, answer, &[]);
        }
        self.drop(cx, from, packet);
    }

    /// What completes a non-posted request without data.
    fn error_for(&self, from: usize, tlp: &Tlp, status: CompletionStatus) -> Option<CompletionHeader> {
        let completer = self.id(from);
        match &tlp.kind {
            TlpKind::MemoryRead(request) => {
                Some(CompletionHeader::for_read_error(completer, request, status))
            }
            TlpKind::ConfigRead(_) | TlpKind::ConfigWrite(_) | TlpKind::IoRead(_) | TlpKind::IoWrite(_) => {
                Some(CompletionHeader::for_register(completer, tlp.requester(), tlp.tag(), status, 0))
            }
            _ => None,
        }
    }

    /// Completes a request to below a port that contains that. The containment itself was reported, so this is not (base spec
    /// 2.9.3).
    fn complete_contained(
        &mut self,
        cx: &mut Context<'_>,
        from: usize,
        packet: PacketId,
        tlp: &Tlp,
        status: CompletionStatus,
    ) {
        if let Some(answer) = self.error_for(from, tlp, status) {
            self.answer(cx, from, answer, &[]);
        }
        self.counters.contained += 1;
        self.drop(cx, from, packet);
    }

    /// Completes a request that arrived through `port`.
    fn answer(&self, cx: &mut Context<'_>, port: usize, header: CompletionHeader, data: &[u8]) {
        let kind = match header.length_dw {
            0 => TlpKind::Completion(header),
            _ => TlpKind::CompletionData(header),
        };
        let packet = cx.wires.packets.encode(&Tlp::new(kind), data);
        let at = cx.now() + self.params.config_latency;
        self.ports[port].send_at(cx, packet, at);
    }

    /// Logs an error in a port's registers, and reports it to the root complex if enabled.
    pub(crate) fn report(
        &mut self,
        cx: &mut Context<'_>,
        port: usize,
        error: Detected,
        packet: Option<PacketId>,
    ) {
        let tlp = packet.map(|packet| cx.wires.packets.bytes(packet));
        let Some(code) = self.ports[port].record(error, tlp) else { return };
        if self.ports[port].reason_to_contain(code).is_some() {
            return self.contain(cx, port, Reason::Detected, self.id(port));
        }
        let message = Tlp::new(TlpKind::Message(Message::error(self.id(port), code)));
        let packet = cx.wires.packets.encode(&message, &[]);
        self.ports[UPSTREAM].send_at(cx, packet, cx.now());
    }

    /// Signals changed legacy interrupt lines upstream, behind what arrived at port `from` if that changed one. Lines of downstream
    /// ports are swizzled.
    fn drive_lines(&mut self, cx: &mut Context<'_>, from: Option<usize>) {
        let now = IntxLines::above(self.ports.iter().skip(1).map(SwitchPort::lines));
        let before = self.ports[UPSTREAM].replace_lines(now);
        for (line, active) in now.changes(before) {
            let message = Message::intx(self.id(UPSTREAM), line, active);
            let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::Message(message)), &[]);
            // Behind writes from any port that are being forwarded.
            let passing = self.ports.iter().map(SwitchPort::last_upstream).max().unwrap_or_default();
            let at = (cx.now() + self.params.latency).max(passing);
            match from.filter(|_| self.params.input_queued) {
                Some(from) => self.cross_at(cx, (from, UPSTREAM), packet, at),
                None => self.ports[UPSTREAM].send_at(cx, packet, at),
            }
        }
    }

    /// Reports upstream what all below requires together, if that has changed and software lets it (base spec 6.18).
    fn report_latencies(&mut self, cx: &mut Context<'_>) {
        let upstream = &self.ports[UPSTREAM];
        let below = |n: usize| self.ports.iter().skip(1).filter_map(|port| port.latencies()[n]).min();
        let all = [below(0), below(1)];
        if !upstream.config().latency_enabled() || upstream.latencies() == all {
            return;
        }
        self.ports[UPSTREAM].take_latencies(all);
        let message = Message::latency(self.id(UPSTREAM), all);
        let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::Message(message)), &[]);
        self.ports[UPSTREAM].send_at(cx, packet, cx.now() + self.params.latency);
    }

    /// Handles a configuration request for one of the ports.
    fn configure(&mut self, cx: &mut Context<'_>, from: usize, port: usize, packet: PacketId, tlp: &Tlp) {
        let answer = |switch: &mut Self, cx: &mut Context<'_>, data: &[u8]| {
            let length_dw = (data.len() / 4) as u16;
            let (requester, tag) = (tlp.requester(), tlp.tag());
            let good = CompletionStatus::Successful;
            let header = CompletionHeader::for_register(switch.id(port), requester, tag, good, length_dw);
            switch.answer(cx, from, header, data);
        };
        match &tlp.kind {
            TlpKind::ConfigRead(request) => {
                let value = self.ports[port].config().dword(request.register);
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
                let (effects, interrupt) = self.ports[port].write(request.register, value, request.first_be);
                self.interrupt(cx, port, interrupt);
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
        match effect {
            ConfigEffect::LinkDisable(true) if is_down => self.drop_link(cx, port),
            ConfigEffect::SecondaryBusReset(true) if !is_down => self.ports[port].reset_below(cx),
            ConfigEffect::SecondaryBusReset(true)
                if self.ports[port].link_state(cx.wires) == LinkState::Up =>
            {
                self.drop_link(cx, port);
            }
            ConfigEffect::LinkDisable(false)
            | ConfigEffect::SecondaryBusReset(false)
            | ConfigEffect::Containment(false)
                if is_down =>
            {
                self.train(cx, port);
            }
            ConfigEffect::Containment(true) if self.ports[port].is_armed() => {
                self.contain(cx, port, Reason::Software, self.id(port));
            }
            ConfigEffect::SecondaryBusReset(false) => {
                (1..self.ports.len()).for_each(|port| self.train(cx, port));
            }
            ConfigEffect::DeviceControl if !is_down => self.report_latencies(cx),
            effect => {
                let interrupt = self.ports[port].heed(cx, effect);
                self.interrupt(cx, port, interrupt);
            }
        }
    }

    /// A downstream port takes its link down, which resets what is below.
    fn drop_link(&mut self, cx: &mut Context<'_>, port: usize) {
        self.lose_link(cx, port);
        self.ports[port].reset_below(cx);
    }

    /// The link below a port went down.
    fn lose_link(&mut self, cx: &mut Context<'_>, port: usize) {
        self.ports[port].take_link_down(cx);
        self.drive_lines(cx, None);
        self.report_latencies(cx);
        let interrupt = self.ports[port].show_link(false);
        self.interrupt(cx, port, interrupt);
    }

    /// Trains the link below a port, unless all are held in reset.
    fn train(&mut self, cx: &mut Context<'_>, port: usize) {
        if !bridge::holds_reset(self.ports[UPSTREAM].config()) {
            let interrupt = self.ports[port].train(cx);
            self.interrupt(cx, port, interrupt);
        }
    }

    /// Sends a port's interrupt, if there is one.
    fn interrupt(&self, cx: &mut Context<'_>, port: usize, interrupt: Option<MsiState>) {
        let Some(msi) = interrupt else { return };
        let request = MemoryRequest::for_bytes(self.id(port), 0, msi.address, 4);
        let data = u32::from(msi.data).to_le_bytes();
        let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::MemoryWrite(request)), &data);
        self.ports[UPSTREAM].send_at(cx, packet, cx.now());
    }

    /// Something was attached below a port at power-on.
    pub(crate) fn attach(&mut self, port: u8) {
        self.ports[usize::from(port)].attach();
    }

    /// Something was inserted into the slot below a port.
    pub(crate) fn plug(&mut self, cx: &mut Context<'_>, port: u8) {
        let port = usize::from(port);
        let interrupt = self.ports[port].set_present(true);
        self.train(cx, port);
        self.interrupt(cx, port, interrupt);
    }

    /// What was in the slot below a port was removed.
    pub(crate) fn pull(&mut self, cx: &mut Context<'_>, port: u8) {
        let port = usize::from(port);
        self.lose_link(cx, port);
        let interrupt = self.ports[port].set_present(false);
        self.interrupt(cx, port, interrupt);
    }

    /// Resets the registers of the downstream ports and, if `all` of the switch is reset, of the upstream port. Links
    /// below have gone down, and come up again where something is attached and the upstream port allows it.
    pub(crate) fn reset(&mut self, cx: &mut Context<'_>, all: bool) {
        let trains = all || !bridge::holds_reset(self.ports[UPSTREAM].config());
        let first = if all { UPSTREAM } else { UPSTREAM + 1 };
        self.ports[first..].iter_mut().for_each(|port| port.reset(cx, trains));
        self.drive_lines(cx, None);
    }

    /// Handles an event inside the switch.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: SwitchEvent) {
        match event {
            SwitchEvent::Send { port, packet } => {
                cx.send_tied(self.ports[usize::from(port)].end(), packet);
            }
            SwitchEvent::Cross { from, to, packet } => {
                let way = (from.into(), to.into());
                self.crossbar.enter(cx, (self.id, &self.ports), way, packet);
            }
            SwitchEvent::Look { port } => self.crossbar.look(cx, (self.id, &self.ports), port.into()),
            SwitchEvent::Trained { port } => self.ports[usize::from(port)].trained(),
            SwitchEvent::Contain { port } => {
                if self.ports[usize::from(port)].link_state(cx.wires) == LinkState::Up {
                    self.drop_link(cx, port.into());
                }
            }
            // Handled by the fabric, which knows the topology below.
            SwitchEvent::HotReset { .. } => {}
        }
    }
}
