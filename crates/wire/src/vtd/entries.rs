//! The in-memory formats: root, context and second-level page table entries (VT-d specification, chapter 9).
//!
//! ```text
//! root entry       low  63:12 context table, 0 present                      high reserved
//! context entry    low  63:12 page table, 3:2 translation type, 1 fault processing disabled, 0 present
//!                  high 23:8 domain, 2:0 address width (1: 3 levels, 2: 4, 3: 5)
//! page table entry 51:12 address, 7 page size (levels 2 and 3), 1 write, 0 read
//! ```

use super::fault::FaultReason;
use super::ids::{DomainId, PageSize, Permissions, TableFormat};
use units::{HostPhysical, Iova};

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const LARGE: u64 = 1 << 7;

/// IOMMU features that decide which bits are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Formats of tables and commands.
    pub format: TableFormat,
    /// Width of host-physical addresses in bits.
    pub host_address_bits: u8,
    /// Five-level tables are supported.
    pub five_level: bool,
    /// 2 MiB leaves are supported.
    pub pages_2mib: bool,
    /// 1 GiB leaves are supported, and then those of 2 MiB.
    pub pages_1gib: bool,
    /// Interrupts can be posted to guests.
    pub posts_interrupts: bool,
}

impl Features {
    /// All features of VT-d, with 52 address bits.
    pub const ALL: Self = Self {
        format: TableFormat::VtD,
        host_address_bits: 52,
        five_level: true,
        pages_2mib: true,
        pages_1gib: true,
        posts_interrupts: true,
    };

    /// Mask of the address bits at or above the host's width, up to bit 63.
    const fn beyond_host(self) -> u64 {
        !((1u64 << self.host_address_bits) - 1)
    }
    const fn large_pages_at(self, level: u8) -> bool {
        match level {
            2 => self.pages_2mib,
            3 => self.pages_1gib,
            _ => false,
        }
    }
}

/// Number of address bits translated below `level`.
#[inline]
pub const fn level_shift(level: u8) -> u32 {
    12 + 9 * (level as u32 - 1)
}

/// Byte offset of the entry for `address` in its table of `level`.
#[inline]
pub const fn entry_offset(address: Iova, level: u8) -> u64 {
    (address.get() >> level_shift(level) & 0x1ff) * 8
}

/// Root entry, which points to the context table of one bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootEntry {
    /// 4 KiB-aligned table of 256 context entries.
    pub context_table: HostPhysical,
}

impl RootEntry {
    /// Encodes the entry as two words, low first.
    #[inline]
    pub const fn encode(self) -> [u64; 2] {
        [self.context_table.get() & !0xfff | 1, 0]
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// The fault of a request that uses this entry.
    #[inline]
    pub const fn decode([low, high]: [u64; 2], features: Features) -> Result<Self, FaultReason> {
        if low & 1 == 0 {
            return Err(FaultReason::RootNotPresent);
        }
        if low & (0xffe | features.beyond_host()) != 0 || high != 0 {
            return Err(FaultReason::RootReserved);
        }
        Ok(Self { context_table: HostPhysical::new(low & !0xfff) })
    }
}

/// Translation type of a context entry: which requests of a function are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TranslationType {
    /// 00: untranslated requests are translated, all others blocked.
    Untranslated,
    /// 01: also ATS: translation requests are answered and translated requests are accepted.
    WithAts,
    /// 10: untranslated requests pass through with unchanged addresses.
    PassThrough,
}

/// Context entry, which assigns a function to a domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextEntry {
    /// Domain ID, the tag of cached translations.
    pub domain: DomainId,
    /// Translation type.
    pub translation: TranslationType,
    /// Levels of the page table: 3, 4 or 5.
    pub levels: u8,
    /// Top-level page table; unused with pass-through.
    pub page_table: HostPhysical,
    /// Faults are counted but not recorded.
    pub fault_processing_disabled: bool,
}

impl ContextEntry {
    /// The words of an absent entry, which blocks all requests of the function.
    pub const BLOCKED: [u64; 2] = [0, 0];

