//! Which bits of VT-d's tables and queue entries say what, in the numbers of its specification.

use std::fmt::Debug;

use units::{HostPhysical, Iova};
use wire::pcie::Bdf;
use wire::vtd::{
    Access, ContextEntry, ContextScope, Delivery, DeliveryMode, DomainId, FaultReason, Features, Interrupt,
    InterruptEntry, InvalidationDescriptor, MsiMessage, PageEntry, PageSize, Permissions, PostedDescriptor,
    PostedInterrupt, RootEntry, Scope, SourceCheck, TableFormat, TranslationType, entry_offset, level_shift,
};

/// An IOMMU that has little.
const NARROW: Features = Features {
    format: TableFormat::VtD,
    host_address_bits: 46,
    five_level: false,
    pages_2mib: false,
    pages_1gib: false,
    posts_interrupts: false,
};

/// Bits of two words, low first, that `refused` is true for when one is changed.
fn bits(words: [u64; 2], refused: impl Fn([u64; 2]) -> bool) -> [u64; 2] {
    let mut found = [0; 2];
    for bit in 0..128 {
        let mut changed = words;
        changed[bit / 64] ^= 1 << (bit % 64);
        found[bit / 64] |= u64::from(refused(changed)) << (bit % 64);
    }
    found
}

fn is<T: Copy + PartialEq + Debug, const N: usize>(
    table: [(T, [u64; 2]); N],
    encode: impl Fn(T) -> [u64; 2],
    decode: impl Fn([u64; 2]) -> Option<T>,
) {
    for (value, words) in table {
        assert_eq!(encode(value), words, "{value:?}");
        assert_eq!(decode(words), Some(value));
    }
}

/// Sections 9.1 and 9.3.
#[test]
fn root_and_context_entries_stand_as_the_specification_has_them() {
    let root = RootEntry { context_table: HostPhysical::new(0x1f_2345_6000) };
    is([(root, [0x1f_2345_6001, 0])], RootEntry::encode, |w| RootEntry::decode(w, NARROW).ok());
    let refused = |reason| move |w| RootEntry::decode(w, NARROW) == Err(reason);
    assert_eq!(bits(root.encode(), refused(FaultReason::RootNotPresent)), [1, 0]);
    assert_eq!(bits(root.encode(), refused(FaultReason::RootReserved)), [0xffff_c000_0000_0ffe, u64::MAX]);

    let entry = |translation, levels, fault_processing_disabled| ContextEntry {
        domain: DomainId(0xabcd),
        translation,
        levels,
        page_table: HostPhysical::new(0x1f_2345_6000),
        fault_processing_disabled,
    };
    let table = [
        (entry(TranslationType::Untranslated, 3, false), [0x1f_2345_6001, 0xab_cd01]),
        (entry(TranslationType::WithAts, 4, true), [0x1f_2345_6007, 0xab_cd02]),
        (entry(TranslationType::PassThrough, 5, false), [0x1f_2345_6009, 0xab_cd03]),
    ];
    is(table, ContextEntry::encode, |w| ContextEntry::decode(w, Features::ALL).ok());
    let refused = |reason| move |w| ContextEntry::decode(w, NARROW) == Err(reason);
    let words = table[0].1;
    assert_eq!(bits(words, refused(FaultReason::ContextNotPresent)), [1, 0]);
    assert_eq!(bits(words, refused(FaultReason::ContextReserved)), [0xffff_c000_0000_0ff0, !0xff_ff7f]);
    // No levels; 5, which it has not, and 7.
    assert_eq!(bits(words, refused(FaultReason::ContextInvalid)), [0, 0b111]);
    assert_eq!(ContextEntry::decode([words[0] | 0b1100, 1], NARROW), Err(FaultReason::ContextInvalid));
    for (levels, last) in [(3, (1 << 39) - 1), (4, (1 << 48) - 1), (5, (1 << 57) - 1)] {
        let entry = entry(TranslationType::Untranslated, levels, false);
        assert!(entry.spans(Iova::new(last)) && !entry.spans(Iova::new(last + 1)));
    }
}

