//! Translation faults.

use super::*;

fn reason(reply: Translation) -> FaultReason {
    reply.outcome.unwrap_err().reason
}

#[test]
fn what_is_not_mapped_or_not_permitted_is_refused() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
    m.map(0x2000, 0x6000, 0x1000, Permissions::WRITE);
    for (iova, access, expected) in [
        (0x1000, Access::Write, FaultReason::WriteNotPermitted),
        (0x2000, Access::Read, FaultReason::ReadNotPermitted),
        (0x3000, Access::Read, FaultReason::ReadNotPermitted),
        (0x3000, Access::Write, FaultReason::WriteNotPermitted),
        (1 << 48, Access::Read, FaultReason::BeyondAddressWidth),
        (u64::MAX, Access::Write, FaultReason::BeyondAddressWidth),
        (0xfee0_0000, Access::Write, FaultReason::InterruptRange),
    ] {
        assert_eq!(reason(m.translate(us(1), iova, access)), expected, "{iova:#x} {access:?}");
        assert!(m.translate(us(1), 0x1000, Access::Read).outcome.is_ok());
        assert!(m.translate(us(1), 0x2000, Access::Write).outcome.is_ok());
    }
    let log = m.iommu.faults();
    assert_eq!(log.total(), 7);
    assert_eq!(log.count(NIC, FaultReason::ReadNotPermitted), 2);
    assert_eq!(log.records()[0].address, 0x1000);
}

#[test]
fn a_fault_is_not_cached() {
    let mut m = Machine::new(bare());
    assert!(m.translate(us(1), 0x1000, Access::Read).outcome.is_err());
    m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
    assert!(m.translate(us(1), 0x1000, Access::Read).outcome.is_ok());
    // Added permissions need no invalidation either.
    assert!(m.translate(us(2), 0x1000, Access::Write).outcome.is_err());
    m.unmap(0x1000, 0x1000);
    m.map(0x1000, 0x5000, 0x1000, Permissions::READ_WRITE);
    assert!(m.translate(us(3), 0x1000, Access::Write).outcome.is_ok());
}

#[test]
fn functions_without_a_context_are_blocked() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
    let ask = |m: &mut Machine, who| {
        m.iommu.translate(us(1), DmaRequest::new(who, Iova::new(0x1000), Access::Read), &mut m.memory)
    };
    assert_eq!(reason(ask(&mut m, Bdf::new(4, 0, 0))), FaultReason::RootNotPresent);
    assert_eq!(reason(ask(&mut m, Bdf::new(3, 0, 1))), FaultReason::ContextNotPresent);
    assert!(ask(&mut m, NIC).outcome.is_ok());
    let old = m.contexts.block(&mut m.memory.bytes, NIC).unwrap().unwrap();
    assert_eq!(old.domain, DOMAIN);
    // Cached until it is invalidated.
    assert!(ask(&mut m, NIC).outcome.is_ok());
    let scope = ContextScope::Device { domain: DOMAIN, source: NIC, function_mask: 0 };
    m.submit(us(1), &[InvalidationDescriptor::Context(scope)]);
    assert_eq!(reason(ask(&mut m, NIC)), FaultReason::ContextNotPresent);
}

#[test]
fn tables_outside_memory_are_faults() {
    let mut m = Machine::new(bare());
    let nowhere = HostPhysical::new(1 << 40);
    let entry = ContextEntry {
        domain: DOMAIN,
        translation: TranslationType::Untranslated,
        levels: 4,
        page_table: nowhere,
        fault_processing_disabled: true,
    };
    m.contexts.set(&mut m.memory.bytes, &mut m.frames, NIC, entry).unwrap();
    assert_eq!(reason(m.translate(us(1), 0x1000, Access::Read)), FaultReason::PageTableUnreachable);
    assert_eq!(m.iommu.faults().records().len(), 0, "counted, but not recorded");
    assert_eq!(m.iommu.faults().total(), 1);
    m.iommu.set_root_table(nowhere);
    m.submit(us(1), &[InvalidationDescriptor::Context(ContextScope::Global)]);
    assert_eq!(reason(m.translate(us(2), 0x1000, Access::Read)), FaultReason::RootTableUnreachable);
}

#[test]
fn a_refused_request_keeps_its_place_in_the_order() {
    let mut m = Machine::new(bare());
    m.map(0x1000, 0x5000, 0x2000, Permissions::READ);
    m.latency(us(1), 0x1000);
    let miss = m.translate(us(2), 0x2000, Access::Read);
    let refused = m.translate(us(2), 1 << 50, Access::Read);
    assert_eq!(refused.ready, miss.ready);
}
