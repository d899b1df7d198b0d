//! Address translation services (base spec 10.5.1). Offsets are relative to its header.

use super::image::Image;

/// Capability: invalidate queue depth, page-aligned requests.
pub const CAPABILITY: u16 = 4;
/// Control: smallest translation unit, enable.
pub const CONTROL: u16 = 6;
/// Bytes of the capability.
pub const LEN: u16 = 8;
/// Control: Enable.
pub const ENABLE: u16 = 1 << 15;

pub(super) fn emit(image: &mut Image, at: u16, queue_depth: u8) {
    // A depth of 32 is encoded as 0. Bit 5: page-aligned requests.
    image.value16(at + CAPABILITY, u16::from(queue_depth & 0x1f) | 1 << 5).rw16(at + CONTROL, ENABLE | 0x1f);
}