/// Section 9.8; 3.6 for the levels.
#[test]
fn page_table_entries_stand_as_the_specification_has_them() {
    let (address, permissions) = (HostPhysical::new(0xf_4000_0000_0000), Permissions::WRITE);
    let leaf = |size| PageEntry::Leaf { frame: address, size, permissions };
    for (entry, level, word) in [
        (PageEntry::Absent, 1, 0),
        (PageEntry::Table { table: address, permissions: Permissions::READ }, 2, 0xf_4000_0000_0001),
        (PageEntry::Table { table: address, permissions: Permissions::READ_WRITE }, 5, 0xf_4000_0000_0003),
        (leaf(PageSize::Size4KiB), 1, 0xf_4000_0000_0002),
        (leaf(PageSize::Size2MiB), 2, 0xf_4000_0000_0082),
        (leaf(PageSize::Size1GiB), 3, 0xf_4000_0000_0082),
    ] {
        assert_eq!(entry.encode(), word, "{entry:?}");
        assert_eq!(PageEntry::decode(word, level, Features::ALL), Ok(entry));
    }
    let reserved = |word, level, features| {
        let refused =
            |[w, _]: [u64; 2]| PageEntry::decode(w, level, features) == Err(FaultReason::PageTableReserved);
        bits([word, 0], refused)[0]
    };
    // Addresses beyond the host's; the address within a large page, which bits above 51 are no part of.
    assert_eq!(reserved(1, 1, NARROW), 0x000f_c000_0000_0000);
    assert_eq!(reserved(1, 2, NARROW), 0x000f_c000_0000_0080);
    assert_eq!(reserved(0x81, 2, Features::ALL), 0x001f_f000);
    assert_eq!(reserved(0x81, 3, Features::ALL), 0x3fff_f000);
    assert_eq!(reserved(1, 4, Features::ALL), 0x80);
    let (only_2mib, only_1gib) =
        (Features { pages_2mib: true, ..NARROW }, Features { pages_1gib: true, ..NARROW });
    let takes = |level, features| PageEntry::decode(0x81, level, features).is_ok();
    assert_eq!([2, 3].map(|level| takes(level, only_2mib)), [true, false]);
    assert_eq!([2, 3].map(|level| takes(level, only_1gib)), [false, true]);
    // Absent to whom may neither read nor write.
    assert_eq!(PageEntry::decode(!3, 1, NARROW), Ok(PageEntry::Absent));

    let address = Iova::new(0x1f << 48 | 0x123 << 39 | 0x45 << 30 | 0x167 << 21 | 0x89 << 12 | 0xabc);
    let offsets = [1, 2, 3, 4, 5].map(|level| entry_offset(address, level));
    assert_eq!(offsets, [0x89 * 8, 0x167 * 8, 0x45 * 8, 0x123 * 8, 0x1f * 8]);
    for (level, shift, size) in
        [(1, 12, PageSize::Size4KiB), (2, 21, PageSize::Size2MiB), (3, 30, PageSize::Size1GiB)]
    {
        assert_eq!((level_shift(level), size.shift(), size.get()), (shift, shift, 1 << shift));
        assert_eq!((size.level(), PageSize::of_level(level)), (level, Some(size)));
    }
    assert_eq!([0, 4].map(PageSize::of_level), [None; 2]);
}

#[test]
fn permissions_are_what_all_levels_allow() {
    let all = [Permissions::default(), Permissions::READ, Permissions::WRITE, Permissions::READ_WRITE];
    let said = |p: Permissions| [p.allow(Access::Read), p.allow(Access::Write), p.is_none()];
    assert_eq!(
        all.map(said),
        [[false, false, true], [true, false, false], [false, true, false], [true, true, false]]
    );
    for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
        assert_eq!(all[a].and(all[b]), all[a & b]);
    }
}