    /// Encodes the entry as two words, low first.
    #[inline]
    pub const fn encode(self) -> [u64; 2] {
        let kind = match self.translation {
            TranslationType::Untranslated => 0,
            TranslationType::WithAts => 1 << 2,
            TranslationType::PassThrough => 2 << 2,
        };
        let disabled = (self.fault_processing_disabled as u64) << 1;
        let low = self.page_table.get() & !0xfff | kind | disabled | 1;
        [low, (self.domain.0 as u64) << 8 | (self.levels as u64).saturating_sub(2) & 7]
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// The fault of a request that uses this entry.
    #[inline]
    pub const fn decode([low, high]: [u64; 2], features: Features) -> Result<Self, FaultReason> {
        if low & 1 == 0 {
            return Err(FaultReason::ContextNotPresent);
        }
        if low & (0xff0 | features.beyond_host()) != 0 || high & !0xff_ff7f != 0 {
            return Err(FaultReason::ContextReserved);
        }
        let translation = match low >> 2 & 3 {
            0 => TranslationType::Untranslated,
            1 => TranslationType::WithAts,
            2 => TranslationType::PassThrough,
            _ => return Err(FaultReason::ContextInvalid),
        };
        let levels = match high & 7 {
            1 => 3,
            2 => 4,
            3 if features.five_level => 5,
            _ => return Err(FaultReason::ContextInvalid),
        };
        Ok(Self {
            domain: DomainId((high >> 8) as u16),
            translation,
            levels,
            page_table: HostPhysical::new(low & !0xfff),
            fault_processing_disabled: low & 2 != 0,
        })
    }

    /// Whether `address` is within the domain's address width.
    #[inline]
    pub const fn spans(&self, address: Iova) -> bool {
        address.get() >> level_shift(self.levels + 1) == 0
    }
}

/// A decoded page table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEntry {
    /// No access; all other bits are ignored.
    Absent,
    /// Points to a table of the next lower level.
    Table {
        /// Its address.
        table: HostPhysical,
        /// Permissions for everything below.
        permissions: Permissions,
    },
    /// Maps a page.
    Leaf {
        /// The page's host-physical address.
        frame: HostPhysical,
        /// The page's size.
        size: PageSize,
        /// Permissions of the page.
        permissions: Permissions,
    },
}

impl PageEntry {
    /// Encodes the entry.
    #[inline]
    pub const fn encode(self) -> u64 {
        const fn bits(p: Permissions) -> u64 {
            p.read as u64 | (p.write as u64) << 1
        }
        match self {
            Self::Absent => 0,
            Self::Table { table, permissions } => table.get() & ADDRESS | bits(permissions),
            Self::Leaf { frame, size, permissions } => {
                let large = if matches!(size, PageSize::Size4KiB) { 0 } else { LARGE };
                frame.get() & ADDRESS | large | bits(permissions)
            }
        }
    }

    /// Decodes the entry `word` of a table of `level`, 1 to 5.
    ///
    /// # Errors
    /// [`FaultReason::PageTableReserved`] if a reserved bit is set.
    #[inline]
    pub const fn decode(word: u64, level: u8, features: Features) -> Result<Self, FaultReason> {
        let permissions = Permissions { read: word & 1 != 0, write: word & 2 != 0 };
        if permissions.is_none() {
            return Ok(Self::Absent);
        }
        if word & ADDRESS & features.beyond_host() != 0 {
            return Err(FaultReason::PageTableReserved);
        }
        let address = HostPhysical::new(word & ADDRESS);
        let large = word & LARGE != 0;
        if level == 1 {
            return Ok(Self::Leaf { frame: address, size: PageSize::Size4KiB, permissions });
        }
        if !large {
            return Ok(Self::Table { table: address, permissions });
        }
        if !features.large_pages_at(level) {
            return Err(FaultReason::PageTableReserved);
        }
        let size = match level {
            2 => PageSize::Size2MiB,
            _ => PageSize::Size1GiB,
        };
        if address.offset_in(size.get()) != 0 {
            return Err(FaultReason::PageTableReserved);
        }
        Ok(Self::Leaf { frame: address, size, permissions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_context_entry_has_the_specified_layout() {
        let entry = ContextEntry {
            domain: DomainId(0x1234),
            translation: TranslationType::WithAts,
            levels: 4,
            page_table: HostPhysical::new(0xabc_d000),
            fault_processing_disabled: false,
        };
        assert_eq!(entry.encode(), [0xabc_d005, 0x12_3402]);
        assert_eq!(ContextEntry::decode(entry.encode(), Features::ALL), Ok(entry));
        assert!(entry.spans(Iova::new((1 << 48) - 1)));
        assert!(!entry.spans(Iova::new(1 << 48)));
    }

    #[test]
    fn reserved_bits_are_found() {
        let narrow = Features { host_address_bits: 40, ..Features::ALL };
        assert_eq!(PageEntry::decode(1 << 40 | 3, 1, narrow), Err(FaultReason::PageTableReserved));
        assert_eq!(PageEntry::decode(0x1000 | LARGE | 3, 2, narrow), Err(FaultReason::PageTableReserved));
        assert_eq!(PageEntry::decode(LARGE | 3, 4, narrow), Err(FaultReason::PageTableReserved));
        assert_eq!(RootEntry::decode([0x1003, 0], narrow), Err(FaultReason::RootReserved));
        assert_eq!(ContextEntry::decode([1, 1 << 24], narrow), Err(FaultReason::ContextReserved));
        let four = Features { five_level: false, ..narrow };
        assert_eq!(ContextEntry::decode([1, 3], four), Err(FaultReason::ContextInvalid));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_meaning(word: u64, level in 1u8..=5) {
            if let Ok(entry) = PageEntry::decode(word, level, Features::ALL) {
                prop_assert_eq!(PageEntry::decode(entry.encode(), level, Features::ALL), Ok(entry));
            }
        }
        #[test]
        fn any_context_words_decode_or_fault(low: u64, high: u64) {
            if let Ok(entry) = ContextEntry::decode([low, high], Features::ALL) {
                prop_assert_eq!(ContextEntry::decode(entry.encode(), Features::ALL), Ok(entry));
            }
        }
    }
}
