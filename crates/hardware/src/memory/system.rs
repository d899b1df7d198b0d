//! The memory system: interface to devices, page walkers and cores.

use super::access::{AccessReply, Agent, CoreId, CoreOp, Coverage, Line, NodeId, Source, WriteReply};
use super::coherence::{CacheState, Coherence};
use super::cores::Cores;
use super::counters::{Cause, MemoryBusy, MemoryCounters, NodeCounters};
use super::devices::Devices;
use super::params::MemoryParams;
use super::physical::{MemoryMap, PhysicalMemory};
use super::{LINE, LINE_SHIFT};
use units::{Bytes, Duration, HostPhysical, Time};

/// How often past state is discarded: rarely enough to cost nothing.
const PASSES: Duration = Duration::from_us(5);

/// The memory system of one host.
///
/// Calls need not come with increasing `now`: a request reserves everything it needs when it is issued.
#[derive(Debug)]
pub struct MemorySystem {
    params: MemoryParams,
    caches: Coherence,
    cores: Cores,
    devices: Devices,
    bytes: PhysicalMemory,
    /// Accesses to addresses without memory.
    unmapped: u64,
    /// When past state is discarded next.
    next_pass: Time,
}

impl MemorySystem {
    /// Creates a memory system with empty caches and zeroed memory.
    ///
    /// # Panics
    /// If [`MemoryParams::validate`] rejects `params`.
    pub fn new(params: &MemoryParams) -> Self {
        Self::with_caches(params, CacheState::empty(params))
    }

    /// Takes the state of all caches and drops the host.
    pub fn into_cache_state(self) -> CacheState {
        self.caches.into_cache_state()
    }

    /// Creates a memory system with zeroed memory and the cache state of a host with identical caches.
    ///
    /// # Panics
    /// If [`MemoryParams::validate`] rejects `params`.
    pub fn with_caches(params: &MemoryParams, caches: CacheState) -> Self {
        if let Err(error) = params.validate() {
            panic!("{error}");
        }
        let numbered = params.sockets.iter().zip(0..);
        let ranges: Vec<_> =
            numbered.flat_map(|(s, n)| s.memory.iter().map(move |&range| (NodeId(n), range))).collect();
        let map = MemoryMap::new(&ranges);
        Self {
            params: params.clone(),
            caches: Coherence::new(params, caches, map.clone()),
            cores: Cores::new(params),
            devices: Devices::new(params),
            bytes: PhysicalMemory::at(map),
            unmapped: 0,
            next_pass: Time::ZERO,
        }
    }

    /// Reads a line for a device below a root port of `node`.
    #[inline]
    pub fn dma_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> AccessReply {
        match self.node_of(address) {
            Some(home) => self.dma_read_from(now, node, home, address),
            None => self.unmapped(now),
        }
    }

    /// Like [`dma_read`](Self::dma_read), for a line whose home is known.
    #[inline]
    pub fn dma_read_from(
        &mut self,
        now: Time,
        node: NodeId,
        home: NodeId,
        address: HostPhysical,
    ) -> AccessReply {
        let line = Line { number: address.get() >> LINE_SHIFT, home };
        self.devices.read::<true>(&mut self.caches, now, node, line)
    }

    /// Writes a line or part of it for a device below a root port of `node`.
    #[inline]
    pub fn dma_write(
        &mut self,
        now: Time,
        node: NodeId,
        address: HostPhysical,
        coverage: Coverage,
    ) -> WriteReply {
        match self.line(address) {
            Some(line) => self.devices.write::<true>(&mut self.caches, now, node, line, coverage),
            None => WriteReply::at(now, self.unmapped(now).source),
        }
    }

    /// Reads a line or part of it for the page walker of `node`'s IOMMU.
    pub fn walk_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> AccessReply {
        match self.line(address) {
            Some(line) => self.devices.walk::<true>(&mut self.caches, now, node, line),
            None => self.unmapped(now),
        }
    }

