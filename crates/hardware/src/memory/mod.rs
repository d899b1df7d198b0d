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
//! | `physical` | the bytes |
//! | `system` | the memory system: what agents call |
//! | `counters` | traffic by place and cause, and the sums that must agree |

mod access;
mod cache;
mod coherence;
mod core_access;
mod counters;
mod device;
mod dram;
mod interconnect;
mod params;
mod physical;
mod replacement;
mod server;
mod set_index;
mod socket;
mod system;
#[cfg(test)]
mod tests;

pub use access::{Access, Agent, CoreId, CoreOp, Coverage, NodeId, Source};
pub use counters::{
    ByCause, CacheCounters, CacheUser, Cause, DeviceCounters, Imbalance, LinkCounters, MemoryCounters,
    NodeCounters,
};
pub use params::{
    CacheGeometry, DdioParams, DramParams, EvictionNotice, Inclusion, InterconnectLink, InterconnectParams,
    LlcParams, MemoryParams, MemoryRange, ParamError, PrivateParams, RefreshParams, RemoteHit, RemoteWrite,
    ReplacementPolicy, RowBufferParams, SetIndex, SliceFold, SnoopMode, SocketParams,
};
pub use physical::{MemoryFault, PhysicalMemory};
pub use system::MemorySystem;

/// Bytes in a cache line.
pub const LINE: u64 = 64;
