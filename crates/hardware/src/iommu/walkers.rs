//! The page walkers: a bounded number, when they are free, and the walks in progress.

use super::ids::DomainId;
use super::invalidation::Scope;
use super::iotlb::Leaf;
use super::params::IommuParams;
use std::collections::VecDeque;
use units::{Duration, Iova, Time};

/// When each walker and each bank is free again.
#[derive(Debug, Clone)]
pub(crate) struct Walkers {
    free: Vec<Time>,
    hold: Duration,
    in_order: bool,
    last_start: Time,
    banks: Vec<Time>,
    region_shift: u32,
    recovery: Duration,
}

/// A walker taken for a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walker {
    index: usize,
    bank: Option<usize>,
    pub(crate) start: Time,
}

impl Walkers {
    pub(crate) fn new(params: &IommuParams) -> Self {
        let banks = params.walk_banks;
        Self {
            free: vec![Time::ZERO; params.walkers.max(1)],
            hold: params.walker_hold,
            in_order: params.walks_begin_in_order,
            last_start: Time::ZERO,
            banks: vec![Time::ZERO; banks.map_or(0, |b| b.banks.max(1))],
            region_shift: banks.map_or(12, |b| b.region.get().trailing_zeros()),
            recovery: banks.map_or(Duration::ZERO, |b| b.recovery),
        }
    }

    /// Takes the walker that is free first; it begins at `earliest` or when it and its bank are free.
    /// Must be followed by [`Walkers::end`].
    pub(crate) fn begin(&mut self, earliest: Time, address: Option<Iova>) -> Walker {
        let mut index = 0;
        for (n, &free) in self.free.iter().enumerate() {
            if free < self.free[index] {
                index = n;
            }
        }
        let mut start = earliest.max(self.free[index]);
        let bank = match address {
            Some(a) if !self.banks.is_empty() => {
                let bank = (a.get() >> self.region_shift) as usize % self.banks.len();
                start = start.max(self.banks[bank]);
                Some(bank)
            }
            _ => None,
        };
        if self.in_order {
            start = start.max(self.last_start);
            self.last_start = start;
        }
        Walker { index, bank, start }
    }

    /// Gives the walker back at `end`.
    pub(crate) fn end(&mut self, walker: Walker, end: Time) {
        self.free[walker.index] = end + self.hold;
        if let Some(bank) = walker.bank {
            self.banks[bank] = end + self.recovery;
        }
    }
}

/// A walk whose translation is known to the simulator, but not yet to the IOMMU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingWalk {
    pub(crate) domain: DomainId,
    pub(crate) address: Iova,
    pub(crate) end: Time,
    pub(crate) leaf: Leaf,
}

/// The walks in progress, by their end.
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

    /// Takes the first walk that ends at `now` or before.
    pub(crate) fn pop_ended(&mut self, now: Time) -> Option<PendingWalk> {
        if self.next_end() <= now { self.0.pop_front() } else { None }
    }

    /// A walk in progress for the same 4 KiB. (That another page of the same superpage is being walked is
    /// not known before the walk ends.)
    pub(crate) fn find(&self, domain: DomainId, address: Iova) -> Option<&PendingWalk> {
        let page = address.get() >> 12;
        self.0.iter().find(|w| w.domain == domain && w.address.get() >> 12 == page)
    }

    /// Lets walks under way answer those who wait for them already, but nobody else.
    pub(crate) fn invalidate(&mut self, scope: Scope) {
        self.0.retain(|w| {
            let size = w.leaf.size.get();
            !scope.covers(w.domain, w.address.align_down(size), size)
        });
    }
}
