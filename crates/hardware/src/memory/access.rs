//! Agents, operations and replies of memory accesses.

use units::Time;

/// A NUMA node: one socket with its LLC and its DRAM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NodeId(pub u8);

/// A core, numbered across the host: those of node 0 first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CoreId(pub u16);

impl NodeId {
    /// The node's number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl CoreId {
    /// The core's number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A line of installed memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Its address in lines.
    pub(super) number: u64,
    /// The node whose DRAM holds it.
    pub(super) home: NodeId,
}

impl Line {
    /// Its DRAM as the source of an access from `node`.
    pub(super) fn memory_from(self, node: NodeId) -> Source {
        if node == self.home { Source::Dram } else { Source::RemoteDram }
    }
}

/// What the requester wants to do with the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    /// Read it once: no line state changes.
    Observe,
    /// Keep it for reading: owners lose write permission.
    Share,
    /// Write it: no other cache keeps it.
    Own,
}

/// The originator of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agent {
    /// A core, through its private caches.
    Core(CoreId),
    /// A device below a root port of this node.
    Device(NodeId),
    /// The page walker of this node's IOMMU; it only reads.
    Walker(NodeId),
}

/// How much of a line a device write covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// All 64 bytes: the old content is not needed.
    FullLine,
    /// Part of the line: it has to be merged with the old content.
    Partial,
}

/// Operation of a core on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoreOp {
    /// A load from write-back memory: allocates.
    Load,
    /// A store to write-back memory: gains ownership, allocates.
    Store,
    /// A non-temporal store of the full line: goes to DRAM, leaves no copy.
    StreamingStore,
    /// A software or hardware prefetch for reading.
    Prefetch,
    /// `clflush`: write back if dirty, invalidate everywhere.
    FlushLine,
}

/// Where the data of an access came from, or where a write went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The core's own L1 or L2.
    OwnCache,
    /// The LLC of the requester's socket.
    Llc,
    /// The LLC of the requester's socket, after asking a core that owns the line.
    LlcOwnedByCore,
    /// DRAM of the requester's node.
    Dram,
    /// The cache of another socket.
    RemoteLlc,
    /// DRAM of another node.
    RemoteDram,
    /// No memory is installed there; nothing happened.
    Unmapped,
}

/// When and where an access was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessReply {
    /// Reads: when the data is at the requester. Writes of cores: when the core owns the line.
    pub ready: Time,
    /// Where the data came from or went.
    pub source: Source,
}

/// Reply to a device's write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteReply {
    /// When the write is globally ordered, so that a following read may be served and the posted buffer is free.
    pub ready: Time,
    /// When a cache or the home's memory has accepted the line, and the I/O stack can release it.
    pub taken: Time,
    /// Where the data went.
    pub source: Source,
}

impl WriteReply {
    /// A write that is globally ordered when it is accepted.
    pub(super) const fn at(ready: Time, source: Source) -> Self {
        Self { ready, taken: ready, source }
    }
}
