//! Software's side of the tables: what a kernel does to build, edit and inspect them.
//!
//! These functions change bytes in memory at once; what the stores cost and which invalidations follow is
//! the caller's business. The rule for page tables: after [`PageTable::unmap`], pages and the tables that it
//! answers may be used for something else only once an invalidation of the range has completed.

mod context;
mod edit;
mod page;

pub use context::ContextTables;
pub use page::{Mapping, PageTable, Unmapped};

use crate::memory::{MemoryFault, PhysicalMemory};
use thiserror::Error;
use units::{Bytes, HostPhysical, Iova};

/// Bytes of a table.
pub const TABLE_BYTES: u64 = 4096;

/// Where tables are put.
pub trait FrameAllocator {
    /// A free, 4 KiB-aligned frame of 4 KiB; its content does not matter.
    fn allocate_frame(&mut self) -> Option<HostPhysical>;
}

/// Why tables could not be edited.
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
    /// The range leaves the address space of the table.
    #[error("{iova} is beyond the {bits} address bits of this table")]
    BeyondAddressWidth {
        /// The first address that does not fit.
        iova: Iova,
        /// What would fit.
        bits: u32,
    },
    /// Something is mapped there already.
    #[error("{iova} is mapped already")]
    AlreadyMapped {
        /// The first such address.
        iova: Iova,
    },
    /// There is no frame for a table.
    #[error("no memory is left for page tables")]
    NoFrame,
    /// A table that an entry points at is broken.
    #[error("the table entry for {iova} at level {level} has reserved bits set")]
    Corrupt {
        /// The address that leads to the entry.
        iova: Iova,
        /// The level of the table.
        level: u8,
    },
    /// A table lies where no memory is installed.
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
