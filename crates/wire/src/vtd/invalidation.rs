//! Invalidation descriptors (VT-d specification, section 6.5.2), 128 bits each.
//!
//! ```text
//! low word, bits 3:0 type
//! 1 context cache    5:4 granularity, 31:16 domain, 47:32 source, 49:48 function mask
//! 2 IOTLB            5:4 granularity, 6 drain writes, 7 drain reads, 31:16 domain
//!                    high: 63:12 address, 6 leaf only (invalidation hint), 5:0 address mask
//! 4 interrupt entry  4 granularity, 31:27 index mask, 47:32 index
//! 5 wait             4 interrupt, 5 status write, 63:32 status; high: 63:2 status address
//! ```
//!
//! Type 3 is for device TLBs, which no function here has. Descriptors are executed one after another, so the fence
//! bit of a wait descriptor says nothing new.

use super::ids::DomainId;
use crate::pcie::Bdf;
use units::{HostPhysical, Iova};

/// Scope of an IOTLB invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// All translations.
    Global,
    /// All translations of one domain.
    Domain(DomainId),
    /// Translations that overlap 2^`mask` naturally aligned 4 KiB pages of a domain.
    Pages {
        /// The domain whose page tables changed.
        domain: DomainId,
        /// Any address in the range.
        address: Iova,
        /// Binary logarithm of the number of pages.
        mask: u8,
    },
}

impl Scope {
    /// Whether the scope covers a translation of `bytes` (a power of two) from `base` in `domain`.
    pub fn covers(self, domain: DomainId, base: Iova, bytes: u64) -> bool {
        match self {
            Self::Global => true,
            Self::Domain(d) => d == domain,
            Self::Pages { domain: d, address, mask } => {
                let wanted = 4096u64.checked_shl(mask.into()).filter(|&w| w != 0);
                // Two naturally aligned blocks overlap if they are in the same block of the larger size.
                let coarser = wanted.map(|w| w.max(bytes));
                d == domain && coarser.is_none_or(|c| address.align_down(c) == base.align_down(c))
            }
        }
    }
}

/// Scope of a context-cache invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ContextScope {
    /// All entries.
    Global,
    /// Entries that assign a function to this domain.
    Domain(DomainId),
    /// The entry of one function.
    Device {
        /// The domain that it was assigned to.
        domain: DomainId,
        /// The function.
        source: Bdf,
        /// Number of function number bits to ignore, 0 to 3, from the highest downwards: see [`ContextScope::covers`].
        function_mask: u8,
    },
}

impl ContextScope {
    /// Whether the scope covers the entry that assigns `source` to `domain`.
    pub const fn covers(self, domain: DomainId, source: Bdf) -> bool {
        match self {
            Self::Global => true,
            Self::Domain(d) => d.0 == domain.0,
            Self::Device { source: s, function_mask, .. } => {
                let ignored = [0u16, 0b100, 0b110, 0b111][(function_mask & 3) as usize];
                s.bits() | ignored == source.bits() | ignored
            }
        }
    }
}

/// One entry of the invalidation queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InvalidationDescriptor {
    /// Invalidates context entries.
    Context(ContextScope),
    /// Invalidates translations.
    Iotlb {
        /// Which translations.
        scope: Scope,
        /// Wait until earlier translated reads have completed.
        drain_reads: bool,
        /// Wait until earlier translated writes have completed.
        drain_writes: bool,
        /// Only leaf entries changed: keep the paging-structure caches.
        leaf_only: bool,
    },
    /// Invalidates cached interrupt remapping entries.
    InterruptEntry {
        /// First entry and binary logarithm of the count; `None` for all.
        index: Option<(u16, u8)>,
    },
    /// Reports that all earlier descriptors have completed.
    Wait {
        /// Writes this value to this 4-byte-aligned address.
        status: Option<(HostPhysical, u32)>,
        /// Sends an invalidation completion event.
        interrupt: bool,
    },
}

impl InvalidationDescriptor {
    /// An IOTLB invalidation that drains reads and writes, as operating systems use it.
    pub const fn iotlb(scope: Scope) -> Self {
        Self::Iotlb { scope, drain_reads: true, drain_writes: true, leaf_only: false }
    }
    /// A wait descriptor that writes `value` to `address`.
    pub const fn wait(address: HostPhysical, value: u32) -> Self {
        Self::Wait { status: Some((address, value)), interrupt: false }
    }

