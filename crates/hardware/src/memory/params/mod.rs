//! Memory parameters of a machine file.
//!
//! Plain data without defaults: every value belongs to a machine and has its source in the machine file.
//! [`MemoryParams::example`] is for tests only.

mod example;
mod validate;

pub use settings::{EvictionNotice, RemoteHit, RemoteWrite, ReplacementPolicy, SliceFold, SnoopMode};
use units::{ByteRate, Bytes, Duration, HostPhysical};

pub use validate::ParamError;

/// The memory system of one host.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryParams {
    /// One entry for each socket, by node number.
    pub sockets: Vec<SocketParams>,
    /// The links between sockets.
    pub interconnect: InterconnectParams,
    /// Device writes to another socket's memory.
    pub remote_write: RemoteWriteParams,
    /// Cost of a read whose line is in another socket's cache.
    pub remote_hit: RemoteHit,
    /// Seed of the random replacement policies.
    pub seed: u64,
}

/// One socket: cores with private caches, an LLC and a memory controller.
#[derive(Clone, Debug, PartialEq)]
pub struct SocketParams {
    /// Number of cores (at most 64); none if the node is memory alone.
    pub cores: u16,
    /// How groups of cores on dies of their own are connected; `None` if nothing limits a group.
    pub core_die: Option<CoreDieParams>,
    /// The private caches of each core.
    pub private: PrivateParams,
    /// The last-level cache.
    pub llc: LlcParams,
    /// The DRAM behind this socket's memory controllers.
    pub dram: DramParams,
    /// Where this node's DRAM lies in the host's physical address map.
    pub memory: Vec<MemoryRange>,
}

/// Dies with some of a socket's cores, each with a link to the die with the memory controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreDieParams {
    /// Cores of a die.
    pub cores: u16,
    /// What its link carries to the cores.
    pub reads: ByteRate,
    /// What its link carries from the cores.
    pub writes: ByteRate,
    /// Lines on their way from the cores that it holds.
    pub write_queue: u16,
    /// Lines that its cores may have requested.
    pub reads_in_hand: u16,
}

/// A contiguous range of DRAM in the physical address map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First address; a multiple of 64 bytes.
    pub base: HostPhysical,
    /// Length; a multiple of 64 bytes.
    pub size: Bytes,
}

/// Size and organisation of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheGeometry {
    /// Capacity; a multiple of `ways` lines of 64 bytes.
    pub size: Bytes,
    /// Ways of each set (1 to 32).
    pub ways: u8,
    /// How an address selects its set.
    pub index: SetIndex,
    /// Which line of a full set makes room for a new one.
    pub replacement: ReplacementPolicy,
}

/// How an address selects its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIndex {
    /// By its low bits, as in private caches.
    Plain,
    /// By its low bits, displaced by a hash of the upper ones.
    Hashed,
    /// By its low bits within a slice, the slice by a hash of all bits, as in
    /// the LLC of an Intel server. The hash is the published one of the Xeon E5
    /// (Maurice et al., "Reverse Engineering Intel Last-Level Cache Complex
    /// Addressing", RAID 2015), which is exact for powers of two.
    Sliced {
        /// Number of slices (1 to 16), each with a power of two of sets.
        slices: u8,
        /// How hash values beyond the last slice are mapped.
        fold: SliceFold,
    },
}

/// Private caches of a core. The L2 is assumed to include the L1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateParams {
    /// The L1 data cache.
    pub l1: CacheGeometry,
    /// Load-to-use latency of an L1 hit.
    pub l1_hit: Duration,
    /// The L2 cache, which includes the L1.
    pub l2: CacheGeometry,
    /// Load-to-use latency of an L2 hit.
    pub l2_hit: Duration,
    /// L2 occupancy of a line transferred between L1 and L2, in either direction; zero for none.
    pub l1_transfer: Duration,
    /// L2 occupancy of a line transferred between L2 and LLC.
    pub l2_transfer: Duration,
    /// Super queue and prefetchers of the L2; `None` for no limit and no prefetching.
    pub prefetch: Option<PrefetchParams>,
}

/// An L2's super queue and prefetchers (Intel 64 and IA-32 Architectures Optimization Reference Manual).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchParams {
    /// Lines that the L2 may have outstanding (1 to 64).
    pub super_queue: u8,
    /// Pages that the streamer tracks; zero disables it.
    pub streams: u8,
    /// How many lines it may be ahead of an access.
    pub distance: u8,
    /// Lines that it requests for each access (up to 8).
    pub degree: u8,
    /// Whether a miss also fetches the other line of the 128-byte pair.
    pub adjacent_line: bool,
    /// Whether a stream that reaches the end of its page fetches the next page's first line.
    pub next_page: bool,
}

