//! ATS: requests that the function has translated.

use super::*;

fn use_translated(m: &mut Machine, address: u64) -> Translation {
    let request = DmaRequest::new(NIC, Iova::new(address), Access::Write);
    m.iommu.translate(us(2), DmaRequest { is_translated: true, ..request }, &mut m.memory)
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
