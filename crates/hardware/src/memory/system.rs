//! The memory system: interface to devices, page walkers and cores.

use super::access::{AccessReply, Agent, CoreId, CoreOp, Coverage, NodeId, Source, WriteReply};
use super::counters::{CacheUser, Cause, MemoryCounters, NodeCounters};
use super::dram::Dram;
use super::home::HomeAgent;
use super::interconnect::Interconnect;
use super::params::MemoryParams;
use super::physical::PhysicalMemory;
use super::prefetch::{Arrivals, Prefetcher};
use super::server::Server;
use super::snapshot::CacheState;
use super::socket::Socket;
use engine::Seed;
use units::{Bytes, Duration, HostPhysical, Time};

/// log2 of the line size in bytes.
const LINE_SHIFT: u32 = super::LINE.trailing_zeros();

/// How often past state is discarded: rarely enough to cost nothing.
const PASSES: Duration = Duration::from_us(5);

/// The memory system of one host.
///
/// Calls need not come with increasing `now`: a request reserves everything it needs when it is issued.
#[derive(Debug)]
pub struct MemorySystem {
    pub(super) params: MemoryParams,
    pub(super) sockets: Vec<Socket>,
    pub(super) dram: Vec<Dram>,
    /// Home agent of each node.
    pub(super) homes: Vec<HomeAgent>,
    /// By socket: the root complex's port into the LLC.
    pub(super) ports: Vec<Server>,
    pub(super) net: Interconnect,
    /// By core number: the node, and the core's index within it.
    pub(super) places: Vec<(u8, u8)>,
    /// By node: number of its first core.
    pub(super) first_core: Vec<usize>,
    /// By core number: the L2's prefetchers, if the machine has them.
    pub(super) prefetchers: Vec<Option<Prefetcher>>,
    /// By core number: occupancy of the L2 by passing lines.
    pub(super) paths: Vec<Server>,
    /// By node: lines in flight to its caches.
    pub(super) arrivals: Vec<Arrivals>,
    pub(super) counters: MemoryCounters,
    bytes: PhysicalMemory,
    /// When past state is discarded next.
    next_pass: Time,
    /// All lines written back, for tests.
    #[cfg(test)]
    pub(super) log: Vec<u64>,
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
        CacheState(self.sockets)
    }

    /// Creates a memory system with zeroed memory and the cache state of a host with identical caches.
    ///
    /// # Panics
    /// If [`MemoryParams::validate`] rejects `params`.
    pub fn with_caches(params: &MemoryParams, caches: CacheState) -> Self {
        if let Err(error) = params.validate() {
            panic!("{error}");
        }
        let seed = Seed::new(params.seed);
        let numbered = || params.sockets.iter().enumerate();
        let ranges: Vec<_> =
            numbered().flat_map(|(n, s)| s.memory.iter().map(move |&r| (NodeId(n as u8), r))).collect();
        let net = Interconnect::new(&params.interconnect, params.sockets.len());
        let counters = MemoryCounters {
            nodes: vec![NodeCounters::default(); params.sockets.len()],
            links: net.counters(&params.interconnect),
            ..MemoryCounters::default()
        };
        Self {
            sockets: caches.0,
            dram: numbered().map(|(n, s)| Dram::new(&s.dram, seed.component(&format!("dram{n}")))).collect(),
            homes: vec![HomeAgent::new(params.interconnect.io_directory_cache); params.sockets.len()],
            ports: vec![Server::default(); params.sockets.len()],
            places: numbered()
                .flat_map(|(n, s)| (0..s.cores).map(move |core| (n as u8, core as u8)))
                .collect(),
            first_core: (0..params.sockets.len())
                .map(|n| params.sockets[..n].iter().map(|socket| usize::from(socket.cores)).sum())
                .collect(),
            prefetchers: params
                .sockets
                .iter()
                .flat_map(|s| (0..s.cores).map(|_| s.private.prefetch.as_ref().map(Prefetcher::new)))
                .collect(),
            paths: vec![Server::default(); params.sockets.iter().map(|s| usize::from(s.cores)).sum()],
            arrivals: vec![Arrivals::new(); params.sockets.len()],
            params: params.clone(),
            net,
            counters,
            bytes: PhysicalMemory::new(&ranges),
            next_pass: Time::ZERO,
            #[cfg(test)]
            log: Vec::new(),
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
        self.device_read::<true>(now, node, home, address.get() >> LINE_SHIFT)
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
        match self.node_of(address) {
            Some(home) => self.device_write::<true>(now, node, home, address.get() >> LINE_SHIFT, coverage),
            None => WriteReply::at(now, self.unmapped(now).source),
        }
    }

    /// Reads a line or part of it for the page walker of `node`'s IOMMU.
    pub fn walk_read(&mut self, now: Time, node: NodeId, address: HostPhysical) -> AccessReply {
        match self.node_of(address) {
            Some(home) => self.walker_read::<true>(now, node, home, address.get() >> LINE_SHIFT),
            None => self.unmapped(now),
        }
    }

    /// Performs a core's access to a line.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn core(&mut self, now: Time, core: CoreId, address: HostPhysical, op: CoreOp) -> AccessReply {
        match self.node_of(address) {
            Some(home) => self.core_access::<true>(now, core, home, address.get() >> LINE_SHIFT, op),
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
        let (n, local) = self.places[core.index()];
        if let Some(prefetcher) = &mut self.prefetchers[self.first_core[usize::from(n)] + usize::from(local)]
        {
            prefetcher.queue.put_off(now);
        }
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
        self.dram.iter_mut().for_each(|dram| dram.pass(clock));
        self.net.pass(clock);
        self.ports.iter_mut().chain(&mut self.paths).for_each(|server| server.pass(clock));
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
        if length.get() <= super::LINE {
            return;
        }
        let (first, end) =
            (address.get() >> LINE_SHIFT, (address.get() + length.get()).div_ceil(super::LINE));
        if end - first >= 3 {
            self.warm(agent, first..end.min(first + Self::ANNOUNCED as u64));
        }
    }

    fn warm(&self, agent: Agent, lines: std::ops::Range<u64>) {
        let (node, core) = match agent {
            Agent::Device(node) | Agent::Walker(node) => (node.index(), None),
            Agent::Core(core) => {
                let (node, local) = self.places[core.index()];
                (usize::from(node), Some(usize::from(local)))
            }
        };
        let socket = &self.sockets[node];
        core::hint::black_box(lines.fold(0, |read, line| read ^ socket.warm(core, line)));
    }

    /// Brings the caches into the state after an access, without time or traffic.
    ///
    /// # Panics
    /// If there is no such core.
    pub fn touch(&mut self, agent: Agent, address: HostPhysical, write: bool) {
        let Some(home) = self.node_of(address) else { return };
        let line = address.get() >> LINE_SHIFT;
        match agent {
            Agent::Core(core) => {
                let op = if write { CoreOp::Store } else { CoreOp::Load };
                self.core_access::<false>(Time::ZERO, core, home, line, op);
            }
            Agent::Device(node) if write => {
                self.device_write::<false>(Time::ZERO, node, home, line, Coverage::FullLine);
            }
            Agent::Walker(node) => {
                self.walker_read::<false>(Time::ZERO, node, home, line);
            }
            Agent::Device(node) if self.params.sockets[node.index()].llc.device_reads_allocate => {
                self.device_read::<false>(Time::ZERO, node, home, line);
            }
            // Otherwise the read changes only the replacement order.
            Agent::Device(node) => {
                let llc = &mut self.sockets[node.index()].llc;
                if let Some(slot) = llc.find(line) {
                    llc.used(slot);
                }
            }
        }
    }

    /// Whether lines read by a device at `node` are allocated in the LLC.
    pub fn keeps_device_reads(&self, node: NodeId) -> bool {
        self.params.sockets[node.index()].llc.device_reads_allocate
    }

    /// Empties all caches, without time or traffic.
    pub fn flush_all(&mut self) {
        for socket in &mut self.sockets {
            socket.clear();
        }
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
        self.net.bytes(now, (from, to), cause, bytes, &mut self.counters)
    }

    /// Round-trip time to another node over idle links.
    pub fn way_and_back(&self, node: NodeId, other: NodeId) -> Duration {
        self.net.latency(node, other) + self.net.latency(other, node)
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
        self.places.get(core.index()).map(|&(n, _)| NodeId(n))
    }

    /// Traffic counters so far.
    pub fn counters(&self) -> &MemoryCounters {
        &self.counters
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
        let mut dirty: Vec<u64> = Vec::new();
        for (n, socket) in self.sockets.iter().enumerate() {
            socket.check().map_err(|e| format!("node {n}: {e}"))?;
            for line in socket.exclusive_lines() {
                let others = self.sockets.iter().enumerate().filter(|(other, _)| *other != n);
                if others.into_iter().any(|(_, s)| s.locate(line).any()) {
                    return Err(format!("node {n} has line {line:#x} for itself, yet so has another"));
                }
            }
            dirty.extend(socket.dirty_lines());
        }
        dirty.sort_unstable();
        match dirty.windows(2).find(|p| p[0] == p[1]) {
            Some(pair) => Err(format!("line {:#x} is dirty in two sockets", pair[0])),
            None => Ok(()),
        }
    }

    /// Writes back the lines evicted from the LLC of socket `n`, on account of `user`. Returns when the last one was
    /// accepted.
    #[inline]
    pub(super) fn settle<const TIMED: bool>(&mut self, at: Time, n: usize, user: Option<CacheUser>) -> Time {
        let evicted = &mut self.sockets[n].evicted;
        if evicted.lines == 0 && evicted.dirty.is_empty() {
            return at;
        }
        let lines = core::mem::take(&mut evicted.lines);
        let dirty = evicted.dirty.len() as u64;
        if TIMED {
            let counters = &mut self.counters.nodes[n].llc[user.unwrap_or(CacheUser::Core) as usize];
            counters.evictions += lines;
            counters.dirty_evictions += dirty;
        }
        let mut accepted = at;
        while let Some(line) = self.sockets[n].evicted.dirty.pop() {
            let home =
                self.node_of(HostPhysical::new(line << LINE_SHIFT)).expect("cached lines are installed");
            accepted = accepted.max(self.write_back::<TIMED>(at, n, home, line));
        }
        accepted
    }

    fn unmapped(&mut self, now: Time) -> AccessReply {
        self.counters.unmapped += 1;
        AccessReply { ready: now, source: Source::Unmapped }
    }
}
