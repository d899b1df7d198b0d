//! The memory system: what devices, page walkers and cores call.

use super::access::{Access, Agent, CoreId, CoreOp, Coverage, NodeId, Source};
use super::counters::{Cause, MemoryCounters};
use super::params::MemoryParams;
use super::physical::PhysicalMemory;
use units::{Bytes, HostPhysical, Time};

/// The memory system of one host.
#[derive(Debug)]
pub struct MemorySystem {
    params: MemoryParams,
    bytes: PhysicalMemory,
    counters: MemoryCounters,
}

impl MemorySystem {
    /// A memory system with empty caches and memory full of zeros.
    ///
    /// # Panics
    /// If [`MemoryParams::validate`] finds fault with `params`.
    pub fn new(params: &MemoryParams) -> Self {
        if let Err(error) = params.validate() {
            panic!("{error}");
        }
        let ranges: Vec<_> = params
            .sockets
            .iter()
            .enumerate()
            .flat_map(|(n, s)| s.memory.iter().map(move |&r| (NodeId(n as u8), r)))
            .collect();
        Self {
            params: params.clone(),
            bytes: PhysicalMemory::new(&ranges),
            counters: MemoryCounters::default(),
        }
    }

    /// Reads a line for a device below a root port of `node`.
    pub fn dma_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> Access {
        let _ = address;
        let llc = &self.params.sockets[node.index()].llc;
        Access { ready: now + llc.device_lookup + llc.device_return, source: Source::Llc }
    }

    /// Writes a line, or a part of it, for a device below a root port of `node`.
    pub fn dma_write(
        &mut self,
        now: Time,
        node: NodeId,
        address: HostPhysical,
        coverage: Coverage,
    ) -> Access {
        let _ = (address, coverage);
        let llc = &self.params.sockets[node.index()].llc;
        Access { ready: now + llc.device_lookup, source: Source::Llc }
    }

    /// Reads (part of) a line for the page walker of `node`'s IOMMU.
    pub fn walk_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> Access {
        self.dma_read(now, node, address)
    }

    /// An access of a core to a line.
    pub fn core(&mut self, now: Time, core: CoreId, address: HostPhysical, op: CoreOp) -> Access {
        let _ = (core, address, op);
        Access { ready: now + self.params.sockets[0].llc.core_hit, source: Source::Llc }
    }

    /// Brings the caches into the state after an access, without time or traffic.
    pub fn touch(&mut self, agent: Agent, address: HostPhysical, write: bool) {
        let _ = (agent, address, write);
    }

    /// Empties all caches, without time or traffic.
    pub fn flush_all(&mut self) {}

    /// Sends `bytes` of a message that is not a memory access (an interrupt, a
    /// doorbell) from one node to another: when it arrives.
    pub fn charge_interconnect(
        &mut self,
        now: Time,
        cause: Cause,
        from: NodeId,
        to: NodeId,
        bytes: Bytes,
    ) -> Time {
        let _ = (cause, from, to, bytes);
        now
    }

    /// The bytes of installed memory.
    pub fn bytes(&self) -> &PhysicalMemory {
        &self.bytes
    }

    /// The bytes of installed memory, to write.
    pub fn bytes_mut(&mut self) -> &mut PhysicalMemory {
        &mut self.bytes
    }

    /// The node whose DRAM holds `address`; `None` where no memory is installed.
    #[inline]
    pub fn node_of(&self, address: HostPhysical) -> Option<NodeId> {
        self.bytes.node_of(address)
    }

    /// Traffic so far.
    pub fn counters(&self) -> &MemoryCounters {
        &self.counters
    }
}
