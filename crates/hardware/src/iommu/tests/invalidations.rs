//! The invalidation queue.

use super::*;

#[test]
fn a_stale_translation_is_used_until_it_is_invalidated_and_then_not() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
    m.latency(us(1), 0x1000);
    m.unmap(0x1000, 0x1000);
    m.map(0x1000, 0x7000, 0x1000, Permissions::READ);
    assert_eq!(address(&m.translate(us(2), 0x1000, Access::Read)), 0x5000);
    let scope = Scope::Pages { domain: DOMAIN, address: Iova::new(0x1000), mask: 0 };
    let done = m.invalidate(us(3), scope);
    // Two descriptors, fetched by one read each.
    let p = m.iommu.params();
    assert_eq!(done, us(3) + READ * 2 + p.invalidation_time + p.status_write_latency);
    assert_eq!(address(&m.translate(done, 0x1000, Access::Read)), 0x7000);
    assert_eq!(m.iommu.counters().pages.entries_invalidated, 1);
}

#[test]
fn a_wait_comes_after_translations_in_flight() {
    for in_use in [Duration::ZERO, Duration::from_us(9)] {
        let mut m = Machine::new(IommuParams { drain_latency: Duration::from_ns(7), ..bare() });
        m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
        m.memory.reads.clear();
        // Takes six reads, so it is still in flight when the invalidation is submitted.
        let ready = m.translate(us(1), 0x1000, Access::Read).ready;
        m.iommu.in_use_until(ready + in_use);
        let done = m.invalidate(us(1), Scope::Domain(DOMAIN));
        assert!(done >= ready + in_use + Duration::from_ns(7), "{done} {ready}");
        // The walk in flight no longer fills the IOTLB, and no request joins it.
        m.unmap(0x1000, 0x1000);
        assert!(m.translate(us(1), 0x1000, Access::Read).outcome.is_err());
        assert!(m.translate(us(50), 0x1000, Access::Read).outcome.is_err());
    }
}

#[test]
fn a_hint_keeps_the_paging_structure_caches() {
    // The second page is not the first of any table above it.
    for page in [0x1000, 0x40_8060_1000] {
        let mut m = Machine::new(bare());
        m.map(page, 0x5000, 0x1000, Permissions::READ);
        m.latency(us(1), page);
        let scope = Scope::Pages { domain: DOMAIN, address: Iova::new(page), mask: 0 };
        for (leaf_only, steps) in [(true, 1), (false, 4)] {
            m.submit(
                us(2),
                &[InvalidationDescriptor::Iotlb { scope, drain_reads: true, drain_writes: true, leaf_only }],
            );
            assert_eq!(m.latency(us(3), page), READ * steps, "{page:#x}");
        }
    }
}

#[test]
fn what_is_no_descriptor_stops_the_queue() {
    let mut m = Machine::new(bare());
    m.memory.bytes.write_u64(QUEUE, 0xf).unwrap();
    m.tail = 16;
    m.submit(us(1), &[InvalidationDescriptor::iotlb(Scope::Global)]);
    assert!(m.iommu.invalidation_queue_error());
    assert_eq!((m.iommu.invalidation_queue_head(), m.iommu.counters().pages.invalidations), (0, 0));
    // Software repairs the descriptor, clears the error and continues.
    m.memory.bytes.write_u64(QUEUE, InvalidationDescriptor::iotlb(Scope::Global).encode()[0]).unwrap();
    m.iommu.clear_invalidation_queue_error();
    m.submit(us(2), &[]);
    assert!(!m.iommu.invalidation_queue_error());
    assert_eq!(m.iommu.counters().pages.invalidations, 2);
    for tail in [4096, 8, u64::MAX] {
        m.iommu.write_invalidation_tail(us(3), tail, &mut m.memory, &mut m.actions);
        assert!(m.iommu.invalidation_queue_error());
        m.iommu.clear_invalidation_queue_error();
    }
}

#[test]
fn the_ring_wraps() {
    let mut m = Machine::new(bare());
    for n in 0..700 {
        m.invalidate(us(n), Scope::Global);
    }
    assert_eq!(m.iommu.invalidation_queue_head(), 1400 % 256 * 16);
    assert_eq!(m.iommu.counters().pages.invalidations, 700);
}
