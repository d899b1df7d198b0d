//! A transparent switch: a bridge upstream, a bus inside, and a bridge for each port downstream.
//!
//! A TLP that arrives is routed by address or by ID, waits for the time that the switch takes, and is handed to the link
//! below another port. Until it has left there it keeps the receive buffer of the port by which it came, so that who sent it
//! runs out of credits before the switch runs out of room; and the link's own queues keep the ordering table. Nothing
//! else is stored here, so nothing is left behind when a cable is pulled.
//!
//! | file | subject |
//! |---|---|
//! | `mod` | ports, and TLPs that pass |
//! | `route` | where a TLP goes |
//! | `registers` | configuration spaces of the ports, and what writes to them set off |
//! | `params` | what a switch is made of |

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
use route::Route;

/// A switch of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u16);

/// What can happen inside a switch.
#[derive(Clone, Copy, Debug)]
pub enum SwitchEvent {
    /// A TLP has come to the port by which it leaves.
    Send {
        /// 0 is the upstream port.
        port: u8,
        /// The TLP.
        packet: PacketId,
    },
    /// What is below a port is reset; below the upstream port, all that is below the switch.
    HotReset {
        /// 0 is the upstream port.
        port: u8,
    },
    /// The link below a port has been trained again.
    Trained {
        /// 0 is the upstream port.
        port: u8,
    },
}

/// The port towards the root.
pub const UPSTREAM: usize = 0;

/// A port of a switch.
pub struct SwitchPort {
    /// Its end of its link.
    pub end: LinkEnd,
    /// Its registers.
    pub config: ConfigSpace,
    /// Of a downstream port, its device number on the bus inside.
    number: u8,
    /// Buses below it: the one right below, and the last.
    buses: (u8, u8),
    /// Addresses below it; a window that is shut holds none.
    windows: [Window; 2],
    /// When the last TLP that came by it goes on, for each port by which it can leave.
    last: Vec<Time>,
    /// Legacy interrupt lines that are active: of a downstream port, as it was told from below; of the upstream port, as it told.
    lines: IntxLines,
    is_present: bool,
    in_reset: bool,
    /// The fastest that both ends of the link can do.
    negotiated: (Generation, Width),
}

/// Counts of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchCounters {
    /// TLPs passed on.
    pub forwarded: u64,
    /// Of those, such as went from one downstream port to another.
    pub peer_to_peer: u64,
    /// Requests that led nowhere.
    pub unsupported_requests: u64,
    /// Requests and completions that access control stopped.
    pub acs_violations: u64,
    /// TLPs dropped for other reasons: no TLP, or a completion that nobody below asked for.
    pub dropped: u64,
}

/// A transparent switch.
pub struct Switch {
    id: SwitchId,
    params: SwitchParams,
    /// Bus of the upstream port, as the last configuration write to it said.
    bus: u8,
    /// The upstream port, then the others.
    ports: Vec<SwitchPort>,
    counters: SwitchCounters,
}

impl Switch {
    /// A switch with its upstream port at `end`.
    pub fn new(id: SwitchId, params: SwitchParams, end: LinkEnd, link: (Generation, Width)) -> Self {
        let mut switch = Self { id, params, bus: 0, ports: Vec::new(), counters: SwitchCounters::default() };
        switch.add(end, 0, link);
        switch
    }

