//! Single-root I/O virtualisation (base spec 9.3.3). Offsets are relative to its header.

use super::bars::BarKind;
use super::image::Image;

/// Control: VF Enable, VF MSE.
pub const CONTROL: u16 = 0x08;
/// InitialVFs and TotalVFs.
pub const INITIAL: u16 = 0x0c;
/// NumVFs.
pub const NUMBER: u16 = 0x10;
/// First VF Offset and VF Stride.
pub const OFFSET_STRIDE: u16 = 0x14;
/// VF device ID.
pub const DEVICE: u16 = 0x1a;
/// Page sizes that VF BARs can be aligned to.
pub const SUPPORTED_PAGES: u16 = 0x1c;
/// The one in use.
pub const SYSTEM_PAGES: u16 = 0x20;
/// The first VF BAR.
pub const BAR0: u16 = 0x24;
/// Bytes of the capability.
pub const LEN: u16 = 0x40;

/// Control: VF Enable.
pub const ENABLE: u16 = 1 << 0;
/// Control: VF Memory Space Enable.
pub const MEMORY: u16 = 1 << 3;
/// Control: ARI Capable Hierarchy.
pub const ARI_HIERARCHY: u16 = 1 << 4;

/// A function's virtual functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SriovParams {
    /// Most virtual functions.
    pub total: u16,
    /// From the physical function's ID to the first one's.
    pub first_offset: u16,
    /// From one to the next.
    pub stride: u16,
    /// Their device ID.
    pub device: u16,
    /// Their BARs: kind (memory) and bytes per virtual function. The entry behind a 64-bit one is its upper half.
    pub bars: [Option<(BarKind, u64)>; 6],
}

pub(super) fn emit(image: &mut Image, at: u16, p: &SriovParams) {
    image
        .rw16(at + CONTROL, ENABLE | MEMORY | ARI_HIERARCHY)
        .value16(at + INITIAL, p.total)
        .value16(at + INITIAL + 2, p.total)
        .rw16(at + NUMBER, u16::MAX)
        .value16(at + OFFSET_STRIDE, p.first_offset)
        .value16(at + OFFSET_STRIDE + 2, p.stride)
        .value16(at + DEVICE, p.device)
        // 4, 8, 64, 256 KiB, 1 and 4 MiB, as the specification demands.
        .value32(at + SUPPORTED_PAGES, 0x553)
        .value32(at + SYSTEM_PAGES, 1)
        .rw32(at + SYSTEM_PAGES, 0x553);
}
