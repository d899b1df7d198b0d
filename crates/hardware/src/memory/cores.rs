//! Accesses of cores.

use super::access::{AccessReply, CoreId, CoreOp, Intent, Line, NodeId, Source};
use super::cache::{Probe, flag};
use super::coherence::{Coherence, Fetched};
use super::core_die::CoreDies;
use super::counters::{CacheCounters, CacheUser, Cause, MemoryBusy, MemoryCounters};
use super::params::{LlcParams, MemoryParams, PrivateParams};
use super::prefetch::{Arrivals, Prefetcher};
use super::private::PrivateHit;
use super::server::Server;
use super::socket::Held;
use units::{Duration, Time};

/// What the cores have under way.
#[derive(Debug)]
pub(super) struct Cores {
    cores: Vec<CoreState>,
    /// By node.
    sockets: Vec<CoresOfSocket>,
}

/// Place of a core.
#[derive(Clone, Copy, Debug)]
struct CorePlace {
    /// Its number in the host.
    core: CoreId,
    node: NodeId,
    /// Its number in its socket.
    local: u8,
}

#[derive(Debug)]
struct CoreState {
    place: CorePlace,
    /// Occupancy of the L2 by passing lines.
    l2: Server,
    /// The L2's prefetchers, if the machine has them.
    prefetcher: Option<Prefetcher>,
}

#[derive(Debug)]
struct CoresOfSocket {
    private: PrivateParams,
    llc: LlcParams,
    dies: Option<CoreDies>,
    /// Lines in flight to the caches.
    arrivals: Arrivals,
    counters: CacheCounters,
}

/// An L2 miss: the lookup result, and what the socket holds of the line.
struct Missed {
    line: Line,
    l2: Probe,
    llc: Probe,
    held: Held,
}

impl CorePlace {
    fn local(self) -> usize {
        self.local.into()
    }
}

impl Cores {
    pub(super) fn new(params: &MemoryParams) -> Self {
        let (mut cores, mut sockets) = (Vec::new(), Vec::new());
        for (node, socket) in (0..).zip(&params.sockets) {
            for local in 0..socket.cores {
                cores.push(CoreState {
                    place: CorePlace {
                        core: CoreId(cores.len() as u16),
                        node: NodeId(node),
                        local: local as u8,
                    },
                    l2: Server::default(),
                    prefetcher: socket.private.prefetch.as_ref().map(Prefetcher::new),
                });
            }
            sockets.push(CoresOfSocket {
                private: socket.private,
                llc: socket.llc,
                dies: socket.core_die.as_ref().map(|die| CoreDies::new(die, socket.cores)),
                arrivals: Arrivals::new(),
                counters: CacheCounters::default(),
            });
        }
        Self { cores, sockets }
    }

    /// The node that a core belongs to, and its number there.
    #[inline]
    pub(super) fn place(&self, core: CoreId) -> Option<(NodeId, usize)> {
        self.cores.get(core.index()).map(|core| (core.place.node, core.place.local()))
    }

    /// Switches a core's prefetchers on or off.
    pub(super) fn set_prefetchers(&mut self, core: CoreId, on: bool) {
        if let Some(prefetcher) = &mut self.cores[core.index()].prefetcher {
            prefetcher.switch(on);
        }
    }

    /// Accesses of `core` from `now` on are postponed and delay nobody.
    pub(super) fn put_off(&mut self, core: CoreId, now: Time) {
        if let Some(prefetcher) = &mut self.cores[core.index()].prefetcher {
            prefetcher.queue.put_off(now);
        }
    }

    /// Discards state that only matters before `clock`.
    pub(super) fn pass(&mut self, clock: Time) {
        self.cores.iter_mut().for_each(|core| core.l2.pass(clock));
        self.sockets.iter_mut().filter_map(|socket| socket.dies.as_mut()).for_each(|dies| dies.pass(clock));
    }

    /// Adds how long the links of dies were busy up to `now`.
    pub(super) fn busy_into(&self, busy: &mut MemoryBusy, now: Time) {
        let of_dies = |socket: &CoresOfSocket| socket.dies.iter().flat_map(|dies| dies.busy(now)).collect();
        busy.core_dies = self.sockets.iter().map(of_dies).collect();
    }

