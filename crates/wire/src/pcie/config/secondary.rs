//! Secondary PCI Express: equalisation of links at 8 GT/s and above (base spec 7.7.3). Offsets are relative to its
//! header.

use super::image::Image;
use crate::pcie::Width;

/// Link control 3: requests that the link be equalised again.
pub const LINK_CONTROL_3: u16 = 4;
/// Equalisation presets, two bytes per lane.
const LANES: u16 = 12;

/// Bytes of the capability on a link of this width.
pub(super) const fn len(width: Width) -> u16 {
    (LANES + 2 * width.lanes() as u16).next_multiple_of(4)
}

/// Equalisation is not modelled, so no lane reports errors and all presets are 0.
pub(super) fn emit(image: &mut Image, at: u16) {
    /// Perform Equalisation and its interrupt enable.
    const EQUALISATION: u32 = 0b11;
    image.rw32(at + LINK_CONTROL_3, EQUALISATION);
}
