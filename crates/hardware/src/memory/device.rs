//! Accesses of devices and page walkers.

use super::access::{AccessReply, Coverage, NodeId, Source, WriteReply};
use super::cache::flag;
use super::coherence::{Fetched, Intent};
use super::counters::{CacheUser, Cause};
use super::params::RemoteWrite;
use super::system::MemorySystem;
use units::{Duration, Time};

impl MemorySystem {
    /// When hit or miss in the LLC of `node` is known for a root complex request at `now`.
    #[inline(always)]
    fn looked_up(&mut self, now: Time, node: NodeId) -> Time {
        let llc = &self.params.sockets[node.index()].llc;
        self.ports[node.index()].reserve(now, llc.device_service) + llc.device_lookup
    }

    /// A device's read of a line. It changes no line state unless device reads allocate.
    #[inline]
    pub(super) fn device_read<const TIMED: bool>(
        &mut self,
        now: Time,
        node: NodeId,
        home: NodeId,
        line: u64,
    ) -> AccessReply {
        let n = node.index();
        let known = if TIMED { self.looked_up(now, node) } else { now };
        if TIMED {
            self.counters.nodes[n].device.reads += 1;
        }
        if let Some(hit) = self.read_in_socket(known, node, home, line) {
            if TIMED {
                let counters = &mut self.counters.nodes[n];
                counters.llc[CacheUser::Device as usize].hits += 1;
                counters.device.reads_llc += 1;
                counters.device.reads_snooped += u64::from(hit.source == Source::LlcOwnedByCore);
            }
            return hit;
        }
        let llc = &self.params.sockets[n].llc;
        let (keep, back) = (llc.device_reads_allocate, llc.device_return);
        let intent = if keep { Intent::Share } else { Intent::Observe };
        let fetched = self.fetch::<TIMED>(known, node, home, line, Cause::Dma, intent);
        if keep {
            let ways = match self.params.sockets[n].llc.ddio.ways {
                0 => self.sockets[n].llc.all_ways(),
                ways => ways,
            };
            self.keep::<TIMED>(&fetched, n, line, ways, CacheUser::Device);
        }
        let ready = fetched.at + back;
        if !TIMED {
            return AccessReply { ready, source: fetched.source };
        }
        let counters = &mut self.counters.nodes[n];
        counters.llc[CacheUser::Device as usize].misses += 1;
        if fetched.source == Source::RemoteLlc {
            counters.device.reads_remote_cache += 1;
            counters.device.overtaken += u64::from(fetched.memory_read);
        } else {
            counters.device.reads_memory += 1;
        }
        AccessReply { ready, source: fetched.source }
    }

    /// Allocates a line that a read has fetched in the LLC of socket `n`.
    fn keep<const TIMED: bool>(
        &mut self,
        fetched: &Fetched,
        n: usize,
        line: u64,
        ways: u32,
        user: CacheUser,
    ) {
        if TIMED {
            self.counters.nodes[n].llc[user as usize].allocations += 1;
        }
        let state = if fetched.shared { 0 } else { flag::EXCLUSIVE };
        self.sockets[n].insert(line, ways, state);
        self.settle::<TIMED>(fetched.at, n, Some(user));
    }

    /// A page walker's read of a line.
    pub(super) fn walker_read<const TIMED: bool>(
        &mut self,
        now: Time,
        node: NodeId,
        home: NodeId,
        line: u64,
    ) -> AccessReply {
        let n = node.index();
        let known = self.looked_up(now, node);
        self.counters.walk_reads += 1;
        if let Some(hit) = self.read_in_socket(known, node, home, line) {
            self.counters.nodes[n].llc[CacheUser::Walker as usize].hits += 1;
            return hit;
        }
        let keep = self.params.sockets[n].llc.walks_allocate;
        let intent = if keep { Intent::Share } else { Intent::Observe };
        let fetched = self.fetch::<TIMED>(known, node, home, line, Cause::Walk, intent);
        self.counters.walk_reads_memory += u64::from(fetched.memory_read);
        self.counters.nodes[n].llc[CacheUser::Walker as usize].misses += 1;
        if keep {
            let all = self.sockets[n].llc.all_ways();
            self.keep::<TIMED>(&fetched, n, line, all, CacheUser::Walker);
        }
        let back = self.params.sockets[n].llc.device_return;
        AccessReply { ready: fetched.at + back, source: fetched.source }
    }

