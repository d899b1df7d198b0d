//! Alternative routing-ID interpretation (base spec 7.8.7). Offsets are relative to its header.

use super::image::Image;

/// Capability; bits 15 to 8 are the next function number, 0 for none.
pub const CAPABILITY: u16 = 4;
/// Bytes of the capability.
pub const LEN: u16 = 8;

pub(super) fn emit(image: &mut Image, at: u16, next_function: u8) {
    image.value16(at + CAPABILITY, u16::from(next_function) << 8);
}
