//! Accesses of devices and page walkers; DDIO.

use super::access::{AccessReply, Coverage, Intent, Line, NodeId, Source, WriteReply};
use super::cache::{Probe, flag};
use super::coherence::{Coherence, Fetched};
use super::counters::{CacheUser, Cause, DeviceCounters, MemoryBusy, MemoryCounters};
use super::params::{LlcParams, MemoryParams, RemoteWrite, RemoteWriteParams};
use super::server::Server;
use units::{Duration, Time};

/// What serves the devices and page walkers of each node.
#[derive(Debug)]
pub(super) struct Devices {
    nodes: Vec<Node>,
    remote_write: RemoteWriteParams,
    walk_reads: u64,
    walk_reads_memory: u64,
}

#[derive(Debug)]
struct Node {
    llc: LlcParams,
    /// The root complex's port into the LLC.
    port: Server,
    counters: DeviceCounters,
}

impl Node {
    /// When hit or miss in the LLC is known for a root complex request at `now`.
    #[inline(always)]
    fn looked_up(&mut self, now: Time) -> Time {
        self.port.reserve(now, self.llc.device_service) + self.llc.device_lookup
    }

    /// A read that hits in a cache of the requester's own socket, or the result of the LLC lookup.
    #[inline(always)]
    fn read_in_socket(
        &self,
        caches: &mut Coherence,
        known: Time,
        node: NodeId,
        line: Line,
    ) -> Result<AccessReply, Probe> {
        let socket = caches.socket(node);
        let (probe, held) = socket.look_up(line.number);
        if !held.any() {
            return Err(probe);
        }
        socket.used(probe, held);
        let mut ready = known + self.llc.device_return;
        if node != line.home {
            ready += self.llc.remote_home_hit;
        }
        // The owning core may have modified the line; a core with the only copy has to supply it.
        if socket.owned(held, None) || held.llc.is_none() {
            return Ok(AccessReply { ready: ready + self.llc.core_snoop, source: Source::LlcOwnedByCore });
        }
        Ok(AccessReply { ready, source: Source::Llc })
    }
}

impl Node {
    /// A device's read of a line that the socket does not have.
    #[inline(never)]
    fn read_beyond<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        known: Time,
        node: NodeId,
        line: Line,
        absent: Probe,
    ) -> AccessReply {
        let ways = self.llc.device_reads_allocate.then(|| match self.llc.ddio.ways {
            0 => caches.socket(node).all_ways(),
            ways => ways,
        });
        let (user, cause) = (CacheUser::Device, Cause::Dma);
        let fetched = fetch::<TIMED>(caches, known, node, (line, absent), (user, cause), ways);
        caches.count::<TIMED>(node, user, false);
        if TIMED {
            if fetched.source == Source::RemoteLlc {
                self.counters.reads_remote_cache += 1;
                self.counters.overtaken += u64::from(fetched.memory_read);
            } else {
                self.counters.reads_memory += 1;
            }
        }
        AccessReply { ready: fetched.at + self.llc.device_return, source: fetched.source }
    }
}

impl Devices {
    pub(super) fn new(params: &MemoryParams) -> Self {
        let node = |llc| Node { llc, port: Server::default(), counters: DeviceCounters::default() };
        Self {
            nodes: params.sockets.iter().map(|s| node(s.llc)).collect(),
            remote_write: params.remote_write,
            walk_reads: 0,
            walk_reads_memory: 0,
        }
    }

    /// Discards state that only matters before `clock`.
    pub(super) fn pass(&mut self, clock: Time) {
        self.nodes.iter_mut().for_each(|node| node.port.pass(clock));
    }

    /// How long the ports into the LLCs were busy up to `now`.
    pub(super) fn busy_into(&self, busy: &mut MemoryBusy, now: Time) {
        busy.llc = self.nodes.iter().map(|node| node.port.busy(now)).collect();
    }

    /// Adds what it has counted.
    pub(super) fn count_into(&self, counters: &mut MemoryCounters) {
        for (node, here) in counters.nodes.iter_mut().zip(&self.nodes) {
            node.device = here.counters;
        }
        (counters.walk_reads, counters.walk_reads_memory) = (self.walk_reads, self.walk_reads_memory);
    }

