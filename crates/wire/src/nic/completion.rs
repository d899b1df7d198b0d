//! Completions, which the NIC writes for the driver: 16 bytes each, in place of the descriptor or in a separate ring.
//!
//! ```text
//! 0      4        6      8       10      12     14     15
//! hash   length   0      count   flags   rule   kind   owner
//! ```
//! The owner bit becomes visible last, as the highest bytes of a write arrive last. In place of a descriptor it is 1
//! (descriptors have 0 there). In a ring it is 1 in the first round, 0 in the second, and so on.

/// Bytes of a completion.
pub const LEN: usize = 16;

/// This is the last buffer of its frame.
pub const END: u16 = 1 << 0;
/// The IPv4 header checksum is correct.
pub const NETWORK_RIGHT: u16 = 1 << 1;
/// The IPv4 header checksum is wrong.
pub const NETWORK_WRONG: u16 = 1 << 2;
/// The TCP or UDP checksum is correct.
pub const TRANSPORT_RIGHT: u16 = 1 << 3;
/// The TCP or UDP checksum is wrong.
pub const TRANSPORT_WRONG: u16 = 1 << 4;
/// The frame could not be sent or received because of an invalid descriptor or a failed memory access.
pub const FAILED: u16 = 1 << 5;
/// A flow rule selected the queue; `rule` is its number.
pub const STEERED: u16 = 1 << 6;
/// `hash` is valid.
pub const HASHED: u16 = 1 << 7;
/// The hash covers ports.
pub const HASHED_PORTS: u16 = 1 << 8;

/// The frame is directly in front of the completion; the buffer is empty.
pub const INLINE: u16 = 1 << 9;
/// The frame stays in the device, in its slot of the queue's receive window; the buffer is empty.
pub const HELD: u16 = 1 << 10;

/// What a completion reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Frames were sent.
    #[default]
    Sent,
    /// A buffer was filled.
    Received,
    /// Unknown: the entry is damaged.
    Unknown(u8),
}

/// A completion without its owner bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// RSS hash of the frame.
    pub hash: u32,
    /// Bytes written into the buffer.
    pub length: u16,
    /// Sent: total of completed descriptors. Received: index of the buffer's descriptor.
    pub count: u16,
    /// [`END`] and the other flags.
    pub flags: u16,
    /// With [`STEERED`]: number of the rule.
    pub rule: u16,
    /// What the completion reports.
    pub kind: Kind,
}

impl Completion {
    /// The owner bit of completion `number`, counted from 0, in a ring.
    pub const fn owner_in_ring(number: u16, log2_entries: u8) -> bool {
        number >> log2_entries & 1 == 0
    }

    /// Decodes an entry and its owner bit.
    pub fn parse(bytes: &[u8; LEN]) -> (Self, bool) {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let completion = Self {
            hash: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            length: u16_at(4),
            count: u16_at(8),
            flags: u16_at(10),
            rule: u16_at(12),
            kind: match bytes[14] {
                0 => Kind::Sent,
                1 => Kind::Received,
                other => Kind::Unknown(other),
            },
        };
        (completion, bytes[15] & 1 == 1)
    }

    /// Encodes the entry.
    pub fn emit(&self, owner: bool) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&self.hash.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.count.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.rule.to_le_bytes());
        bytes[14] = match self.kind {
            Kind::Sent => 0,
            Kind::Received => 1,
            Kind::Unknown(other) => other,
        };
        bytes[15] = u8::from(owner);
        bytes
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_owner_bit_turns_with_each_round() {
        let owners: Vec<bool> = (0..10).map(|n| Completion::owner_in_ring(n, 2)).collect();
        assert_eq!(owners, [true, true, true, true, false, false, false, false, true, true]);
        // A ring of the largest size wraps when the index does.
        assert!(Completion::owner_in_ring(u16::MAX >> 1, 15) && !Completion::owner_in_ring(u16::MAX, 15));
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(mut bytes in any::<[u8; LEN]>()) {
            let (completion, owner) = Completion::parse(&bytes);
            bytes[6..8].fill(0);
            bytes[15] &= 1;
            prop_assert_eq!(completion.emit(owner), bytes);
        }
    }
}