    /// A read that hits in a cache of the requester's own socket.
    #[inline(always)]
    fn read_in_socket(&mut self, known: Time, node: NodeId, home: NodeId, line: u64) -> Option<AccessReply> {
        let n = node.index();
        let llc = &self.params.sockets[n].llc;
        let socket = &mut self.sockets[n];
        let probe = socket.llc.probe(line);
        let held = match probe.slot() {
            Some(slot) => {
                socket.llc.used_at(probe, slot);
                socket.held_at(Some(slot), line)
            }
            None => socket.held_at(None, line),
        };
        if !held.any() {
            return None;
        }
        let mut ready = known + llc.device_return;
        if node != home {
            ready += llc.remote_home_hit;
        }
        // The owning core may have modified the line; a core with the only copy has to supply it.
        if socket.owned(held, None) || held.llc.is_none() {
            return Some(AccessReply { ready: ready + llc.core_snoop, source: Source::LlcOwnedByCore });
        }
        Some(AccessReply { ready, source: Source::Llc })
    }

    /// A device's write of a line or part of it.
    pub(super) fn device_write<const TIMED: bool>(
        &mut self,
        now: Time,
        node: NodeId,
        home: NodeId,
        line: u64,
        coverage: Coverage,
    ) -> WriteReply {
        let known = if TIMED { self.looked_up(now, node) } else { now };
        if TIMED {
            self.counters.nodes[node.index()].device.writes += 1;
        }
        let target = match self.params.remote_write {
            _ if node == home => Some(node),
            RemoteWrite::WriteHomeKeepCopy { grant } => {
                return self.write_home_keep_copy::<TIMED>(known, (node, home), line, coverage, grant);
            }
            RemoteWrite::AllocateAtDeviceSocket { .. } => Some(node),
            RemoteWrite::AllocateAtHomeSocket => Some(home),
            RemoteWrite::ToHomeMemory => None,
        };
        match target.filter(|t| self.params.sockets[t.index()].llc.ddio.ways != 0) {
            Some(target) => self.write_into_llc::<TIMED>(known, node, target, home, line, coverage),
            None => self.write_to_memory::<TIMED>(known, node, home, line, coverage),
        }
    }