    /// A device's read of a line. It changes no line state unless device reads allocate.
    #[inline]
    pub(super) fn read<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        node: NodeId,
        line: Line,
    ) -> AccessReply {
        let here = &mut self.nodes[node.index()];
        let known = if TIMED { here.looked_up(now) } else { now };
        here.counters.reads += u64::from(TIMED);
        match here.read_in_socket(caches, known, node, line) {
            Ok(hit) => {
                caches.count::<TIMED>(node, CacheUser::Device, true);
                if TIMED {
                    here.counters.reads_llc += 1;
                    here.counters.reads_snooped += u64::from(hit.source == Source::LlcOwnedByCore);
                }
                hit
            }
            Err(absent) => here.read_beyond::<TIMED>(caches, known, node, line, absent),
        }
    }

    /// A page walker's read of a line.
    pub(super) fn walk<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        node: NodeId,
        line: Line,
    ) -> AccessReply {
        let here = &mut self.nodes[node.index()];
        let known = here.looked_up(now);
        self.walk_reads += 1;
        let read = here.read_in_socket(caches, known, node, line);
        caches.count::<true>(node, CacheUser::Walker, read.is_ok());
        let absent = match read {
            Ok(hit) => return hit,
            Err(absent) => absent,
        };
        let ways = here.llc.walks_allocate.then(|| caches.socket(node).all_ways());
        let (user, cause) = (CacheUser::Walker, Cause::Walk);
        let fetched = fetch::<TIMED>(caches, known, node, (line, absent), (user, cause), ways);
        self.walk_reads_memory += u64::from(fetched.memory_read);
        AccessReply { ready: fetched.at + here.llc.device_return, source: fetched.source }
    }

    /// A device's write of a line or part of it.
    pub(super) fn write<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        node: NodeId,
        line: Line,
        coverage: Coverage,
    ) -> WriteReply {
        let here = &mut self.nodes[node.index()];
        let known = if TIMED { here.looked_up(now) } else { now };
        here.counters.writes += u64::from(TIMED);
        let target = match self.remote_write.to {
            _ if node == line.home => Some(node),
            RemoteWrite::WriteHomeKeepCopy => {
                let grant = self.remote_write.grant;
                return here.write_home_keep_copy::<TIMED>(caches, known, node, line, coverage, grant);
            }
            RemoteWrite::AllocateAtDeviceSocket => Some(node),
            RemoteWrite::AllocateAtHomeSocket => Some(line.home),
            RemoteWrite::ToHomeMemory => None,
        };
        match target.filter(|t| self.nodes[t.index()].llc.ddio.ways != 0) {
            Some(target) => self.write_into_llc::<TIMED>(caches, known, (node, target), line, coverage),
            None => {
                let here = &mut self.nodes[node.index()];
                here.write_to_memory::<TIMED>(caches, known, node, line, coverage)
            }
        }
    }

    /// A device's write into the LLC of socket `target`: its own, or that of the line's home.
    fn write_into_llc<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        known: Time,
        (node, target): (NodeId, NodeId),
        line: Line,
        coverage: Coverage,
    ) -> WriteReply {
        let llc = self.nodes[target.index()].llc;
        let here = &mut self.nodes[node.index()].counters;
        let at = caches.line_to_home::<TIMED>(known, node, target);
        let socket = caches.socket(target);
        let (probe, held) = socket.look_up(line.number);
        let alone = held.any() && socket.exclusive(held);
        // Cores lose their copies; owners have to respond first.
        let asked = socket.owned(held, None);
        let private_dirty = socket.drop_private(line.number, held, None);
        let mut ready = at + llc.device_commit + if asked { llc.core_snoop } else { Duration::ZERO };
        caches.count::<TIMED>(target, CacheUser::Device, held.llc.is_some());
        if let Some(slot) = held.llc {
            if !alone {
                let granted = claim::<TIMED>(caches, self.remote_write, at, target, line);
                ready = ready.max(granted + llc.device_commit);
            }
            caches.socket(target).overwrite(probe, slot, true);
            here.writes_updated += u64::from(TIMED);
        } else {
            let merge = coverage == Coverage::Partial && !private_dirty;
            if !alone && merge {
                let fetched = caches.fetch::<TIMED>(at, target, line, Cause::Dma, Intent::Own);
                ready = ready.max(fetched.at + llc.device_commit);
                here.merges += u64::from(TIMED && fetched.memory_read);
            } else if !alone {
                let granted = claim::<TIMED>(caches, self.remote_write, at, target, line);
                ready = ready.max(granted + llc.ddio.acquire + llc.device_commit);
            }
            let state = flag::DIRTY | flag::EXCLUSIVE;
            caches.allocate::<TIMED>(target, CacheUser::Device, (line, probe), llc.ddio.ways, state);
            if let Some(accepted) = caches.settle::<TIMED>(at, target, CacheUser::Device) {
                ready = accepted.max(ready + llc.ddio.dirty_eviction);
            }
            here.writes_allocated += u64::from(TIMED);
        }
        if !TIMED {
            return WriteReply::at(known, Source::Llc);
        }
        let ready = caches.answer::<true>(ready, target, node, Cause::Dma);
        WriteReply::at(ready, if target == node { Source::Llc } else { Source::RemoteLlc })
    }
}