/// The last-level cache of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlcParams {
    /// Size, ways, index and replacement.
    pub geometry: CacheGeometry,
    /// The snoop filter, whose size counts 64 bytes for each tracked line. With one, the LLC is not inclusive: lines fill
    /// the private caches only and enter the LLC when evicted from there (Intel from Skylake-SP). Without one, the
    /// LLC's core-valid bits locate private copies, and evicting a line from the LLC evicts it from the private caches
    /// (Intel up to Broadwell).
    pub snoop_filter: Option<CacheGeometry>,
    /// Which evictions private caches report.
    pub eviction_notice: EvictionNotice,
    /// Load-to-use latency of a core's load that hits.
    pub core_hit: Duration,
    /// From the root complex's request until hit or miss is known.
    pub device_lookup: Duration,
    /// From there, or from DRAM's answer, until the line is at the root complex.
    pub device_return: Duration,
    /// From the time at which hit or miss is known until a device's write is
    /// globally ordered.
    pub device_commit: Duration,
    /// Occupancy of the root complex's port into the LLC by an access of a device or page walker; zero for a port that
    /// never queues.
    pub device_service: Duration,
    /// Whether a core's streaming store waits until the home node has snooped all caches. Otherwise it is posted: the
    /// LLC takes it over.
    pub streaming_waits: bool,
    /// Additional latency of snooping the core that owns a line.
    pub core_snoop: Duration,
    /// Latency of this socket's response to a home node's snoop, excluding the links.
    pub snoop_lookup: Duration,
    /// Additional latency of a device's read that hits a line whose home is another node.
    pub remote_home_hit: Duration,
    /// Use of the LLC by DMA writes.
    pub ddio: DdioParams,
    /// Whether lines fetched by device reads are allocated in the LLC: in the ways of `ddio`, or in any way if it has
    /// none.
    pub device_reads_allocate: bool,
    /// Whether lines fetched by IOMMU page walks are allocated in the LLC.
    pub walks_allocate: bool,
}

/// How device writes use the LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdioParams {
    /// Ways in which a device write may allocate, one bit for each way (as Intel's `IIO_LLC_WAYS` register). A line
    /// already present is updated in place. Zero disables DDIO: device writes invalidate cached copies and go to DRAM.
    pub ways: u32,
    /// Additional latency of a full-line write that misses the LLC: allocation, and ownership within the socket. A
    /// partial write reads the line instead.
    pub acquire: Duration,
    /// Additional latency of a write whose victim is dirty.
    pub dirty_eviction: Duration,
}

/// DRAM of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DramParams {
    /// Number of channels, over which the node's lines are interleaved.
    pub channels: u8,
    /// Ranks on each channel, over which pages are interleaved.
    pub ranks: u8,
    /// Consecutive bytes on one channel before the next channel follows (at least one line).
    pub interleave: Bytes,
    /// Peak bandwidth of one channel.
    pub channel_bandwidth: ByteRate,
    /// From the LLC miss to the line's arrival there; idle, row closed.
    pub access: Duration,
    /// Width of the uniform distribution of `access` around its mean, due to clock domain crossings.
    pub access_spread: Duration,
    /// Banks of each rank, a power of two.
    pub banks: u8,
    /// tRC: minimum time between two row activations of a bank.
    pub row_cycle: Duration,
    /// Refresh; `None` for memory that needs none.
    pub refresh: Option<RefreshParams>,
    /// Row buffer; `None` if each access closes its row (closed-page policy).
    pub row_buffer: Option<RowBufferParams>,
    /// Capacity of a channel's write queue; further writes have to wait.
    pub write_queue: u16,
    /// Writes issued back to back from the queue, at most its capacity.
    pub write_batch: u16,
    /// Channel idle time around each batch, due to bus turnarounds.
    pub write_turnaround: Duration,
    /// Channel idle time between reads of two ranks, which drive the bus one after the other.
    pub rank_switch: Duration,
}

/// DRAM refresh: each rank is unavailable at regular intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshParams {
    /// tREFI, the interval.
    pub interval: Duration,
    /// tRFC, how long a rank is unavailable.
    pub duration: Duration,
    /// Whether the ranks of a node refresh in turn, or all at the same time.
    pub staggered: bool,
}

/// Row buffer: gain of a row hit and cost of a row conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBufferParams {
    /// Bytes of a bank's row, all of which one activation opens.
    pub row: Bytes,
    /// tRCD: how much faster a row hit is than [`DramParams::access`].
    pub activate: Duration,
    /// tRP: how much slower a row conflict is.
    pub precharge: Duration,
    /// How long an unused row stays open.
    pub idle: Duration,
}

/// The links between sockets.
#[derive(Clone, Debug, PartialEq)]
pub struct InterconnectParams {
    /// The links. Parallel links between two sockets are one entry with the
    /// sum of their bandwidths.
    pub links: Vec<InterconnectLink>,
    /// Bytes of a message without data.
    pub header: Bytes,
    /// Bytes that a message with a line takes besides the line.
    pub data_header: Bytes,
    /// Latency added by the home agent to a request from another node.
    pub home_agent: Duration,
    /// Sockets that a home node snoops before it responds.
    pub snoop: SnoopMode,
    /// Entries of a home agent's I/O directory cache (WikiChip, "Skylake (server)": 64 before Skylake).
    pub io_directory_cache: u16,
}

/// One link between two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterconnectLink {
    /// The two nodes' numbers.
    pub between: (u8, u8),
    /// Bandwidth in each direction.
    pub bandwidth: ByteRate,
    /// Latency of one direction, excluding serialisation.
    pub latency: Duration,
}

/// What a device's write to another socket's memory does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteWriteParams {
    /// Where the line goes.
    pub to: RemoteWrite,
    /// Whether a write to the LLC of the device's socket is ordered only after the home node's response. Otherwise it may
    /// be read back earlier.
    pub waits_for_home: bool,
    /// Latency of granting ownership at the home node, in addition to the snoops and [`InterconnectParams::home_agent`].
    pub grant: Duration,
}
