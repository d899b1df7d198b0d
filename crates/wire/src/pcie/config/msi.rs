//! MSI capability (base spec 7.7.1), 64-bit addresses and per-vector masks. Offsets are relative to its header.

use super::image::Image;

/// Message control.
pub const CONTROL: u16 = 2;
/// Message address, lower half.
pub const ADDRESS: u16 = 4;
/// Message address, upper half.
pub const ADDRESS_UPPER: u16 = 8;
/// Message data, 16 bits.
pub const DATA: u16 = 0x0c;
/// Mask bits.
pub const MASK: u16 = 0x10;
/// Pending bits.
pub const PENDING: u16 = 0x14;
/// Bytes of the capability.
pub const LEN: u16 = 0x18;

/// Control: MSI Enable.
pub const ENABLE: u16 = 1;

pub(super) fn emit(image: &mut Image, at: u16, vectors: u8) {
    let log2 = vectors.ilog2() as u16;
    image
        .value16(at + CONTROL, log2 << 1 | 1 << 7 | 1 << 8)
        .rw16(at + CONTROL, ENABLE | 7 << 4)
        .rw32(at + ADDRESS, !3)
        .rw32(at + ADDRESS_UPPER, u32::MAX)
        .rw16(at + DATA, u16::MAX)
        .rw32(at + MASK, u32::MAX >> (32 - u32::from(vectors)));
}

/// MSI settings that the host has programmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsiState {
    /// MSI Enable.
    pub enabled: bool,
    /// Number of enabled vectors, 1 to 32.
    pub vectors: u8,
    /// Message address.
    pub address: u64,
    /// Message data of vector 0; the vector number replaces its lowest bits.
    pub data: u16,
    /// Mask bits, one per vector.
    pub mask: u32,
    /// Pending bits: masked vectors that have been raised.
    pub pending: u32,
}

impl MsiState {
    /// Reads the capability at `at`.
    pub fn read(read: &dyn Fn(u16) -> u32, at: u16) -> Self {
        let control = (read(at) >> 16) as u16;
        Self {
            enabled: control & ENABLE != 0,
            vectors: 1 << (control >> 4 & 7).min(5),
            address: u64::from(read(at + ADDRESS_UPPER)) << 32 | u64::from(read(at + ADDRESS)),
            data: read(at + DATA) as u16,
            mask: read(at + MASK),
            pending: read(at + PENDING),
        }
    }
}
