//! The IOMMU.

use crate::figure::Figure;
use crate::link::PAGE_BYTES;
use crate::read::{Check, record};
use crate::scalar::Count;
use settings::{IommuKind, IotlbReplacement, PipelineOrder};
use units::{Bytes, Duration};

record! {
    /// A translation cache.
    pub struct Iotlb {
        /// Number of entries.
        entries: Figure<Count>,
        /// Ways per set; equal to `entries` if fully associative.
        ways: Figure<Count>,
        /// Which entry of a full set makes room for a new one.
        replacement: Figure<IotlbReplacement>,
        /// Entries occupied by translations of other functions, even if these are idle.
        held_by_others: Figure<u32>,
    }
    check |iotlb: &Iotlb, check: &mut Check<'_>| {
        let (entries, ways) = (iotlb.entries.value.get(), iotlb.ways.value.get());
        check.require(
            entries % ways == 0 && (entries / ways).is_power_of_two(),
            "ways",
            format!("{entries} entries do not divide into a power of two of sets of {ways}"),
            format!("{entries} (fully associative), or that divided by a power of two"),
        );
        check.require_within("entries", entries.into(), (1, CACHE_MOST), "are not possible");
        let held = iotlb.held_by_others.value;
        let message = "only a fully associative IOTLB has entries that others hold";
        check.require(held == 0 || ways == entries, "held_by_others", message, "0, or `ways` as `entries`");
        check.require(
            held < entries,
            "held_by_others",
            format!("{held} of {entries} entries leave none"),
            format!("from 0 to {}", entries - 1),
        );
        check.require(
            iotlb.replacement.value != IotlbReplacement::TreePlru || ways.is_power_of_two(),
            "replacement",
            format!("a tree cannot have {ways} leaves"),
            "with `tree-plru` the ways are a power of two",
        );
    }
}

/// Maximum number of entries of an IOMMU cache.
const CACHE_MOST: u64 = 16_384;

record! {
    /// Entries of the caches of upper table levels, by the level of the table that an entry points to (VT-d
    /// specification 4.1, 6.2.2); 0 for no cache.
    pub struct StructureCaches {
        /// Entries that point to tables of 4 KiB pages: walks of one read.
        level1: Figure<u32>,
        /// Entries that point to tables of 2 MiB pages.
        level2: Figure<u32>,
        /// Entries that point to tables of 1 GiB pages.
        level3: Figure<u32>,
        /// Entries that point to tables of the level above.
        level4: Figure<u32>,
    }
}

record! {
    /// An IOMMU. The scenario decides whether it translates, and with which page sizes.
    pub struct Iommu {
        /// Whose it is; VT-d if not given.
        kind: Option<Figure<IommuKind>>,
        /// Supported page sizes.
        page_sizes: Figure<Vec<Bytes>>,
        /// Its translation cache.
        iotlb: Iotlb,
        /// Additional latency of a request that hits.
        hit_latency: Figure<Duration>,
        /// Minimum interval between two lookups; zero for no limit.
        lookup_interval: Figure<Duration>,
        /// Capacity of the translation stage for reads, in units of `read_unit`.
        read_depth: Figure<Count>,
        /// *Quirk*: whether consecutive requests for the same page share an entry of the translation stage; false if
        /// not given.
        same_page_shares_place: Option<Figure<bool>>,
        /// Bytes of a read per lookup and per entry of `read_depth`.
        read_unit: Figure<Bytes>,
        /// Capacity of the translation stage for writes.
        write_depth: Figure<Count>,
        /// Order in which requests leave the translation stage: whether hits wait behind misses.
        order: Figure<PipelineOrder>,
        /// Maximum concurrent page walks.
        walkers: Figure<Count>,
        /// Latency of a walk in addition to its steps.
        walk_overhead: Figure<Duration>,
        /// Time from the end of a walk until the waiting request continues.
        replay: Figure<Duration>,
        /// Minimum interval between two repeated lookups after walks; `lookup_interval` if not given.
        retry_interval: Option<Figure<Duration>>,
        /// How long a walker stays occupied after a walk for a read; zero if not given.
        walker_hold_read: Option<Figure<Duration>>,
        /// Whether walks start in order of their misses.
        walks_begin_in_order: Figure<bool>,
        /// *Quirk*: walks within a naturally aligned region of this size are serialized; none if not given.
        serialised_walk_region: Option<Figure<Bytes>>,
        /// Caches of the upper table levels.
        structure_caches: StructureCaches,
        /// Number of cached context entries.
        context_entries: Figure<Count>,
        /// Number of cached interrupt remapping entries.
        interrupt_entries: Figure<Count>,
        /// Whether it supports posted interrupts: devices' interrupts reach guests without the host; false if not
        /// given.
        posts_interrupts: Option<Figure<bool>>,
        /// Width of a host-physical address (bits).
        address_bits: Figure<Count>,
        /// Number of fault recording registers.
        fault_records: Figure<Count>,
        /// Time to execute an invalidation, without fetching it.
        invalidation_latency: Figure<Duration>,
        /// Time from the completion of an invalidation wait until its status is in memory.
        status_write_latency: Figure<Duration>,
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
        let knows = |size| iommu.page_sizes.value.contains(&size);
        check.require(
            knows(Bytes::mib(2)) || !knows(Bytes::gib(1)),
            "page_sizes",
            "1 GiB without 2 MiB",
            "4 KiB; 4 KiB and 2 MiB; 4 KiB, 2 MiB and 1 GiB",
        );
        let kind = iommu.kind.as_ref().map_or(IommuKind::VtD, |kind| kind.value);
        let posts = iommu.posts_interrupts.as_ref().is_some_and(|posts| posts.value);
        check.require(
            kind != IommuKind::SmmuV3 || !posts,
            "posts_interrupts",
            "an SMMU translates no interrupts",
            "false with `kind = \"smmu-v3\"`",
        );
        check.require_bytes("read_unit", iommu.read_unit.value, (Bytes::new(64), Bytes::kib(4)));
        if let Some(region) = &iommu.serialised_walk_region {
            check.require(
                region.value.get() >= 4096 && region.value.get().is_power_of_two(),
                "serialised_walk_region",
                format!("{} is not a region of pages", region.value),
                "a power of two of at least 4 KiB",
            );
        }
        let caches = &iommu.structure_caches;
        for (key, level) in [
            ("level1", &caches.level1),
            ("level2", &caches.level2),
            ("level3", &caches.level3),
            ("level4", &caches.level4),
        ] {
            let within = (0, CACHE_MOST);
            check.at("structure_caches").require_within(key, level.value.into(), within, "entries are not possible");
        }
        for (key, count, most) in [
            ("context_entries", &iommu.context_entries, CACHE_MOST),
            ("interrupt_entries", &iommu.interrupt_entries, CACHE_MOST),
            ("walkers", &iommu.walkers, 1024),
            ("read_depth", &iommu.read_depth, 65_536),
            ("write_depth", &iommu.write_depth, 65_536),
            // VT-d specification 4.1, 10.4.2: the field NFR has eight bits.
            ("fault_records", &iommu.fault_records, 256),
        ] {
            check.require_within(key, count.value.get().into(), (1, most), "are not possible");
        }
        let bits = iommu.address_bits.value.get();
        check.require((32..=52).contains(&bits), "address_bits", format!("not {bits} bits"), "from 32 to 52");
    }
}
