//! The part of a core through which stores reach devices: store buffer, write-combining buffers, the way out.
//!
//! What a core stores to device memory enters its store buffer and leaves it in program order. An uncached store
//! goes out by itself and is accepted before anything after it moves. A write-combining store goes into the buffer
//! that collects its line, or takes a free one; a line that is full leaves at once, any other when a barrier, an
//! uncached access, a flush of that line or the want of a buffer drives it out. Lines that wait to leave do so as
//! they were told to, or in any order that lets no more lines than there are buffers pass one. A buffer is free again
//! when the root complex has accepted all of its bytes, which it does as long as the root port has room for posted
//! writes; when the link or the device's credits do not drain those, buffers stay taken, stores stay in the store
//! buffer, and the core in the end stands still.
//!
//! A root port of another socket is reached over the interconnect. It accepts a line when that is there, and the word
//! of it takes the way back. An uncached store is posted: the core's own socket accepts it, and only a fence waits until
//! it is there.
//!
//! | file | subject |
//! |---|---|
//! | `pieces` | how a partly filled line is cut into requests |
//! | `buffers` | the line buffers: combining, leaving, shared with line fills |
//! | `fills` | when each of them can take a line that the core misses |
//! | `stores` | the store buffer and what moves out of it when |
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
pub use stores::{Departure, LinePassed, Store, StoreMark, StoreUnit};
pub(crate) use stores::{Step, WayOut};

/// A core's way of storing to devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreParams {
    /// Lines that may be fetched or combined at once: line fill buffers (Intel optimisation manual).
    pub fill_buffers: u16,
    /// How many of them may combine stores.
    pub combining_buffers: u16,
    /// A partly filled line leaves in chunks of so many bytes, a power of two from 8 (SDM 11.3.1: 8).
    pub partial_chunk: u32,
    /// In which order lines leave that wait to.
    pub eviction_order: EvictionOrder,
    /// From a line's leaving the core for the root port until the root complex has told the core that it is accepted.
    pub accept_latency: Duration,
    /// From an uncached store's leaving the core until the core's socket has accepted it, which holds up what the core
    /// stores behind it.
    pub uncached_latency: Duration,
    /// Least interval between two TLPs' leaving a core.
    pub evict_interval: Duration,
}

impl StoreParams {
    /// Ten buffers, as from Nehalem to Broadwell, on a root complex that accepts at once.
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

/// What a core's stores to devices have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Instructions that stored to device memory.
    pub stores: u64,
    /// Lines that left full.
    pub full_lines: u64,
    /// Lines that left partly filled.
    pub partial_lines: u64,
    /// Lines that left so because another one needed the buffer.
    pub pressed_lines: u64,
    /// TLPs of those.
    pub partial_tlps: u64,
    /// TLPs of uncached stores.
    pub uncached_tlps: u64,
    /// TLPs of direct stores.
    pub direct_tlps: u64,
    /// Bytes that left.
    pub bytes: u64,
    /// Lines that left before one that was filled earlier.
    pub overtakes: u64,
    /// Time for which the oldest store waited for a buffer or for the one before to be accepted.
    pub waited: Duration,
}
