//! A host as the fabric sees it: root ports, IOMMU, memory.

mod inbound;
mod intake;
mod interrupts;
mod lines;
mod outbound;
mod params;
mod peer;
mod port;
mod posted;
mod power;
mod recent;
mod registers;
mod split;
mod stack;
mod stores;
mod tags;

use engine::Completer;
use wire::pcie::{Bdf, Generation, IntxLine, TlpKind, Width};

pub use inbound::INTERRUPT_RANGE;
pub use interrupts::{IO_APIC, InterruptCounters, InterruptMessage, InterruptSink, Interrupts};
pub use lines::LineController;
pub use outbound::{CoreAccess, OutboundError};
pub use params::RootPortParams;
pub use peer::PeerReads;
pub use port::RootPort;
pub use power::{Entry, IdleState, PackageController, Power, PowerParams};
pub use split::CompletionSplit;
pub use stack::StackParams;

use crate::bridge;
use crate::core::{StoreParams, StoreUnit};
use crate::detected::Detected;
use crate::event::Event;
use crate::iommu::{Interrupt, Iommu, MsiMessage};
use crate::link::LinkEnd;
use crate::memory::{CoreId, MemorySystem};
use crate::packet::PacketId;
use crate::wires::Context;

/// A host of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u16);

/// What can happen inside a root complex.
#[derive(Clone, Copy, Debug)]
pub enum RootEvent {
    /// A request's address has been translated: it reaches memory.
    Access {
        /// Where it waits.
        slot: u32,
    },
    /// A completion that stayed behind posted writes goes on.
    Completion {
        /// Through which port it came.
        port: u8,
        /// The completion.
        packet: PacketId,
    },
    /// A completion's data is there.
    Send {
        /// Through which port it leaves.
        port: u8,
        /// The completion.
        packet: PacketId,
    },
    /// A posted write of a core has come to its port.
    SendPosted {
        /// The root port, in the machine file's order.
        port: u8,
        /// The write.
        packet: PacketId,
    },
    /// A posted write has left a port for which cores wait.
    PlaceFree {
        /// The root port, in the machine file's order.
        port: u8,
    },
    /// The link below a port has been trained again.
    Trained {
        /// The root port, in the machine file's order.
        port: u8,
    },
    /// What is below a port is reset.
    HotReset {
        /// The root port, in the machine file's order.
        port: u8,
    },
    /// A core's stores to devices may move on.
    Stores {
        /// The core whose store unit is looked at.
        core: CoreId,
    },
    /// A message-signalled interrupt is globally ordered and reaches what remaps it.
    Interrupt {
        /// Who sent it.
        requester: Bdf,
        /// Address as written.
        address: u64,
        /// Data as written.
        data: u32,
    },
    /// A legacy interrupt line of what is below a port becomes active, or inactive.
    Line {
        /// The root port, in the machine file's order.
        port: u8,
        /// Which.
        line: IntxLine,
        /// What it becomes.
        active: bool,
    },
    /// An interrupt is due at its core.
    CoreInterrupt {
        /// Who sent it.
        requester: Bdf,
        /// Where it goes.
        interrupt: Interrupt,
    },
    /// The data of a core's access has reached the core.
    CoreHasData {
        /// Where it waits.
        slot: u16,
    },
    /// A piece of a device's read from another one has waited too long for its completion.
    PeerTimeout {
        /// Its entry in the table of peer reads.
        place: u16,
        /// Which use of the place it is.
        generation: u32,
    },
    /// Tags are free again whose requests had been given up.
    TagsFree,
    /// A core's access to a device has waited too long for its completion.
    Timeout {
        /// Tag of the request.
        tag: u16,
        /// How often that tag had been used before.
        generation: u32,
    },
}

