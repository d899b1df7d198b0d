//! The memory system of one host: DRAM, caches, DDIO, interconnect.
//!
//! Every access computes its completion time at once by reserving the servers on its path (LLC port, DRAM channel,
//! inter-socket link); there are no events here. Caches only hold line states. The bytes exist once, in
//! [`PhysicalMemory`], so a cache can never return stale data, only take the wrong time. A socket knows no time: it says
//! who has a line, and `coherence` what that takes. Each part counts what it does.
//!
//! | file | subject |
//! |---|---|
//! | `params` | memory parameters of a machine file |
//! | `access` | agents, operations, replies |
//! | `system` | the memory system: interface to agents |
//! | `devices` | accesses of devices and page walkers; DDIO |
//! | `cores` | accesses of cores |
//! | `coherence` | what sockets ask of each other and of home nodes |
//! | `socket` | line states in a socket's caches; ownership, inclusion |
//! | `private` | line states in a core's caches |
//! | `cache`, `set_index`, `replacement` | sets and ways |
//! | `prefetch` | fills in flight to a core: super queue, prefetchers |
//! | `presence` | cores that may have a line |
//! | `regions` | parts of memory that a socket never cached |
//! | `dram` | channels, refresh, write queues |
//! | `bank` | row activations of a bank |
//! | `home` | a node's memory: serialisation per line; DRAM; directory, I/O directory cache |
//! | `interconnect` | inter-socket links and routes |
//! | `slots` | places held by requests for a time |
//! | `server` | a resource that serves one request at a time |
//! | `turns` | a server whose requests are not simulated in the order of their arrival |
//! | `physical` | the bytes |
//! | `counters` | traffic by place and cause, and conservation checks |
//!
//! Simplifications: the L2 includes the L1; all cores of a socket are equally far from all LLC slices and from the root
//! ports.

mod access;
mod bank;
mod cache;
mod coherence;
mod core_die;
mod cores;
mod counters;
mod devices;
mod dram;
mod home;
mod interconnect;
mod params;
mod physical;
mod prefetch;
mod presence;
mod private;
mod regions;
mod replacement;
mod server;
mod set_index;
mod slots;
mod socket;
mod system;
#[cfg(test)]
mod tests;
mod turns;

pub use access::{AccessReply, Agent, CoreId, CoreOp, Coverage, NodeId, Source, WriteReply};
pub use coherence::CacheState;
pub use counters::{
    ByCause, CacheCounters, CacheUser, Cause, DeviceCounters, Imbalance, LinkCounters, MemoryBusy,
    MemoryCounters, NodeCounters,
};
pub use params::{
    CacheGeometry, CoreDieParams, DdioParams, DramParams, EvictionNotice, InterconnectLink,
    InterconnectParams, LlcParams, MemoryParams, MemoryRange, ParamError, PrefetchParams, PrivateParams,
    RefreshParams, RemoteHit, RemoteWrite, RemoteWriteParams, ReplacementPolicy, RowBufferParams, SetIndex,
    SliceFold, SnoopMode, SocketParams,
};
pub use physical::{MemoryFault, PhysicalMemory};
pub(crate) use server::Server;
pub use system::MemorySystem;

/// Bytes in a cache line.
pub const LINE: u64 = 64;
/// log2 of that.
const LINE_SHIFT: u32 = LINE.trailing_zeros();
