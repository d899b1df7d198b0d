//! Memory as a driver gets it from its kernel.

use core::fmt;
use core::ops::{Add, Sub};

use crate::cpu::Node;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// An address that the kernel that runs a driver calls physical: host-physical on a host, guest-physical
/// in a virtual machine. Memory or, of a BAR, MMIO.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(pub u64);

impl PhysAddr {
    /// Distance from the last multiple of `alignment`, a power of two.
    pub const fn offset_in(self, alignment: u64) -> u64 {
        self.0 & (alignment - 1)
    }
    /// The last multiple of `alignment`, a power of two, at or before it.
    pub const fn align_down(self, alignment: u64) -> Self {
        Self(self.0 & !(alignment - 1))
    }
}

impl Add<u64> for PhysAddr {
    type Output = Self;
    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl Sub for PhysAddr {
    type Output = u64;
    fn sub(self, other: Self) -> u64 {
        self.0 - other.0
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PhysAddr({:#x})", self.0)
    }
}

/// Physically contiguous pages; give them back to the kernel that they came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Where they begin.
    pub start: PhysAddr,
    /// There are 2 to the power of so many.
    pub order: u8,
}

impl Pages {
    /// Bytes.
    pub const fn len(&self) -> u64 {
        PAGE << self.order
    }
    /// Pages are never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }
    /// The least order whose pages hold `bytes`.
    pub const fn order_for(bytes: u64) -> u8 {
        bytes.div_ceil(PAGE).next_power_of_two().trailing_zeros() as u8
    }
}

/// On which node pages are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// As the task that asks was told when it [began](crate::kernel::TaskParams::policy); [`Local`](Self::Local) if it was
    /// not, and in interrupts.
    #[default]
    Task,
    /// That of the core that asks, or the next one that has memory.
    Local,
    /// This one, or the next one that has memory.
    Preferred(Node),
    /// This one, or none.
    Bind(Node),
    /// All in turn.
    Interleave,
}
