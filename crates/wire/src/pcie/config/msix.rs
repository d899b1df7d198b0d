//! MSI-X capability and the table it points to (base spec 7.7.2). Offsets are relative to its header.

use super::image::Image;

/// Message control.
pub const CONTROL: u16 = 2;
/// Table offset and, in bits 2 to 0, its BAR.
pub const TABLE: u16 = 4;
/// Offset of the pending bits and, in bits 2 to 0, their BAR.
pub const PENDING: u16 = 8;
/// Bytes of the capability.
pub const LEN: u16 = 12;

/// Control: MSI-X Enable.
pub const ENABLE: u16 = 1 << 15;
/// Control: Function Mask.
pub const FUNCTION_MASK: u16 = 1 << 14;

/// Bytes of one table entry: address (8), data (4), vector control (4).
pub const ENTRY_LEN: u64 = 16;
/// Vector control: masked; set after reset.
pub const ENTRY_MASKED: u32 = 1;

/// Location of the MSI-X table and pending bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsixLayout {
    /// Number of vectors, 1 to 2048.
    pub vectors: u16,
    /// BAR that holds the table.
    pub table_bar: u8,
    /// Offset of the table in its BAR, a multiple of 8.
    pub table_offset: u32,
    /// BAR that holds the pending bits.
    pub pending_bar: u8,
    /// Offset of the pending bits in their BAR, a multiple of 8.
    pub pending_offset: u32,
}

impl MsixLayout {
    /// Reads the capability at `at`.
    pub fn read(read: &dyn Fn(u16) -> u32, at: u16) -> Self {
        let (table, pending) = (read(at + TABLE), read(at + PENDING));
        Self {
            vectors: ((read(at) >> 16) as u16 & 0x7ff) + 1,
            table_bar: table as u8 & 7,
            table_offset: table & !7,
            pending_bar: pending as u8 & 7,
            pending_offset: pending & !7,
        }
    }

    /// Size of the table in bytes.
    pub fn table_len(&self) -> u64 {
        u64::from(self.vectors) * ENTRY_LEN
    }

    /// Size of the pending bits in bytes: one bit per vector, rounded up to quadwords.
    pub fn pending_len(&self) -> u64 {
        u64::from(self.vectors).div_ceil(64) * 8
    }
}

pub(super) fn emit(image: &mut Image, at: u16, layout: &MsixLayout) {
    image
        .value16(at + CONTROL, layout.vectors - 1)
        .rw16(at + CONTROL, ENABLE | FUNCTION_MASK)
        .value32(at + TABLE, layout.table_offset & !7 | u32::from(layout.table_bar))
        .value32(at + PENDING, layout.pending_offset & !7 | u32::from(layout.pending_bar));
}
