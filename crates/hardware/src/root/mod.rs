//! The host side of the fabric: root ports, IOMMUs, memory.

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

/// Number of a host in the simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u16);

/// Events inside a root complex.
#[derive(Clone, Copy, Debug)]
pub enum RootEvent {
    /// A request's address has been translated: the request accesses memory.
    Access {
        /// Its slot in the waiting table.
        slot: u32,
    },
    /// A completion that was held behind posted writes proceeds.
    Completion {
        /// Root port at which it arrived.
        port: u8,
        /// The completion.
        packet: PacketId,
    },
    /// A completion's data is available.
    Send {
        /// Root port through which it leaves.
        port: u8,
        /// The completion.
        packet: PacketId,
    },
    /// A core's posted write has reached its port.
    SendPosted {
        /// Root port, in the machine file's order.
        port: u8,
        /// The write.
        packet: PacketId,
    },
    /// A port for which cores wait has sent a posted write and has a free place.
    PlaceFree {
        /// Root port, in the machine file's order.
        port: u8,
    },
    /// The link below a port has been retrained.
    Trained {
        /// Root port, in the machine file's order.
        port: u8,
    },
    /// A port resets the hierarchy below it.
    HotReset {
        /// Root port, in the machine file's order.
        port: u8,
    },
    /// A core's stores to devices can make progress.
    Stores {
        /// The core.
        core: CoreId,
    },
    /// A message-signalled interrupt is globally ordered and reaches interrupt remapping.
    Interrupt {
        /// Function that sent it.
        requester: Bdf,
        /// Address as written.
        address: u64,
        /// Data as written.
        data: u32,
    },
    /// A legacy interrupt line below a port changes its level.
    Line {
        /// Root port, in the machine file's order.
        port: u8,
        /// The line.
        line: IntxLine,
        /// Its new level.
        active: bool,
    },
    /// An interrupt is due at its core.
    CoreInterrupt {
        /// Function that sent it.
        requester: Bdf,
        /// Vector and target.
        interrupt: Interrupt,
    },
    /// The data of a core's access has arrived at the core.
    CoreHasData {
        /// Its slot in the waiting table.
        slot: u16,
    },
    /// Part of a peer-to-peer read has timed out.
    PeerTimeout {
        /// Its entry in the table of peer reads.
        place: u16,
        /// Generation of the entry, to detect reuse.
        generation: u32,
    },
    /// Quarantined tags of requests that timed out are free again.
    TagsFree,
    /// A core's access to a device has timed out.
    Timeout {
        /// Tag of the request.
        tag: u16,
        /// Generation of the tag, to detect reuse.
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
    /// Requests answered as unsupported or dropped, as their address is unmapped or the IOMMU blocked them.
    pub unsupported_requests: u64,
    /// Memory requests blocked by access control.
    pub acs_violations: u64,
    /// Writes dropped for the same reasons.
    pub dropped_writes: u64,
    /// Writes dropped because their payload was poisoned.
    pub poisoned_writes: u64,
    /// TLPs dropped because of an ECRC mismatch.
    pub damaged: u64,
    /// Core accesses whose completion timed out; they read all ones.
    pub timeouts: u64,
    /// Completions that match no outstanding request of a core.
    pub unexpected_completions: u64,
    /// TLPs that could not be decoded or are invalid at a root port.
    pub malformed: u64,
}

/// A host: memory, IOMMUs and root ports.
pub struct Host {
    id: HostId,
    /// Caches, DRAM, interconnect.
    pub memory: MemorySystem,
    /// One IOMMU for each socket; empty if translation is off.
    pub iommus: Vec<Iommu>,
    /// Delivery of interrupt messages and legacy lines.
    pub interrupts: Interrupts,
    ports: Vec<RootPort>,
    /// I/O stacks of the ports that belong to one.
    stacks: Vec<stack::Stack>,
    inbound: inbound::Inbound,
    outbound: outbound::Outbound,
    /// Peer-to-peer reads.
    peers: peer::Peers,
    counters: RootCounters,
    /// Power management of the fabric between ports and memory.
    power: Option<Power>,
    /// Store path to devices, for each core.
    stores: Vec<StoreUnit>,
}

impl Host {
    /// Creates a host without root ports.
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

    /// Adds a root port at `end` that forwards to `buses`. Returns its number.
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

    /// Returns a root port.
    pub fn port(&self, number: u8) -> &RootPort {
        &self.ports[usize::from(number)]
    }

    /// Returns a root port mutably.
    pub fn port_mut(&mut self, number: u8) -> &mut RootPort {
        &mut self.ports[usize::from(number)]
    }

    /// The first core of a port's socket.
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

    /// Counts so far.
    pub fn counters(&self) -> &RootCounters {
        &self.counters
    }

    /// Enables power management of the fabric between ports and memory.
    pub fn manage_power(&mut self, power: Power) {
        self.power = Some(power);
    }

    /// Power-on reset of memory, caches, IOMMUs and root port registers. Nothing may be in flight.
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

    /// Handles a TLP that arrived at a root port.
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

    /// Handles an event inside the root complex.
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
            // Handled by the fabric, which knows the topology below.
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

/// Receives the data of a core's read of a device; all ones if nothing answered.
pub type ReadCompleter = Completer<Vec<u8>>;