    /// Performs a core's access to a line.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn core(&mut self, now: Time, core: CoreId, address: HostPhysical, op: CoreOp) -> AccessReply {
        match self.line(address) {
            Some(line) => self.cores.access::<true>(&mut self.caches, now, core, line, op),
            None => self.unmapped(now),
        }
    }

    /// A core is interrupted at `now`. Accesses that it has issued ahead of the clock, from then on, are postponed and
    /// delay nobody.
    ///
    /// # Panics
    /// If there is no such core.
    #[cold]
    pub fn interrupt(&mut self, core: CoreId, now: Time) {
        self.cores.put_off(core, now);
    }

    /// Switches a core's prefetchers on or off.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn set_prefetchers(&mut self, core: CoreId, on: bool) {
        self.cores.set_prefetchers(core, on);
    }

    /// Advances the clock: no later request starts before it. Callers that compute ahead of the clock have to call this
    /// regularly, so that state others may still need is kept, and older state is discarded.
    #[inline]
    pub fn pass(&mut self, clock: Time) {
        if clock >= self.next_pass {
            self.forget(clock);
        }
    }

    #[cold]
    fn forget(&mut self, clock: Time) {
        self.next_pass = clock + PASSES;
        self.caches.pass(clock);
        self.cores.pass(clock);
        self.devices.pass(clock);
    }

    /// Lines that one [`announce`](Self::announce) covers.
    pub const ANNOUNCED: usize = 32;

    /// Announces that `agent` will access the lines of a range sequentially; the first [`ANNOUNCED`](Self::ANNOUNCED)
    /// lines count. This changes no state, it only speeds the simulation up.
    ///
    /// # Panics
    /// If there is no such core.
    #[inline]
    pub fn announce(&self, agent: Agent, address: HostPhysical, length: Bytes) {
        // No gain for one or two lines.
        if length.get() <= LINE {
            return;
        }
        let (first, end) = (address.get() >> LINE_SHIFT, (address.get() + length.get()).div_ceil(LINE));
        if end - first >= 3 {
            self.warm(agent, first..end.min(first + Self::ANNOUNCED as u64));
        }
    }

    fn warm(&self, agent: Agent, lines: std::ops::Range<u64>) {
        let (node, core) = match agent {
            Agent::Device(node) | Agent::Walker(node) => (node, None),
            Agent::Core(core) => {
                let (node, local) = self.cores.place(core).expect("an access is of an existing core");
                (node, Some(local))
            }
        };
        core::hint::black_box(self.caches.warm(node, core, lines));
    }

    /// Brings the caches into the state after an access, without time or traffic.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn touch(&mut self, agent: Agent, address: HostPhysical, write: bool) {
        let Some(line) = self.line(address) else { return };
        let caches = &mut self.caches;
        match agent {
            Agent::Core(core) => {
                let op = if write { CoreOp::Store } else { CoreOp::Load };
                self.cores.access::<false>(caches, Time::ZERO, core, line, op);
            }
            Agent::Device(node) if write => {
                self.devices.write::<false>(caches, Time::ZERO, node, line, Coverage::FullLine);
            }
            Agent::Walker(node) => {
                self.devices.walk::<false>(caches, Time::ZERO, node, line);
            }
            Agent::Device(node) if self.params.sockets[node.index()].llc.device_reads_allocate => {
                self.devices.read::<false>(caches, Time::ZERO, node, line);
            }
            // Otherwise the read changes only the replacement order.
            Agent::Device(node) => caches.socket(node).touch(line.number),
        }
    }

    /// Whether lines read by a device at `node` are allocated in the LLC.
    pub fn keeps_device_reads(&self, node: NodeId) -> bool {
        self.params.sockets[node.index()].llc.device_reads_allocate
    }

    /// Empties all caches, without time or traffic.
    pub fn flush_all(&mut self) {
        self.caches.clear();
    }

    /// Sends a message other than a memory access (an interrupt, a doorbell) of `bytes` between nodes. Returns when it
    /// arrives.
    pub fn charge_interconnect(
        &mut self,
        now: Time,
        cause: Cause,
        from: NodeId,
        to: NodeId,
        bytes: Bytes,
    ) -> Time {
        self.caches.send(now, (from, to), cause, bytes)
    }

    /// Round-trip time to another node over idle links.
    pub fn way_and_back(&self, node: NodeId, other: NodeId) -> Duration {
        self.caches.latency(node, other) + self.caches.latency(other, node)
    }

    /// Contents of installed memory.
    pub fn bytes(&self) -> &PhysicalMemory {
        &self.bytes
    }

    /// Contents of installed memory, mutably.
    pub fn bytes_mut(&mut self) -> &mut PhysicalMemory {
        &mut self.bytes
    }

    /// The node whose DRAM holds `address`; `None` where no memory is installed.
    #[inline]
    pub fn node_of(&self, address: HostPhysical) -> Option<NodeId> {
        self.bytes.node_of(address)
    }

    /// The node that a core belongs to.
    pub fn node_of_core(&self, core: CoreId) -> Option<NodeId> {
        self.cores.place(core).map(|(node, _)| node)
    }

    /// Traffic counters so far.
    pub fn counters(&self) -> MemoryCounters {
        let mut counters = MemoryCounters {
            nodes: vec![NodeCounters::default(); self.params.sockets.len()],
            unmapped: self.unmapped,
            ..MemoryCounters::default()
        };
        self.caches.count_into(&mut counters);
        self.cores.count_into(&mut counters);
        self.devices.count_into(&mut counters);
        counters
    }

    /// How long its servers were busy up to `now`.
    pub fn busy(&self, now: Time) -> MemoryBusy {
        let mut busy = MemoryBusy::default();
        self.caches.busy_into(&mut busy, now);
        self.devices.busy_into(&mut busy, now);
        self.cores.busy_into(&mut busy, now);
        busy
    }

    /// What it was created with.
    pub fn params(&self) -> &MemoryParams {
        &self.params
    }

    /// Checks the coherence invariants over all caches. Slow: looks at every line.
    ///
    /// # Errors
    /// Names the first line that violates an invariant, and how.
    pub fn check_coherence(&self) -> Result<(), String> {
        self.caches.check()
    }

    #[inline]
    fn line(&self, address: HostPhysical) -> Option<Line> {
        self.node_of(address).map(|home| Line { number: address.get() >> LINE_SHIFT, home })
    }

    fn unmapped(&mut self, now: Time) -> AccessReply {
        self.unmapped += 1;
        AccessReply { ready: now, source: Source::Unmapped }
    }

    #[cfg(test)]
    pub(super) fn caches(&mut self) -> &mut Coherence {
        &mut self.caches
    }
}