/// Counts of a root complex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootCounters {
    /// Bytes that devices read from memory.
    pub device_read_bytes: u64,
    /// Bytes that devices wrote to memory.
    pub device_write_bytes: u64,
    /// Requests answered or dropped because nothing is at their address or the IOMMU blocked them.
    pub unsupported_requests: u64,
    /// Memory requests that access control stopped.
    pub acs_violations: u64,
    /// Writes dropped for the same reasons.
    pub dropped_writes: u64,
    /// Writes dropped because their payload was marked as damaged.
    pub poisoned_writes: u64,
    /// TLPs dropped because their ECRC is not that of their bytes.
    pub damaged: u64,
    /// Accesses of cores that no completion answered in time; they read all ones.
    pub timeouts: u64,
    /// Completions that answered no access of a core.
    pub unexpected_completions: u64,
    /// TLPs that could not be decoded or make no sense at a root port.
    pub malformed: u64,
}

/// A host: its memory, its IOMMU, its root ports.
pub struct Host {
    id: HostId,
    /// Caches, DRAM, interconnect.
    pub memory: MemorySystem,
    /// Translate what devices address, one for each socket; empty where they are off.
    pub iommus: Vec<Iommu>,
    /// What interrupt messages and legacy lines lead to.
    pub interrupts: Interrupts,
    ports: Vec<RootPort>,
    /// The I/O stacks of those ports that belong to one.
    stacks: Vec<stack::Stack>,
    inbound: inbound::Inbound,
    outbound: outbound::Outbound,
    /// Reads of devices from each other.
    peers: peer::Peers,
    counters: RootCounters,
    /// Sleep of the fabric between ports and memory.
    power: Option<Power>,
    /// How each core stores to devices.
    stores: Vec<StoreUnit>,
}

impl Host {
    /// A host without root ports.
    pub fn new(id: HostId, memory: MemorySystem, iommus: Vec<Iommu>) -> Self {
        let stores = stores::units(&memory, &StoreParams::ideal());
        Self {
            id,
            memory,
            stores,
            iommus,
            interrupts: Interrupts::new(id),
            ports: Vec::new(),
            stacks: Vec::new(),
            inbound: inbound::Inbound::default(),
            outbound: outbound::Outbound::default(),
            peers: peer::Peers::default(),
            counters: RootCounters::default(),
            power: None,
        }
    }

    /// Adds a root port at `end` that leads to `buses`. Returns its number.
    pub fn add_port(
        &mut self,
        params: RootPortParams,
        end: LinkEnd,
        link: (Generation, Width),
        buses: std::ops::RangeInclusive<u8>,
    ) -> u8 {
        let number = self.ports.len() as u8;
        self.peers.grow(params.peer_reads.map_or(0, |own| own.places));
        let node = params.node;
        let stack = params.stack.map(|own| stack::Stack::join(&mut self.stacks, node, &own));
        let mut port = RootPort::new((self.id, number), params, end, link, buses);
        port.stack = stack;
        self.ports.push(port);
        number
    }

    /// A root port.
    pub fn port(&self, number: u8) -> &RootPort {
        &self.ports[usize::from(number)]
    }

    /// A root port, for what happens at it.
    pub fn port_mut(&mut self, number: u8) -> &mut RootPort {
        &mut self.ports[usize::from(number)]
    }

    /// The first core of the socket that a port belongs to.
    ///
    /// # Panics
    /// If the socket has no cores.
    pub fn core_near(&self, number: u8) -> CoreId {
        let node = self.ports[usize::from(number)].params.node;
        let mut cores = (0..).map(CoreId);
        cores
            .find(|&core| self.memory.node_of_core(core).is_none_or(|of| of == node))
            .filter(|&core| self.memory.node_of_core(core).is_some())
            .expect("every socket has cores")
    }

    /// All root ports, by number.
    pub fn ports(&self) -> &[RootPort] {
        &self.ports
    }

    /// What the root complex has done so far.
    pub fn counters(&self) -> &RootCounters {
        &self.counters
    }

    /// Lets the fabric between ports and memory sleep from now on.
    pub fn manage_power(&mut self, power: Power) {
        self.power = Some(power);
    }

    /// The power comes back: memory, caches, IOMMUs and the registers of root ports are as after a reset. Nothing may be under way.
    pub fn reset(&mut self) {
        let params = self.memory.params().clone();
        self.memory = MemorySystem::new(&params);
        self.iommus.iter_mut().for_each(Iommu::reset);
        self.interrupts.reset();
        for (number, port) in (0u8..).zip(&mut self.ports) {
            port.reset();
            self.outbound.set_bridge_windows(number, &[]);
        }
    }

