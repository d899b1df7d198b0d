//! Accesses of cores.

use super::access::{AccessReply, CoreId, CoreOp, NodeId, Source};
use super::cache::{Probe, Slot, flag};
use super::coherence::Intent;
use super::counters::{CacheUser, Cause};
use super::socket::Held;
use super::system::MemorySystem;
use units::{Duration, HostPhysical, Time};

/// A line present in a core's L2.
#[derive(Clone, Copy)]
struct Hit {
    ready: Time,
    slot: Slot,
    flags: u32,
    /// Whether the L1 hit, so that the L2 was not looked up.
    first: bool,
}

/// An L2 miss: the lookup result, and what the socket holds of the line.
struct Missed {
    line: u64,
    l2: Probe,
    llc: Probe,
    held: Held,
}

impl MemorySystem {
    /// An access of a core to a line whose home is `home`.
    pub(super) fn core_access<const TIMED: bool>(
        &mut self,
        now: Time,
        core: CoreId,
        home: NodeId,
        line: u64,
        op: CoreOp,
    ) -> AccessReply {
        let (n, local) = self.places[core.index()];
        let (n, local) = (usize::from(n), usize::from(local));
        match op {
            CoreOp::Load => self.core_reads::<TIMED>(now, n, local, home, line, Cause::Core),
            CoreOp::Prefetch => self.core_reads::<TIMED>(now, n, local, home, line, Cause::Prefetch),
            CoreOp::Store => self.core_writes::<TIMED>(now, n, local, home, line),
            CoreOp::StreamingStore => self.core_streams::<TIMED>(now, n, home, line),
            CoreOp::FlushLine => self.core_flushes::<TIMED>(now, n, home, line),
        }
    }

    /// Passes lines through a core's L2 from `at` on. Returns when they start.
    #[inline]
    fn through_l2<const TIMED: bool>(&mut self, at: Time, n: usize, core: usize, takes: Duration) -> Time {
        if TIMED && !takes.is_zero() { self.paths[self.first_core[n] + core].reserve(at, takes) } else { at }
    }

