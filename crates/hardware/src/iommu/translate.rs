//! Translation of DMA requests.

use super::fault::{Fault, FaultReason};
use super::format::{ContextEntry, PageEntry, RootEntry, TranslationType, entry_offset};
use super::ids::{Access, AddressType, PageSize, Permissions};
use super::iotlb::Leaf;
use super::memory::WalkMemory;
use super::walkers::PendingWalk;
use super::{CachedContext, Iommu};
use units::{HostPhysical, Iova, Time};
use wire::pcie::Bdf;

/// A translated address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translated {
    /// The host-physical address.
    pub address: HostPhysical,
    /// Size of the page; a request beyond its end needs another translation.
    pub page: PageSize,
}

/// Result of a translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// When the request proceeds, or is refused.
    pub ready: Time,
    /// The translated address, or the fault, which has been counted and recorded.
    pub outcome: Result<Translated, Fault>,
}

impl Translation {
    /// Passes the address unchanged.
    #[inline]
    fn unchanged(ready: Time, address: Iova) -> Self {
        let address = HostPhysical::new(address.get());
        Self { ready, outcome: Ok(Translated { address, page: PageSize::Size1GiB }) }
    }
}

/// Whether `address` is in the interrupt range, 0xfee0_0000 to 0xfeef_ffff, which is never translated.
#[inline]
pub const fn is_interrupt_address(address: u64) -> bool {
    address >> 20 == 0xfee
}

impl Iommu {
    /// Translates one request, which must not cross a 4 KiB boundary unless the caller checks [`Translated::page`].
    /// Writes to the interrupt range go to [`Iommu::remap_interrupt`] instead.
    ///
    /// Takes no time if translation is disabled. Otherwise calls must be in the order in which the requests arrive at
    /// the IOMMU.
    #[inline]
    pub fn translate<M: WalkMemory>(
        &mut self,
        now: Time,
        requester: Bdf,
        address: Iova,
        access: Access,
        address_type: AddressType,
        memory: &mut M,
    ) -> Translation {
        self.translate_pieces(now, requester, address, access, address_type, 1, memory)
    }

