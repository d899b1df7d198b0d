//! ATS: translation requests, translated requests and device TLB invalidations.

use super::*;

fn use_translated(m: &mut Machine, address: u64) -> Translation {
    let at = AddressType::Translated;
    m.iommu.translate(us(2), NIC, Iova::new(address), Access::Write, at, &mut m.memory)
}

#[test]
fn translated_addresses_pass_where_the_context_says_so() {
    let mut m = Machine::new(bare());
    m.join(NIC, TranslationType::WithAts);
    let reply = use_translated(&mut m, 0x40_0000);
    assert_eq!((address(&reply), m.iommu.faults().total()), (0x40_0000, 0));
    for kind in [TranslationType::Untranslated, TranslationType::PassThrough] {
        let mut m = Machine::new(bare());
        m.join(NIC, kind);
        let refused = use_translated(&mut m, 0x1000).outcome.unwrap_err();
        assert_eq!(refused.reason, FaultReason::AtsBlocked, "{kind:?}");
        assert_eq!(m.iommu.faults().count(NIC, FaultReason::AtsBlocked), 1);
    }
}

#[test]
fn a_wait_waits_for_device_tlbs() {
    let mut m = Machine::new(bare());
    let status = HostPhysical::new(0x9000);
    let device_tlb = Descriptor::DeviceTlb { source: NIC, address: Iova::new(0x1000), size: false };
    m.submit(us(1), &[device_tlb, Descriptor::wait(status, 7)]);
    let [QueueAction::InvalidateDeviceTlb { destination: NIC, tag, .. }] = m.actions[..] else {
        panic!("{:?}", m.actions)
    };
    m.actions.clear();
    // Completions from another function or with other tags do not count.
    for (who, tags) in [(Bdf::new(9, 0, 0), 1 << tag), (NIC, !(1 << tag))] {
        m.iommu.device_tlb_completed(us(2), who, tags, &mut m.memory, &mut m.actions);
        assert_eq!(m.actions, []);
    }
    m.iommu.device_tlb_completed(us(3), NIC, 1 << tag, &mut m.memory, &mut m.actions);
    let at = us(3) + m.iommu.params().status_write_latency;
    assert_eq!(m.actions, [QueueAction::WriteStatus { at, address: status, value: 7 }]);
    assert_eq!(m.iommu.device_tlb_invalidations_in_flight(), 0);
}

#[test]
fn a_fence_and_missing_tags_hold_up_the_queue() {
    let mut m = Machine::new(bare());
    let device_tlb = Descriptor::DeviceTlb { source: NIC, address: Iova::new(0x1000), size: false };
    m.submit(us(1), &[device_tlb; 33]);
    assert_eq!(m.actions.len(), 32);
    assert_eq!(m.iommu.invalidation_queue_head(), 32 * 16);
    m.actions.clear();
    m.iommu.device_tlb_completed(us(2), NIC, 1 << 4, &mut m.memory, &mut m.actions);
    assert!(matches!(m.actions[..], [QueueAction::InvalidateDeviceTlb { tag: 4, .. }]));

    let fence = Descriptor::Wait { status: None, interrupt: true, fence: true };
    m.submit(us(3), &[fence, Descriptor::iotlb(Scope::Global)]);
    assert_eq!(m.iommu.counters().iotlb_invalidations, 0);
    m.actions.clear();
    m.iommu.device_tlb_completed(us(4), NIC, u32::MAX, &mut m.memory, &mut m.actions);
    assert!(matches!(m.actions[..], [QueueAction::CompletionInterrupt { .. }]));
    assert_eq!(m.iommu.counters().iotlb_invalidations, 1);

    m.submit(us(5), &[device_tlb, Descriptor::wait(HostPhysical::new(0x9000), 1)]);
    m.iommu.device_tlb_timed_out();
    assert_eq!(m.iommu.invalidation_queue_error(), Some(QueueError::Timeout));
}