    /// Encodes the descriptor as two words, low first.
    pub const fn encode(self) -> [u64; 2] {
        match self {
            Self::Context(scope) => {
                let rest = match scope {
                    ContextScope::Global => 1 << 4,
                    ContextScope::Domain(d) => 2 << 4 | (d.0 as u64) << 16,
                    ContextScope::Device { domain, source, function_mask } => {
                        3 << 4
                            | (domain.0 as u64) << 16
                            | (source.bits() as u64) << 32
                            | ((function_mask & 3) as u64) << 48
                    }
                };
                [1 | rest, 0]
            }
            Self::Iotlb { scope, drain_reads, drain_writes, leaf_only } => {
                let flags = (drain_writes as u64) << 6 | (drain_reads as u64) << 7;
                let hint = (leaf_only as u64) << 6;
                let (low, high) = match scope {
                    Scope::Global => (1 << 4, 0),
                    Scope::Domain(d) => (2 << 4 | (d.0 as u64) << 16, 0),
                    Scope::Pages { domain, address, mask } => {
                        (3 << 4 | (domain.0 as u64) << 16, address.get() & !0xfff | (mask & 0x3f) as u64)
                    }
                };
                [2 | flags | low, high | hint]
            }
            Self::InterruptEntry { index: None } => [4, 0],
            Self::InterruptEntry { index: Some((index, mask)) } => {
                [4 | 1 << 4 | ((mask & 0x1f) as u64) << 27 | (index as u64) << 32, 0]
            }
            Self::Wait { status, interrupt } => {
                let flags = 5 | (interrupt as u64) << 4;
                match status {
                    None => [flags, 0],
                    Some((address, value)) => [flags | 1 << 5 | (value as u64) << 32, address.get() & !3],
                }
            }
        }
    }

    /// Decodes a descriptor; `None` if its type or granularity is undefined.
    pub const fn decode([low, high]: [u64; 2]) -> Option<Self> {
        let granularity = low >> 4 & 3;
        let domain = DomainId((low >> 16) as u16);
        let source = Bdf::from_bits((low >> 32) as u16);
        Some(match low & 0xf {
            1 => Self::Context(match granularity {
                1 => ContextScope::Global,
                2 => ContextScope::Domain(domain),
                3 => ContextScope::Device { domain, source, function_mask: (low >> 48 & 3) as u8 },
                _ => return None,
            }),
            2 => Self::Iotlb {
                scope: match granularity {
                    1 => Scope::Global,
                    2 => Scope::Domain(domain),
                    3 => {
                        Scope::Pages { domain, address: Iova::new(high & !0xfff), mask: (high & 0x3f) as u8 }
                    }
                    _ => return None,
                },
                drain_writes: low >> 6 & 1 != 0,
                drain_reads: low >> 7 & 1 != 0,
                leaf_only: high >> 6 & 1 != 0,
            },
            4 if low >> 4 & 1 == 0 => Self::InterruptEntry { index: None },
            4 => Self::InterruptEntry { index: Some(((low >> 32) as u16, (low >> 27 & 0x1f) as u8)) },
            5 => Self::Wait {
                status: if low >> 5 & 1 != 0 {
                    Some((HostPhysical::new(high & !3), (low >> 32) as u32))
                } else {
                    None
                },
                interrupt: low >> 4 & 1 != 0,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_invalidation_has_the_specified_layout() {
        let scope = Scope::Pages { domain: DomainId(7), address: Iova::new(0x1234_5000), mask: 3 };
        assert_eq!(InvalidationDescriptor::iotlb(scope).encode(), [0x0007_00f2, 0x1234_5003]);
    }

    #[test]
    fn function_masks_ignore_high_bits_first() {
        let source = Bdf::new(3, 1, 0);
        let scope = |function_mask| ContextScope::Device { domain: DomainId(0), source, function_mask };
        assert!(!scope(0).covers(DomainId(0), Bdf::new(3, 1, 4)));
        assert!(scope(1).covers(DomainId(0), Bdf::new(3, 1, 4)));
        assert!(!scope(1).covers(DomainId(0), Bdf::new(3, 1, 1)));
        assert!(scope(3).covers(DomainId(0), Bdf::new(3, 1, 7)));
        assert!(!scope(3).covers(DomainId(0), Bdf::new(3, 2, 0)));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_meaning(low: u64, high: u64) {
            if let Some(d) = InvalidationDescriptor::decode([low, high]) {
                prop_assert_eq!(InvalidationDescriptor::decode(d.encode()), Some(d));
            }
        }

        #[test]
        fn a_scope_covers_what_overlaps(a in 0u64..64, mask in 0u8..8, b in 0u64..64, order in 0u32..6) {
            let (b, size) = (b >> order << order, 1u64 << order);
            let scope =
                Scope::Pages { domain: DomainId(1), address: Iova::new(a << 12), mask };
            let first = a >> mask << mask;
            let overlap = first < b + size && b < first + (1 << mask);
            prop_assert_eq!(scope.covers(DomainId(1), Iova::new(b << 12), size << 12), overlap);
            prop_assert!(!scope.covers(DomainId(2), Iova::new(b << 12), size << 12));
        }
    }
}
