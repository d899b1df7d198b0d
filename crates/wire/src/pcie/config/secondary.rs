//! Secondary PCI Express: equalisation of links from 8 GT/s on (base spec 7.7.3). Offsets are relative to its header.

use super::image::Image;
use crate::pcie::Width;

/// Link control 3.
pub const LINK_CONTROL_3: u16 = 4;
/// Lanes that have seen errors, one bit each.
pub const LANE_ERRORS: u16 = 8;
/// Two bytes of presets for each lane.
const LANES: u16 = 12;

/// Bytes of the capability on a link of this width.
pub(super) const fn len(width: Width) -> u16 {
    (LANES + 2 * width.lanes() as u16).next_multiple_of(4)
}

/// Nothing is equalised, so that no lane has errors and presets are those of number 0.
pub(super) fn emit(image: &mut Image, at: u16) {
    /// Perform Equalisation and its interrupt.
    const EQUALISATION: u32 = 0b11;
    image.rw32(at + LINK_CONTROL_3, EQUALISATION).value32(at + LANE_ERRORS, 0);
}