    /// Fetches a line that a core's socket does not have and asks for at `at`, by way of its die.
    #[inline]
    fn fetch<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        at: Time,
        place: CorePlace,
        (line, cause, intent): (Line, Cause, Intent),
    ) -> Fetched {
        let (node, local) = (place.node, place.local());
        let Some(dies) = self.sockets[node.index()].dies.as_mut().filter(|_| TIMED) else {
            return caches.fetch::<TIMED>(at, node, line, cause, intent);
        };
        let asked = dies.request(local, at);
        let mut fetched = caches.fetch::<TIMED>(asked, node, line, cause, intent);
        fetched.at = dies.read(local, asked, fetched.at);
        fetched
    }

    /// When a line that leaves a core's die at `at` has been accepted by its link.
    #[inline]
    fn leaves_die<const TIMED: bool>(&mut self, at: Time, place: CorePlace) -> Time {
        match &mut self.sockets[place.node.index()].dies {
            Some(dies) if TIMED => dies.write(place.local(), at),
            _ => at,
        }
    }

    /// Adds what it has counted.
    pub(super) fn count_into(&self, counters: &mut MemoryCounters) {
        for (node, socket) in counters.nodes.iter_mut().zip(&self.sockets) {
            node.private = socket.counters;
        }
    }

    /// An access of a core to a line.
    pub(super) fn access<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        core: CoreId,
        line: Line,
        op: CoreOp,
    ) -> AccessReply {
        let at = self.cores[core.index()].place;
        match op {
            CoreOp::Load => self.reads::<TIMED>(caches, now, at, line, Cause::Core),
            CoreOp::Prefetch => self.reads::<TIMED>(caches, now, at, line, Cause::Prefetch),
            CoreOp::Store => self.writes::<TIMED>(caches, now, at, line),
            CoreOp::StreamingStore => self.streams::<TIMED>(caches, now, at, line),
            CoreOp::FlushLine => self.flushes::<TIMED>(caches, now, at.node, line),
        }
    }

    /// Passes lines through a core's L2 from `at` on. Returns when they start.
    #[inline]
    fn through_l2<const TIMED: bool>(&mut self, at: Time, place: CorePlace, takes: Duration) -> Time {
        if TIMED && !takes.is_zero() { self.cores[place.core.index()].l2.reserve(at, takes) } else { at }
    }

    /// Looks a line up in a core's private caches. Returns the hit and when it is ready, or the result of the L2 lookup.
    ///
    /// If the core `writes` the line, its later eviction from the L1 is charged as well.
    fn private_hit<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        place: CorePlace,
        line: u64,
        writes: bool,
    ) -> Result<(PrivateHit, Time), Probe> {
        let hit = caches.socket(place.node).access_private(place.local(), line);
        let socket = &mut self.sockets[place.node.index()];
        socket.counters.hits += u64::from(TIMED && hit.is_ok());
        socket.counters.misses += u64::from(TIMED && hit.is_err());
        let private = socket.private;
        let hit = hit?;
        if hit.first {
            return Ok((hit, now + private.l1_hit));
        }
        let passes = self.through_l2::<TIMED>(now, place, private.l1_transfer * if writes { 2 } else { 1 });
        Ok((hit, self.arrived::<TIMED>(place.node, line, now, passes + private.l2_hit)))
    }

    /// When an access to a line that its socket has completes. It started at `at`, and would complete at `ready` if the
    /// line were no longer in flight.
    #[inline]
    fn arrived<const TIMED: bool>(&self, node: NodeId, line: u64, at: Time, ready: Time) -> Time {
        if TIMED { self.sockets[node.index()].arrivals.wait(line, at, ready) } else { ready }
    }

    /// When a line missed by the core's L2 at `now` can be requested, given the places of its super queue.
    #[inline]
    fn queued<const TIMED: bool>(&self, now: Time, place: CorePlace) -> Time {
        match &self.cores[place.core.index()].prefetcher {
            Some(prefetcher) if TIMED => prefetcher.queue.free_at(now),
            _ => now,
        }
    }

    /// Records that a line requested by a core's L2 at `asked` arrives there at `ready`.
    #[inline]
    fn arrives<const TIMED: bool>(&mut self, asked: Time, place: CorePlace, line: u64, ready: Time) {
        if !TIMED {
            return;
        }
        if let Some(prefetcher) = &mut self.cores[place.core.index()].prefetcher {
            prefetcher.queue.occupy(asked, ready);
            self.sockets[place.node.index()].arrivals.note(line, asked, ready);
        }
    }

    /// Shows a core's prefetchers the access to `line` at `at`, and fetches the lines that they request.
    #[inline]
    fn fetch_ahead<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        at: Time,
        place: CorePlace,
        line: u64,
        missed: bool,
    ) {
        if !TIMED {
            return;
        }
        let Some(prefetcher) = &mut self.cores[place.core.index()].prefetcher else { return };
        let ahead = prefetcher.train(at, line, missed);
        for &next in ahead.lines() {
            // The next page may not be memory.
            let Some(line) = caches.line(next) else { continue };
            let socket = caches.socket(place.node);
            let l2 = socket.probe_l2(place.local(), next);
            if l2.slot().is_some() {
                continue;
            }
            let (llc, held) = socket.look_up(next);
            // Other cores' modified lines are not prefetched.
            if socket.owned(held, Some(place.local())) {
                continue;
            }
            let missed = Missed { line, l2, llc, held };
            let passes =
                self.through_l2::<true>(at, place, self.sockets[place.node.index()].private.l2_transfer);
            let read = self.fill_to_read::<true>(caches, passes, place, missed, Cause::Prefetch);
            self.arrives::<true>(at, place, next, read.ready);
        }
    }

    fn reads<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        place: CorePlace,
        line: Line,
        cause: Cause,
    ) -> AccessReply {
        let absent = match self.private_hit::<TIMED>(caches, now, place, line.number, false) {
            Ok((hit, ready)) => {
                if !hit.first {
                    self.fetch_ahead::<TIMED>(caches, now, place, line.number, false);
                }
                return AccessReply { ready, source: Source::OwnCache };
            }
            Err(absent) => absent,
        };
        let private = self.sockets[place.node.index()].private;
        let asked = self.queued::<TIMED>(now, place);
        let passes = self.through_l2::<TIMED>(asked, place, private.l1_transfer + private.l2_transfer);
        let (llc, held) = caches.socket(place.node).look_up(line.number);
        let missed = Missed { line, l2: absent, llc, held };
        let access = self.fill_to_read::<TIMED>(caches, passes, place, missed, cause);
        caches.socket(place.node).fill_l1(place.local(), line.number);
        self.arrives::<TIMED>(asked, place, line.number, access.ready);
        self.fetch_ahead::<TIMED>(caches, asked, place, line.number, true);
        access
    }

    /// Fills a line for reading into a core's L2, which was asked for it at `now`.
    fn fill_to_read<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        place: CorePlace,
        missed: Missed,
        cause: Cause,
    ) -> AccessReply {
        let Missed { line, l2: absent, llc: probe, mut held } = missed;
        let (node, core) = (place.node, place.local());
        let llc = self.sockets[node.index()].llc;
        let mut access = AccessReply { ready: now + llc.core_hit, source: Source::Llc };
        let exclusive;
        if held.any() {
            access.ready = self.arrived::<TIMED>(node, line.number, now, access.ready);
            let socket = caches.socket(node);
            let is_owned = socket.owned(held, Some(core));
            if is_owned || held.llc.is_none() {
                access.ready += llc.core_snoop;
                access.source = Source::LlcOwnedByCore;
            }
            if is_owned {
                held = socket.downgrade(line.number, held);
            }
            socket.used(probe, held);
            exclusive = socket.exclusive(held) && socket.others(held, Some(core)) == 0;
            caches.count::<TIMED>(node, CacheUser::Core, true);
        } else {
            let what = (line, cause, Intent::Share);
            let fetched = self.fetch::<TIMED>(caches, access.ready, place, what);
            access = AccessReply { ready: fetched.at, source: fetched.source };
            exclusive = !fetched.shared;
            held = allocate::<TIMED>(caches, node, line, probe, exclusive);
        }
        caches.socket(node).fill(core, line.number, absent, held, exclusive, false);
        if caches.settle::<TIMED>(access.ready, node, CacheUser::Core).is_some() {
            access.ready = self.leaves_die::<TIMED>(access.ready, place);
        }
        access
    }

    fn writes<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        place: CorePlace,
        line: Line,
    ) -> AccessReply {
        let (node, core) = (place.node, place.local());
        let hit = self.private_hit::<TIMED>(caches, now, place, line.number, true);
        let private = self.sockets[node.index()].private;
        if let Ok((hit, ready)) = hit
            && hit.is_exclusive()
        {
            if !hit.is_dirty() {
                let socket = caches.socket(node);
                let held = socket.held_by(core, hit.slot, line.number);
                socket.own(core, hit.slot, held);
                // The victim leaves the L2.
                self.through_l2::<TIMED>(now, place, private.l2_transfer);
            }
            if !hit.first {
                self.fetch_ahead::<TIMED>(caches, now, place, line.number, false);
            }
            return AccessReply { ready, source: Source::OwnCache };
        }
        let llc = self.sockets[node.index()].llc;
        let asked = self.queued::<TIMED>(now, place);
        let passes = self.through_l2::<TIMED>(asked, place, (private.l1_transfer + private.l2_transfer) * 2);
        let mut access = AccessReply { ready: passes + llc.core_hit, source: Source::Llc };
        let (probe, mut held) = caches.socket(node).look_up(line.number);
        if held.any() {
            access.ready = self.arrived::<TIMED>(node, line.number, asked, access.ready);
            let socket = caches.socket(node);
            if socket.others(held, Some(core)) != 0 {
                access = AccessReply { ready: access.ready + llc.core_snoop, source: Source::LlcOwnedByCore };
            }
            socket.drop_private(line.number, held, Some(core));
            // A snoop filter's entry is dropped with the last copy.
            let alone = socket.exclusive(held);
            held = socket.held_at(probe.slot(), line.number);
            if !alone {
                access.ready = caches.take_ownership::<TIMED>(access.ready, node, line);
                caches.socket(node).set_exclusive(held, true);
            }
            caches.socket(node).used(probe, held);
            caches.count::<TIMED>(node, CacheUser::Core, true);
        } else {
            let what = (line, Cause::Core, Intent::Own);
            let fetched = self.fetch::<TIMED>(caches, access.ready, place, what);
            access = AccessReply { ready: fetched.at, source: fetched.source };
            held = allocate::<TIMED>(caches, node, line, probe, true);
        }
        let socket = caches.socket(node);
        match hit {
            Ok((hit, _)) => socket.own(core, hit.slot, held),
            Err(absent) => {
                socket.fill(core, line.number, absent, held, true, true);
                socket.fill_l1(core, line.number);
            }
        }
        if caches.settle::<TIMED>(access.ready, node, CacheUser::Core).is_some() {
            access.ready = self.leaves_die::<TIMED>(access.ready, place);
        }
        self.arrives::<TIMED>(asked, place, line.number, access.ready);
        self.fetch_ahead::<TIMED>(caches, asked, place, line.number, hit.is_err());
        access
    }

    /// A full-line store that bypasses the caches. Cached copies are invalidated.
    fn streams<const TIMED: bool>(
        &mut self,
        caches: &mut Coherence,
        now: Time,
        place: CorePlace,
        line: Line,
    ) -> AccessReply {
        let (node, llc) = (place.node, self.sockets[place.node.index()].llc);
        let leaves = self.leaves_die::<TIMED>(now + llc.core_hit, place);
        let written = caches.stream::<TIMED>(leaves, node, line);
        let ready = match llc.streaming_waits {
            _ if !TIMED => now,
            true => written.accepted,
            false => written.there + written.accepted.since(written.snooped),
        };
        AccessReply { ready, source: line.memory_from(node) }
    }

    fn flushes<const TIMED: bool>(
        &self,
        caches: &mut Coherence,
        now: Time,
        node: NodeId,
        line: Line,
    ) -> AccessReply {
        let at = now + self.sockets[node.index()].llc.core_hit;
        let ready = caches.flush::<TIMED>(at, node, line);
        AccessReply { ready: if TIMED { ready } else { now }, source: line.memory_from(node) }
    }
}

/// Allocates a slot in an inclusive LLC for a line that a core missed.
fn allocate<const TIMED: bool>(
    caches: &mut Coherence,
    node: NodeId,
    line: Line,
    absent: Probe,
    exclusive: bool,
) -> Held {
    caches.count::<TIMED>(node, CacheUser::Core, false);
    let socket = caches.socket(node);
    if !socket.inclusive() {
        return Held::default();
    }
    let (all, state) = (socket.all_ways(), if exclusive { flag::EXCLUSIVE } else { 0 });
    let slot = caches.allocate::<TIMED>(node, CacheUser::Core, (line, absent), all, state);
    caches.socket(node).held_at(Some(slot), line.number)
}
