//! A core's path of stores to devices: store buffer, write-combining buffers, root ports.
//!
//! Stores to device memory enter the store buffer and leave it in program order. An uncached store is sent by itself
//! and accepted before any later one moves. A write-combining store goes into the buffer of its line, or allocates a
//! free one. A full line leaves at once, others when a barrier, an uncached access, a flush of that line or the lack of
//! free buffers evicts them. Evicted lines leave in order, or in any order in which no line is passed by more lines
//! than there are buffers. A buffer is free again when the root complex has accepted all of its bytes, for which the
//! root port needs room for posted writes. If the link or the device's credits do not drain those, buffers stay
//! occupied, stores stay in the store buffer, and finally the core stalls.
//!
//! A root port of another socket is reached over the interconnect. It accepts a line on arrival, and the
//! acknowledgement takes the way back. An uncached store is posted: the core's own socket accepts it, and only a fence
//! waits for its arrival.
//!
//! | file | subject |
//! |---|---|
//! | `pieces` | splitting a partially filled line into requests |
//! | `buffers` | line buffers: combining, eviction, sharing with line fills |
//! | `fills` | availability of fill buffers to misses |
//! | `stores` | the store buffer and its way out |
//!
//! Sources: Intel SDM volume 3, 11.3 (memory types) and 11.3.1 (buffering of write combining); Intel optimisation
//! manual (fill buffers).

mod buffers;
mod fills;
mod pieces;
mod stores;
#[cfg(test)]
mod tests;

pub use settings::EvictionOrder;
use units::Duration;

pub use fills::FillBuffers;
pub use pieces::LINE;
pub use stores::{Departure, LinePassed, StoreUnit};
pub(crate) use stores::{Step, WayOut};

/// Parameters of a core's stores to devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreParams {
    /// Line fill buffers, for lines fetched or combined at once (Intel optimisation manual).
    pub fill_buffers: u16,
    /// Number of them that may combine stores.
    pub combining_buffers: u16,
    /// Chunk size in bytes in which a partially filled line leaves, a power of two from 8 (SDM 11.3.1: 8).
    pub partial_chunk: u32,
    /// Order in which evicted lines leave.
    pub eviction_order: EvictionOrder,
    /// From a line leaving the core until the core knows that the root complex has accepted it.
    pub accept_latency: Duration,
    /// From an uncached store leaving the core until the core's socket has accepted it; later stores wait for that.
    pub uncached_latency: Duration,
    /// Minimum interval between TLPs of a core.
    pub evict_interval: Duration,
}

impl StoreParams {
    /// Ten buffers, as from Nehalem to Broadwell, with a root complex that accepts at once.
    pub const fn ideal() -> Self {
        Self {
            fill_buffers: 10,
            combining_buffers: 10,
            partial_chunk: 8,
            eviction_order: EvictionOrder::AsTold,
            accept_latency: Duration::ZERO,
            uncached_latency: Duration::ZERO,
            evict_interval: Duration::ZERO,
        }
    }
}

/// Counters of a core's stores to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Instructions that stored to device memory.
    pub stores: u64,
    /// Full lines sent.
    pub full_lines: u64,
    /// Partially filled lines sent.
    pub partial_lines: u64,
    /// Of these, lines evicted because another one needed the buffer.
    pub pressed_lines: u64,
    /// TLPs of partially filled lines.
    pub partial_tlps: u64,
    /// TLPs of uncached stores.
    pub uncached_tlps: u64,
    /// TLPs of direct stores.
    pub direct_tlps: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Lines that left before one evicted earlier.
    pub overtakes: u64,
    /// Time during which the oldest store waited for a buffer or for the acceptance of an earlier one.
    pub waited: Duration,
}