impl Node {
    /// A device's write to another node's memory that leaves a clean copy in the device's socket.
    fn write_home_keep_copy<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        known: Time,
        node: NodeId,
        line: Line,
        coverage: Coverage,
        grant: Duration,
    ) -> WriteReply {
        let socket = caches.socket(node);
        let (probe, held) = socket.look_up(line.number);
        let alone = held.any() && socket.exclusive(held);
        let asked = socket.owned(held, None);
        socket.drop_private(line.number, held, None);
        let mut granted = known + if asked { self.llc.core_snoop } else { Duration::ZERO };
        if !alone {
            let merged;
            (granted, merged) = caches.grant::<TIMED>(granted, node, line, coverage, grant);
            self.counters.merges += u64::from(merged);
        }
        let ways = self.llc.ddio.ways;
        match held.llc {
            Some(slot) => caches.socket(node).overwrite(probe, slot, false),
            None if ways != 0 => {
                caches.allocate::<TIMED>(node, CacheUser::Device, (line, probe), ways, flag::EXCLUSIVE);
                caches.settle::<TIMED>(granted, node, CacheUser::Device);
                granted += self.llc.ddio.acquire;
            }
            None => {}
        }
        let taken = caches.write_granted::<TIMED>(granted, node, line);
        if !TIMED {
            return WriteReply::at(known, Source::Llc);
        }
        caches.count::<TIMED>(node, CacheUser::Device, held.llc.is_some());
        self.counters.writes_to_memory += 1;
        WriteReply { ready: granted + self.llc.device_commit, taken, source: Source::RemoteDram }
    }

    /// A device's write to DRAM; no cache keeps the line.
    fn write_to_memory<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        known: Time,
        node: NodeId,
        line: Line,
        coverage: Coverage,
    ) -> WriteReply {
        let (accepted, merged) = caches.write_memory::<TIMED>(known, node, line, coverage);
        let source = line.memory_from(node);
        if !TIMED {
            return WriteReply::at(known, source);
        }
        caches.count::<TIMED>(node, CacheUser::Device, false);
        self.counters.merges += u64::from(merged);
        self.counters.writes_to_memory += 1;
        let ready = accepted + self.llc.device_commit;
        WriteReply::at(caches.answer::<true>(ready, line.home, node, Cause::Dma), source)
    }
}

/// Fetches a line that a socket does not have for a read, and allocates it in one of these ways of its LLC, if any.
#[inline(always)]
fn fetch<const TIMED: bool>(
    caches: &mut Coherence,
    known: Time,
    node: NodeId,
    (line, absent): (Line, Probe),
    (user, cause): (CacheUser, Cause),
    ways: Option<u32>,
) -> Fetched {
    let intent = if ways.is_some() { Intent::Share } else { Intent::Observe };
    let fetched = caches.fetch::<TIMED>(known, node, line, cause, intent);
    if let Some(ways) = ways {
        let state = if fetched.shared { 0 } else { flag::EXCLUSIVE };
        caches.allocate::<TIMED>(node, user, (line, absent), ways, state);
        caches.settle::<TIMED>(fetched.at, node, user);
    }
    fetched
}

/// Invalidates a line in all other sockets for a device's write. Returns when the write may proceed.
fn claim<const TIMED: bool>(
    caches: &mut Coherence,
    remote_write: RemoteWriteParams,
    at: Time,
    target: NodeId,
    line: Line,
) -> Time {
    let granted = caches.take_ownership::<TIMED>(at, target, line);
    match remote_write.to {
        RemoteWrite::AllocateAtDeviceSocket if target != line.home => match remote_write.waits_for_home {
            true => granted + remote_write.grant,
            false => at,
        },
        _ => granted,
    }
}
