//! Identifiers and small types shared within the IOMMU.

use units::Bytes;

/// Identifies an IOMMU domain: the tag of every cached translation (VT-d specification, section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DomainId(pub u16);

/// In which formats an IOMMU reads its tables and commands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TableFormat {
    /// Intel's VT-d, legacy mode.
    #[default]
    VtD,
    /// AMD's IOMMU, host page tables.
    AmdVi,
    /// Arm's SMMUv3, stage 1.
    SmmuV3,
}

/// Kind of memory access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// A memory read request.
    Read,
    /// A memory write request or an atomic operation.
    Write,
}

/// Permissions of a page table entry, or of a path of entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permissions {
    /// Memory reads are allowed.
    pub read: bool,
    /// Memory writes are allowed.
    pub write: bool,
}

impl Permissions {
    /// Reads and writes.
    pub const READ_WRITE: Self = Self { read: true, write: true };
    /// Reads only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writes only, as for a receive buffer.
    pub const WRITE: Self = Self { read: false, write: true };

    /// Whether `access` is allowed.
    pub const fn allow(self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }
    /// Intersection, as for two levels of a page table.
    pub const fn and(self, other: Self) -> Self {
        Self { read: self.read && other.read, write: self.write && other.write }
    }
    /// Whether nothing is allowed, as for an absent entry.
    pub const fn is_none(self) -> bool {
        !self.read && !self.write
    }
}

/// Page sizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PageSize {
    /// 4 KiB, a leaf of level 1.
    Size4KiB,
    /// 2 MiB, a leaf of level 2.
    Size2MiB,
    /// 1 GiB, a leaf of level 3.
    Size1GiB,
}

impl PageSize {
    /// All sizes, smallest first.
    pub const ALL: [Self; 3] = [Self::Size4KiB, Self::Size2MiB, Self::Size1GiB];

    /// The number of address bits within a page.
    pub const fn shift(self) -> u32 {
        12 + 9 * self as u32
    }
    /// Bytes in a page.
    pub const fn get(self) -> u64 {
        1 << self.shift()
    }
    /// The size of a page.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.get())
    }
    /// The page table level whose leaves have this size.
    pub const fn level(self) -> u8 {
        self as u8 + 1
    }
    /// The size of a leaf at `level`, if there are such leaves.
    pub const fn of_level(level: u8) -> Option<Self> {
        match level {
            1 => Some(Self::Size4KiB),
            2 => Some(Self::Size2MiB),
            3 => Some(Self::Size1GiB),
            _ => None,
        }
    }
}
