//! Commands (section 2.4), 128 bits each.
//!
//! ```text
//! low word, bits 63:60 operation
//! 1 COMPLETION_WAIT             51:3 address, 1 interrupt, 0 store; high: what is stored
//! 2 INVALIDATE_DEVTAB_ENTRY     15:0 function
//! 3 INVALIDATE_IOMMU_PAGES      47:32 domain; high: 63:12 address, 1 tables as well, 0 more than a page
//! 5 INVALIDATE_INTERRUPT_TABLE  15:0 function
//! 8 INVALIDATE_IOMMU_ALL
//! ```
//! Interrupts are remapped here by tables in VT-d's format, one for all functions, so that the command about them is for all entries.
//! The size of more than a page is in its address: the lowest bit of 0, counted from bit 12, is the uppermost of those within it.

use units::{HostPhysical, Iova};

use crate::pcie::Bdf;
use crate::vtd::{ContextScope, DomainId, InvalidationDescriptor, Scope};

const COMPLETION_WAIT: u64 = 1;
const INVALIDATE_DEVTAB_ENTRY: u64 = 2;
const INVALIDATE_IOMMU_PAGES: u64 = 3;
const INVALIDATE_INTERRUPT_TABLE: u64 = 5;
const INVALIDATE_IOMMU_ALL: u64 = 8;

const STORE: u64 = 1;
const INTERRUPT: u64 = 1 << 1;
const SIZED: u64 = 1;
const TABLES: u64 = 1 << 1;
/// An address whose size is everything.
const EVERYTHING: u64 = 0x7fff_ffff_ffff_f000;

/// Encodes what a kernel asks for as two words, low first.
pub const fn encode(descriptor: InvalidationDescriptor) -> [u64; 2] {
    let (operation, low, high) = match descriptor {
        InvalidationDescriptor::Context(ContextScope::Device { source, .. }) => {
            (INVALIDATE_DEVTAB_ENTRY, source.bits() as u64, 0)
        }
        InvalidationDescriptor::Context(ContextScope::Global | ContextScope::Domain(_))
        | InvalidationDescriptor::Iotlb { scope: Scope::Global, .. } => (INVALIDATE_IOMMU_ALL, 0, 0),
        InvalidationDescriptor::Iotlb { scope: Scope::Domain(domain), .. } => {
            (INVALIDATE_IOMMU_PAGES, (domain.0 as u64) << 32, EVERYTHING | SIZED | TABLES)
        }
        InvalidationDescriptor::Iotlb {
            scope: Scope::Pages { domain, address, mask }, leaf_only, ..
        } => {
            let tables = if leaf_only { 0 } else { TABLES };
            let address = address.get() & !0xfff;
            let sized = match mask {
                0 => address,
                _ if mask > 51 => EVERYTHING | SIZED,
                // The bits within the range are 1 below its uppermost one, which is 0.
                _ => address & !(0x1000 << (mask - 1)) | ((0x1000 << (mask - 1)) - 0x1000) | SIZED,
            };
            (INVALIDATE_IOMMU_PAGES, (domain.0 as u64) << 32, sized | tables)
        }
        InvalidationDescriptor::InterruptEntry { .. } => (INVALIDATE_INTERRUPT_TABLE, 0, 0),
        InvalidationDescriptor::Wait { status, interrupt } => {
            let interrupt = if interrupt { INTERRUPT } else { 0 };
            match status {
                None => (COMPLETION_WAIT, interrupt, 0),
                Some((address, value)) => {
                    (COMPLETION_WAIT, address.get() & 0x000f_ffff_ffff_fff8 | STORE | interrupt, value as u64)
                }
            }
        }
    };
    [operation << 60 | low, high]
}

/// Decodes a command; `None` if there is no such operation (ILLEGAL_COMMAND_ERROR).
pub const fn decode([low, high]: [u64; 2]) -> Option<InvalidationDescriptor> {
    let domain = DomainId((low >> 32) as u16);
    let (scope, leaf_only) = match low >> 60 {
        COMPLETION_WAIT => {
            let status = match low & STORE != 0 {
                true => Some((HostPhysical::new(low & 0x000f_ffff_ffff_fff8), high as u32)),
                false => None,
            };
            return Some(InvalidationDescriptor::Wait { status, interrupt: low & INTERRUPT != 0 });
        }
        INVALIDATE_DEVTAB_ENTRY => {
            let source = Bdf::from_bits(low as u16);
            let scope = ContextScope::Device { domain: DomainId(0), source, function_mask: 0 };
            return Some(InvalidationDescriptor::Context(scope));
        }
        INVALIDATE_IOMMU_PAGES => {
            let mask = match high & SIZED != 0 {
                true => (high >> 12).trailing_ones() as u8 + 1,
                false => 0,
            };
            let scope = match mask {
                52.. => Scope::Domain(domain),
                _ => {
                    let within = (0x1000u64 << mask) - 1;
                    Scope::Pages { domain, address: Iova::new(high & !within), mask }
                }
            };
            (scope, high & TABLES == 0)
        }
        INVALIDATE_INTERRUPT_TABLE => return Some(InvalidationDescriptor::InterruptEntry { index: None }),
        INVALIDATE_IOMMU_ALL => (Scope::Global, false),
        _ => return None,
    };
    // What uses the translations ends before a COMPLETION_WAIT does (section 2.4.1).
    Some(InvalidationDescriptor::Iotlb { scope, drain_reads: true, drain_writes: true, leaf_only })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_have_the_specified_layout() {
        let pages = |mask| {
            let (domain, address) = (DomainId(7), Iova::new(0x1234_5000u64 >> (12 + mask) << (12 + mask)));
            InvalidationDescriptor::iotlb(Scope::Pages { domain, address, mask })
        };
        let device =
            ContextScope::Device { domain: DomainId(0), source: Bdf::new(3, 1, 0), function_mask: 0 };
        let cases = [
            (pages(0), [0x3000_0007_0000_0000, 0x1234_5002]),
            (pages(1), [0x3000_0007_0000_0000, 0x1234_4003]),
            // 2 MiB: eight bits of 1 from bit 12 on, and bit 20 is 0.
            (pages(9), [0x3000_0007_0000_0000, 0x122f_f003]),
            (
                InvalidationDescriptor::iotlb(Scope::Domain(DomainId(9))),
                [0x3000_0009_0000_0000, 0x7fff_ffff_ffff_f003],
            ),
            (InvalidationDescriptor::iotlb(Scope::Global), [0x8000_0000_0000_0000, 0]),
            (InvalidationDescriptor::InterruptEntry { index: None }, [0x5000_0000_0000_0000, 0]),
            (InvalidationDescriptor::Context(device), [0x2000_0000_0000_0308, 0]),
            (InvalidationDescriptor::wait(HostPhysical::new(0x9000), 5), [0x1000_0000_0000_9001, 5]),
        ];
        for (descriptor, words) in cases {
            assert_eq!(encode(descriptor), words, "{descriptor:?}");
            assert_eq!(decode(words), Some(descriptor));
        }
        assert_eq!(decode([0x9 << 60, 0]), None);
    }

    proptest! {
        #[test]
        fn ranges_come_back(page in 0u64..1 << 36, mask in 0u8..36) {
            let address = Iova::new(page >> mask << mask << 12);
            let scope = Scope::Pages { domain: DomainId(3), address, mask };
            let descriptor = InvalidationDescriptor::iotlb(scope);
            prop_assert_eq!(decode(encode(descriptor)), Some(descriptor));
        }
    }
}
