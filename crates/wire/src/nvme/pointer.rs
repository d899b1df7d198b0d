//! Data pointers: physical region pages and scatter gather lists (sections 4.3 and 4.4).

use super::bytes::{put, u32_at, u64_at};

/// Bytes of a PRP entry.
pub const PRP_LEN: usize = 8;
/// Bytes of an SGL descriptor.
pub const SGL_LEN: usize = 16;

/// The data pointer of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPointer {
    /// Two PRP entries; the second may point to a list of more.
    Prp {
        /// The first page, with the offset in it.
        first: u64,
        /// The second page, or a list of pages.
        second: u64,
    },
    /// One SGL descriptor, of data or of a segment with more.
    Sgl {
        /// Data, or the first segment of descriptors.
        descriptor: SglDescriptor,
        /// The metadata pointer is an SGL segment as well (PSDT 2).
        metadata_segment: bool,
    },
}

impl DataPointer {
    /// From PSDT and the 16 bytes of the command; `None` if PSDT is reserved.
    pub fn parse(kind: u8, bytes: &[u8; 16]) -> Option<Self> {
        match kind & 3 {
            0 => Some(Self::Prp { first: u64_at(bytes, 0), second: u64_at(bytes, 8) }),
            kind @ (1 | 2) => {
                Some(Self::Sgl { descriptor: SglDescriptor::parse(bytes), metadata_segment: kind == 2 })
            }
            _ => None,
        }
    }

    /// PSDT and the 16 bytes.
    pub fn emit(&self) -> (u8, [u8; 16]) {
        match self {
            Self::Prp { first, second } => {
                let mut bytes = [0; 16];
                put(&mut bytes, 0, &first.to_le_bytes());
                put(&mut bytes, 8, &second.to_le_bytes());
                (0, bytes)
            }
            Self::Sgl { descriptor, metadata_segment } => {
                (1 + u8::from(*metadata_segment), descriptor.emit())
            }
        }
    }
}

/// What an SGL descriptor describes ("SGL Descriptor Type" and "Sub Type Values").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SglKind {
    /// Data at an address.
    DataBlock,
    /// Data to discard.
    BitBucket,
    /// More descriptors, with a further segment.
    Segment,
    /// The last segment of descriptors.
    LastSegment,
    /// Anything else: type (high) and subtype (low four bits).
    Other(u8),
}

/// An entry of a scatter gather list: a range of memory, bytes to discard, or more entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SglDescriptor {
    /// Address; 0 for a bit bucket.
    pub address: u64,
    /// Length in bytes.
    pub length: u32,
    /// Type of the descriptor.
    pub kind: SglKind,
}

impl SglDescriptor {
    /// Reads a descriptor.
    pub fn parse(bytes: &[u8; SGL_LEN]) -> Self {
        let kind = match bytes[15] {
            0x00 => SglKind::DataBlock,
            0x10 => SglKind::BitBucket,
            0x20 => SglKind::Segment,
            0x30 => SglKind::LastSegment,
            other => SglKind::Other(other),
        };
        Self { address: u64_at(bytes, 0), length: u32_at(bytes, 8), kind }
    }

    /// Writes a descriptor.
    pub fn emit(&self) -> [u8; SGL_LEN] {
        let mut bytes = [0; SGL_LEN];
        put(&mut bytes, 0, &self.address.to_le_bytes());
        put(&mut bytes, 8, &self.length.to_le_bytes());
        bytes[15] = match self.kind {
            SglKind::DataBlock => 0x00,
            SglKind::BitBucket => 0x10,
            SglKind::Segment => 0x20,
            SglKind::LastSegment => 0x30,
            SglKind::Other(other) => other,
        };
        bytes
    }
}
