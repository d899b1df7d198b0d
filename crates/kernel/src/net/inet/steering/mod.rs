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

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use platform::costs::linux;
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::TaskParams;
use platform::net::FlowKey;
use units::{Duration, Time};
use wire::ip::{TcpHeader, protocol};

use super::Stack;
use super::buffers::Piece;
use super::tcp::{Came, Ends};
use backlog::Backlogs;
use rings::Rings;
use tables::{Cores, Flows, hash_of};

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
pub(super) struct Steering {
    params: SteeringParams,
    cores: Cores,
    flows: Flows,
    backlogs: Backlogs,
    rings: RefCell<BTreeMap<FlowKey, Rings>>,
    /// The device's table was full: nothing is asked of it until then.
    full_until: Cell<Time>,
    scanning: Cell<bool>,
}

impl Steering {
    pub fn new(params: SteeringParams) -> Self {
        Self {
            params,
            cores: Cores::new(params.entries),
            flows: Flows::new(params.entries),
            backlogs: Backlogs::default(),
            rings: RefCell::default(),
            full_until: Cell::new(Time::ZERO),
            scanning: Cell::new(false),
        }
    }

    fn is_on(&self) -> bool {
        (self.params.rfs || self.params.arfs) && self.params.entries > 0
    }

    pub fn clear(&self) {
        self.rings.borrow_mut().clear();
        self.backlogs.clear();
    }
}

impl Stack {
    /// A program uses a flow's socket on this core.
    pub(super) fn used_here(&self, cpu: &Cpu, flow: FlowKey) {
        if self.steering.is_on() {
            self.steering.cores.note(&self.base.memory, cpu, hash_of(&flow));
        }
    }

    /// A packet of a ring, or of this host itself, is ready for its socket.
    pub(super) fn upward(&self, cpu: &Cpu, ring: Option<Ring>, up: Upward) {
        let Some(ring) = ring.filter(|_| self.steering.is_on()) else { return self.hand_up(cpu, up) };
        cpu.work(self.costs().net_steer);
        let key = up.key();
        if let Some(up) = self.pass_rings(cpu, ring, key, up) {
            self.send_to_core(cpu, ring, key, up);
        }
    }

    /// Lets a packet, all of whose elders have gone this way, go to the core of its socket.
    fn send_to_core(&self, cpu: &Cpu, ring: Ring, key: FlowKey, up: Upward) {
        let steering = &self.steering;
        let hash = hash_of(&key);
        let wanted = steering.cores.find(&self.base.memory, cpu, hash);
        if let Some(wanted) = wanted.filter(|_| steering.params.arfs) {
            self.ask_device(cpu, ring, key, wanted);
        }
        if !steering.params.rfs {
            return self.hand_up(cpu, up);
        }
        let backlogs = &steering.backlogs;
        let is_done = |core, until| backlogs.of(core).is_none_or(|backlog| backlog.has_done(until));
        let here = steering.flows.core_for(&self.base.memory, cpu, hash, wanted, is_done);
        match here {
            // Nothing of it waits elsewhere, and this is its core (Linux puts it into the own backlog).
            Some((core, until)) if core == cpu.id() && is_done(core, until) => self.hand_up(cpu, up),
            Some((core, _)) => {
                if core != cpu.id() {
                    self.count(|c| c.to_other_core += 1);
                }
                cpu.work(self.costs().net_queue);
                match backlogs.get(&self.softirqs, &self.me, core).put(cpu, up) {
                    Some(until) => steering.flows.set_until(hash, until),
                    None => self.count(|c| c.backlog_full += 1),
                }
            }
            None => self.hand_up(cpu, up),
        }
    }

    /// Gives a packet to its socket, on this core.
    fn hand_up(&self, cpu: &Cpu, up: Upward) {
        match up {
            Upward::Tcp { ends, header, piece, came } => {
                self.tcp_input(cpu, ends, &header, piece, came);
            }
            Upward::Udp { from, to, piece } => self.udp_input(cpu, from, to, piece),
        }
    }

    /// Asks the device to send a flow to the ring at home on a core, unless it does.
    fn ask_device(&self, cpu: &Cpu, ring: Ring, key: FlowKey, core: CpuId) {
        let Some(device) =
            self.interfaces.device_numbered(ring.0).filter(|device| device.features().flow_steering)
        else {
            return;
        };
        let queue = device.rx_queue_for(core);
        let now = cpu.now();
        let mut all = self.steering.rings.borrow_mut();
        match all.get(&key) {
            Some(known) if !known.may_move(ring, queue) => return,
            None if queue == ring.1 => return,
            _ => {}
        }
        if now < self.steering.full_until.get() {
            return;
        }
        match device.steer(cpu, key, queue) {
            Ok(rule) => {
                all.entry(key).or_insert_with(|| Rings::new(ring)).steered(rule, queue, now);
                drop(all);
                self.count(|c| c.steered += 1);
                self.start_scan();
            }
            Err(_) => {
                self.steering.full_until.set(now + self.steering.params.scan);
                drop(all);
                self.count(|c| c.steer_failed += 1);
            }
        }
    }

    /// The task that forgets silent flows. It ends when there is none left.
    fn start_scan(&self) {
        if self.steering.scanning.replace(true) {
            return;
        }
        let me = self.me.clone();
        let program = move |cpu: Cpu| -> Async<'static, ()> {
            Box::pin(async move {
                let _part = cpu.book(Part::Net);
                while let Some(stack) = me.upgrade()
                    && !stack.steering.rings.borrow().is_empty()
                {
                    let scan = stack.steering.params.scan;
                    drop(stack);
                    cpu.sleep(scan).await;
                    if let Some(stack) = me.upgrade() {
                        stack.forget_silent(&cpu);
                    }
                    cpu.sync().await;
                }
                if let Some(stack) = me.upgrade() {
                    stack.steering.scanning.set(false);
                }
            })
        };
        self.base.tasks.spawn(TaskParams::named("arfs"), Box::new(program));
    }
}