    /// Adds a downstream port at `end`, device `number` of the bus inside. Returns its place among the ports.
    ///
    /// # Panics
    /// If there is one of that number.
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
            in_reset: false,
            negotiated: link,
        });
        self.ports.iter_mut().for_each(|port| port.last.resize(count, Time::ZERO));
    }

    /// What it is made of.
    pub fn params(&self) -> &SwitchParams {
        &self.params
    }

    /// All ports, the upstream one first.
    pub fn ports(&self) -> &[SwitchPort] {
        &self.ports
    }

    /// What it has done so far.
    pub fn counters(&self) -> &SwitchCounters {
        &self.counters
    }

    /// A port's address: the upstream port's bus is the one above, the others' the one inside.
    pub fn id(&self, port: usize) -> Bdf {
        match port {
            UPSTREAM => Bdf::new(self.bus, 0, 0),
            port => Bdf::new(self.ports[UPSTREAM].buses.0, self.ports[port].number, 0),
        }
    }

    /// A TLP arrived at a port.
    pub fn deliver(&mut self, cx: &mut Context<'_>, from: u8, packet: PacketId) {
        let from = usize::from(from);
        let Some(&tlp) = cx.wires.packets.header(packet) else {
            self.counters.dropped += 1;
            self.report(cx, from, Detected::Malformed, Some(packet));
            return self.drop(cx, from, packet);
        };
        if cx.wires.is_damaged(&tlp, packet) && self.ports[from].config.checks_ecrc() {
            // It goes on all the same: whoever it is for judges it (base spec 2.7.1).
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

    /// Lets a TLP go on to another port, if its link is up.
    fn pass(&mut self, cx: &mut Context<'_>, (from, to): (usize, usize), packet: PacketId, tlp: &Tlp) {
        let (ingress, egress) = (self.ports[from].end, self.ports[to].end);
        if cx.wires.link(egress.link).state() == LinkState::Down {
            return self.refuse(cx, from, packet, tlp, CompletionStatus::UnsupportedRequest);
        }
        if let Some(request) = route::as_type_0(tlp, self.ports[to].buses.0, to != UPSTREAM) {
            cx.wires.packets.rewrite(packet, &request);
        }
        // A link that is faster than the one by which it comes would run dry: there it is stored first.
        let [came, goes] = [ingress, egress].map(|end| cx.wires.link(end.link).wire_time_per_byte_ps());
        let is_stored = !self.params.cut_through || goes < came;
        let there = cx.now() + cx.wires.tail(ingress, packet) * u64::from(is_stored);
        let at = (there + self.params.latency).max(self.ports[from].last[to]);
        self.ports[from].last[to] = at;
        self.counters.forwarded += 1;
        self.counters.peer_to_peer += u64::from(from != UPSTREAM && to != UPSTREAM);
        // Room around it, and a CRC, are of the link by which it came.
        let hop = cx.wires.packets.hop_mut(packet);
        (hop.padding, hop.lcrc) = (0, None);
        self.send_at(cx, to, packet, at);
    }

    fn send_at(&self, cx: &mut Context<'_>, port: usize, packet: PacketId, at: Time) {
        cx.wires.tie(self.ports[port].end, packet);
        let event = SwitchEvent::Send { port: port as u8, packet };
        cx.scheduler.at(at, Event::Switch(self.id, event));
    }

    /// A TLP that goes no further frees its buffer once all of it has come.
    fn drop(&self, cx: &mut Context<'_>, from: usize, packet: PacketId) {
        let whole = cx.now() + cx.wires.tail(self.ports[from].end, packet);
        cx.consume(packet, whole);
    }

    /// Reports a TLP that cannot go on, and completes it if somebody waits for that (base spec 2.3.1, 6.12.3).
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

    /// Answers a request that came by `port`.
    fn answer(&self, cx: &mut Context<'_>, port: usize, header: CompletionHeader, data: &[u8]) {
        let kind = match header.length_dw {
            0 => TlpKind::Completion(header),
            _ => TlpKind::CompletionData(header),
        };
        let packet = cx.wires.packets.encode(&Tlp::new(kind), data);
        let at = cx.now() + self.params.config_latency;
        self.send_at(cx, port, packet, at);
    }

    /// Notes an error in a port's registers and tells the root complex if the port is to.
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

    /// Tells the upstream port's link which legacy interrupt lines have changed: those of a downstream port have other names
    /// above it.
    fn drive_lines(&mut self, cx: &mut Context<'_>) {
        let now = IntxLines::above(self.ports.iter().skip(1).map(|port| (port.number, port.lines)));
        let before = std::mem::replace(&mut self.ports[UPSTREAM].lines, now);
        for (line, active) in now.changes(before) {
            let message = Message::intx(self.id(UPSTREAM), line, active);
            let packet = cx.wires.packets.encode(&Tlp::new(TlpKind::Message(message)), &[]);
            // Behind the writes of any port that are on their way through.
            let passing = self.ports.iter().map(|port| port.last[UPSTREAM]).max().unwrap_or_default();
            let at = (cx.now() + self.params.latency).max(passing);
            self.send_at(cx, UPSTREAM, packet, at);
        }
    }

    /// Something inside the switch is due.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: SwitchEvent) {
        match event {
            SwitchEvent::Send { port, packet } => {
                cx.send_tied(self.ports[usize::from(port)].end, packet);
            }
            SwitchEvent::Trained { port } => self.link_trained(port),
            // It is the fabric that knows what is below.
            SwitchEvent::HotReset { .. } => {}
        }
    }
}

/// A window through which nothing goes.
const SHUT: Window = Window { base: u64::MAX, limit: 0 };
