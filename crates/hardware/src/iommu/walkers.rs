//! Page walkers: a limited number, when they are free, and the walks in progress.

use super::iotlb::Leaf;
use super::params::IommuParams;
use engine::Busy;
use std::collections::VecDeque;
use units::{Duration, Iova, Time};
use wire::vtd::{Access, DomainId, Scope};

/// When each walker, and each region being walked, is free again.
#[derive(Debug, Clone)]
pub(crate) struct Walkers {
    free: Vec<Time>,
    busy: Vec<Busy>,
    /// How long a walker stays occupied after a walk for a read.
    hold_read: Duration,
    in_order: bool,
    last_start: Time,
    /// log2 of the region size within which walks are serialised.
    region_shift: Option<u32>,
    /// Recently walked regions, and when each is free.
    regions: Vec<(Region, Time)>,
}

type Region = (DomainId, u64);

/// A walker in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walker {
    index: usize,
    access: Access,
    region: Option<Region>,
    pub(crate) start: Time,
}

impl Walkers {
    pub(crate) fn new(params: &IommuParams) -> Self {
        Self {
            free: vec![Time::ZERO; params.walkers.max(1)],
            busy: vec![Busy::default(); params.walkers.max(1)],
            hold_read: params.walker_hold_read,
            in_order: params.walks_begin_in_order,
            last_start: Time::ZERO,
            region_shift: params.serialised_walk_region.map(|r| r.get().trailing_zeros()),
            regions: Vec::new(),
        }
    }

    /// How long they were in use up to `now`, all together.
    pub(crate) fn busy(&self, now: Time) -> Duration {
        self.busy.iter().map(|walker| walker.until(now)).sum()
    }

    /// When the region of `address` is free.
    pub(crate) fn region_free(&self, domain: DomainId, address: Iova) -> Time {
        let Some(shift) = self.region_shift else { return Time::ZERO };
        let region = (domain, address.get() >> shift);
        self.regions.iter().filter(|(r, _)| *r == region).map(|&(_, free)| free).max().unwrap_or(Time::ZERO)
    }

    /// Allocates the walker that is free first for an `access`. It starts at `earliest`, or when it and the region of
    /// `page` are free. Must be followed by [`Walkers::end`].
    pub(crate) fn begin(&mut self, earliest: Time, access: Access, page: Option<(DomainId, Iova)>) -> Walker {
        let mut index = 0;
        for (n, &free) in self.free.iter().enumerate() {
            if free < self.free[index] {
                index = n;
            }
        }
        let mut start = earliest.max(self.free[index]);
        let region = page.zip(self.region_shift).map(|((domain, a), shift)| (domain, a.get() >> shift));
        if let Some((domain, address)) = page {
            start = start.max(self.region_free(domain, address));
        }
        if self.in_order {
            start = start.max(self.last_start);
            self.last_start = start;
        }
        Walker { index, access, region, start }
    }

    /// Releases the walker at `end`. Returns when it is free.
    pub(crate) fn end(&mut self, walker: Walker, end: Time) -> Time {
        let held = if walker.access == Access::Read { self.hold_read } else { Duration::ZERO };
        let free = end + held;
        self.free[walker.index] = free;
        self.busy[walker.index].add(walker.start, free.since(walker.start));
        if let Some(region) = walker.region {
            // No later walk starts before the earliest time at which a walker is free.
            let past = self.free.iter().copied().min().unwrap_or(Time::ZERO);
            self.regions.retain(|&(r, free)| r != region && free > past);
            self.regions.push((region, free));
        }
        free
    }
}

/// A walk whose result is known to the simulator, but not yet to the IOMMU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingWalk {
    pub(crate) domain: DomainId,
    pub(crate) address: Iova,
    pub(crate) end: Time,
    pub(crate) leaf: Leaf,
}

/// Walks in progress, by end time.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingWalks(VecDeque<PendingWalk>);

impl PendingWalks {
    pub(crate) fn push(&mut self, walk: PendingWalk) {
        let place = self.0.iter().rposition(|w| w.end <= walk.end).map_or(0, |n| n + 1);
        self.0.insert(place, walk);
    }

    /// When the first of them ends.
    pub(crate) fn next_end(&self) -> Time {
        self.0.front().map_or(Time::NEVER, |w| w.end)
    }

    /// Takes the first walk that ends by `now`.
    pub(crate) fn pop_ended(&mut self, now: Time) -> Option<PendingWalk> {
        if self.next_end() <= now { self.0.pop_front() } else { None }
    }

    /// A walk in progress for the same 4 KiB. (A walk for another page of the same superpage is only recognised once it
    /// has ended.)
    pub(crate) fn find(&self, domain: DomainId, address: Iova) -> Option<&PendingWalk> {
        let page = address.get() >> 12;
        self.0.iter().find(|w| w.domain == domain && w.address.get() >> 12 == page)
    }

    /// Walks in progress still answer the requests waiting for them, but no later ones.
    pub(crate) fn invalidate(&mut self, scope: Scope) {
        self.0.retain(|w| {
            let size = w.leaf.size.get();
            !scope.covers(w.domain, w.address.align_down(size), size)
        });
    }
}
