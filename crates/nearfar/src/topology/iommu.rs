//! Builds IOMMUs, and the page tables of a run, from a machine file.

use engine::Seed;
use hardware::iommu::{Geometry, Iommu, IommuParams, PagingStructureCaches, ParamsError, Replacement};
use hardware::memory::NodeId;
use hardware::memory::ReplacementPolicy;
use units::{Bytes, Duration};

use super::narrow;

/// The IOMMU of one socket.
///
/// # Errors
/// If the machine file describes an IOMMU that cannot be built.
pub fn iommu(params: &machine::Iommu, node: NodeId, seed: Seed) -> Result<Iommu, ParamsError> {
    Iommu::new(iommu_params(params), node, seed)
}

/// The parameters of the IOMMU of one socket.
pub fn iommu_params(params: &machine::Iommu) -> IommuParams {
    let pages = &params.page_sizes.value;
    let caches = &params.structure_caches;
    let ways = params.iotlb.ways.value.get() as usize;
    let entries = params.iotlb.entries.value.get() as usize;
    IommuParams {
        iotlb: Geometry {
            entries,
            // The IOMMU model encodes "fully associative" as zero ways.
            ways: if ways == entries { 0 } else { ways },
            replacement: match params.iotlb.replacement.value {
                ReplacementPolicy::Random => Replacement::Random,
                ReplacementPolicy::TreePlru => Replacement::TreePlru,
                _ => Replacement::Lru,
            },
        },
        iotlb_reserved: params.iotlb.held_by_others.value as usize,
        paging_structure_caches: PagingStructureCaches {
            level1: caches.level1.value as usize,
            level2: caches.level2.value as usize,
            level3: caches.level3.value as usize,
            level4: caches.level4.value as usize,
        },
        context_cache: Geometry::fully_associative(
            params.context_entries.value.get() as usize,
            Replacement::Lru,
        ),
        interrupt_entry_cache: Geometry::fully_associative(
            params.interrupt_entries.value.get() as usize,
            Replacement::Lru,
        ),
        hit_latency: params.hit_latency.value,
        lookup_interval: params.lookup_interval.value,
        same_page_shares_place: params.same_page_shares_place.as_ref().is_some_and(|shares| shares.value),
        read_depth: params.read_depth.value.get() as usize,
        write_depth: params.write_depth.value.get() as usize,
        order: params.order.value,
        walkers: params.walkers.value.get() as usize,
        walk_overhead: params.walk_overhead.value,
        walker_hold_read: params.walker_hold_read.as_ref().map_or(Duration::ZERO, |held| held.value),
        replay_latency: params.replay.value,
        retry_interval: params.retry_interval.as_ref().unwrap_or(&params.lookup_interval).value,
        walks_begin_in_order: params.walks_begin_in_order.value,
        serialised_walk_region: params.serialised_walk_region.as_ref().map(|region| region.value),
        posts_interrupts: params.posts_interrupts.as_ref().is_some_and(|posts| posts.value),
        pages_2mib: pages.contains(&Bytes::mib(2)),
        pages_1gib: pages.contains(&Bytes::gib(1)),
        host_address_bits: narrow(params.address_bits.value.get()),
        fault_records: params.fault_records.value.get() as usize,
        invalidation_time: params.invalidation_latency.value,
        status_write_latency: params.status_write_latency.value,
        ..IommuParams::default()
    }
}
