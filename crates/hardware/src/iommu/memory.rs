//! The IOMMU's interface to memory.

use crate::memory::{MemorySystem, NodeId, Source};
use units::{HostPhysical, Time};

/// Reply to a timed read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkRead {
    /// When the data is available.
    pub ready: Time,
    /// The little-endian word, or `None` if no memory is there.
    pub value: Option<u64>,
}

/// Memory as table walks and descriptor fetches see it: timed reads through the host's caches.
pub trait WalkMemory {
    /// Reads the aligned 8 bytes at `address` from `node`, at `now`.
    fn walk_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> WalkRead;

    /// The aligned 8 bytes at `address`, from the line of an earlier [`WalkMemory::walk_read`].
    fn same_line(&self, address: HostPhysical) -> Option<u64>;
}

/// Memory as the IOMMU of the socket `node` reads it.
pub(super) struct TableReader<'a, M> {
    pub memory: &'a mut M,
    pub node: NodeId,
}

impl<M: WalkMemory> TableReader<'_, M> {
    /// Reads an aligned 8-byte entry.
    pub fn word(&mut self, now: Time, address: HostPhysical) -> WalkRead {
        self.memory.walk_read(now, self.node, address)
    }

    /// Reads an aligned 16-byte entry in one access.
    pub fn pair(&mut self, now: Time, table: HostPhysical, offset: u64) -> (Time, Option<[u64; 2]>) {
        let Some(address) = table.checked_add(offset) else { return (now, None) };
        let low = self.word(now, address);
        let high = address.checked_add(8).and_then(|a| self.memory.same_line(a));
        (low.ready, low.value.zip(high).map(|(low, high)| [low, high]))
    }
}

impl WalkMemory for MemorySystem {
    fn walk_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> WalkRead {
        let access = MemorySystem::walk_read(self, now, node, address);
        let value = match access.source {
            Source::Unmapped => None,
            _ => self.bytes().read_u64(address).ok(),
        };
        WalkRead { ready: access.ready, value }
    }

    fn same_line(&self, address: HostPhysical) -> Option<u64> {
        self.bytes().read_u64(address).ok()
    }
}