    /// A device's write into the LLC of socket `target`.
    fn write_into_llc<const TIMED: bool>(
        &mut self,
        known: Time,
        node: NodeId,
        target: NodeId,
        home: NodeId,
        line: u64,
        coverage: Coverage,
    ) -> WriteReply {
        let t = target.index();
        let llc = self.params.sockets[t].llc;
        let mut at = known;
        if TIMED && target != node {
            at = self.net.line(at, (node, target), Cause::Dma, &mut self.counters)
                + self.params.interconnect.home_agent;
        }
        let probe = self.sockets[t].llc.probe(line);
        let held = self.sockets[t].held_at(probe.slot(), line);
        let alone = held.any() && self.sockets[t].exclusive(held);
        // Cores lose their copies; owners have to respond first.
        let asked = self.sockets[t].owned(held, None);
        let private_dirty = self.sockets[t].drop_private(line, held, None);
        let mut ready = at + llc.device_commit + if asked { llc.core_snoop } else { Duration::ZERO };
        let user = CacheUser::Device as usize;
        if let Some(slot) = held.llc {
            if !alone {
                ready = ready.max(self.claim::<TIMED>(at, target, home, line) + llc.device_commit);
            }
            let socket = &mut self.sockets[t];
            socket.llc.change(slot, flag::DIRTY | flag::EXCLUSIVE, 0);
            socket.llc.used_at(probe, slot);
            if TIMED {
                self.counters.nodes[t].llc[user].hits += 1;
                self.counters.nodes[node.index()].device.writes_updated += 1;
            }
        } else {
            let merge = coverage == Coverage::Partial && !private_dirty;
            if !alone && merge {
                let fetched = self.fetch::<TIMED>(at, target, home, line, Cause::Dma, Intent::Own);
                ready = ready.max(fetched.at + llc.device_commit);
                if TIMED {
                    self.counters.nodes[node.index()].device.merges += u64::from(fetched.memory_read);
                }
            } else if !alone {
                let granted = self.claim::<TIMED>(at, target, home, line);
                ready = ready.max(granted + llc.ddio.acquire + llc.device_commit);
            }
            let socket = &mut self.sockets[t];
            socket.insert_at(line, probe, llc.ddio.ways, flag::DIRTY | flag::EXCLUSIVE);
            let dirty = !socket.evicted.dirty.is_empty();
            let accepted = self.settle::<TIMED>(at, t, Some(CacheUser::Device));
            if dirty {
                ready = accepted.max(ready + llc.ddio.dirty_eviction);
            }
            if TIMED {
                self.counters.nodes[t].llc[user].misses += 1;
                self.counters.nodes[t].llc[user].allocations += 1;
                self.counters.nodes[node.index()].device.writes_allocated += 1;
            }
        }
        if !TIMED {
            return WriteReply::at(known, Source::Llc);
        }
        if target != node {
            ready = self.net.message(ready, (target, node), Cause::Dma, &mut self.counters);
        }
        WriteReply::at(ready, if target == node { Source::Llc } else { Source::RemoteLlc })
    }

    /// A device's write to another node's memory that leaves a clean copy in the device's socket.
    ///
    /// The home node grants ownership without reading its directory: its I/O directory cache tracks the line until the
    /// data arrives with the directory's state. Only if no entry is free, the directory is read first, and written.
    fn write_home_keep_copy<const TIMED: bool>(
        &mut self,
        known: Time,
        (node, home): (NodeId, NodeId),
        line: u64,
        coverage: Coverage,
        grant: Duration,
    ) -> WriteReply {
        let (n, h) = (node.index(), home.index());
        let llc = self.params.sockets[n].llc;
        let probe = self.sockets[n].llc.probe(line);
        let held = self.sockets[n].held_at(probe.slot(), line);
        let alone = held.any() && self.sockets[n].exclusive(held);
        let asked = self.sockets[n].owned(held, None);
        self.sockets[n].drop_private(line, held, None);
        let mut granted = known + if asked { llc.core_snoop } else { Duration::ZERO };
        if !alone {
            let home_at = if TIMED { self.ask_home(granted, node, home, Cause::Dma) } else { granted };
            let mut at = self.snoop::<TIMED>(home_at, node, home, line, Intent::Own).at;
            if TIMED {
                if coverage == Coverage::Partial {
                    at = at.max(self.dram[h].read(home_at, line));
                    self.counters.nodes[h].dram_read.add(Cause::Dma, super::LINE);
                    self.counters.nodes[n].device.merges += 1;
                } else if self.homes[h].io_writes.free_at(home_at) > home_at {
                    at = at.max(self.dram[h].read(home_at, line));
                    self.counters.nodes[h].dram_read.add(Cause::Directory, super::LINE);
                    self.counters.nodes[h].dram_written.add(Cause::Directory, super::LINE);
                    self.dram[h].write(at, line);
                }
                granted = self.net.message(at + grant, (home, node), Cause::Dma, &mut self.counters);
            }
        }
        let user = CacheUser::Device as usize;
        match held.llc {
            Some(slot) => {
                self.sockets[n].llc.change(slot, flag::EXCLUSIVE, flag::DIRTY);
                self.sockets[n].llc.used_at(probe, slot);
            }
            None if llc.ddio.ways != 0 => {
                self.sockets[n].insert_at(line, probe, llc.ddio.ways, flag::EXCLUSIVE);
                self.settle::<TIMED>(granted, n, Some(CacheUser::Device));
                granted += llc.ddio.acquire;
            }
            None => {}
        }
        self.sockets[h].directory.set_changed(line, true);
        if !TIMED {
            return WriteReply::at(known, Source::Llc);
        }
        let arrives = self.net.line(granted, (node, home), Cause::Dma, &mut self.counters);
        let accepted = self.dram[h].write(arrives, line);
        self.homes[h].io_writes.occupy(granted, accepted);
        let counters = &mut self.counters;
        counters.nodes[h].dram_written.add(Cause::Dma, super::LINE);
        let llc_counters = &mut counters.nodes[n].llc[user];
        if held.llc.is_some() {
            llc_counters.hits += 1;
        } else {
            llc_counters.misses += 1;
            llc_counters.allocations += u64::from(llc.ddio.ways != 0);
        }
        counters.nodes[n].device.writes_to_memory += 1;
        WriteReply {
            ready: granted + llc.device_commit,
            taken: self.net.message(accepted, (home, node), Cause::Dma, counters),
            source: Source::RemoteDram,
        }
    }

