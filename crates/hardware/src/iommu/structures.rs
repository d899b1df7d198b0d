//! Paging-structure caches: pointers to page tables, which shorten walks.

use super::cache::TaggedCache;
use super::params::{Geometry, IotlbReplacement, PagingStructureCaches};
use engine::Seed;
use units::{HostPhysical, Iova, Time};
use wire::vtd::{DomainId, Permissions, Scope, level_shift};

/// A page table and the permissions of the levels above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TablePointer {
    pub(crate) table: HostPhysical,
    pub(crate) permissions: Permissions,
    /// When the walk read it.
    known_from: Time,
}

/// One cache for each level of table, 1 to 4.
#[derive(Debug, Clone)]
pub(crate) struct StructureCaches([TaggedCache<TablePointer>; 4]);

/// Tags: domain 63:48, and the address bits above those that the table of `level` translates.
fn tag(domain: DomainId, level: u8, address: Iova) -> u64 {
    (domain.0 as u64) << 48 | address.get() >> level_shift(level + 1)
}

impl StructureCaches {
    pub(crate) fn new(sizes: PagingStructureCaches) -> Self {
        // Replacement is not random, so the generator is never asked.
        let random = Seed::new(0).component("paging-structure caches");
        let cache = |entries| {
            TaggedCache::new(Geometry::fully_associative(entries, IotlbReplacement::Lru), random.clone())
        };
        Self([cache(sizes.level1), cache(sizes.level2), cache(sizes.level3), cache(sizes.level4)])
    }

    /// The lowest table known at `at` for a walk of `levels` levels, with its level.
    pub(crate) fn lookup(
        &mut self,
        domain: DomainId,
        address: Iova,
        levels: u8,
        at: Time,
    ) -> Option<(u8, TablePointer)> {
        (1..levels.min(5)).find_map(|level| {
            let found = self.0[level as usize - 1].lookup(tag(domain, level, address))?;
            (found.known_from <= at).then_some((level, found))
        })
    }

    /// Stores the pointer to a table of `level` that a walk read at `known_from`.
    pub(crate) fn insert(
        &mut self,
        domain: DomainId,
        address: Iova,
        level: u8,
        (table, permissions): (HostPhysical, Permissions),
        known_from: Time,
    ) {
        let Some(cache) = self.0.get_mut(level as usize - 1) else { return };
        let tag = tag(domain, level, address);
        let new = TablePointer { table, permissions, known_from };
        // Of two walks in progress, the first to read it counts.
        if cache.peek(tag).is_none_or(|old| old.known_from > known_from || old.table != table) {
            cache.insert(tag, 0, new);
        }
    }

    pub(crate) fn invalidate(&mut self, scope: Scope) {
        for level in 1..=4u8 {
            let span = level_shift(level + 1);
            self.0[level as usize - 1].remove_where(|tag, _| {
                let base = Iova::new((tag & ((1 << 48) - 1)) << span);
                scope.covers(DomainId((tag >> 48) as u16), base, 1 << span)
            });
        }
    }
}
