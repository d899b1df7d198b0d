//! Device serial number, an EUI-64 (base spec 7.9.3). Offsets are relative to its header.

use super::image::Image;

/// Lower half; the upper half follows.
pub const SERIAL: u16 = 4;
/// Bytes of the capability.
pub const LEN: u16 = 12;

pub(super) fn emit(image: &mut Image, at: u16, serial: u64) {
    image.value32(at + SERIAL, serial as u32).value32(at + SERIAL + 4, (serial >> 32) as u32);
}
