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
        /// Reads have no side effects.
        prefetchable: bool,
    },
    /// Memory at any address; takes two registers.
    Memory64 {
        /// Reads have no side effects.
        prefetchable: bool,
    },
}

impl BarKind {
    /// The register's low bits.
    pub const fn flags(self) -> u32 {
        match self {
            Self::Io => 1,
            Self::Memory32 { prefetchable } => (prefetchable as u32) << 3,
            Self::Memory64 { prefetchable } => 4 | (prefetchable as u32) << 3,
        }
    }

    /// From the register's low bits; `None` for the reserved memory types.
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

    /// Whether it takes two registers.
    pub const fn is_64(self) -> bool {
        matches!(self, Self::Memory64 { .. })
    }

    /// Mask of the register bits that are not address.
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
    /// The offset of `address` in the BAR if all `len` bytes from it on lie in it.
    pub fn offset_of(&self, address: u64, len: u32) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        (offset < self.size && u64::from(len) <= self.size - offset).then_some(offset)
    }
}

/// Works out a BAR from its register's values before and after all ones were
/// written to it (base spec 7.5.1.2.1, implementation note). Of a 64-bit BAR
/// `high` and `sized_high` are the same for the next register, otherwise ignored.
///
/// `None`: there is no such BAR.
pub fn from_sizing(low: u32, high: u32, sized_low: u32, sized_high: u32) -> Option<Bar> {
    let kind = BarKind::from_register(sized_low)?;
    let mask = u64::from(kind.flag_mask());
    let (address, sized) = if kind.is_64() {
        (u64::from(high) << 32 | u64::from(low), u64::from(sized_high) << 32 | u64::from(sized_low))
    } else {
        // Address bits above the register's do not exist: as if they could all be set.
        (u64::from(low), 0xffff_ffff_0000_0000 | u64::from(sized_low))
    };
    let sized = sized & !mask;
    let writable = if kind.is_64() { sized } else { sized & 0xffff_ffff };
    // I/O BARs may leave out the upper 16 bits.
    let sized =
        if matches!(kind, BarKind::Io) && sized & 0xffff_0000 == 0 { sized | 0xffff_0000 } else { sized };
    (writable != 0).then(|| Bar { kind, size: 1 << sized.trailing_zeros(), address: address & !mask })
}