    /// A TLP arrived at a root port.
    pub fn deliver(&mut self, cx: &mut Context<'_>, port: u8, packet: PacketId) {
        let now = cx.now();
        let Some(&tlp) = cx.wires.packets.header(packet) else {
            self.counters.malformed += 1;
            let bytes = cx.wires.packets.bytes(packet);
            self.port_mut(port).detect(cx.scheduler, Detected::Malformed, Some(bytes));
            cx.consume(packet, now);
            return;
        };
        if cx.wires.is_damaged(&tlp, packet) && self.ports[usize::from(port)].config.checks_ecrc() {
            self.counters.damaged += 1;
            let bytes = cx.wires.packets.bytes(packet);
            self.port_mut(port).detect(cx.scheduler, Detected::Ecrc, Some(bytes));
            cx.consume(packet, now);
            return;
        }
        match &tlp.kind {
            TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request) => {
                let state = &self.ports[usize::from(port)];
                let is_from_below = || state.buses.contains(&request.requester.bus());
                if bridge::forbids(&state.config, is_from_below, &tlp) {
                    self.forbid(cx, port, packet, &tlp);
                } else {
                    self.memory_request(cx, port, packet, &tlp, request);
                }
            }
            TlpKind::Completion(header) | TlpKind::CompletionData(header) => {
                let held = self.port(port).intake.held_until(now).filter(|_| !tlp.common.relaxed_ordering);
                match held {
                    Some(until) => {
                        cx.scheduler.at(until, Event::Root(self.id, RootEvent::Completion { port, packet }));
                    }
                    None => self.completion(cx, port, packet, &tlp, header),
                }
            }
            TlpKind::Message(message) => {
                let port = self.port_mut(port);
                match message.line() {
                    Some((line, active)) => port.line_message(cx.scheduler, line, active),
                    None => port.report(cx.scheduler, message.requester, message.code),
                }
                cx.consume(packet, now);
            }
            TlpKind::IoRead(request) | TlpKind::IoWrite(request) => {
                self.refuse(cx, port, &tlp, (request.requester, request.tag));
                cx.consume(packet, now);
            }
            TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request) => {
                self.refuse(cx, port, &tlp, (request.requester, request.tag));
                cx.consume(packet, now);
            }
        }
    }

    /// Something inside the root complex is due.
    pub fn handle(&mut self, cx: &mut Context<'_>, event: RootEvent) {
        match event {
            RootEvent::Access { slot } => self.deferred_access(cx, slot),
            RootEvent::Completion { port, packet } => self.held_completion(cx, port, packet),
            RootEvent::Send { port, packet } => {
                let end = self.ports[usize::from(port)].end;
                cx.send_tied(end, packet);
            }
            RootEvent::Trained { port } => self.port_mut(port).trained(),
            RootEvent::Interrupt { requester, address, data } => {
                self.interrupt(cx.scheduler, requester, MsiMessage { address, data });
            }
            RootEvent::Line { port, line, active } => {
                if self.port_mut(port).line_due(cx.scheduler, line, active) {
                    self.heed_lines(cx.scheduler);
                }
            }
            RootEvent::CoreInterrupt { requester, interrupt } => {
                self.interrupts.deliver(cx.now(), requester, interrupt);
            }
            RootEvent::SendPosted { port, packet } => self.posted_arrived(cx, port, packet),
            RootEvent::PlaceFree { port } => self.places_freed(cx, port),
            RootEvent::Stores { core } => self.run_stores(cx, core),
            // It is the fabric that knows what is below.
            RootEvent::HotReset { .. } => {}
            RootEvent::CoreHasData { slot } => self.core_has_data(slot),
            RootEvent::PeerTimeout { place, generation } => {
                self.peer_timeout(cx, place, generation);
            }
            RootEvent::TagsFree => self.issue(cx),
            RootEvent::Timeout { tag, generation } => self.access_timeout(cx.scheduler, tag, generation),
        }
    }
}

/// What a core gets for a read of a device: the bytes, all ones where nothing answered.
pub type ReadCompleter = Completer<Vec<u8>>;
