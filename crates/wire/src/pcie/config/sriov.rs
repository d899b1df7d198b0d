//! Single-root I/O virtualisation (base spec 9.3.3). Offsets are relative to its header.

use super::bars::{Bar, BarKind};
use super::image::Image;
use super::space::ConfigSpace;
use crate::pcie::Bdf;

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
/// Supported page sizes, to which VF BARs can be aligned.
pub const SUPPORTED_PAGES: u16 = 0x1c;
/// Page size in use.
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

/// SR-IOV parameters of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SriovParams {
    /// Maximum number of virtual functions.
    pub total: u16,
    /// Offset from the physical function's ID to that of the first virtual function.
    pub first_offset: u16,
    /// Stride from one virtual function to the next.
    pub stride: u16,
    /// PCI device ID of the virtual functions.
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
        // 4, 8, 64, 256 KiB, 1 and 4 MiB, as the specification requires.
        .value32(at + SUPPORTED_PAGES, 0x553)
        .value32(at + SYSTEM_PAGES, 1)
        .rw32(at + SYSTEM_PAGES, 0x553);
}

/// The virtual functions of a physical function, from its current register values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualFunctions {
    /// VF Enable: the virtual functions exist.
    pub enabled: bool,
    /// VF Memory Space Enable: their BARs are enabled.
    pub memory: bool,
    /// Number of virtual functions: NumVFs, at most TotalVFs.
    pub count: u16,
    /// Offset from the physical function's ID to that of the first virtual function.
    pub first_offset: u16,
    /// Stride from one virtual function to the next.
    pub stride: u16,
    /// BARs of the first one. Those of the `n`-th are `n` times their size higher (base spec 9.2.1.1.1).
    pub bars: [Option<Bar>; 6],
}

impl VirtualFunctions {
    /// Whether the `n`-th exists, starting at 0.
    pub const fn has(&self, n: u16) -> bool {
        self.enabled && n < self.count
    }

    /// The ID of the `n`-th, starting at 0 (base spec 9.2.1.2).
    pub const fn id(&self, physical: Bdf, n: u16) -> Bdf {
        let behind = self.first_offset.wrapping_add(self.stride.wrapping_mul(n));
        Bdf::from_bits(physical.bits().wrapping_add(behind))
    }

    /// A BAR of the `n`-th.
    pub fn bar(&self, number: u8, n: u16) -> Option<Bar> {
        let first = (*self.bars.get(usize::from(number))?)?;
        Some(Bar { address: first.address.wrapping_add(u64::from(n).wrapping_mul(first.size)), ..first })
    }

    /// The virtual function that decodes all `len` bytes from `address` on: its number, BAR, and the offset in the BAR.
    pub fn find_bar(&self, address: u64, len: u32) -> Option<(u16, u8, u64)> {
        if !self.enabled || !self.memory {
            return None;
        }
        (0u8..).zip(&self.bars).find_map(|(number, bar)| {
            let first = (*bar)?;
            let n = address.checked_sub(first.address)? / first.size;
            let n = u16::try_from(n).ok().filter(|&n| n < self.count)?;
            Some((n, number, self.bar(number, n)?.offset_of(address, len)?))
        })
    }
}

impl ConfigSpace {
    /// The function's virtual functions, if it supports any.
    pub fn virtual_functions(&self) -> Option<VirtualFunctions> {
        let at = self.offsets.sriov?;
        let control = self.dword(at + CONTROL) as u16;
        let placing = self.dword(at + OFFSET_STRIDE);
        let bars = core::array::from_fn(|n| {
            let (kind, size) = self.offsets.vf_bars[n]?;
            let register = at + BAR0 + 4 * n as u16;
            let high = if kind.is_64() { u64::from(self.dword(register + 4)) << 32 } else { 0 };
            let address = high | u64::from(self.dword(register) & !0xf);
            Some(Bar { kind, size: size.max(4096), address })
        });
        Some(VirtualFunctions {
            enabled: control & ENABLE != 0,
            memory: control & MEMORY != 0,
            count: (self.dword(at + NUMBER) as u16).min((self.dword(at + INITIAL) >> 16) as u16),
            first_offset: placing as u16,
            stride: (placing >> 16) as u16,
            bars,
        })
    }
}
