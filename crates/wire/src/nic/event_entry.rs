//! Entries of event queues. The NIC writes one before each message of a vector that has a queue, and so tells the
//! interrupt handler why it was called (Mellanox: event queue entries).
//!
//! ```text
//! 0       2      63
//! vector  0      owner
//! ```
//! The owner bit is 1 in the first round through the ring, 0 in the second, and so on.

use super::Completion;

/// Bytes of an entry.
pub const LEN: usize = 64;

/// What an entry says, without its owner bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventEntry {
    /// The vector whose message follows.
    pub vector: u16,
}

impl EventEntry {
    /// Encodes entry `number`, counted from 0, of a ring.
    pub fn emit(self, number: u16, log2_entries: u8) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&self.vector.to_le_bytes());
        bytes[LEN - 1] = Completion::owner_in_ring(number, log2_entries).into();
        bytes
    }

    /// Decodes entry `number` of a ring, if it has been written.
    pub fn parse(bytes: &[u8; LEN], number: u16, log2_entries: u8) -> Option<Self> {
        let owner = bytes[LEN - 1] & 1 != 0;
        let entry = Self { vector: u16::from_le_bytes([bytes[0], bytes[1]]) };
        (owner == Completion::owner_in_ring(number, log2_entries)).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_in_its_own_round_only() {
        let entry = EventEntry { vector: 0x1234 };
        for number in [0, 5, 8, 15, 16, u16::MAX] {
            let bytes = entry.emit(number, 3);
            assert_eq!(EventEntry::parse(&bytes, number, 3), Some(entry));
            assert_eq!(EventEntry::parse(&bytes, number.wrapping_add(8), 3), None);
        }
        assert_eq!(EventEntry::parse(&[0; LEN], 0, 3), None, "an empty ring");
    }
}
