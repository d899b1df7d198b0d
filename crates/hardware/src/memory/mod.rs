//! The memory system of one host: DRAM, caches, DDIO, interconnect.
//!
//! Every access computes its completion time at once by reserving the servers
//! on its way (LLC port, DRAM channel, inter-socket link); there are no events
//! in here. Caches hold states only: the bytes live once, in
//! [`PhysicalMemory`], so a cache can never hand out stale data, only take the
//! wrong amount of time.
//!
//! | file | subject |
//! |---|---|
//! | `params` | what a machine file has to say about memory |
//! | `access` | agents, operations, answers |
//! | `system` | the memory system: what agents call |
//! | `device` | accesses of devices and page walkers; DDIO |
//! | `core_access` | accesses of cores |
//! | `coherence` | what happens when a socket lacks a line: home node, snoops |
//! | `snapshot` | the caches' state apart from their host |
//! | `socket` | states of lines in one socket's caches; ownership, inclusion |
//! | `cache`, `set_index`, `replacement` | sets and ways |
//! | `prefetch` | lines on their way to a core: super queue, prefetchers |
//! | `presence` | which cores may have a line |
//! | `regions` | which parts of memory a socket never had |
//! | `dram` | channels, refresh, write queues |
//! | `bank` | the rows that a bank opens |
//! | `home` | home agents: one request for a line at a time; directory, I/O directory cache |
//! | `interconnect` | links between sockets and routes over them |
//! | `slots` | places that requests take for a while |
//! | `server` | a resource that serves one request at a time |
//! | `physical` | the bytes |
//! | `counters` | traffic by place and cause, and the sums that must agree |
//!
//! What is simpler than in the real thing: an L2 includes its L1; cores of one
//! socket are equally far from all slices of its LLC and from its root ports.

mod access;
mod bank;
mod cache;
mod coherence;
mod core_access;
mod counters;
mod device;
mod dram;
mod home;
mod interconnect;
mod params;
mod physical;
mod prefetch;
mod presence;
mod regions;
mod replacement;
mod server;
mod set_index;
mod slots;
mod snapshot;
mod socket;
mod system;
#[cfg(test)]
mod tests;

pub use access::{AccessReply, Agent, CoreId, CoreOp, Coverage, NodeId, Source, WriteReply};
pub use counters::{
    ByCause, CacheCounters, CacheUser, Cause, DeviceCounters, Imbalance, LinkCounters, MemoryCounters,
    NodeCounters,
};
pub use params::{
    CacheGeometry, DdioParams, DramParams, EvictionNotice, Inclusion, InterconnectLink, InterconnectParams,
    LlcParams, MemoryParams, MemoryRange, ParamError, PrefetchParams, PrivateParams, RefreshParams,
    RemoteHit, RemoteWrite, ReplacementPolicy, RowBufferParams, SetIndex, SliceFold, SnoopMode, SocketParams,
};
pub use physical::{MemoryFault, PhysicalMemory};
pub use snapshot::CacheState;
pub use system::MemorySystem;

/// Bytes in a cache line.
pub const LINE: u64 = 64;
