//! Base address registers (base spec 7.5.1.2.1).
//!
//! ```text
//!  31                               4   3    2 1  0
//! +------------------------------------+---+------+-+
//! |           address                  |pre| type |0|   memory; type 0: 32 bits, 2: 64 bits
//! +------------------------------------+---+------+-+
//! |           address                        | 0 |1|   I/O
//! +------------------------------------------+---+-+
//! ```

/// Type of a BAR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarKind {
    /// I/O space.
    Io,
    /// Memory below 4 GiB.
    Memory32 {
        /// Whether it is prefetchable: reads have no side effects.
        prefetchable: bool,
    },
    /// Memory at any address; takes two registers.
    Memory64 {
        /// Whether it is prefetchable: reads have no side effects.
        prefetchable: bool,
    },
}

impl BarKind {
    /// Low bits of the register.
    pub const fn flags(self) -> u32 {
        match self {
            Self::Io => 1,
            Self::Memory32 { prefetchable } => (prefetchable as u32) << 3,
            Self::Memory64 { prefetchable } => 4 | (prefetchable as u32) << 3,
        }
    }

    /// Decodes the register's low bits; `None` for reserved memory types.
    pub const fn from_register(register: u32) -> Option<Self> {
        if register & 1 == 1 {
            return Some(Self::Io);
        }
        let prefetchable = register & 8 != 0;
        match register >> 1 & 3 {
            0 => Some(Self::Memory32 { prefetchable }),
            2 => Some(Self::Memory64 { prefetchable }),
            _ => None,
        }
    }

    /// Whether it occupies two registers.
    pub const fn is_64(self) -> bool {
        matches!(self, Self::Memory64 { .. })
    }

    /// Mask of the register's non-address bits.
    const fn flag_mask(self) -> u32 {
        if matches!(self, Self::Io) { 3 } else { 0xf }
    }
}

/// A BAR: type, size and address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Type.
    pub kind: BarKind,
    /// Size in bytes, a power of two.
    pub size: u64,
    /// Assigned address; 0 before assignment.
    pub address: u64,
}

impl Bar {
    /// Offset of `address` in the BAR, if the BAR contains all `len` bytes from it.
    pub fn offset_of(&self, address: u64, len: u32) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        (offset < self.size && u64::from(len) <= self.size - offset).then_some(offset)
    }
}

/// Decodes a BAR from its register's values before and after writing all ones (base spec 7.5.1.2.1, implementation
/// note). `high` and `sized_high` are the same for the next register, and ignored unless the BAR is 64-bit.
///
/// `None` if the BAR is not implemented.
pub fn from_sizing(low: u32, high: u32, sized_low: u32, sized_high: u32) -> Option<Bar> {
    let kind = BarKind::from_register(sized_low)?;
    let mask = u64::from(kind.flag_mask());
    let (address, sized) = if kind.is_64() {
        (u64::from(high) << 32 | u64::from(low), u64::from(sized_high) << 32 | u64::from(sized_low))
    } else {
        // The register has no upper address bits; treat them as writable.
        (u64::from(low), 0xffff_ffff_0000_0000 | u64::from(sized_low))
    };
    let sized = sized & !mask;
    let writable = if kind.is_64() { sized } else { sized & 0xffff_ffff };
    (writable != 0).then(|| Bar { kind, size: 1 << sized.trailing_zeros(), address: address & !mask })
}
