//! Traffic by place and cause, and conservation checks.

use super::LINE;
use super::access::NodeId;
use thiserror::Error;
use units::{Bytes, Duration};

/// Why bytes are transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A core's load or store.
    Core,
    /// A device's read or write.
    Dma,
    /// An IOMMU's page walk.
    Walk,
    /// Dirty lines on their way to DRAM.
    WriteBack,
    /// A prefetch, by an instruction or by a core's prefetchers.
    Prefetch,
    /// Coherence messages without data.
    Snoop,
    /// Directory state kept in DRAM.
    Directory,
    /// Posted uncached stores of a core to a device: doorbells.
    MmioDoorbell,
    /// Non-posted accesses of a core to a device or its configuration space.
    MmioRegister,
    /// Lines of a core's write-combining buffers, and their acknowledgement.
    MmioWriteCombining,
    /// Interrupt messages.
    Interrupt,
}

impl Cause {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 11] = [
        Self::Core,
        Self::Dma,
        Self::Walk,
        Self::WriteBack,
        Self::Prefetch,
        Self::Snoop,
        Self::Directory,
        Self::MmioDoorbell,
        Self::MmioRegister,
        Self::MmioWriteCombining,
        Self::Interrupt,
    ];

    /// Last part of the names of the counters that it is split into.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Dma => "dma",
            Self::Walk => "walk",
            Self::WriteBack => "writeback",
            Self::Prefetch => "prefetch",
            Self::Snoop => "snoop",
            Self::Directory => "directory",
            Self::MmioDoorbell => "mmio-doorbell",
            Self::MmioRegister => "mmio-register",
            Self::MmioWriteCombining => "mmio-wc",
            Self::Interrupt => "interrupt",
        }
    }
}

/// Bytes by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ByCause([u64; Cause::ALL.len()]);

impl ByCause {
    /// Bytes transferred for `cause`.
    pub fn of(&self, cause: Cause) -> Bytes {
        Bytes::new(self.0[cause as usize])
    }
    /// Bytes transferred for all causes.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.0.iter().sum())
    }
    #[inline]
    pub(super) fn add(&mut self, cause: Cause, bytes: u64) {
        self.0[cause as usize] += bytes;
    }
}

/// Users of a shared cache, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheUser {
    /// Loads, stores and prefetches of cores.
    Core,
    /// DMA, with or without DDIO.
    Device,
    /// IOMMU page walkers.
    Walker,
}

/// Accesses of one kind of user to one cache, in lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Accesses that found their line.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
    /// Lines allocated.
    pub allocations: u64,
    /// Lines evicted.
    pub evictions: u64,
    /// Evicted lines that were dirty.
    pub dirty_evictions: u64,
}

/// Accesses of the devices of one node, in lines, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Writes requested.
    pub writes: u64,
    /// Writes that updated a line present in an LLC.
    pub writes_updated: u64,
    /// Writes that allocated a line in an LLC.
    pub writes_allocated: u64,
    /// Writes that went to DRAM.
    pub writes_to_memory: u64,
    /// Lines read from DRAM to merge a partial write with.
    pub merges: u64,
    /// Reads requested.
    pub reads: u64,
    /// Reads answered by the LLC of the device's socket.
    pub reads_llc: u64,
    /// Of these, reads for which a core was snooped.
    pub reads_snooped: u64,
    /// Reads answered by another socket's cache.
    pub reads_remote_cache: u64,
    /// Reads answered by DRAM.
    pub reads_memory: u64,
    /// Lines read from DRAM in vain, as a cache had newer data.
    pub overtaken: u64,
}

/// One node's counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeCounters {
    /// Bytes read from this node's DRAM.
    pub dram_read: ByCause,
    /// Bytes written to this node's DRAM.
    pub dram_written: ByCause,
    /// Use of this socket's LLC.
    pub llc: [CacheCounters; 3],
    /// Use of all private caches of this socket.
    pub private: CacheCounters,
    /// Accesses of devices below this socket's root ports.
    pub device: DeviceCounters,
}

impl NodeCounters {
    /// Use of this socket's LLC by `user`.
    pub fn llc_by(&self, user: CacheUser) -> &CacheCounters {
        &self.llc[user as usize]
    }
}

