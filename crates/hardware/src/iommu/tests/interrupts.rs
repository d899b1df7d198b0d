//! Interrupt remapping.

use super::*;

const TABLE: HostPhysical = HostPhysical::new(0xa_0000);

fn machine(allow_compatibility: bool) -> Machine {
    let mut m = Machine::new(bare());
    let table = InterruptTable { base: TABLE, order: 7, x2apic: false, allow_compatibility };
    m.iommu.set_interrupt_table(Some(table));
    m
}

fn set(m: &mut Machine, index: u64, words: [u64; 2]) {
    m.memory.bytes.write_u64(TABLE + index * 16, words[0]).unwrap();
    m.memory.bytes.write_u64(TABLE + index * 16 + 8, words[1]).unwrap();
}

fn entry(vector: u8, source: SourceCheck) -> [u64; 2] {
    let interrupt = Interrupt { destination: 6, vector, ..Default::default() };
    InterruptEntry { delivery: interrupt.into(), source, fault_processing_disabled: false }.encode(false)
}

fn send(m: &mut Machine, now: Time, who: Bdf, message: MsiMessage) -> InterruptOutcome {
    m.iommu.remap_interrupt(now, who, message, &mut m.memory)
}

#[test]
fn an_entry_says_where_an_interrupt_goes() {
    let mut m = machine(false);
    set(&mut m, 9, entry(0x41, SourceCheck::Function { source: NIC, ignored: 0 }));
    let first = send(&mut m, us(1), NIC, MsiMessage::remappable(9, false));
    let expected = Interrupt { destination: 6, vector: 0x41, ..Default::default() };
    assert_eq!(first, InterruptOutcome { ready: us(1) + READ, outcome: Ok(expected.into()) });
    // Multi-message MSI: the data selects the entry.
    let message = MsiMessage { data: 1, ..MsiMessage::remappable(8, true) };
    assert_eq!(send(&mut m, us(2), NIC, message).ready, us(2), "cached");
    set(&mut m, 9, InterruptEntry::ABSENT);
    assert!(send(&mut m, us(3), NIC, message).outcome.is_ok());
    m.submit(us(4), &[InvalidationDescriptor::InterruptEntry { index: Some((8, 1)) }]);
    let refused = send(&mut m, us(5), NIC, message).outcome.unwrap_err();
    assert_eq!(refused.reason, FaultReason::InterruptNotPresent);
    assert_eq!(refused.address, 9 << 48);
}

#[test]
fn forged_interrupts_are_refused_and_counted() {
    let mut m = machine(false);
    let rogue = Bdf::new(9, 1, 0);
    set(&mut m, 1, entry(0x20, SourceCheck::Function { source: NIC, ignored: 0b111 }));
    set(&mut m, 2, entry(0x20, SourceCheck::Buses { first: 3, last: 5 }));
    set(&mut m, 3, [1 << 15 | 1, 0]);
    for (message, expected) in [
        (MsiMessage::remappable(1, false), FaultReason::InterruptSourceRejected),
        (MsiMessage::remappable(2, false), FaultReason::InterruptSourceRejected),
        (MsiMessage::remappable(3, false), FaultReason::InterruptEntryReserved),
        (MsiMessage::remappable(4, false), FaultReason::InterruptNotPresent),
        (MsiMessage::remappable(256, false), FaultReason::InterruptIndexBeyondTable),
        (
            MsiMessage { data: 0xffff, ..MsiMessage::remappable(0xffff, true) },
            FaultReason::InterruptIndexBeyondTable,
        ),
        (MsiMessage { address: 0xfee0_0000, data: 0x20 }, FaultReason::CompatibilityInterruptBlocked),
        (MsiMessage { address: 0x1000, data: 0x20 }, FaultReason::InterruptRange),
    ] {
        let refused = send(&mut m, us(1), rogue, message).outcome.unwrap_err();
        assert_eq!(refused.reason, expected, "{message:?}");
    }
    assert_eq!(m.iommu.faults().total(), 8);
    let sibling = Bdf::new(3, 0, 5);
    assert!(send(&mut m, us(2), sibling, MsiMessage::remappable(1, false)).outcome.is_ok());
    assert!(send(&mut m, us(2), sibling, MsiMessage::remappable(2, false)).outcome.is_ok());
}

/// VT-d 9.10: an entry says whether its faults are recorded (FPD, bit 1), even if it is absent.
#[test]
fn a_fault_is_recorded_unless_its_entry_declines() {
    for (word, records) in [(0, 1), (1 << 1, 0)] {
        let mut m = machine(false);
        set(&mut m, 4, [word, 0]);
        let refused = send(&mut m, us(1), NIC, MsiMessage::remappable(4, false)).outcome.unwrap_err();
        assert_eq!(refused.reason, FaultReason::InterruptNotPresent);
        let faults = m.iommu.faults();
        assert_eq!((faults.total(), faults.records().len()), (1, records));
    }
}

#[test]
fn compatibility_messages_pass_where_allowed() {
    let message = MsiMessage { address: 0xfee0_700c, data: 0xc131 };
    let expected = Interrupt {
        destination: 7,
        logical: true,
        redirection_hint: true,
        delivery: DeliveryMode::LowestPriority,
        level: true,
        vector: 0x31,
    };
    let mut m = machine(true);
    assert_eq!(send(&mut m, us(1), NIC, message).outcome, Ok(expected.into()));
    m.iommu.set_interrupt_table(None);
    assert_eq!(send(&mut m, us(1), NIC, message).outcome, Ok(expected.into()));
}

#[test]
fn an_interrupt_stays_behind_the_writes_before_it() {
    let mut m = machine(true);
    m.map(0x1000, 0x5000, 0x2000, Permissions::READ_WRITE);
    let write = m.translate(us(1), 0x1000, Access::Write);
    let interrupt = send(&mut m, us(1), NIC, MsiMessage { address: 0xfee0_0000, data: 0x31 });
    assert_eq!(interrupt.ready, write.ready);
}
