//! A transparent switch: an upstream bridge, an internal bus, and a bridge for each downstream port.
//!
//! A TLP that arrives is routed by address or ID, delayed by the switch's latency, and passed to another port's link.
//! Until it has left, it holds the receive buffer of its ingress port, so that its sender runs out of credits before
//! the switch runs out of space. The links' queues implement the ordering rules. Nothing else is stored here, so a
//! surprise removal leaves no stale state.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | ports and forwarding |
//! | `route` | routing |
//! | `registers` | configuration spaces of the ports and effects of writes |
//! | `params` | parameters |

mod event;
mod params;
mod registers;
mod route;

use units::Time;
use wire::pcie::config::ConfigSpace;
use wire::pcie::config::header::Window;
use wire::pcie::tlp::{CompletionHeader, CompletionStatus, Message};
use wire::pcie::{Bdf, Generation, IntxLines, Tlp, TlpKind, Width};

pub use params::SwitchParams;

use crate::detected::Detected;
use crate::event::Event;
use crate::link::{LinkEnd, LinkState};
use crate::packet::PacketId;
use crate::wires::Context;
pub use event::{SwitchEvent, SwitchId};
use route::Route;

/// The port towards the root.
pub const UPSTREAM: usize = 0;

/// A port of a switch: a PCI-to-PCI bridge with a link.
pub struct SwitchPort {
    /// The end of the link that is at this port.
    pub end: LinkEnd,
    /// Registers of the port's bridge.
    pub config: ConfigSpace,
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
    /// Whether something is in the slot.
    is_present: bool,
    /// Highest speed and width that both ends of the link support.
    negotiated: (Generation, Width),
}

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
    /// TLPs dropped for other reasons: invalid, or a completion without a requester below.
    pub dropped: u64,
}

/// A transparent switch.
pub struct Switch {
    id: SwitchId,
    params: SwitchParams,
    /// Bus of the upstream port, captured from the last configuration write.
    bus: u8,
    /// The upstream port first.
    ports: Vec<SwitchPort>,
    counters: SwitchCounters,
}

impl Switch {
    /// Creates a switch with its upstream port at `end`.
    pub fn new(id: SwitchId, params: SwitchParams, end: LinkEnd, link: (Generation, Width)) -> Self {
        let mut switch = Self { id, params, bus: 0, ports: Vec::new(), counters: SwitchCounters::default() };
        switch.add(end, 0, link);
        switch
    }

    /// Adds a downstream port at `end`, device `number` of the internal bus. Returns its index.
    ///
    /// # Panics
    /// If the number is in use.
    pub fn add_port(&mut self, end: LinkEnd, number: u8, link: (Generation, Width)) -> u8 {
        let mut others = self.ports.iter().skip(1);
        assert!(others.all(|port| port.number != number), "a switch has each port once");
        self.add(end, number, link);
        self.ports.len() as u8 - 1
    }

    fn add(&mut self, end: LinkEnd, number: u8, link: (Generation, Width)) {
        let is_upstream = self.ports.is_empty();
        let config = registers::port(&self.params, is_upstream, number, link);
        let count = self.ports.len() + 1;
        self.ports.push(SwitchPort {
            end,
            config,
            number,
            buses: (0, 0),
            windows: [SHUT; 2],
            last: Vec::new(),
            lines: IntxLines::default(),
            is_present: is_upstream,
            negotiated: link,
        });
        self.ports.iter_mut().for_each(|port| port.last.resize(count, Time::ZERO));
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
            port => Bdf::new(self.ports[UPSTREAM].buses.0, self.ports[port].number, 0),
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
        if cx.wires.is_damaged(&tlp, packet) && self.ports[from].config.checks_ecrc() {
            // It is forwarded nevertheless; its receiver handles the error (base spec 2.7.1).
            self.report(cx, from, Detected::Ecrc, Some(packet));
        }
        match self.route(from, &tlp) {
            Route::To(to) => self.pass(cx, (from, to), packet, &tlp),
            Route::Here(port) => self.configure(cx, from, port, packet, &tlp),
            Route::Nowhere => self.refuse(cx, from, packet, &tlp, CompletionStatus::UnsupportedRequest),
            Route::Forbidden => self.refuse(cx, from, packet, &tlp, CompletionStatus::CompleterAbort),
            Route::Line(line, active) => {
                self.ports[from].lines.set(line, active);
                self.drive_lines(cx);
                self.drop(cx, from, packet);
            }
            Route::Ends => self.drop(cx, from, packet),
        }
    }

