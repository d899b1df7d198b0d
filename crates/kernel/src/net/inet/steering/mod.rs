//! Packets follow the programs that read them: receive flow steering, in software (RFS) and by the device (ARFS).
//!
//! ```text
//! recv, send ─▶ Cores: which core uses the flow's socket
//! packet of a ring ─▶ Rings: none passes an older one in another ring ─▶ Flows: nor one in another core's backlog
//!                        │ (ARFS) the device is asked to use that core's ring      └▶ Backlogs ─▶ sockets
//! ```
//!
//! As Linux's `get_rps_cpu` and `set_rps_cpu` (net/core/dev.c, Documentation/networking/scaling.rst): a table of the cores
//! on which sockets are used; a table of the cores on which flows are dealt with; a flow changes its core only when what
//! it has in the old one's backlog is done. Where Linux lets packets of a flow pass each other for a moment after the
//! device has changed its ring, they wait here: [`rings`] says for what.

mod backlog;
mod rings;
mod tables;

use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use platform::costs::linux;
use platform::cpu::Cpu;
use platform::net::FlowKey;
use units::Duration;
use wire::ip::{TcpHeader, protocol};

use super::Stack;
use super::buffers::Piece;
use super::interfaces::Interfaces;
use super::means::Means;
use super::tcp::{Came, Ends};
use backlog::Backlogs;
use rings::Rings;
use tables::{Flows, SocketFlows, hash_of};

use crate::irq::Softirqs;
use crate::net::NetDevice;

/// How received packets find the cores of those who read them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SteeringParams {
    /// Places in the table of sockets' cores, and in that of flows (Linux: `rps_sock_flow_entries`, `rps_flow_cnt`).
    pub entries: u32,
    /// Sends packets to the core on which their socket is used.
    pub rfs: bool,
    /// Asks devices to steer flows to that core's queue.
    pub arfs: bool,
    /// For how long a flow is silent until the device is told to forget it.
    pub idle: Duration,
    /// How often silent flows are looked for.
    pub scan: Duration,
}

impl SteeringParams {
    /// Off, as Linux has both unless told otherwise; the table's size is what its documentation recommends. The times are
    /// assumed: Linux's drivers look every 0.1 to 30 s.
    pub const fn linux() -> Self {
        Self {
            entries: const { linux("steering", "entries") } as u32,
            rfs: const { linux("steering", "rfs") } == 1,
            arfs: const { linux("steering", "arfs") } == 1,
            idle: Duration::from_ps(const { linux("steering", "idle") }),
            scan: Duration::from_ps(const { linux("steering", "scan") }),
        }
    }
}

/// A receiving queue: its device's number, and its own.
pub(super) type Ring = (u32, u16);

/// A packet, or several that were joined, on its way to a socket.
pub(super) enum Upward {
    Tcp { ends: Ends, header: TcpHeader, piece: Piece, came: Came },
    Udp { from: SocketAddrV4, to: SocketAddrV4, piece: Piece },
}

impl Upward {
    /// Which flow it belongs to.
    pub fn key(&self) -> FlowKey {
        match self {
            Self::Tcp { ends, .. } => flow_key(protocol::TCP, ends.peer, ends.local),
            Self::Udp { from, to, .. } => flow_key(protocol::UDP, *from, *to),
        }
    }

    /// Drops it.
    fn release(self, cpu: &Cpu) {
        let (Self::Tcp { piece, .. } | Self::Udp { piece, .. }) = self;
        piece.release(cpu);
    }
}

/// The flow of packets from one end to another.
pub(super) fn flow_key(protocol: u8, from: SocketAddrV4, to: SocketAddrV4) -> FlowKey {
    FlowKey {
        protocol,
        source: from.ip().octets(),
        destination: to.ip().octets(),
        ports: (from.port(), to.port()),
    }
}

