//! Software's side of the tables: building, editing and inspecting them, as a kernel does.
//!
//! These functions change memory immediately; the caller accounts for the cost of stores and issues invalidations.
//! After [`PageTable::unmap`], pages and the returned tables may be reused only once an invalidation of the range has
//! completed.

mod context;
mod edit;
mod fixed;
mod page;

pub use context::ContextTables;
pub use fixed::{ConsecutiveFrames, FixedDomains};
pub use page::{Mapping, PageTable, Unmapped};

use crate::memory::{MemoryFault, PhysicalMemory};
use thiserror::Error;
use units::{Bytes, HostPhysical, Iova};

/// Size of a table in bytes.
pub const TABLE_BYTES: u64 = 4096;

/// Allocates memory for tables.
pub trait FrameAllocator {
    /// Returns a free, 4 KiB-aligned frame of 4 KiB with arbitrary content.
    fn allocate_frame(&mut self) -> Option<HostPhysical>;
}

/// Errors of table edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TableError {
    /// Address or length is not a multiple of 4 KiB, or the length is zero.
    #[error("addresses and length must be multiples of 4 KiB and the length not zero: {iova} of {length}")]
    Misaligned {
        /// Start of the range.
        iova: Iova,
        /// Length of the range.
        length: Bytes,
    },
    /// The range exceeds the table's address width.
    #[error("{iova} is beyond the {bits} address bits of this table")]
    BeyondAddressWidth {
        /// The first address beyond it.
        iova: Iova,
        /// Address width in bits.
        bits: u32,
    },
    /// Part of the range is already mapped.
    #[error("{iova} is mapped already")]
    AlreadyMapped {
        /// The first such address.
        iova: Iova,
    },
    /// No frame is left for a table.
    #[error("no memory is left for page tables")]
    NoFrame,
    /// A table is invalid.
    #[error("the table entry for {iova} at level {level} has reserved bits set")]
    Corrupt {
        /// An address whose walk reaches the invalid entry.
        iova: Iova,
        /// The level of the table.
        level: u8,
    },
    /// A table is outside installed memory.
    #[error("a table lies outside memory: {0}")]
    Memory(#[from] MemoryFault),
}

fn clear_frame(memory: &mut PhysicalMemory, frame: HostPhysical) -> Result<(), MemoryFault> {
    memory.write(frame, &[0; TABLE_BYTES as usize])
}

fn new_table(
    memory: &mut PhysicalMemory,
    frames: &mut (impl FrameAllocator + ?Sized),
) -> Result<HostPhysical, TableError> {
    let frame = frames.allocate_frame().ok_or(TableError::NoFrame)?;
    clear_frame(memory, frame)?;
    Ok(frame)
}
