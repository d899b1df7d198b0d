//! The host side of the fabric: root ports, IOMMUs, memory.
//!
//! [`Host`] is what the fabric and the cores see. It passes TLPs, events and accesses to parts with private state:
//!
//! | file | subject |
//! |---|---|
//! | `host` | the host, and its cores' accesses |
//! | `ports`, `port` | the root ports, and the addresses and buses that lead to them; one port: registers, slot |
//! | `intake`, `posted` | a port's requests of devices in order, and its places for posted writes of cores |
//! | `stack`, `quadrant` | what groups of ports share |
//! | `inbound`, `recent`, `split` | requests of devices to memory, lines with reads in flight, completions |
//! | `peer` | requests of devices to devices |
//! | `deferred`, `outside` | requests that the root complex answers itself; a virtual machine's memory |
//! | `stores`, `requests` | stores of cores to devices; their reads and configuration accesses, with tags |
//! | `interrupts`, `lines` | interrupt messages to cores; legacy lines |
//! | `power` | power management that devices see |
//! | `means`, `params` | what a part gets with an event: links, ports, memory, IOMMUs; parameters |

mod deferred;
mod host;
mod inbound;
mod intake;
mod interrupts;
mod lines;
mod means;
mod ordered;
mod outside;
mod params;
mod peer;
mod port;
mod ports;
mod posted;
mod power;
mod quadrant;
mod recent;
mod requests;
mod split;
mod stack;
mod stores;

use engine::Epoch;
use wire::pcie::{Bdf, IntxLine};
use wire::vtd::Interrupt;

pub use host::{CoreAccess, Host};
pub use inbound::INTERRUPT_RANGE;
pub use interrupts::{IO_APIC, InterruptCounters, InterruptMessage, InterruptSink, Interrupts};
pub use lines::LineController;
pub use outside::OutsideMemory;
pub use params::{PeerReads, RootPortParams};
pub use port::RootPort;
pub use ports::OutboundError;
pub use power::{Entry, IdleState, PackageController, Power, PowerParams};
pub use quadrant::QuadrantParams;
pub use split::CompletionSplit;
pub use stack::StackParams;
pub use stores::Stores;

use crate::memory::CoreId;
use crate::packet::PacketId;

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
    /// A port contains what is below it: its link goes down.
    Contain {
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
        /// The core whose stores go on.
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
        /// INTA to INTD, as the port sees it.
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
        /// Set when the part was requested.
        epoch: Epoch,
    },
    /// Quarantined tags of requests that timed out are free again.
    TagsFree,
    /// A core's access to a device has timed out.
    Timeout {
        /// Tag of the request.
        tag: u16,
        /// The use of the tag.
        epoch: Epoch,
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
