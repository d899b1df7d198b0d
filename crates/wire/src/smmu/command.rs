//! Commands (section 4), 128 bits each.
//!
//! ```text
//! low word, bits 7:0 operation
//! 03 CFGI_STE        63:32 stream; high: 0 leaf
//! 04 CFGI_ALL        high: 4:0 range, 31
//! 11 TLBI_NH_ASID    63:48 ASID
//! 12 TLBI_NH_VA      63:48 ASID, 24:20 scale, 16:12 number; high: 63:12 address, 11:10 granule, 0 leaf
//! 30 TLBI_NSNH_ALL
//! 46 CMD_SYNC        63:32 value, 27:24 attributes, 23:22 shareability, 13:12 signal: 1 by a write; high: 51:2 address
//! ```
//! A `TLBI_NH_VA` with a granule is for a range of (number + 1) << scale granules, without one for a page. Interrupts are
//! translated elsewhere, so that no command is about their tables.

use units::{HostPhysical, Iova};

use crate::pcie::Bdf;
use crate::vtd::{ContextScope, DomainId, InvalidationDescriptor, Scope};

const CFGI_STE: u64 = 0x03;
const CFGI_ALL: u64 = 0x04;
const TLBI_NH_ASID: u64 = 0x11;
const TLBI_NH_VA: u64 = 0x12;
const TLBI_NSNH_ALL: u64 = 0x30;
const CMD_SYNC: u64 = 0x46;

const LEAF: u64 = 1;
/// Range of `CFGI_ALL`: every stream.
const EVERY: u64 = 31;
/// Granule of 4 KiB.
const GRANULE: u64 = 1 << 10;
/// The signal is a write; inner shareable and write-back, as the memory is that it goes to.
const BY_WRITE: u64 = 1 << 12 | 3 << 22 | 0xf << 24;
const SIGNAL: u64 = 3 << 12;

/// Encodes what a kernel asks for as two words, low first; `None` if no command is about it.
pub const fn encode(descriptor: InvalidationDescriptor) -> Option<[u64; 2]> {
    Some(match descriptor {
        // There are none for the streams of a domain.
        InvalidationDescriptor::Context(ContextScope::Global | ContextScope::Domain(_)) => [CFGI_ALL, EVERY],
        InvalidationDescriptor::Context(ContextScope::Device { source, .. }) => {
            [CFGI_STE | (source.bits() as u64) << 32, LEAF]
        }
        InvalidationDescriptor::Iotlb { scope, leaf_only, .. } => match scope {
            Scope::Global => [TLBI_NSNH_ALL, 0],
            Scope::Domain(domain) => [TLBI_NH_ASID | (domain.0 as u64) << 48, 0],
            Scope::Pages { domain, address, mask } => {
                let range = if mask == 0 { 0 } else { GRANULE };
                let low = TLBI_NH_VA | (domain.0 as u64) << 48 | ((mask & 0x1f) as u64) << 20;
                [low, address.get() & !0xfff | range | leaf_only as u64]
            }
        },
        InvalidationDescriptor::InterruptEntry { .. } => return None,
        InvalidationDescriptor::Wait { status: Some((address, value)), .. } => {
            [CMD_SYNC | BY_WRITE | (value as u64) << 32, address.get() & 0x000f_ffff_ffff_fffc]
        }
        InvalidationDescriptor::Wait { status: None, .. } => [CMD_SYNC, 0],
    })
}

/// Decodes a command; `None` if there is no such operation (CERROR_ILL).
pub const fn decode([low, high]: [u64; 2]) -> Option<InvalidationDescriptor> {
    let domain = DomainId((low >> 48) as u16);
    let scope = match low & 0xff {
        CFGI_STE => {
            let source = Bdf::from_bits((low >> 32) as u16);
            let scope = ContextScope::Device { domain: DomainId(0), source, function_mask: 0 };
            return Some(InvalidationDescriptor::Context(scope));
        }
        CFGI_ALL => return Some(InvalidationDescriptor::Context(ContextScope::Global)),
        TLBI_NSNH_ALL => Scope::Global,
        TLBI_NH_ASID => Scope::Domain(domain),
        TLBI_NH_VA => {
            let pages = match high >> 10 & 3 {
                0 => 1,
                _ => ((low >> 12 & 0x1f) + 1) << (low >> 20 & 0x1f),
            };
            // The smallest aligned range of a power of two of pages that has them all: more may be invalidated than is asked.
            let first = high >> 12;
            let mut mask = 0;
            while first >> mask != (first + pages - 1) >> mask {
                mask += 1;
            }
            Scope::Pages { domain, address: Iova::new(high & !0xfff), mask }
        }
        CMD_SYNC => {
            let address = high & 0x000f_ffff_ffff_fffc;
            let status = match low & SIGNAL {
                signal if signal == 1 << 12 && address != 0 => {
                    Some((HostPhysical::new(address), (low >> 32) as u32))
                }
                _ => None,
            };
            return Some(InvalidationDescriptor::Wait { status, interrupt: false });
        }
        _ => return None,
    };
    // What uses the translations ends before a CMD_SYNC does (section 3.21.2).
    let leaf_only = low & 0xff == TLBI_NH_VA && high & LEAF != 0;
    Some(InvalidationDescriptor::Iotlb { scope, drain_reads: true, drain_writes: true, leaf_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_specified_layout() {
        let pages = |mask| {
            let (domain, address) = (DomainId(7), Iova::new(0x1234_5000u64 >> (12 + mask) << (12 + mask)));
            InvalidationDescriptor::iotlb(Scope::Pages { domain, address, mask })
        };
        let device =
            ContextScope::Device { domain: DomainId(0), source: Bdf::new(3, 1, 0), function_mask: 0 };
        let cases = [
            (pages(0), [0x0007_0000_0000_0012, 0x1234_5000]),
            (pages(4), [0x0007_0000_0040_0012, 0x1234_0400]),
            (InvalidationDescriptor::iotlb(Scope::Domain(DomainId(9))), [0x0009_0000_0000_0011, 0]),
            (InvalidationDescriptor::iotlb(Scope::Global), [0x30, 0]),
            (InvalidationDescriptor::Context(device), [0x0000_0308_0000_0003, 1]),
            (InvalidationDescriptor::Context(ContextScope::Global), [4, 31]),
            (InvalidationDescriptor::wait(HostPhysical::new(0x9000), 5), [0x5_0fc0_1046, 0x9000]),
        ];
        for (descriptor, words) in cases {
            assert_eq!(encode(descriptor), Some(words), "{descriptor:?}");
            assert_eq!(decode(words), Some(descriptor));
        }
        assert_eq!(encode(InvalidationDescriptor::InterruptEntry { index: None }), None);
        assert_eq!(decode([0x99, 0]), None);
        let wait = InvalidationDescriptor::Wait { status: None, interrupt: false };
        assert_eq!(decode([0x46, 0x9000]), Some(wait), "CS of none signals nothing");
    }

    #[test]
    fn ranges_are_covered_whole() {
        // Three pages from the last but one of a block of eight.
        let Some(InvalidationDescriptor::Iotlb { scope, .. }) = decode([2 << 12 | 0x12, 6 << 12 | 1 << 10])
        else {
            panic!("it is a range");
        };
        for page in 6..9 {
            assert!(scope.covers(DomainId(0), Iova::new(page << 12), 4096), "page {page}");
        }
    }
}
