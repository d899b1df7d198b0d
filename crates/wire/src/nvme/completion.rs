//! Completion queue entry: 16 bytes (section 4.6).

use super::bytes::{put, u16_at, u32_at};
use super::status::Status;
use core::fmt;

/// Bytes of a completion queue entry.
pub const LEN: usize = 16;

/// A completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompletionEntry {
    /// Command-specific result (DW0).
    pub result: u32,
    /// Head of the submission queue, up to which the controller has fetched (SQHD).
    pub submission_head: u16,
    /// Submission queue of the command (SQID).
    pub submission_queue: u16,
    /// Identifier of the command (CID).
    pub id: u16,
    /// Phase tag, inverted with each pass through the queue (P).
    pub phase: bool,
    /// Status of the command.
    pub status: Status,
}

impl CompletionEntry {
    /// Reads an entry.
    pub fn parse(bytes: &[u8; LEN]) -> Self {
        let last = u16_at(bytes, 14);
        Self {
            result: u32_at(bytes, 0),
            submission_head: u16_at(bytes, 8),
            submission_queue: u16_at(bytes, 10),
            id: u16_at(bytes, 12),
            phase: last & 1 == 1,
            status: Status::from_bits(last >> 1),
        }
    }

    /// Writes an entry.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.submission_head.to_le_bytes());
        put(&mut bytes, 10, &self.submission_queue.to_le_bytes());
        put(&mut bytes, 12, &self.id.to_le_bytes());
        put(&mut bytes, 14, &(self.status.to_bits() << 1 | u16::from(self.phase)).to_le_bytes());
        bytes
    }
}

impl fmt::Display for CompletionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sq {} cid {} head {} phase {}: {}",
            self.submission_queue,
            self.id,
            self.submission_head,
            u8::from(self.phase),
            self.status
        )
    }
}
