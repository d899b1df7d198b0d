//! Descriptors, which the driver passes to the NIC. 16 bytes each.
//!
//! ```text
//!         0        8        10        12         13      14         15
//! TX      address  length   segment   headers    flags   function   0
//! RX      address  length   0 .......................................
//! ```
//! With [`INLINE`], the fragment's bytes are in the entries that follow the descriptor, and its address is 0. Such a
//! packet may also be written to the queue's page in the BAR of inline doorbells: the same entries, with
//! [`inline_address`] in place of the 0. This rings the doorbell, and a device that has nothing else to fetch need not
//! read the ring.

/// Bytes of a descriptor.
pub const LEN: usize = 16;

/// TX: the last fragment of its frame.
pub const END: u8 = 1 << 0;
/// TX: requests a completion. As frames complete in order, it also covers the frames before.
pub const REPORT: u8 = 1 << 1;
/// TX: fill in the IPv4 header checksum.
pub const NETWORK_CHECKSUM: u8 = 1 << 2;
/// TX: fill in the TCP or UDP checksum.
pub const TRANSPORT_CHECKSUM: u8 = 1 << 3;
/// TX: read the fragment through the function named by the descriptor instead of the queue's own.
pub const THROUGH_FUNCTION: u8 = 1 << 4;
/// TX: the fragment's bytes follow in the ring.
pub const INLINE: u8 = 1 << 5;

/// Ring entries that `bytes` of inline data take.
pub const fn inline_entries(bytes: u16) -> u16 {
    bytes.div_ceil(LEN as u16)
}

/// Address field of an inline doorbell's first descriptor: index of the first entry, and number of entries.
pub const fn inline_address(count: u16, entries: u16) -> u64 {
    (entries as u64) << 16 | count as u64
}

/// The inverse of [`inline_address`].
pub const fn of_inline_address(address: u64) -> (u16, u16) {
    (address as u16, (address >> 16) as u16)
}

/// A fragment of a frame to send. Fields that apply to the whole frame are taken from its first descriptor, [`END`] and
/// [`REPORT`] from its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxDescriptor {
    /// Bus address of the fragment.
    pub address: u64,
    /// Length in bytes, at least 1.
    pub length: u16,
    /// TCP payload per segment in bytes (TSO); 0 to send the frame as it is.
    pub segment: u16,
    /// Bytes of all headers, which are repeated in each segment.
    pub headers: u8,
    /// [`END`], [`REPORT`] and the other flags.
    pub flags: u8,
    /// With [`THROUGH_FUNCTION`]: the function that reads the fragment.
    pub function: u8,
}

impl TxDescriptor {
    /// Decodes a descriptor; any bytes are valid.
    pub fn parse(bytes: &[u8; LEN]) -> Self {
        let [.., l0, l1, s0, s1, headers, flags, function, _] = *bytes;
        Self {
            address: address(bytes),
            length: u16::from_le_bytes([l0, l1]),
            segment: u16::from_le_bytes([s0, s1]),
            headers,
            flags,
            function,
        }
    }

    /// Encodes the descriptor.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.length.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.segment.to_le_bytes());
        bytes[12] = self.headers;
        bytes[13] = self.flags;
        bytes[14] = self.function;
        bytes
    }

    /// Whether all of `flags` are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// A free buffer for received frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxDescriptor {
    /// Bus address of the buffer.
    pub address: u64,
    /// Length in bytes, at least 1. A longer frame continues in the next buffer.
    pub length: u16,
}

impl RxDescriptor {
    /// Decodes a descriptor; any bytes are valid.
    pub fn parse(bytes: &[u8; LEN]) -> Self {
        Self { address: address(bytes), length: u16::from_le_bytes([bytes[8], bytes[9]]) }
    }

    /// Encodes the descriptor.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

fn address(bytes: &[u8; LEN]) -> u64 {
    let mut address = [0; 8];
    address.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in any::<[u8; LEN]>()) {
            let mut written = bytes;
            written[15] = 0;
            prop_assert_eq!(TxDescriptor::parse(&bytes).emit(), written);
            written[10..].fill(0);
            prop_assert_eq!(RxDescriptor::parse(&bytes).emit(), written);
        }
    }
}
