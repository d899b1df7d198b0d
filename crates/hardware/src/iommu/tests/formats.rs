//! The same in the formats of each kind of IOMMU.

use super::*;

/// Each format, the reads of a first request's tables up to the page tables, and whether it knows pages that are only written.
const FORMATS: [(IommuKind, u64, bool); 3] = [
    // Root entry and context entry; the device table's; descriptor of the bus, stream table entry and context descriptor.
    (IommuKind::VtD, 2, true),
    (IommuKind::AmdVi, 1, true),
    (IommuKind::SmmuV3, 3, false),
];

fn machine(kind: IommuKind) -> Machine {
    Machine::new(IommuParams { kind, ..bare() })
}

#[test]
fn a_first_request_reads_what_its_format_has() {
    for (format, above, _) in FORMATS {
        let mut m = machine(format);
        m.map(0x1000, 0x5000, 0x1000, Permissions::READ_WRITE);
        m.map(0x20_0000, 0x80_0000, 2 << 20, Permissions::READ);
        assert_eq!(m.latency(us(1), 0x1000), READ * (above + 4), "{format:?}");
        assert_eq!(m.latency(us(2), 0x1000), Duration::ZERO, "{format:?}: it is cached");
        // Of a page of 2 MiB, the table above is known by now.
        assert_eq!(m.latency(us(3), 0x2f_f000), READ, "{format:?}");
        assert_eq!(address(&m.translate(us(4), 0x2f_f123, Access::Read)), 0x8f_f123);
        assert_eq!(
            m.translate(us(5), 0x2f_f000, Access::Write).outcome.unwrap_err().reason,
            FaultReason::WriteNotPermitted
        );
    }
}

#[test]
fn pages_that_are_only_written_are_where_a_format_has_them() {
    for (format, _, knows) in FORMATS {
        let mut m = machine(format);
        m.map(0x1000, 0x5000, 0x1000, Permissions::WRITE);
        assert!(m.translate(us(1), 0x1000, Access::Write).outcome.is_ok(), "{format:?}");
        assert_eq!(m.translate(us(2), 0x1000, Access::Read).outcome.is_err(), knows, "{format:?}");
    }
}

#[test]
fn commands_invalidate_what_they_name() {
    for (format, ..) in FORMATS {
        let pages = |address, mask| Scope::Pages { domain: DOMAIN, address: Iova::new(address), mask };
        for (scope, goes) in [
            (pages(0x1000, 0), true),
            (pages(0x2000, 0), false),
            (pages(0, 2), true),
            (pages(0x4000, 2), false),
            (Scope::Domain(DOMAIN), true),
            (Scope::Domain(DomainId(6)), false),
            (Scope::Global, true),
        ] {
            let mut m = machine(format);
            m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
            m.latency(us(1), 0x1000);
            m.unmap(0x1000, 0x1000);
            let done = m.invalidate(us(2), scope);
            assert_eq!(
                m.translate(done, 0x1000, Access::Read).outcome.is_err(),
                goes,
                "{format:?}, {scope:?}"
            );
        }
    }
}

#[test]
fn a_function_is_blocked_attached_again_and_let_pass() {
    for (format, ..) in FORMATS {
        let mut m = machine(format);
        m.map(0x1000, 0x5000, 0x1000, Permissions::READ);
        m.latency(us(1), 0x1000);
        let forget = |m: &mut Machine, now| {
            let scope = ContextScope::Device { domain: DOMAIN, source: NIC, function_mask: 0 };
            m.submit(now, &[InvalidationDescriptor::Context(scope)]);
        };
        let old = m.contexts.block(&mut m.memory.bytes, NIC).unwrap().map(|entry| entry.domain);
        assert_eq!(old, Some(DOMAIN), "{format:?}");
        forget(&mut m, us(2));
        assert_eq!(m.contexts.get(&m.memory.bytes, NIC), Ok(None));
        assert_eq!(
            m.translate(us(3), 0x1000, Access::Read).outcome.unwrap_err().reason,
            FaultReason::ContextNotPresent
        );
        m.join(NIC, TranslationType::Untranslated);
        forget(&mut m, us(4));
        assert_eq!(address(&m.translate(us(5), 0x1000, Access::Read)), 0x5000, "{format:?}");
        m.join(NIC, TranslationType::PassThrough);
        forget(&mut m, us(6));
        assert_eq!(address(&m.translate(us(7), 0x9000, Access::Write)), 0x9000, "{format:?}");
        // Functions of no bus that was ever used, and those beside it.
        for other in [Bdf::new(3, 0, 1), Bdf::new(200, 1, 0)] {
            let request = DmaRequest::new(other, Iova::new(0x1000), Access::Read);
            assert!(m.iommu.translate(us(8), request, &mut m.memory).outcome.is_err(), "{format:?}, {other}");
        }
    }
}
