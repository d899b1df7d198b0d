//! Resizable BARs (base spec 7.8.6). Offsets are relative to its header.
//!
//! Behind the header is a pair of registers for each BAR that can be resized.
//!
//! ```text
//!       31                                              4 3         0
//!      +-------------------------------------------------+-----------+
//! + 4  | bit n + 4: can be 2^n MiB                       | reserved  |
//!      +-----------------------+---------+-------+-------+---+-------+
//! + 8  |                       | size    |       | BARs  |   | index |
//!      +-----------------------+---------+-------+-------+---+-------+
//!                            13         8       7       5  2        0
//! ```

use super::image::Image;

/// First pair: sizes.
pub const CAPABILITY: u16 = 4;
/// First pair: control.
pub const CONTROL: u16 = 8;
/// Bytes of the capability with one pair.
pub const LEN: u16 = 12;
/// Bytes of a pair.
pub const PAIR: u16 = 8;

/// Smallest size, that of code 0.
const UNIT: u64 = 1 << 20;
/// Highest size in the capability register: 128 TiB.
const MOST: u32 = 27;
/// Size in control.
const SIZE: u32 = 0x3f << 8;

/// Number of the pair's BAR.
pub const fn bar(control: u32) -> u8 {
    control as u8 & 7
}

/// Number of pairs, in the first one.
pub const fn pairs(control: u32) -> u16 {
    (control >> 5 & 7) as u16
}

/// Size in a control register, in bytes.
pub const fn size(control: u32) -> u64 {
    let code = (control & SIZE) >> 8;
    UNIT << if code < 43 { code } else { 43 }
}

/// A control register with another size, a power of two.
pub const fn with_size(control: u32, size: u64) -> u32 {
    control & !SIZE | (size / UNIT).trailing_zeros() << 8
}

/// Whether a capability register has a size, in bytes.
pub const fn can_be(capability: u32, size: u64) -> bool {
    size.is_power_of_two() && size >= UNIT && (size / UNIT).trailing_zeros() <= MOST && {
        capability >> 4 >> (size / UNIT).trailing_zeros() & 1 == 1
    }
}

/// Whether all sizes from one to another can be expressed.
pub(super) fn can_express(least: u64, most: u64) -> bool {
    let all = !0xf;
    can_be(all, least) && can_be(all, most) && least <= most
}

/// The registers of BAR `index`, which has the least size after a reset.
pub(super) fn emit(image: &mut Image, at: u16, index: u8, (least, most): (u64, u64)) {
    let codes = (least / UNIT).trailing_zeros()..=(most / UNIT).trailing_zeros();
    let capability = codes.fold(0, |all, code| all | 16 << code);
    image
        .value32(at + CAPABILITY, capability)
        .value32(at + CONTROL, with_size(u32::from(index) | 1 << 5, least))
        .rw32(at + CONTROL, SIZE);
}