/// What is known of flows and the cores that read them.
pub struct Steering {
    /// Who gives packets to sockets.
    stack: Weak<Stack>,
    means: Rc<Means>,
    params: SteeringParams,
    cores: SocketFlows,
    flows: Flows,
    backlogs: Backlogs,
    rings: Rc<Rings>,
}

impl Steering {
    pub fn new(
        stack: Weak<Stack>,
        means: &Rc<Means>,
        softirqs: &Rc<Softirqs>,
        interfaces: &Rc<Interfaces>,
        params: SteeringParams,
    ) -> Rc<Self> {
        Rc::new(Self {
            stack: stack.clone(),
            means: Rc::clone(means),
            params,
            cores: SocketFlows::new(params.entries),
            flows: Flows::new(params.entries),
            backlogs: Backlogs::new(stack, Rc::clone(softirqs)),
            rings: Rings::new(means, interfaces, params.idle, params.scan),
        })
    }

    fn is_on(&self) -> bool {
        (self.params.rfs || self.params.arfs) && self.params.entries > 0
    }

    pub fn clear(&self) {
        self.rings.clear();
        self.backlogs.clear();
    }

    /// A ring was found empty: what waited for that goes on.
    pub fn ring_emptied(&self, cpu: &Cpu, ring: Ring) {
        self.rings.emptied(cpu, ring, |ring, key, up| self.send_to_core(cpu, ring, key, up));
    }

    /// A device has stopped: what waited for its rings is dropped, as what they held is.
    pub fn forget_rings(&self, cpu: &Cpu, device: &NetDevice) {
        self.rings.forget(cpu, device);
    }

    /// A program uses a flow's socket on this core.
    pub fn used_here(&self, cpu: &Cpu, flow: FlowKey) {
        if self.is_on() {
            self.cores.note(self.means.memory(), cpu, hash_of(&flow));
        }
    }

    /// A packet of a ring, or of this host itself, is ready for its socket.
    pub fn upward(&self, cpu: &Cpu, ring: Option<Ring>, up: Upward) {
        let Some(ring) = ring.filter(|_| self.is_on()) else { return self.hand_up(cpu, up) };
        cpu.work(self.means.costs().net_steer);
        let key = up.key();
        if let Some(up) = self.rings.pass(cpu, ring, key, up) {
            self.send_to_core(cpu, ring, key, up);
        }
    }

    /// Lets a packet, all of whose elders have gone this way, go to the core of its socket.
    fn send_to_core(&self, cpu: &Cpu, ring: Ring, key: FlowKey, up: Upward) {
        let hash = hash_of(&key);
        let wanted = self.cores.find(self.means.memory(), cpu, hash);
        if let Some(wanted) = wanted.filter(|_| self.params.arfs) {
            self.rings.ask_device(cpu, ring, key, wanted);
        }
        if !self.params.rfs {
            return self.hand_up(cpu, up);
        }
        let backlogs = &self.backlogs;
        let is_done = |core, until| backlogs.of(core).is_none_or(|backlog| backlog.has_done(until));
        let here = self.flows.core_for(self.means.memory(), cpu, hash, wanted, is_done);
        match here {
            // Nothing of it waits elsewhere, and this is its core (Linux puts it into the own backlog).
            Some((core, until)) if core == cpu.id() && is_done(core, until) => self.hand_up(cpu, up),
            Some((core, _)) => {
                if core != cpu.id() {
                    self.means.count(|c| c.to_other_core += 1);
                }
                cpu.work(self.means.costs().net_queue);
                match backlogs.get(core).put(cpu, up) {
                    Some(until) => self.flows.set_until(hash, until),
                    None => self.means.count(|c| c.backlog_full += 1),
                }
            }
            None => self.hand_up(cpu, up),
        }
    }

    fn hand_up(&self, cpu: &Cpu, up: Upward) {
        match self.stack.upgrade() {
            Some(stack) => stack.hand_up(cpu, up),
            None => up.release(cpu),
        }
    }
}
