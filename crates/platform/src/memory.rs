//! Memory, as a driver gets it from its kernel.

use core::fmt;
use core::ops::{Add, Sub};

use crate::cpu::Node;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// A physical address from the view of the kernel: host-physical on a host, guest-physical in a virtual machine.
/// Refers to memory or to a BAR.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(pub u64);

impl PhysAddr {
    /// Offset within a multiple of `alignment`, a power of two.
    pub const fn offset_in(self, alignment: u64) -> u64 {
        self.0 & (alignment - 1)
    }
    /// Rounds down to a multiple of `alignment`, a power of two.
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

/// Physically contiguous pages of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pages {
    /// Address of the first page.
    pub start: PhysAddr,
    /// Log2 of the number of pages.
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
    /// The smallest order that holds `bytes`.
    pub const fn order_for(bytes: u64) -> u8 {
        bytes.div_ceil(PAGE).next_power_of_two().trailing_zeros() as u8
    }
}

/// NUMA memory policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// The [policy](crate::kernel::TaskParams::policy) of the calling task; [`Local`](Self::Local) by default and in
    /// interrupts.
    #[default]
    Task,
    /// Node of the calling core, or the next one with free memory.
    Local,
    /// This node, or the next one with free memory.
    Preferred(Node),
    /// This node only.
    Bind(Node),
    /// All nodes in turn.
    Interleave,
}