    /// Like [`Iommu::translate`], for a request that the root complex serves in `pieces` (at least 1) of the same page,
    /// each of which takes a place in the pipeline; `ready` is when the last one proceeds.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub fn translate_pieces<M: WalkMemory>(
        &mut self,
        now: Time,
        requester: Bdf,
        address: Iova,
        access: Access,
        address_type: AddressType,
        pieces: u32,
        memory: &mut M,
    ) -> Translation {
        if !self.enabled {
            return Translation::unchanged(now, address);
        }
        self.counters.lookups += 1;
        let page = address.get() >> 12 | u64::from(requester.bits()) << 48;
        let place = self.pipeline.enter(now, access, page);
        self.counters.pipeline_queueing += place.since(now);
        let context = match self.recent_context {
            Some((recent, context)) if recent == requester => {
                self.counters.context_hits += 1;
                context
            }
            _ => match self.context(place, requester, memory) {
                Ok(context) => context,
                Err((at, reason)) => return self.refuse_early(at, requester, address, access, reason, true),
            },
        };
        let place = place.max(context.known_from);
        let entry = context.entry;
        if entry.translation != TranslationType::Untranslated || address_type == AddressType::Translated {
            let passes = match address_type {
                AddressType::Translated => entry.translation == TranslationType::WithAts,
                AddressType::Untranslated => entry.translation == TranslationType::PassThrough,
            };
            if passes {
                return self.pass(place, requester, address, access);
            }
            if address_type == AddressType::Translated {
                return self.refuse_early(place, requester, address, access, FaultReason::AtsBlocked, true);
            }
        }
        let record = !entry.fault_processing_disabled;
        if is_interrupt_address(address.get()) {
            let reason = FaultReason::InterruptRange;
            return self.refuse_early(place, requester, address, access, reason, record);
        }
        if !entry.spans(address) {
            let reason = FaultReason::BeyondAddressWidth;
            return self.refuse_early(place, requester, address, access, reason, record);
        }
        let (ready, found) = self.resolve(place, &entry, address, Some(access), pieces, memory);
        let mut ready = self.pipeline.leave(ready, access);
        for _ in 1..pieces {
            // The other pieces take places, too, but their page has been looked up.
            let at = self.pipeline.enter_piece(now, access);
            ready = self.pipeline.leave(ready.max(at), access);
        }
        match found {
            Ok(leaf) => {
                let outcome = Ok(Translated { address: leaf.resolve(address), page: leaf.size });
                Translation { ready, outcome }
            }
            Err(reason) => self.refuse(ready, requester, address, access, reason, record),
        }
    }

    /// Records that a translated request is in use until `until`, when a write's data is in memory or a read has been
    /// served. A draining invalidation waits for that. Until this call the request counts as in use until its
    /// translation is ready.
    #[inline]
    pub fn in_use_until(&mut self, until: Time) {
        self.in_use_until = self.in_use_until.max(until);
    }

    /// Passes the request with its address unchanged.
    fn pass(&mut self, at: Time, requester: Bdf, address: Iova, access: Access) -> Translation {
        if is_interrupt_address(address.get()) {
            return self.refuse_early(at, requester, address, access, FaultReason::InterruptRange, true);
        }
        if address.get() >> self.features.host_address_bits != 0 {
            return self.refuse_early(at, requester, address, access, FaultReason::BeyondAddressWidth, true);
        }
        self.counters.passed += 1;
        Translation::unchanged(self.pipeline.leave(at, access), address)
    }

    fn refuse_early(
        &mut self,
        at: Time,
        requester: Bdf,
        address: Iova,
        access: Access,
        reason: FaultReason,
        record: bool,
    ) -> Translation {
        self.counters.refused_early += 1;
        let at = self.pipeline.leave(at, access);
        self.refuse(at, requester, address, access, reason, record)
    }

    #[cold]
    fn refuse(
        &mut self,
        at: Time,
        requester: Bdf,
        address: Iova,
        access: Access,
        reason: FaultReason,
        record: bool,
    ) -> Translation {
        let fault = Fault { time: at, requester, address: address.get(), access, reason };
        self.report(fault, record);
        Translation { ready: at, outcome: Err(fault) }
    }

    /// Counts and records a fault.
    pub(crate) fn report(&mut self, fault: Fault, record: bool) {
        self.counters.faults += 1;
        self.faults.report(fault, record);
    }

    /// The page of `address` in the domain of `entry`, from the IOTLB, a walk in progress, or a new walk. With `need`,
    /// cached entries only count if they permit it, so that new permissions take effect without an invalidation.
    #[inline]
    pub(crate) fn resolve<M: WalkMemory>(
        &mut self,
        place: Time,
        entry: &ContextEntry,
        address: Iova,
        need: Option<Access>,
        pieces: u32,
        memory: &mut M,
    ) -> (Time, Result<Leaf, FaultReason>) {
        let at = self.pipeline.lookup_at(place);
        if at >= self.next_fill {
            self.fill(at);
        }
        if let Some(leaf) = self.iotlb.lookup(entry.domain, address)
            && need.is_none_or(|n| leaf.permissions.allow(n))
        {
            self.counters.hits += 1;
            return (at.max(leaf.known_from) + self.params.hit_latency, Ok(leaf));
        }
        let (end, found) = self.resolve_slowly(at, entry, address, need, pieces, memory);
        (end + self.params.replay_latency + self.params.hit_latency, found)
    }

    #[inline(never)]
    fn resolve_slowly<M: WalkMemory>(
        &mut self,
        at: Time,
        entry: &ContextEntry,
        address: Iova,
        need: Option<Access>,
        pieces: u32,
        memory: &mut M,
    ) -> (Time, Result<Leaf, FaultReason>) {
        if let Some(walk) = self.walks.find(entry.domain, address)
            && need.is_none_or(|n| walk.leaf.permissions.allow(n))
        {
            self.counters.merged += 1;
            let (end, leaf) = (walk.end, walk.leaf);
            let again = self.pipeline.again(at, end);
            self.pipeline.waits(at, again, pieces);
            return (again, Ok(leaf));
        }
        self.counters.misses += 1;
        // If a walk of its region is in progress, the request waits for that and is then looked up again.
        let region_free = self.walkers.region_free(entry.domain, address);
        let from = if region_free > at { self.pipeline.again_for_walk(at, region_free) } else { at };
        let (end, found) = self.walk(from, entry, address, need.unwrap_or(Access::Read), memory);
        self.pipeline.waits(at, end, pieces);
        let found = found.and_then(|leaf| match need {
            Some(Access::Read) if !leaf.permissions.read => Err(FaultReason::ReadNotPermitted),
            Some(Access::Write) if !leaf.permissions.write => Err(FaultReason::WriteNotPermitted),
            _ => Ok(leaf),
        });
        if let Ok(leaf) = found {
            self.walks.push(PendingWalk { domain: entry.domain, address, end, leaf });
            self.next_fill = self.walks.next_end();
        }
        (end, found)
    }

    /// Moves walks that have ended by `now` into the IOTLB.
    #[inline(never)]
    fn fill(&mut self, now: Time) {
        while let Some(walk) = self.walks.pop_ended(now) {
            self.iotlb.insert(walk.domain, walk.address, walk.leaf);
        }
        self.next_fill = self.walks.next_end();
    }

    /// Walks the tables: one timed read per level not known from the paging-structure caches.
    fn walk<M: WalkMemory>(
        &mut self,
        at: Time,
        entry: &ContextEntry,
        address: Iova,
        access: Access,
        memory: &mut M,
    ) -> (Time, Result<Leaf, FaultReason>) {
        let walker = self.walkers.begin(at, access, Some((entry.domain, address)));
        let mut now = walker.start + self.params.walk_overhead;
        let (mut level, mut table) = (entry.levels, entry.page_table);
        let mut permissions = Permissions::READ_WRITE;
        if let Some((l, known)) = self.structures.lookup(entry.domain, address, entry.levels, walker.start) {
            (level, table, permissions) = (l, known.table, known.permissions);
            self.counters.shortened_walks += 1;
        }
        let found = loop {
            self.counters.walk_steps += 1;
            let read = memory.walk_read(now, self.node, table + entry_offset(address, level));
            now = read.ready;
            let Some(word) = read.value else { break Err(FaultReason::PageTableUnreachable) };
            match PageEntry::decode(word, level, self.features) {
                Err(reason) => break Err(reason),
                Ok(PageEntry::Absent) => {
                    break Err(match access {
                        Access::Read => FaultReason::ReadNotPermitted,
                        Access::Write => FaultReason::WriteNotPermitted,
                    });
                }
                Ok(PageEntry::Table { table: next, permissions: p }) => {
                    (level, table, permissions) = (level - 1, next, permissions.and(p));
                    self.structures.insert(entry.domain, address, level, (table, permissions), now);
                }
                Ok(PageEntry::Leaf { frame, size, permissions: p }) => {
                    break Ok(Leaf { frame, size, permissions: permissions.and(p), known_from: now });
                }
            }
        };
        let free = self.walkers.end(walker, now);
        self.counters.walks += 1;
        self.counters.walker_queueing += walker.start.since(at);
        self.counters.walker_busy += free.since(walker.start);
        (now, found)
    }

    /// The context entry of `requester`, from the cache, or from memory with a walker.
    #[inline(never)]
    pub(super) fn context<M: WalkMemory>(
        &mut self,
        at: Time,
        requester: Bdf,
        memory: &mut M,
    ) -> Result<CachedContext, (Time, FaultReason)> {
        if let Some(context) = self.contexts.lookup(requester.bits().into()) {
            self.counters.context_hits += 1;
            self.recent_context = Some((requester, context));
            return Ok(context);
        }
        self.counters.context_misses += 1;
        self.recent_context = None;
        let walker = self.walkers.begin(at, Access::Read, None);
        let (end, found) = self.read_context(walker.start, requester, memory);
        self.walkers.end(walker, end);
        let context = CachedContext { entry: found.map_err(|reason| (end, reason))?, known_from: end };
        let number = requester.bits().into();
        self.contexts.insert(number, number, context);
        Ok(context)
    }

    fn read_context<M: WalkMemory>(
        &mut self,
        at: Time,
        requester: Bdf,
        memory: &mut M,
    ) -> (Time, Result<ContextEntry, FaultReason>) {
        let root = self.root_table + u64::from(requester.bus()) * 16;
        let (at, words) = memory.walk_read_pair(at, self.node, root);
        let Some(words) = words else { return (at, Err(FaultReason::RootTableUnreachable)) };
        let root = match RootEntry::decode(words, self.features) {
            Ok(root) => root,
            Err(reason) => return (at, Err(reason)),
        };
        let place = root.context_table + u64::from(requester.bits() & 0xff) * 16;
        let (at, words) = memory.walk_read_pair(at, self.node, place);
        let Some(words) = words else { return (at, Err(FaultReason::ContextTableUnreachable)) };
        (at, ContextEntry::decode(words, self.features))
    }
}