    /// Invalidates a line in all other sockets for a device's write. Returns when the write may proceed.
    fn claim<const TIMED: bool>(&mut self, at: Time, target: NodeId, home: NodeId, line: u64) -> Time {
        let granted = self.take_ownership::<TIMED>(at, target, home, line);
        match self.params.remote_write {
            RemoteWrite::AllocateAtDeviceSocket { waits_for_home, grant } if target != home => {
                if waits_for_home {
                    granted + grant
                } else {
                    at
                }
            }
            _ => granted,
        }
    }

    /// A device's write to DRAM; no cache keeps the line.
    fn write_to_memory<const TIMED: bool>(
        &mut self,
        known: Time,
        node: NodeId,
        home: NodeId,
        line: u64,
        coverage: Coverage,
    ) -> WriteReply {
        let n = node.index();
        let held = self.sockets[n].locate(line);
        let mut at = known;
        if self.sockets[n].owned(held, None) && TIMED {
            at += self.params.sockets[n].llc.core_snoop;
        }
        let mut dirty_in = self.sockets[n].invalidate(line, held).then_some(n);
        if TIMED && node != home {
            at = self.net.line(at, (node, home), Cause::Dma, &mut self.counters)
                + self.params.interconnect.home_agent;
        }
        // The data serves as the request: the home node gets no separate one.
        let snooped = self.snoop::<TIMED>(at, node, home, line, Intent::Own);
        at = snooped.at;
        if snooped.dirty {
            dirty_in = snooped.holder.map(|(holder, _)| holder);
        }
        if coverage == Coverage::Partial {
            // DRAM writes whole lines: the rest is merged from the dirty copy or from DRAM.
            match dirty_in {
                Some(holder) => at = self.write_back::<TIMED>(at, holder, home, line),
                None if TIMED => {
                    at = self.dram[home.index()].read(at, line);
                    self.counters.nodes[home.index()].dram_read.add(Cause::Dma, super::LINE);
                    self.counters.nodes[n].device.merges += 1;
                }
                None => {}
            }
        }
        let source = if node == home { Source::Dram } else { Source::RemoteDram };
        if !TIMED {
            return WriteReply::at(known, source);
        }
        let accepted = self.dram[home.index()].write(at, line);
        let counters = &mut self.counters;
        counters.nodes[home.index()].dram_written.add(Cause::Dma, super::LINE);
        counters.nodes[n].llc[CacheUser::Device as usize].misses += 1;
        counters.nodes[n].device.writes_to_memory += 1;
        let mut ready = accepted + self.params.sockets[n].llc.device_commit;
        if node != home {
            ready = self.net.message(ready, (home, node), Cause::Dma, counters);
        }
        WriteReply::at(ready, source)
    }
}
