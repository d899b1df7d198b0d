//! The IOMMU.

use crate::figure::Figure;
use crate::host::cache::Replacement;
use crate::link::PAGE_BYTES;
use crate::read::{Check, record};
use crate::scalar::{Count, names};
use std::collections::BTreeMap;
use units::{Bytes, Duration};

names! {
    /// When a page that a driver unmaps leaves the IOTLB.
    pub enum Invalidation {
        /// Before the driver goes on.
        Strict = "strict",
        /// With others, later.
        Lazy = "lazy",
    }
}

record! {
    /// A translation cache.
    pub struct Iotlb {
        /// Number of translations held.
        entries: Figure<Count>,
        /// Ways of each set; as many as `entries` for a fully associative one.
        ways: Figure<Count>,
        /// Which entry makes room.
        replacement: Figure<Replacement>,
        /// Entries that translations of the box's other functions occupy, idle as they may be.
        held_by_others: Figure<u32>,
        /// What a lookup that hits adds to a request.
        lookup: Figure<Duration>,
    }
    check |iotlb: &Iotlb, check: &mut Check<'_>| {
        let (entries, ways) = (iotlb.entries.value.get(), iotlb.ways.value.get());
        check.require(
            entries % ways == 0,
            "ways",
            format!("{entries} entries do not divide into sets of {ways}"),
            format!("a divisor of {entries}"),
        );
        let held = iotlb.held_by_others.value;
        check.require(
            held < entries,
            "held_by_others",
            format!("{held} of {entries} entries leave none"),
            format!("from 0 to {}", entries - 1),
        );
        check.require(
            iotlb.replacement.value != Replacement::TreePlru || ways.is_power_of_two(),
            "replacement",
            format!("a tree cannot have {ways} leaves"),
            "with `tree-plru` the ways are a power of two",
        );
    }
}

record! {
    /// A cache of page-table entries of one level, which shortens walks.
    pub struct WalkCache {
        /// The table level whose entries it holds: 4 is the root's, 2 that of 2 MiB pages.
        level: Figure<u32>,
        /// Number of entries.
        entries: Figure<Count>,
    }
    check |cache: &WalkCache, check: &mut Check<'_>| {
        let level = cache.level.value;
        check.require((1..=5).contains(&level), "level", format!("there is no table level {level}"), "from 1 to 5");
    }
}

record! {
    /// An IOMMU. Whether it translates, and with which pages, is a scenario's choice.
    pub struct Iommu {
        /// The sizes of page that it knows.
        page_sizes: Figure<Vec<Bytes>>,
        /// Its translation cache.
        iotlb: Iotlb,
        /// Caches of the tables' upper levels, by name.
        walk_cache: BTreeMap<String, WalkCache>,
        /// Page walks under way at once.
        walkers: Figure<Count>,
        /// What a walk takes beside its memory accesses.
        walk_overhead: Figure<Duration>,
        /// What each level that is read adds to its memory access.
        walk_step: Figure<Duration>,
        /// From a walk's end until the request that waited for it goes on.
        replay: Figure<Duration>,
        /// For how much longer than the walk a read keeps its walker.
        read_hold: Figure<Duration>,
        /// Whether requests that hit overtake requests that wait for a walk.
        hit_under_miss: Figure<bool>,
        /// Reads that may be inside the translation stage at once, in units of `window_unit`.
        read_window: Figure<Count>,
        /// Writes that may be inside the translation stage at once.
        write_window: Figure<Count>,
        /// How much of a read one unit of `read_window` covers (bytes).
        window_unit: Figure<Bytes>,
        /// The region within which walks happen one after the other (bytes); 0 for none.
        serialised_region: Figure<Bytes>,
        /// What an invalidation takes from the queue to its completion.
        invalidation_latency: Figure<Duration>,
        /// When unmapped pages leave the IOTLB, as the kernel set it up.
        invalidation: Figure<Invalidation>,
    }
    check |iommu: &Iommu, check: &mut Check<'_>| {
        for size in &iommu.page_sizes.value {
            check.require(
                PAGE_BYTES.contains(&size.get()),
                "page_sizes",
                format!("there is no page of {size}"),
                "4 KiB, 2 MiB and 1 GiB",
            );
        }
        check.require(!iommu.page_sizes.value.is_empty(), "page_sizes", "no page size at all", "4 KiB, 2 MiB and 1 GiB");
        let region = iommu.serialised_region.value.get();
        check.require(
            region == 0 || (region >= 4096 && region.is_power_of_two()),
            "serialised_region",
            format!("{} is no region of pages", iommu.serialised_region.value),
            "0 B, or a power of two of at least 4 KiB",
        );
    }
}
