//! Power management capability (base spec 7.5.2). Offsets are relative to its header.

use super::image::Image;

/// Capabilities register.
pub const CAPABILITIES: u16 = 2;
/// Control and status register.
pub const CONTROL: u16 = 4;
/// Bytes of the capability.
pub const LEN: u16 = 8;

/// A function's power state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PowerState {
    /// Working.
    D0 = 0,
    /// Light sleep (optional).
    D1 = 1,
    /// Deeper sleep (optional).
    D2 = 2,
    /// Off except for configuration space.
    D3Hot = 3,
}

impl PowerState {
    /// Decodes the two bits of the control register.
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::D0,
            1 => Self::D1,
            2 => Self::D2,
            _ => Self::D3Hot,
        }
    }
}

/// Version 3, no D1 or D2, PME from D0 and D3hot; registers survive D3hot (No_Soft_Reset).
pub(super) fn emit(image: &mut Image, at: u16) {
    image
        .value16(at + CAPABILITIES, 0x4803)
        .value16(at + CONTROL, 1 << 3)
        .rw16(at + CONTROL, 0x0103)
        .rw1c16(at + CONTROL, 1 << 15);
}