/// One direction of one inter-socket link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkCounters {
    /// Source node.
    pub from: NodeId,
    /// Destination node.
    pub to: NodeId,
    /// Bytes, headers included.
    pub bytes: ByCause,
}

/// All counters of a host's memory system.
///
/// Untimed touches that only set cache state are not counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounters {
    /// For each node.
    pub nodes: Vec<NodeCounters>,
    /// Two entries for each link, one for each direction.
    pub links: Vec<LinkCounters>,
    /// Bytes sent over the interconnect, times the number of links crossed.
    pub sent: ByCause,
    /// Dirty lines written back to DRAM, for any reason.
    pub written_back: u64,
    /// Lines that cores and their prefetchers got from another socket's caches.
    pub from_other_caches: u64,
    /// Lines that page walks read.
    pub walk_reads: u64,
    /// Page-walk lines read from DRAM.
    pub walk_reads_memory: u64,
    /// Accesses to addresses without memory.
    pub unmapped: u64,
}

/// Busy times of a memory system's servers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryBusy {
    /// For each node, of all channels of its DRAM together.
    pub dram: Vec<Duration>,
    /// For each node, of the root complex's port into its LLC.
    pub llc: Vec<Duration>,
    /// Two entries for each link, one for each direction.
    pub links: Vec<Duration>,
    /// For each node, of the link of each of its dies of cores: to the cores, and from them.
    pub core_dies: Vec<Vec<[Duration; 2]>>,
}

/// Two sums that should be equal but are not.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{what}: {left} against {right}")]
pub struct Imbalance {
    /// What is compared.
    pub what: &'static str,
    /// First sum.
    pub left: u64,
    /// Second sum.
    pub right: u64,
}

impl MemoryCounters {
    /// Checks that no byte was lost or counted twice between devices, caches, links and DRAM.
    ///
    /// # Errors
    /// Names the first two sums that differ.
    pub fn check_conservation(&self) -> Result<(), Imbalance> {
        let agree = |what, left: u64, right: u64| {
            if left == right { Ok(()) } else { Err(Imbalance { what, left, right }) }
        };
        let mut device = DeviceCounters::default();
        let (mut dma_read, mut dma_written, mut walk_read, mut written_back) = (0, 0, 0, 0);
        let (mut core_read, mut core_missed) = (0, 0);
        for node in &self.nodes {
            let d = &node.device;
            agree(
                "device writes: updated + allocated + to memory against writes",
                d.writes_updated + d.writes_allocated + d.writes_to_memory,
                d.writes,
            )?;
            agree(
                "device reads: LLC + remote cache + memory against reads",
                d.reads_llc + d.reads_remote_cache + d.reads_memory,
                d.reads,
            )?;
            device.writes_to_memory += d.writes_to_memory;
            device.merges += d.merges;
            device.reads_memory += d.reads_memory + d.overtaken;
            dma_read += node.dram_read.of(Cause::Dma).get();
            dma_written += node.dram_written.of(Cause::Dma).get();
            walk_read += node.dram_read.of(Cause::Walk).get();
            written_back += node.dram_written.of(Cause::WriteBack).get();
            core_read += node.dram_read.of(Cause::Core).get() + node.dram_read.of(Cause::Prefetch).get();
            core_missed += node.llc[CacheUser::Core as usize].misses;
        }
        agree("bytes of DRAM read for devices", dma_read, (device.reads_memory + device.merges) * LINE)?;
        agree("bytes of DRAM written by devices", dma_written, device.writes_to_memory * LINE)?;
        let from_memory = core_missed - self.from_other_caches.min(core_missed);
        agree("bytes of DRAM read for cores", core_read, from_memory * LINE)?;
        agree("bytes of DRAM read by page walks", walk_read, self.walk_reads_memory * LINE)?;
        agree("bytes of DRAM written back", written_back, self.written_back * LINE)?;
        for cause in Cause::ALL {
            let on_links = self.links.iter().map(|l| l.bytes.of(cause).get()).sum();
            agree("bytes on links against bytes sent", on_links, self.sent.of(cause).get())?;
        }
        Ok(())
    }
}
