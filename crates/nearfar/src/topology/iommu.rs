//! Builds IOMMUs from a machine file.

use engine::Seed;
use hardware::iommu::{
    Geometry, Iommu, IommuKind, IommuParams, IotlbReplacement, PagingStructureCaches, ParamsError,
};
use hardware::memory::NodeId;
use units::{Bytes, Duration};

use crate::plain::{Plain, given, plain};

/// The IOMMU of one socket.
///
/// # Errors
/// If the machine file describes an IOMMU that cannot be built.
pub fn iommu(params: &machine::Iommu, node: NodeId, seed: Seed) -> Result<Iommu, ParamsError> {
    Iommu::new(iommu_params(params), node, seed)
}

/// The parameters of the IOMMU of one socket.
pub fn iommu_params(file: &machine::Iommu) -> IommuParams {
    let pages = &file.page_sizes.value;
    let (iotlb, caches) = (&file.iotlb, &file.structure_caches);
    let lru = |entries| Geometry::fully_associative(entries, IotlbReplacement::Lru);
    plain!(file => IommuParams {
        kind: given(&file.kind, IommuKind::VtD),
        iotlb: plain!(iotlb => Geometry {
            entries,
            // The IOMMU model encodes "fully associative" as zero ways.
            ways: if iotlb.ways.value == iotlb.entries.value { 0 } else { iotlb.ways.plain() },
            replacement
        }),
        iotlb_reserved: iotlb.held_by_others.plain(),
        paging_structure_caches: plain!(caches => PagingStructureCaches { level1, level2, level3, level4 }),
        context_cache: lru(file.context_entries.plain()),
        interrupt_entry_cache: lru(file.interrupt_entries.plain()),
        hit_latency, lookup_interval,
        same_page_shares_place: given(&file.same_page_shares_place, false),
        read_depth, write_depth, order, walkers, walk_overhead,
        walker_hold_read: given(&file.walker_hold_read, Duration::ZERO),
        replay_latency: file.replay.value,
        retry_interval: given(&file.retry_interval, file.lookup_interval.value),
        walks_begin_in_order, serialised_walk_region,
        posts_interrupts: given(&file.posts_interrupts, false),
        pages_2mib: pages.contains(&Bytes::mib(2)),
        pages_1gib: pages.contains(&Bytes::gib(1)),
        host_address_bits: file.address_bits.plain(),
        fault_records,
        invalidation_time: file.invalidation_latency.value,
        status_write_latency,
        ..IommuParams::default()
    })
}
