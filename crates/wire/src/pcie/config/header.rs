//! The header in the first 64 bytes: type 0 for functions, type 1 for bridges (base spec 7.5.1).

use super::image::Image;

/// Vendor ID, 16 bits.
pub const VENDOR: u16 = 0x00;
/// Device ID, 16 bits.
pub const DEVICE: u16 = 0x02;
/// Command, 16 bits.
pub const COMMAND: u16 = 0x04;
/// Status, 16 bits.
pub const STATUS: u16 = 0x06;
/// Revision ID; the class code is in the next three bytes.
pub const REVISION: u16 = 0x08;
/// Cache Line Size, 8 bits, no effect in PCIe.
pub const CACHE_LINE: u16 = 0x0c;
/// Header Type: 0 or 1; bit 7 is set in a multi-function device.
pub const HEADER_TYPE: u16 = 0x0e;
/// The first BAR.
pub const BAR0: u16 = 0x10;
/// Memory BAR: 64-bit, with the upper half in the next register.
pub const BAR_WIDE: u32 = 1 << 2;
/// Subsystem vendor ID, followed at +2 by the subsystem ID (type 0).
pub const SUBSYSTEM: u16 = 0x2c;
/// Offset of the first capability.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt Line, a scratch register for the host.
pub const INTERRUPT_LINE: u16 = 0x3c;
/// Interrupt Pin: 1 to 4 for INTA to INTD.
pub const INTERRUPT_PIN: u16 = 0x3d;

/// Expansion ROM BAR of type 0.
pub const ROM_TYPE0: u16 = 0x30;
/// Expansion ROM BAR of type 1.
pub const ROM_TYPE1: u16 = 0x38;

/// Primary bus number; secondary and subordinate follow (type 1).
pub const BUS_NUMBERS: u16 = 0x18;
/// I/O base and limit (type 1).
pub const IO_WINDOW: u16 = 0x1c;
/// Secondary status (type 1).
pub const SECONDARY_STATUS: u16 = 0x1e;
/// Memory base and limit (type 1): address bits 31 to 20.
pub const MEMORY_WINDOW: u16 = 0x20;
/// Prefetchable memory base and limit (type 1); their upper 32 bits follow at 0x28 and 0x2c.
pub const PREFETCHABLE_WINDOW: u16 = 0x24;
/// Upper 16 bits of I/O base and limit (type 1).
pub const IO_WINDOW_UPPER: u16 = 0x30;
/// Bridge control, 16 bits (type 1).
pub const BRIDGE_CONTROL: u16 = 0x3e;

/// Command: respond to I/O requests.
pub const COMMAND_IO: u16 = 1 << 0;
/// Command: respond to memory requests.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Command: allow the function to issue requests.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Command: report non-fatal and fatal errors.
pub const COMMAND_SERR: u16 = 1 << 8;
/// Command: disable INTx messages.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
/// Status: a legacy interrupt is pending.
pub const STATUS_INTERRUPT: u16 = 1 << 3;
/// Status: there is a capability list.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Bridge control: hot reset of the secondary bus.
pub const BRIDGE_SECONDARY_RESET: u16 = 1 << 6;

/// I/O, memory, bus master, parity response, SERR, INTx disable.
const COMMAND_RW: u16 = 0x0547;
/// Error bits: parity, target and master aborts, system error, parity detected.
const STATUS_RW1C: u16 = 0xf900;

pub(super) fn common(image: &mut Image, vendor: u16, device: u16, class: u32, header_type: u8) {
    let [sub_low, sub, base, _] = class.to_le_bytes();
    image
        .value16(VENDOR, vendor)
        .value16(DEVICE, device)
        .value8(REVISION + 1, sub_low)
        .value8(REVISION + 2, sub)
        .value8(REVISION + 3, base)
        .value8(HEADER_TYPE, header_type)
        .rw16(COMMAND, COMMAND_RW)
        .rw1c16(STATUS, STATUS_RW1C)
        .rw8(CACHE_LINE, 0xff)
        .rw8(INTERRUPT_LINE, 0xff);
}

/// The only writable command bit of a virtual function is Bus Master Enable (base spec 9.3.4.1.3).
pub(super) fn virtual_function(image: &mut Image) {
    image.rw16(COMMAND, COMMAND_BUS_MASTER).rw8(CACHE_LINE, 0).rw8(INTERRUPT_LINE, 0);
}

pub(super) fn bridge(image: &mut Image) {
    image
        .rw32(BUS_NUMBERS, 0x00ff_ffff)
        // Low digits: 32-bit I/O, 64-bit prefetchable memory. No specification defines the I/O window after reset; this
        // one is closed, its limit below its base, since software may never program it.
        .value16(IO_WINDOW, 0x01f1)
        .rw16(IO_WINDOW, 0xf0f0)
        .rw1c16(SECONDARY_STATUS, STATUS_RW1C)
        .rw32(MEMORY_WINDOW, 0xfff0_fff0)
        .value32(PREFETCHABLE_WINDOW, 0x0001_0001)
        .rw32(PREFETCHABLE_WINDOW, 0xfff0_fff0)
        .rw32(PREFETCHABLE_WINDOW + 4, u32::MAX)
        .rw32(PREFETCHABLE_WINDOW + 8, u32::MAX)
        .rw32(IO_WINDOW_UPPER, u32::MAX)
        .rw16(BRIDGE_CONTROL, 0x005f);
}

/// A bridge window: addresses `base` to `limit`, or none if `limit` is lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Last address.
    pub limit: u64,
}

impl Window {
    /// Whether the window contains `address`.
    pub const fn contains(&self, address: u64) -> bool {
        self.base <= address && address <= self.limit
    }

    /// Decodes the register at [`MEMORY_WINDOW`].
    pub const fn memory(register: u32) -> Self {
        Self { base: (register as u64 & 0xfff0) << 16, limit: register as u64 & 0xfff0_0000 | 0xf_ffff }
    }

    /// Encodes the register at [`MEMORY_WINDOW`], with both ends truncated to 1 MiB and 32 bits.
    pub const fn to_memory(&self) -> u32 {
        (self.base >> 16) as u32 & 0xfff0 | self.limit as u32 & 0xfff0_0000
    }

    /// Decodes the three registers from [`PREFETCHABLE_WINDOW`] on.
    pub const fn prefetchable(register: u32, base_upper: u32, limit_upper: u32) -> Self {
        let low = Self::memory(register);
        Self { base: low.base | (base_upper as u64) << 32, limit: low.limit | (limit_upper as u64) << 32 }
    }
}