    /// Forwards a TLP to another port, if the link there is up.
    fn pass(&mut self, cx: &mut Context<'_>, (from, to): (usize, usize), packet: PacketId, tlp: &Tlp) {
        let (ingress, egress) = (self.ports[from].end, self.ports[to].end);
        if cx.wires.link(egress.link).state() == LinkState::Down {
            return self.refuse(cx, from, packet, tlp, CompletionStatus::UnsupportedRequest);
        }
        if let Some(request) = route::as_type_0(tlp, self.ports[to].buses.0, to != UPSTREAM) {
            cx.wires.packets.rewrite(packet, &request);
        }
        // A faster egress link would run dry, so the TLP is stored first.
        let [came, goes] = [ingress, egress].map(|end| cx.wires.link(end.link).wire_time_per_byte_ps());
        let is_stored = !self.params.cut_through || goes < came;
        let there = cx.now() + cx.wires.tail(ingress, packet) * u64::from(is_stored);
        let at = (there + self.params.latency).max(self.ports[from].last[to]);
        self.ports[from].last[to] = at;
        self.counters.forwarded += 1;
        self.counters.peer_to_peer += u64::from(from != UPSTREAM && to != UPSTREAM);
        // Padding and LCRC belong to the ingress link.
        let hop = cx.wires.packets.hop_mut(packet);
        (hop.padding, hop.lcrc) = (0, None);
        self.send_at(cx, to, packet, at);
    }

    fn send_at(&self, cx: &mut Context<'_>, port: usize, packet: PacketId, at: Time) {
        cx.wires.tie(self.ports[port].end, packet);
        let event = SwitchEvent::Send { port: port as u8, packet };
        cx.scheduler.at(at, Event::Switch(self.id, event));
    }

    /// Drops a TLP; its buffer is released once all of it has arrived.
    fn drop(&self, cx: &mut Context<'_>, from: usize, packet: PacketId) {
        let whole = cx.now() + cx.wires.tail(self.ports[from].end, packet);
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
        let completer = self.id(from);
        let answer = match &tlp.kind {
            TlpKind::MemoryRead(request) => {
                Some(CompletionHeader::for_read_error(completer, request, status))
            }
            TlpKind::ConfigRead(_) | TlpKind::ConfigWrite(_) | TlpKind::IoRead(_) | TlpKind::IoWrite(_) => {
                Some(CompletionHeader::for_register(completer, tlp.requester(), tlp.tag(), status, 0))
            }
            _ => None,
        };
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

    /// Completes a request that arrived through `port`.
    fn answer(&self, cx: &mut Context<'_>, port: usize, header: CompletionHeader, data: &[u8]) {
        let kind = match header.length_dw {
            0 => TlpKind::Completion(header),
            _ => TlpKind::CompletionData(header),
        };
        let packet = cx.wires.packets.encode(&Tlp::new(kind), data);
        let at = cx.now() + self.params.config_latency;
        self.send_at(cx, port, packet, at);
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
        let Some(code) = error.record(&mut self.ports[port].config, tlp) else { return };
        let message = Tlp::new(TlpKind::Message(Message::error(self.id(port), code)));
        let packet = cx.wires.packets.encode(&message, &[]);
        self.send_at(cx, UPSTREAM, packet, cx.now());
    }

    /// Signals changed legacy interrupt lines upstream. Lines of downstream ports are swizzled.
    fn drive_lines(&mut self, cx: &mut Context<'_>) {
        let now = IntxLines::above(self.ports.iter().skip(1).map(|port| (port.number, port.lines)));
        let before = std::mem::replace(&mut self.ports[UPSTREAM].lines, now);
        for (line, active) in now.changes(before) {
            let message = Message::intx(self.id(UPSTREAM), line, active);
            let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::Message(message)), &[]);
            // Behind writes from any port that are being forwarded.
            let passing = self.ports.iter().map(|port| port.last[UPSTREAM]).max().unwrap_or_default();
            let at = (cx.now() + self.params.latency).max(passing);
            self.send_at(cx, UPSTREAM, packet, at);
        }
    }

    /// Handles an event inside the switch.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: SwitchEvent) {
        match event {
            SwitchEvent::Send { port, packet } => {
                cx.send_tied(self.ports[usize::from(port)].end, packet);
            }
            SwitchEvent::Trained { port } => self.link_trained(port),
            // Handled by the fabric, which knows the topology below.
            SwitchEvent::HotReset { .. } => {}
        }
    }
}

/// A closed window.
const SHUT: Window = Window { base: u64::MAX, limit: 0 };
