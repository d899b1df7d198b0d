//! Entries of host page tables (section 2.2.3).
//!
//! ```text
//! 62 IW, 61 IR, 60 FC, 51:12 address, 11:9 next level, 0 PR
//! ```
//! A next level of 0 is a page of its table's own size; 7, of a size that the address tells, and levels that are left out are not
//! used here.

use units::HostPhysical;

use crate::vtd::{FaultReason, Features, PageEntry, PageSize, Permissions};

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const PRESENT: u64 = 1;
/// Accesses are coherent.
const COHERENT: u64 = 1 << 60;

const fn bits(permissions: Permissions) -> u64 {
    (permissions.read as u64) << 61 | (permissions.write as u64) << 62
}

/// Encodes the entry of a table of `level`.
pub const fn encode(entry: PageEntry, level: u8) -> u64 {
    match entry {
        PageEntry::Absent => 0,
        PageEntry::Table { table, permissions } => {
            table.get() & ADDRESS | ((level - 1) as u64) << 9 | bits(permissions) | PRESENT
        }
        PageEntry::Leaf { frame, permissions, .. } => {
            frame.get() & ADDRESS | COHERENT | bits(permissions) | PRESENT
        }
    }
}

/// Decodes the entry `word` of a table of `level`.
///
/// # Errors
/// [`FaultReason::PageTableReserved`] for what is impossible there.
pub const fn decode(word: u64, level: u8, features: Features) -> Result<PageEntry, FaultReason> {
    if word & PRESENT == 0 {
        return Ok(PageEntry::Absent);
    }
    let permissions = Permissions { read: word >> 61 & 1 != 0, write: word >> 62 & 1 != 0 };
    let address = word & ADDRESS;
    if address >> features.host_address_bits != 0 {
        return Err(FaultReason::PageTableReserved);
    }
    let next = (word >> 9 & 7) as u8;
    if next != 0 {
        let table = HostPhysical::new(address);
        return match next + 1 == level {
            true => Ok(PageEntry::Table { table, permissions }),
            false => Err(FaultReason::PageTableReserved),
        };
    }
    match PageSize::of_level(level) {
        Some(size) if address & (size.get() - 1) == 0 => {
            Ok(PageEntry::Leaf { frame: HostPhysical::new(address), size, permissions })
        }
        _ => Err(FaultReason::PageTableReserved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_have_the_specified_layout() {
        let leaf =
            |frame, size, permissions| PageEntry::Leaf { frame: HostPhysical::new(frame), size, permissions };
        let table =
            PageEntry::Table { table: HostPhysical::new(0x7000), permissions: Permissions::READ_WRITE };
        let cases = [
            (leaf(0x1_2345_6000, PageSize::Size4KiB, Permissions::READ), 1, 0x3000_0001_2345_6001),
            (leaf(0x1_2345_6000, PageSize::Size4KiB, Permissions::WRITE), 1, 0x5000_0001_2345_6001),
            (leaf(0x4020_0000, PageSize::Size2MiB, Permissions::READ_WRITE), 2, 0x7000_0000_4020_0001),
            (table, 2, 0x6000_0000_0000_7201),
            (table, 4, 0x6000_0000_0000_7601),
            (PageEntry::Absent, 3, 0),
        ];
        for (entry, level, word) in cases {
            assert_eq!(encode(entry, level), word, "{entry:?}");
            assert_eq!(decode(word, level, Features::ALL), Ok(entry));
        }
        for (word, level) in [(0x7201, 3), (0x7e01, 2), (1, 4), (0x1001, 2)] {
            let reserved = decode(word, level, Features::ALL);
            assert_eq!(reserved, Err(FaultReason::PageTableReserved), "{word:#x} of level {level}");
        }
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_meaning(word: u64, level in 1u8..=5) {
            if let Ok(entry) = decode(word, level, Features::ALL) {
                prop_assert_eq!(decode(encode(entry, level), level, Features::ALL), Ok(entry));
            }
        }
    }
}