    /// Looks a line up in a core's private caches. Returns the hit, or the result of the L2 lookup.
    ///
    /// If the core `writes` the line, its later eviction from the L1 is charged as well.
    fn private_hit<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        core: usize,
        line: u64,
        writes: bool,
    ) -> Result<Hit, Probe> {
        let params = self.params.sockets[n].private;
        let caches = &mut self.sockets[n].cores[core];
        let l2 = caches.l2.probe(line);
        let counters = &mut self.counters.nodes[n].private;
        let Some(slot) = l2.slot() else {
            counters.misses += u64::from(TIMED);
            return Err(l2);
        };
        counters.hits += u64::from(TIMED);
        let flags = caches.l2.flags(slot);
        let l1 = caches.l1.probe(line);
        if let Some(first) = l1.slot() {
            caches.l1.used_at(l1, first);
            return Ok(Hit { ready: now + params.l1_hit, slot, flags, first: true });
        }
        caches.l2.used_at(l2, slot);
        caches.fill_l1(line);
        let passes = self.through_l2::<TIMED>(now, n, core, params.l1_transfer * if writes { 2 } else { 1 });
        let ready = if TIMED { self.arrivals[n].wait(line, now, passes + params.l2_hit) } else { now };
        Ok(Hit { ready, slot, flags, first: false })
    }

    /// When a line missed by the core's L2 at `now` can be requested, given the places of its super queue.
    #[inline]
    fn queued<const TIMED: bool>(&self, now: Time, n: usize, core: usize) -> Time {
        match &self.prefetchers[self.first_core[n] + core] {
            Some(prefetcher) if TIMED => prefetcher.queue.free_at(now),
            _ => now,
        }
    }

    /// Records that a line requested by a core's L2 at `asked` arrives there at `ready`.
    #[inline]
    fn arrives<const TIMED: bool>(&mut self, asked: Time, n: usize, core: usize, line: u64, ready: Time) {
        if !TIMED {
            return;
        }
        if let Some(prefetcher) = &mut self.prefetchers[self.first_core[n] + core] {
            prefetcher.queue.occupy(asked, ready);
            self.arrivals[n].note(line, asked, ready);
        }
    }

    /// Shows a core's prefetchers the access to `line` at `at`, and fetches the lines that they request.
    #[inline]
    fn fetch_ahead<const TIMED: bool>(&mut self, at: Time, n: usize, core: usize, line: u64, missed: bool) {
        if !TIMED {
            return;
        }
        let whose = self.first_core[n] + core;
        let Some(prefetcher) = &mut self.prefetchers[whose] else { return };
        let ahead = prefetcher.train(at, line, missed);
        for &next in ahead.lines() {
            // The next page may not be memory.
            let Some(home) = self.node_of(HostPhysical::new(next * super::LINE)) else { continue };
            let l2 = self.sockets[n].cores[core].l2.probe(next);
            if l2.slot().is_some() {
                continue;
            }
            let (llc, held) = self.beyond_l2(n, next);
            // Other cores' modified lines are not prefetched.
            if self.sockets[n].owned(held, Some(core)) {
                continue;
            }
            let missed = Missed { line: next, l2, llc, held };
            let passes = self.through_l2::<true>(at, n, core, self.params.sockets[n].private.l2_transfer);
            let read = self.fill_l2_to_read::<true>(passes, n, core, home, missed, Cause::Prefetch);
            self.arrives::<true>(at, n, core, next, read.ready);
        }
    }

    fn core_reads<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        core: usize,
        home: NodeId,
        line: u64,
        cause: Cause,
    ) -> AccessReply {
        let absent = match self.private_hit::<TIMED>(now, n, core, line, false) {
            Ok(hit) => {
                if !hit.first {
                    self.fetch_ahead::<TIMED>(now, n, core, line, false);
                }
                return AccessReply { ready: hit.ready, source: Source::OwnCache };
            }
            Err(absent) => absent,
        };
        let private = self.params.sockets[n].private;
        let asked = self.queued::<TIMED>(now, n, core);
        let passes = self.through_l2::<TIMED>(asked, n, core, private.l1_transfer + private.l2_transfer);
        let (llc, held) = self.beyond_l2(n, line);
        let missed = Missed { line, l2: absent, llc, held };
        let access = self.fill_l2_to_read::<TIMED>(passes, n, core, home, missed, cause);
        self.sockets[n].cores[core].fill_l1(line);
        self.arrives::<TIMED>(asked, n, core, line, access.ready);
        self.fetch_ahead::<TIMED>(asked, n, core, line, true);
        access
    }

    /// What a socket's LLC and cores hold of a line.
    #[inline]
    fn beyond_l2(&self, n: usize, line: u64) -> (Probe, Held) {
        let probe = self.sockets[n].llc.probe(line);
        (probe, self.sockets[n].held_at(probe.slot(), line))
    }

    /// Fills a line for reading into a core's L2, which was asked for it at `now`.
    fn fill_l2_to_read<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        core: usize,
        home: NodeId,
        missed: Missed,
        cause: Cause,
    ) -> AccessReply {
        let Missed { line, l2: absent, llc: probe, mut held } = missed;
        let llc = self.params.sockets[n].llc;
        let mut access = AccessReply { ready: now + llc.core_hit, source: Source::Llc };
        let exclusive;
        if held.any() {
            if TIMED {
                access.ready = self.arrivals[n].wait(line, now, access.ready);
            }
            let socket = &mut self.sockets[n];
            if socket.owned(held, Some(core)) || held.llc.is_none() {
                access.ready += llc.core_snoop;
                access.source = Source::LlcOwnedByCore;
            }
            if socket.owned(held, Some(core)) {
                held = socket.downgrade(line, held);
            }
            if let Some(slot) = held.llc {
                socket.llc.used_at(probe, slot);
            }
            exclusive = socket.exclusive(held) && socket.others(held, Some(core)) == 0;
            self.count_llc::<TIMED>(n, true);
        } else {
            let to = NodeId(n as u8);
            let fetched = self.fetch::<TIMED>(access.ready, to, home, line, cause, Intent::Share);
            access = AccessReply { ready: fetched.at, source: fetched.source };
            exclusive = !fetched.shared;
            held = self.allocate_for_core::<TIMED>(n, line, probe, exclusive);
        }
        self.sockets[n].fill(core, line, absent, held, exclusive, false);
        self.settle::<TIMED>(access.ready, n, Some(CacheUser::Core));
        access
    }

    fn core_writes<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        core: usize,
        home: NodeId,
        line: u64,
    ) -> AccessReply {
        let private = self.params.sockets[n].private;
        let hit = self.private_hit::<TIMED>(now, n, core, line, true);
        if let Ok(Hit { ready, slot, flags, first }) = hit
            && flags & flag::EXCLUSIVE != 0
        {
            if flags & flag::DIRTY == 0 {
                let held = self.sockets[n].held_by(core, slot, line);
                self.sockets[n].own(core, slot, held);
                // The victim leaves the L2.
                self.through_l2::<TIMED>(now, n, core, private.l2_transfer);
            }
            if !first {
                self.fetch_ahead::<TIMED>(now, n, core, line, false);
            }
            return AccessReply { ready, source: Source::OwnCache };
        }
        let llc = self.params.sockets[n].llc;
        let to = NodeId(n as u8);
        let asked = self.queued::<TIMED>(now, n, core);
        let passes =
            self.through_l2::<TIMED>(asked, n, core, (private.l1_transfer + private.l2_transfer) * 2);
        let mut access = AccessReply { ready: passes + llc.core_hit, source: Source::Llc };
        let (probe, mut held) = self.beyond_l2(n, line);
        if held.any() {
            if TIMED {
                access.ready = self.arrivals[n].wait(line, asked, access.ready);
            }
            if self.sockets[n].others(held, Some(core)) != 0 {
                access = AccessReply { ready: access.ready + llc.core_snoop, source: Source::LlcOwnedByCore };
            }
            self.sockets[n].drop_private(line, held, Some(core));
            // A snoop filter's entry is dropped with the last copy.
            let alone = self.sockets[n].exclusive(held);
            held = self.sockets[n].held_at(probe.slot(), line);
            if !alone {
                access.ready = self.take_ownership::<TIMED>(access.ready, to, home, line);
                self.sockets[n].set_exclusive(held, true);
            }
            if let Some(slot) = held.llc {
                self.sockets[n].llc.used_at(probe, slot);
            }
            self.count_llc::<TIMED>(n, true);
        } else {
            let fetched = self.fetch::<TIMED>(access.ready, to, home, line, Cause::Core, Intent::Own);
            access = AccessReply { ready: fetched.at, source: fetched.source };
            held = self.allocate_for_core::<TIMED>(n, line, probe, true);
        }
        match hit {
            Ok(hit) => self.sockets[n].own(core, hit.slot, held),
            Err(absent) => {
                self.sockets[n].fill(core, line, absent, held, true, true);
                self.sockets[n].cores[core].fill_l1(line);
            }
        }
        self.settle::<TIMED>(access.ready, n, Some(CacheUser::Core));
        self.arrives::<TIMED>(asked, n, core, line, access.ready);
        self.fetch_ahead::<TIMED>(asked, n, core, line, hit.is_err());
        access
    }

    /// Allocates a slot in an inclusive LLC for a line that a core missed.
    fn allocate_for_core<const TIMED: bool>(
        &mut self,
        n: usize,
        line: u64,
        probe: Probe,
        exclusive: bool,
    ) -> Held {
        self.count_llc::<TIMED>(n, false);
        let socket = &mut self.sockets[n];
        if !socket.inclusive() {
            return Default::default();
        }
        let all = socket.llc.all_ways();
        let slot = socket.insert_at(line, probe, all, if exclusive { flag::EXCLUSIVE } else { 0 });
        self.counters.nodes[n].llc[CacheUser::Core as usize].allocations += u64::from(TIMED);
        socket.held_at(Some(slot), line)
    }

    fn count_llc<const TIMED: bool>(&mut self, n: usize, hit: bool) {
        let counters = &mut self.counters.nodes[n].llc[CacheUser::Core as usize];
        counters.hits += u64::from(TIMED && hit);
        counters.misses += u64::from(TIMED && !hit);
    }

    /// A full-line store that bypasses the caches. Cached copies are invalidated.
    fn core_streams<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        home: NodeId,
        line: u64,
    ) -> AccessReply {
        let from = NodeId(n as u8);
        let source = if from == home { Source::Dram } else { Source::RemoteDram };
        let held = self.sockets[n].locate(line);
        self.sockets[n].invalidate(line, held);
        let at = now + self.params.sockets[n].llc.core_hit;
        if !TIMED {
            self.snoop::<false>(at, from, home, line, Intent::Own);
            return AccessReply { ready: now, source };
        }
        let there = self.net.line_or_nothing(at, (from, home), Cause::Core, &mut self.counters);
        let snooped = self.snoop::<true>(there, from, home, line, Intent::Own).at;
        self.counters.nodes[home.index()].dram_written.add(Cause::Core, super::LINE);
        let accepted = self.dram[home.index()].write(snooped, line);
        let waits = self.params.sockets[n].llc.streaming_waits;
        AccessReply { ready: if waits { accepted } else { there + accepted.since(snooped) }, source }
    }

    fn core_flushes<const TIMED: bool>(
        &mut self,
        now: Time,
        n: usize,
        home: NodeId,
        line: u64,
    ) -> AccessReply {
        let from = NodeId(n as u8);
        let mut ready = now + self.params.sockets[n].llc.core_hit;
        let held = self.sockets[n].locate(line);
        let was_dirty = self.sockets[n].invalidate(line, held);
        let asked =
            if TIMED && from != home { self.ask_home(ready, from, home, Cause::Snoop) } else { ready };
        let snooped = self.snoop::<TIMED>(asked, from, home, line, Intent::Own);
        ready = snooped.at;
        let elsewhere = snooped.holder.filter(|_| snooped.dirty).map(|(holder, _)| holder);
        if let Some(holder) = elsewhere.or(was_dirty.then_some(n)) {
            ready = self.write_back::<TIMED>(ready, holder, home, line);
        }
        if TIMED && from != home {
            ready = self.net.message(ready, (home, from), Cause::Snoop, &mut self.counters);
        }
        let source = if from == home { Source::Dram } else { Source::RemoteDram };
        AccessReply { ready: if TIMED { ready } else { now }, source }
    }
}
