//! Pages of domains: from the IOTLB, a walk in progress, or a new walk of the page tables.

use super::PageCounters;
use super::iotlb::{Iotlb, Leaf};
use super::memory::{TableReader, WalkMemory};
use super::params::{Geometry, IommuParams};
use super::pipeline::{Pipeline, PipelinePlace};
use super::request::DmaRequest;
use super::structures::StructureCaches;
use super::walkers::{PendingWalk, PendingWalks, Walkers};
use engine::Rng;
use units::{Duration, Time};
use wire::iommu::decode_page;
use wire::vtd::{ContextEntry, FaultReason, Features, PageEntry, Permissions, Scope, entry_offset};

/// The caches of pages and page tables, and the walks that fill them.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    features: Features,
    hit_latency: Duration,
    replay_latency: Duration,
    walk_overhead: Duration,
    iotlb: Iotlb,
    structures: StructureCaches,
    pending: PendingWalks,
    counters: PageCounters,
}

impl Pages {
    pub fn new(params: &IommuParams, random: Rng) -> Self {
        let entries = params.iotlb.entries - params.iotlb_reserved;
        Self {
            features: Features::from(params),
            hit_latency: params.hit_latency,
            replay_latency: params.replay_latency,
            walk_overhead: params.walk_overhead,
            iotlb: Iotlb::new(Geometry { entries, ..params.iotlb }, random),
            structures: StructureCaches::new(params.paging_structure_caches),
            pending: PendingWalks::default(),
            counters: PageCounters::default(),
        }
    }

    pub const fn counters(&self) -> PageCounters {
        self.counters
    }

    /// The page of a request in the domain of `entry`, and when it is known to the request, which is looked up at `from` or
    /// later. Cached entries only count if they permit the access, so that new permissions take effect without an
    /// invalidation.
    #[inline]
    pub fn resolve<M: WalkMemory>(
        &mut self,
        (place, from): (PipelinePlace, Time),
        entry: &ContextEntry,
        request: &DmaRequest,
        walkers: &mut Walkers,
        pipeline: &mut Pipeline,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<Leaf, FaultReason>) {
        let at = pipeline.lookup_at(from);
        if at >= self.pending.next_end() {
            self.fill(at);
        }
        if let Some(leaf) = self.iotlb.lookup(entry.domain, request.address)
            && leaf.permissions.allow(request.access)
        {
            self.counters.hits += 1;
            return (at.max(leaf.known_from) + self.hit_latency, Ok(leaf));
        }
        let (end, found) = self.miss((place, at), entry, request, walkers, pipeline, reader);
        (end + self.replay_latency + self.hit_latency, found)
    }

    /// Moves walks that have ended by `now` into the IOTLB.
    #[inline(never)]
    fn fill(&mut self, now: Time) {
        while let Some(walk) = self.pending.pop_ended(now) {
            self.iotlb.insert(walk.domain, walk.address, walk.leaf);
        }
    }

    #[inline(never)]
    fn miss<M: WalkMemory>(
        &mut self,
        (place, at): (PipelinePlace, Time),
        entry: &ContextEntry,
        request: &DmaRequest,
        walkers: &mut Walkers,
        pipeline: &mut Pipeline,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<Leaf, FaultReason>) {
        let &DmaRequest { address, access, pieces, .. } = request;
        if let Some(walk) = self.pending.find(entry.domain, address)
            && walk.leaf.permissions.allow(access)
        {
            self.counters.merged += 1;
            let again = pipeline.again(at, walk.end);
            pipeline.waits(place, at, again, pieces);
            return (again, Ok(walk.leaf));
        }
        self.counters.misses += 1;
        // If a walk of its region is in progress, the request waits for that and is then looked up again.
        let region_free = walkers.region_free(entry.domain, address);
        let from = if region_free > at { pipeline.again_for_walk(at, region_free) } else { at };
        let (end, found) = self.walk(from, entry, request, walkers, reader);
        pipeline.waits(place, at, end, pieces);
        if let Ok(leaf) = found {
            self.pending.push(PendingWalk { domain: entry.domain, address, end, leaf });
        }
        (end, found)
    }

    /// Walks the tables: one timed read per level not known from the paging-structure caches.
    fn walk<M: WalkMemory>(
        &mut self,
        at: Time,
        entry: &ContextEntry,
        request: &DmaRequest,
        walkers: &mut Walkers,
        reader: &mut TableReader<'_, M>,
    ) -> (Time, Result<Leaf, FaultReason>) {
        let (domain, address) = (entry.domain, request.address);
        let walker = walkers.begin(at, request.access, Some((domain, address)));
        let mut now = walker.start + self.walk_overhead;
        let (mut level, mut table) = (entry.levels, entry.page_table);
        let mut permissions = Permissions::READ_WRITE;
        if let Some((l, known)) = self.structures.lookup(domain, address, level, walker.start) {
            (level, table, permissions) = (l, known.table, known.permissions);
            self.counters.shortened_walks += 1;
        }
        let found = loop {
            self.counters.walk_steps += 1;
            let read = reader.word(now, table + entry_offset(address, level));
            now = read.ready;
            let word = read.value.ok_or(FaultReason::PageTableUnreachable);
            match word.and_then(|word| decode_page(word, level, self.features)) {
                Err(reason) => break Err(reason),
                Ok(PageEntry::Table { table: next, permissions: p }) => {
                    (level, table, permissions) = (level - 1, next, permissions.and(p));
                    self.structures.insert(domain, address, level, (table, permissions), now);
                }
                Ok(PageEntry::Leaf { frame, size, permissions: p })
                    if permissions.and(p).allow(request.access) =>
                {
                    break Ok(Leaf { frame, size, permissions: permissions.and(p), known_from: now });
                }
                Ok(PageEntry::Leaf { .. } | PageEntry::Absent) => {
                    break Err(FaultReason::not_permitted(request.access));
                }
            }
        };
        walkers.end(walker, now);
        self.counters.walks += 1;
        self.counters.walker_queueing += walker.start.since(at);
        (now, found)
    }

    /// Invalidates the pages in `scope`, and with `tables` also the page tables above them.
    pub fn invalidate(&mut self, scope: Scope, tables: bool) {
        self.counters.invalidations += 1;
        self.counters.entries_invalidated += self.iotlb.invalidate(scope) as u64;
        self.pending.invalidate(scope);
        if tables {
            self.structures.invalidate(scope);
        }
    }
}
