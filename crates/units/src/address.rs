//! Addresses, one type per address space.

use core::fmt;
use core::ops::{Add, Sub};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// The address with this number.
            #[inline]
            pub const fn new(address: u64) -> Self {
                Self(address)
            }
            /// The number of this address.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }
            /// The last multiple of `alignment` (a power of two) at or before this address.
            #[inline]
            pub const fn align_down(self, alignment: u64) -> Self {
                Self(self.0 & !(alignment - 1))
            }
            /// The distance from the last multiple of `alignment` (a power of two).
            #[inline]
            pub const fn offset_in(self, alignment: u64) -> u64 {
                self.0 & (alignment - 1)
            }
            /// The address `bytes` further on, or `None` past the end of the space.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some(Self(address)),
                    None => None,
                }
            }
        }
        impl Add<u64> for $name {
            type Output = Self;
            #[inline]
            fn add(self, bytes: u64) -> Self {
                Self(self.0 + bytes)
            }
        }
        impl Sub for $name {
            type Output = u64;
            #[inline]
            fn sub(self, rhs: Self) -> u64 {
                self.0 - rhs.0
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address!(
    /// What a device puts on the bus when an IOMMU may translate it.
    Iova
);
address!(
    /// An address in a host's physical memory map: DRAM or MMIO.
    HostPhysical
);
address!(
    /// An address in a virtual machine's physical memory map.
    GuestPhysical
);
address!(
    /// An address as routed by switches and bridges of one PCIe hierarchy.
    BusAddress
);
address!(
    /// A distance into one base address register's region.
    BarOffset
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_helpers_agree() {
        let address = Iova::new(0x1234);
        assert_eq!(address.align_down(0x1000), Iova::new(0x1000));
        assert_eq!(address.offset_in(0x1000), 0x234);
        assert_eq!(format!("{address:?}"), "Iova(0x1234)");
        assert_eq!(Iova::new(u64::MAX).checked_add(1), None);
    }
}