/// Section 6.5.2.
#[test]
fn invalidations_stand_as_the_specification_has_them() {
    use InvalidationDescriptor::{Context, InterruptEntry, Iotlb, Wait};
    let (domain, source) = (DomainId(0xabcd), Bdf::new(0x12, 0x1e, 5));
    let iotlb = |scope, reads, writes, leaf_only| Iotlb {
        scope,
        drain_reads: reads,
        drain_writes: writes,
        leaf_only,
    };
    let pages = Scope::Pages { domain, address: Iova::new(0x0001_2345_6789_a000), mask: 0x2a };
    let (status, value) = (HostPhysical::new(0x0012_3456_789c), 0xfeed_beef);
    is(
        [
            (Context(ContextScope::Global), [0x11, 0]),
            (Context(ContextScope::Domain(domain)), [0xabcd_0021, 0]),
            (Context(ContextScope::Device { domain, source, function_mask: 2 }), [0x0002_12f5_abcd_0031, 0]),
            (iotlb(Scope::Global, false, false, true), [0x12, 0x40]),
            (iotlb(Scope::Domain(domain), true, false, false), [0xabcd_00a2, 0]),
            (iotlb(pages, false, true, true), [0xabcd_0072, 0x0001_2345_6789_a06a]),
            (InterruptEntry { index: None }, [4, 0]),
            (InterruptEntry { index: Some((0x9876, 0x15)) }, [0x0000_9876_a800_0014, 0]),
            (Wait { status: None, interrupt: true }, [0x15, 0]),
            (Wait { status: Some((status, value)), interrupt: false }, [0xfeed_beef_0000_0025, status.get()]),
        ],
        InvalidationDescriptor::encode,
        InvalidationDescriptor::decode,
    );
    // Types and granularities that there are not.
    let types = (0..16).filter(|&kind| InvalidationDescriptor::decode([1 << 4 | kind, 0]).is_some());
    assert_eq!(types.collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!([1, 2].map(|kind| InvalidationDescriptor::decode([kind, 0])), [None; 2]);
    let covers = |scope: ContextScope| {
        [
            (domain, source),
            (domain, Bdf::new(0x12, 0x1e, 1)),
            (DomainId(1), source),
            (domain, Bdf::new(1, 0, 0)),
        ]
        .map(|(domain, source)| scope.covers(domain, source))
    };
    assert_eq!(covers(ContextScope::Global), [true; 4]);
    assert_eq!(covers(ContextScope::Domain(domain)), [true, true, false, true]);
    let device = |function_mask| ContextScope::Device { domain, source, function_mask };
    assert_eq!(covers(device(0)), [true, false, true, false]);
    assert_eq!(covers(device(1)), [true, true, true, false]);
    for (scope, covered) in [(Scope::Global, [true; 2]), (Scope::Domain(domain), [true, false])] {
        assert_eq!([domain, DomainId(1)].map(|domain| scope.covers(domain, Iova::new(0), 4096)), covered);
    }
}

/// Sections 5.1.2 (messages) and 5.1.8 (what a fault says of one).
#[test]
fn interrupt_messages_stand_as_the_specification_has_them() {
    for (index, subhandle, address) in [
        (0x0001, false, 0xfee0_0030),
        (0x7fff, false, 0xfeef_fff0),
        (0x8000, false, 0xfee0_0014),
        (0x8001, true, 0xfee0_003c),
    ] {
        let message = MsiMessage::remappable(index, subhandle);
        assert_eq!((message.address, message.data), (address, 0));
        // Only with a subhandle is data looked at.
        let with = |data| MsiMessage { data, ..message }.index();
        assert_eq!(with(2), Ok(Some(u32::from(index) + if subhandle { 2 } else { 0 })));
        assert_eq!(with(0x1_0000).is_ok(), !subhandle);
        assert_eq!(message.fault_information(), u64::from(index) << 48);
    }
    let plain = MsiMessage { address: 0xfeea_b000, data: 0x31 };
    assert_eq!((plain.index(), plain.fault_information()), (Ok(None), 0xfeea_b000));
    let said = |address, data| MsiMessage { address, data }.unremapped();
    let expected = Interrupt { destination: 0xab, vector: 0x31, ..Interrupt::default() };
    assert_eq!(said(0xfeea_b000, 0x31), Ok(expected));
    assert_eq!(said(0xfeea_b004, 0x31), Ok(Interrupt { logical: true, ..expected }));
    assert_eq!(said(0xfeea_b008, 0x31), Ok(Interrupt { redirection_hint: true, ..expected }));
    assert_eq!(said(0xfeea_b000, 0x8031), Ok(Interrupt { level: true, ..expected }));
    for (bits, mode) in MODES.into_iter().enumerate() {
        let delivered = said(0xfeea_b000, (bits as u32) << 8 | 0x31).map(|interrupt| interrupt.delivery);
        assert_eq!(delivered, mode.ok_or(FaultReason::InterruptReserved), "{bits}");
    }
}

/// Delivery modes by number.
const MODES: [Option<DeliveryMode>; 8] = [
    Some(DeliveryMode::Fixed),
    Some(DeliveryMode::LowestPriority),
    Some(DeliveryMode::Smi),
    None,
    Some(DeliveryMode::Nmi),
    Some(DeliveryMode::Init),
    None,
    Some(DeliveryMode::ExtInt),
];

/// Sections 9.9 (remapped), 9.10 (posted).
#[test]
fn interrupt_entries_stand_as_the_specification_has_them() {
    let plain = Interrupt { destination: 0xab, vector: 0x31, ..Interrupt::default() };
    let entry = |delivery: Interrupt| InterruptEntry {
        delivery: delivery.into(),
        source: SourceCheck::None,
        fault_processing_disabled: false,
    };
    let source = Bdf::new(0x12, 0x1e, 5);
    let from = |source| InterruptEntry { source, ..entry(plain) };
    let function = |ignored| from(SourceCheck::Function { source, ignored });
    let (low, x2apic) = (0x0000_ab00_0031_0001, 0x89ab_cdef_0031_0001);
    is(
        [
            (entry(plain), [low, 0]),
            (entry(Interrupt { logical: true, ..plain }), [low | 0x04, 0]),
            (entry(Interrupt { redirection_hint: true, ..plain }), [low | 0x08, 0]),
            (entry(Interrupt { level: true, ..plain }), [low | 0x10, 0]),
            (InterruptEntry { fault_processing_disabled: true, ..entry(plain) }, [low | 0x02, 0]),
            (function(0), [low, 0x4_12f5]),
            (function(0b100), [low, 0x5_12f5]),
            (function(0b110), [low, 0x6_12f5]),
            (function(0b111), [low, 0x7_12f5]),
            (from(SourceCheck::Buses { first: 0x12, last: 0x34 }), [low, 0x8_1234]),
        ],
        |entry| entry.encode(false),
        |words| InterruptEntry::decode(words, false, false).ok(),
    );
    for (number, mode) in (0..).zip(MODES) {
        let words = [low | number << 5, 0];
        let delivery = mode.map(|delivery| entry(Interrupt { delivery, ..plain }));
        assert_eq!(InterruptEntry::decode(words, false, false).ok(), delivery);
        assert!(delivery.is_none_or(|entry| entry.encode(false) == words));
    }
    let post = |urgent| InterruptEntry {
        delivery: Delivery::Posted(PostedInterrupt {
            descriptor: HostPhysical::new(0x0012_89ab_cdc0),
            vector: 0x31,
            urgent,
        }),
        ..function(0)
    };
    let wide = entry(Interrupt { destination: 0x89ab_cdef, ..plain });
    let table = [
        (wide, [x2apic, 0]),
        (post(true), [0x89ab_cdc0_0031_c001, 0x0000_0012_0004_12f5]),
        (post(false), [0x89ab_cdc0_0031_8001, 0x0000_0012_0004_12f5]),
    ];
    is(table, |entry| entry.encode(true), |words| InterruptEntry::decode(words, true, true).ok());

    let refused = |x2apic, posts, reason| move |w| InterruptEntry::decode(w, x2apic, posts) == Err(reason);
    let reserved = FaultReason::InterruptEntryReserved;
    assert_eq!(bits([low, 0], refused(false, false, FaultReason::InterruptNotPresent)), [1, 0]);
    assert_eq!(bits([low, 0], refused(false, false, reserved)), [0xffff_00ff_ff00_f000, !0xf_ffff]);
    assert_eq!(bits([low, 0], refused(true, false, reserved)), [0xff00_f000, !0xf_ffff]);
    let words = table[1].1;
    // Bit 15 too: what is not posted is not urgent.
    assert_eq!(bits(words, refused(true, true, reserved)), [0x3f_ff00_b0fc, 0xfff8_0000]);
    assert_eq!(InterruptEntry::decode([low, 3 << 18], false, false), Err(reserved));
    assert_eq!(InterruptEntry::decode(words, true, false), Err(reserved), "it posts nothing");
}

#[test]
fn an_interrupt_comes_from_who_may_send_it() {
    let source = Bdf::new(0x12, 0x1e, 5);
    let requesters = [source, Bdf::new(0x12, 0x1e, 1), Bdf::new(0x12, 0, 0), Bdf::new(0x13, 0x1e, 5)];
    for (check, allowed) in [
        (SourceCheck::None, [true; 4]),
        (SourceCheck::Function { source, ignored: 0 }, [true, false, false, false]),
        (SourceCheck::Function { source, ignored: 0b100 }, [true, true, false, false]),
        (SourceCheck::Buses { first: 0x12, last: 0x12 }, [true, true, true, false]),
        (SourceCheck::Buses { first: 0x13, last: 0x14 }, [false, false, false, true]),
        (SourceCheck::Buses { first: 0x10, last: 0x11 }, [false; 4]),
    ] {
        assert_eq!(requesters.map(|requester| check.allows(requester)), allowed, "{check:?}");
    }
}

/// Section 9.11.
#[test]
fn a_posted_descriptor_notifies_who_it_says() {
    let mut descriptor = PostedDescriptor {
        suppressed: true,
        notification_vector: 0xf2,
        destination: 0x1234_5678,
        ..PostedDescriptor::default()
    };
    assert_eq!(descriptor.post(0x47, false), None, "suppressed");
    let notification = Interrupt { destination: 0x1234_5678, vector: 0xf2, ..Interrupt::default() };
    assert_eq!(descriptor.post(0xff, true), Some(notification), "urgent");
    assert_eq!(descriptor.post(0x20, true), None, "one is outstanding");
    let bytes = descriptor.encode();
    let set: Vec<(usize, u8)> = (0..).zip(bytes).filter(|&(_, byte)| byte != 0).collect();
    let expected =
        [(4, 1), (8, 0x80), (31, 0x80), (32, 3), (34, 0xf2), (36, 0x78), (37, 0x56), (38, 0x34), (39, 0x12)];
    assert_eq!(set, expected);
    assert_eq!(PostedDescriptor::decode(&bytes), descriptor);
    assert_eq!(descriptor.take().collect::<Vec<_>>(), [0x20, 0x47, 0xff]);
    assert!(!descriptor.outstanding && descriptor.suppressed);
}

/// Section 7.1.3, table of fault reasons.
#[test]
fn reasons_of_faults_have_the_specified_numbers() {
    let permitted = [Access::Read, Access::Write].map(FaultReason::not_permitted);
    assert_eq!(permitted.map(FaultReason::code), [6, 5]);
    assert_eq!(
        [FaultReason::RootNotPresent, FaultReason::InterruptReserved].map(FaultReason::code),
        [1, 0x20]
    );
    assert_eq!(FaultReason::ContextReserved.to_string(), "reserved bit in the context entry");
}
