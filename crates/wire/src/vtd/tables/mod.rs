//! Software's side of the tables: building, editing and inspecting them, as a kernel does.
//!
//! These functions change memory immediately; the caller accounts for the cost of stores and issues invalidations.
//! After [`PageTable::unmap`], pages and the returned tables may be reused only once an invalidation of the range has
//! completed.

mod context;
mod edit;
mod page;

pub use context::ContextTables;
pub use page::{Mapping, PageTable, Unmapped};

use std::fmt;

use units::{Bytes, HostPhysical, Iova};

/// Size of a table in bytes.
pub const TABLE_BYTES: u64 = 4096;

/// Allocates memory for tables.
pub trait FrameAllocator {
    /// Returns a free, 4 KiB-aligned frame of 4 KiB with arbitrary content.
    fn allocate_frame(&mut self) -> Option<HostPhysical>;

    /// Returns 2^`order` such frames in a row, aligned to their size; `None` where only single ones are given.
    fn allocate_frames(&mut self, order: u8) -> Option<HostPhysical> {
        if order == 0 { self.allocate_frame() } else { None }
    }
}

/// Memory that the tables are in.
pub trait TableMemory {
    /// Fills `into` with the bytes at an address. `false` if some are not memory.
    fn read(&self, at: HostPhysical, into: &mut [u8]) -> bool;

    /// Writes bytes. `false` if some are not memory; nothing is then written.
    fn write(&mut self, at: HostPhysical, from: &[u8]) -> bool;
}

/// The little-endian word at an address.
#[inline]
fn word(memory: &(impl TableMemory + ?Sized), at: HostPhysical) -> Result<u64, TableError> {
    let mut bytes = [0; 8];
    memory.read(at, &mut bytes).then(|| u64::from_le_bytes(bytes)).ok_or(TableError::NotMemory { at })
}

#[inline]
fn set_word(memory: &mut (impl TableMemory + ?Sized), at: HostPhysical, word: u64) -> Result<(), TableError> {
    memory.write(at, &word.to_le_bytes()).then_some(()).ok_or(TableError::NotMemory { at })
}

/// Allocates a table and clears it.
fn new_table(
    memory: &mut (impl TableMemory + ?Sized),
    frames: &mut (impl FrameAllocator + ?Sized),
) -> Result<HostPhysical, TableError> {
    new_tables(memory, frames, 0)
}

/// Allocates 2^`order` tables in a row and clears them.
fn new_tables(
    memory: &mut (impl TableMemory + ?Sized),
    frames: &mut (impl FrameAllocator + ?Sized),
    order: u8,
) -> Result<HostPhysical, TableError> {
    let at = frames.allocate_frames(order).ok_or(TableError::NoFrame)?;
    for n in 0..1u64 << order {
        if !memory.write(at + n * TABLE_BYTES, &[0; TABLE_BYTES as usize]) {
            return Err(TableError::NotMemory { at });
        }
    }
    Ok(at)
}

/// Errors of table edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableError {
    /// Address or length is not a multiple of 4 KiB, or the length is zero.
    Misaligned {
        /// Start of the range.
        iova: Iova,
        /// Length of the range.
        length: Bytes,
    },
    /// The range exceeds the table's address width.
    BeyondAddressWidth {
        /// The first address beyond it.
        iova: Iova,
        /// Address width in bits.
        bits: u32,
    },
    /// Part of the range is already mapped.
    AlreadyMapped {
        /// The first such address.
        iova: Iova,
    },
    /// No frame is left for a table.
    NoFrame,
    /// A table is invalid.
    Corrupt {
        /// An address whose walk reaches the invalid entry.
        iova: Iova,
        /// The level of the table.
        level: u8,
    },
    /// A table is outside installed memory.
    NotMemory {
        /// The table or its entry.
        at: HostPhysical,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { iova, length } => write!(
                f,
                "addresses and length must be multiples of 4 KiB and the length not zero: {iova} of {length}"
            ),
            Self::BeyondAddressWidth { iova, bits } => {
                write!(f, "{iova} is beyond the {bits} address bits of this table")
            }
            Self::AlreadyMapped { iova } => write!(f, "{iova} is mapped already"),
            Self::NoFrame => f.write_str("no memory is left for page tables"),
            Self::Corrupt { iova, level } => {
                write!(f, "the table entry for {iova} at level {level} has reserved bits set")
            }
            Self::NotMemory { at } => write!(f, "a table lies outside memory, at {at}"),
        }
    }
}

impl std::error::Error for TableError {}
