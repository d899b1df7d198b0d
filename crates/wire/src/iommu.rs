//! What IOMMUs of all kinds read and kernels write, each in its own format ([`vtd`](crate::vtd), [`amdvi`],
//! [`smmu`]).

use crate::vtd::{FaultReason, Features, InvalidationDescriptor, PageEntry, TableFormat};
use crate::{amdvi, smmu};

/// Bytes of an entry of the queue of commands, of every kind.
pub const COMMAND_BYTES: u64 = 16;

/// Encodes an entry of a page table of `level`.
#[inline]
pub const fn encode_page(entry: PageEntry, level: u8, format: TableFormat) -> u64 {
    match format {
        TableFormat::VtD => entry.encode(),
        TableFormat::AmdVi => amdvi::page::encode(entry, level),
        TableFormat::SmmuV3 => smmu::page::encode(entry, level),
    }
}

/// Decodes the entry `word` of a page table of `level`, 1 to 5.
///
/// # Errors
/// [`FaultReason::PageTableReserved`] if a reserved bit is set.
#[inline]
pub const fn decode_page(word: u64, level: u8, features: Features) -> Result<PageEntry, FaultReason> {
    match features.format {
        TableFormat::VtD => PageEntry::decode(word, level, features),
        TableFormat::AmdVi => amdvi::page::decode(word, level, features),
        TableFormat::SmmuV3 => smmu::page::decode(word, level, features),
    }
}

/// Encodes a command as two words, low first; `None` if such IOMMUs have none for it.
pub const fn encode_command(descriptor: InvalidationDescriptor, format: TableFormat) -> Option<[u64; 2]> {
    match format {
        TableFormat::VtD => Some(descriptor.encode()),
        TableFormat::AmdVi => Some(amdvi::command::encode(descriptor)),
        TableFormat::SmmuV3 => smmu::command::encode(descriptor),
    }
}

/// Decodes a command; `None` if it is none.
pub const fn decode_command(words: [u64; 2], format: TableFormat) -> Option<InvalidationDescriptor> {
    match format {
        TableFormat::VtD => InvalidationDescriptor::decode(words),
        TableFormat::AmdVi => amdvi::command::decode(words),
        TableFormat::SmmuV3 => smmu::command::decode(words),
    }
}
