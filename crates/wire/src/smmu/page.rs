//! Translation table descriptors of stage 1 with a granule of 4 KiB (VMSAv8-64, D8.3).
//!
//! ```text
//! 47:12 address, 1:0 type: 1 block, 3 table or (level 3) page, even invalid
//! block and page: 54 UXN, 53 PXN, 11 nG, 10 AF, 9:8 SH, 7 read only, 6 unprivileged, 4:2 AttrIndx
//! table:          62 read only below, 61 not unprivileged below
//! ```
//! A level here counts up from the pages, as everywhere in this crate: Arm's level 3 is 1, its level 0 is 4. Stage 1 knows no pages
//! that are only written: such a page may be read, too.

use units::HostPhysical;

use crate::vtd::{FaultReason, Features, PageEntry, PageSize, Permissions};

const ADDRESS: u64 = 0x0000_ffff_ffff_f000;
const VALID: u64 = 1;
const TABLE: u64 = 2;
const UNPRIVILEGED: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 10;
/// Write-back (the second attribute of Linux's MAIR), inner shareable, not global.
const ORDINARY: u64 = 1 << 2 | 3 << 8 | 1 << 11;
const TABLE_READ_ONLY: u64 = 1 << 62;
const TABLE_PRIVILEGED: u64 = 1 << 61;

/// Encodes the descriptor of a table of `level`.
pub const fn encode(entry: PageEntry, level: u8) -> u64 {
    match entry {
        PageEntry::Absent => 0,
        PageEntry::Table { table, permissions } => {
            let limit = if permissions.write { 0 } else { TABLE_READ_ONLY };
            table.get() & ADDRESS | limit | TABLE | VALID
        }
        PageEntry::Leaf { frame, permissions, .. } => {
            let kind = if level == 1 { TABLE | VALID } else { VALID };
            let limit = if permissions.write { 0 } else { READ_ONLY };
            frame.get() & ADDRESS | ORDINARY | ACCESSED | UNPRIVILEGED | limit | kind
        }
    }
}

/// Decodes the descriptor `word` of a table of `level`. One whose page was never marked as accessed counts as absent, as nobody
/// would mark it.
///
/// # Errors
/// [`FaultReason::PageTableReserved`] for an address beyond the host's.
pub const fn decode(word: u64, level: u8, features: Features) -> Result<PageEntry, FaultReason> {
    let is_table = word & TABLE != 0;
    let is_leaf = if level == 1 { is_table } else { !is_table };
    let size = match level {
        1 => PageSize::Size4KiB,
        2 => PageSize::Size2MiB,
        _ => PageSize::Size1GiB,
    };
    // Neither pages of level 3 as blocks nor blocks above 1 GiB.
    let is_possible = if level == 1 { is_leaf } else { level <= 3 || is_table };
    if word & VALID == 0 || !is_possible {
        return Ok(PageEntry::Absent);
    }
    let address = word & ADDRESS;
    if address >> features.host_address_bits != 0 {
        return Err(FaultReason::PageTableReserved);
    }
    if !is_leaf {
        let read = word & TABLE_PRIVILEGED == 0;
        let permissions = Permissions { read, write: read && word & TABLE_READ_ONLY == 0 };
        return Ok(PageEntry::Table { table: HostPhysical::new(address), permissions });
    }
    if word & ACCESSED == 0 || word & UNPRIVILEGED == 0 {
        return Ok(PageEntry::Absent);
    }
    let permissions = Permissions { read: true, write: word & READ_ONLY == 0 };
    Ok(PageEntry::Leaf { frame: HostPhysical::new(address & !(size.get() - 1)), size, permissions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn descriptors_have_the_specified_layout() {
        let leaf =
            |frame, size, permissions| PageEntry::Leaf { frame: HostPhysical::new(frame), size, permissions };
        let table =
            PageEntry::Table { table: HostPhysical::new(0x7000), permissions: Permissions::READ_WRITE };
        let cases = [
            (leaf(0x1_2345_6000, PageSize::Size4KiB, Permissions::READ_WRITE), 1, 0x1_2345_6f47),
            (leaf(0x1_2345_6000, PageSize::Size4KiB, Permissions::READ), 1, 0x1_2345_6fc7),
            (leaf(0x4020_0000, PageSize::Size2MiB, Permissions::READ_WRITE), 2, 0x4020_0f45),
            (leaf(0x4000_0000, PageSize::Size1GiB, Permissions::READ), 3, 0x4000_0fc5),
            (table, 2, 0x7003),
            (table, 4, 0x7003),
            (PageEntry::Absent, 1, 0),
        ];
        for (entry, level, word) in cases {
            assert_eq!(encode(entry, level), word, "{entry:?}");
            assert_eq!(decode(word, level, Features::ALL), Ok(entry));
        }
        // Written alone is read as well.
        let written = leaf(0x1000, PageSize::Size4KiB, Permissions::WRITE);
        assert_eq!(encode(written, 1), 0x1f47);
        for (word, level) in [(0x1f45, 1), (0x1f45, 4), (0x1b47, 1), (0x1f07, 1), (0x1f46, 1)] {
            assert_eq!(
                decode(word, level, Features::ALL),
                Ok(PageEntry::Absent),
                "{word:#x} of level {level}"
            );
        }
        let narrow = Features { host_address_bits: 40, ..Features::ALL };
        assert_eq!(decode(1 << 40 | 0xf47, 1, narrow), Err(FaultReason::PageTableReserved));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_meaning(word: u64, level in 1u8..=4) {
            if let Ok(entry) = decode(word, level, Features::ALL)
                && !matches!(entry, PageEntry::Table { permissions, .. } if permissions.is_none())
            {
                prop_assert_eq!(decode(encode(entry, level), level, Features::ALL), Ok(entry));
            }
        }
    }
}
