//! Virtio: rings shared by a guest's driver and its hypervisor, and the headers of packets (network device) and
//! requests (block device) (Virtual I/O Device Version 1.2, OASIS, 2.7, 5.1 and 5.2).

use crate::Malformed;

/// A descriptor of a split ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    /// Guest-physical address of a buffer.
    pub address: u64,
    /// Length of the buffer in bytes.
    pub length: u32,
    /// [`NEXT`](Self::NEXT), [`WRITE`](Self::WRITE).
    pub flags: u16,
    /// With [`NEXT`](Self::NEXT): number of the next descriptor in the chain.
    pub next: u16,
}

impl Descriptor {
    /// Bytes of a descriptor.
    pub const LEN: usize = 16;
    /// The chain continues.
    pub const NEXT: u16 = 1;
    /// The device writes the buffer.
    pub const WRITE: u16 = 2;

    /// Encodes the descriptor.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.flags.to_le_bytes());
        bytes[14..].copy_from_slice(&self.next.to_le_bytes());
        bytes
    }

    /// Decodes a descriptor.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            address: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            length: u32::from_le_bytes([i, j, k, l]),
            flags: u16::from_le_bytes([m, n]),
            next: u16::from_le_bytes([o, p]),
        }
    }
}

/// Layout of a split ring: descriptor table, available ring, used ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    /// Guest-physical start address, a multiple of 4,096.
    pub start: u64,
    /// Number of entries, a power of two.
    pub entries: u16,
}

/// Flag of the available ring: the driver needs no interrupt.
pub const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device needs no notification.
pub const NO_NOTIFY: u16 = 1;

impl Ring {
    /// Bytes of an entry of the used ring: descriptor number and length, four bytes each.
    pub const USED: u64 = 8;

    /// Bytes of all parts. The used ring begins at a page boundary.
    pub const fn len(&self) -> u64 {
        self.used() - self.start + 4 + Self::USED * self.entries as u64
    }

    /// A ring is never empty.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Address of a descriptor.
    pub const fn descriptor(&self, number: u16) -> u64 {
        self.start + Descriptor::LEN as u64 * number as u64
    }

    /// Address of the available ring's flags. Two bytes further is its index.
    pub const fn available(&self) -> u64 {
        self.descriptor(self.entries)
    }

    /// Address of the `count`-th entry of the available ring.
    pub const fn available_entry(&self, count: u16) -> u64 {
        self.available() + 4 + 2 * (count % self.entries) as u64
    }

    /// Address of the used ring's flags. Two bytes further is its index.
    pub const fn used(&self) -> u64 {
        (self.available() + 4 + 2 * self.entries as u64).next_multiple_of(4096)
    }

    /// Address of the `count`-th entry of the used ring.
    pub const fn used_entry(&self, count: u16) -> u64 {
        self.used() + 4 + Self::USED * (count % self.entries) as u64
    }
}

/// Header of each packet of a network device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetHeader {
    /// [`NEEDS_CHECKSUM`](Self::NEEDS_CHECKSUM), [`DATA_VALID`](Self::DATA_VALID).
    pub flags: u8,
    /// [`GSO_NONE`](Self::GSO_NONE), or [`GSO_TCPV4`](Self::GSO_TCPV4) for a packet to be segmented.
    pub gso: u8,
    /// Bytes of the headers, which are repeated in each segment.
    pub headers: u16,
    /// Payload bytes per segment.
    pub segment: u16,
    /// Offset at which the checksum begins.
    pub checksum_start: u16,
    /// Offset of the checksum field, relative to that.
    pub checksum_offset: u16,
    /// Number of buffers of a received packet.
    pub buffers: u16,
}

impl NetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 12;
    /// The checksum has to be filled in by the device.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// The checksums of a received packet were verified.
    pub const DATA_VALID: u8 = 2;
    /// No segmentation.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4, to be segmented.
    pub const GSO_TCPV4: u8 = 1;

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        (bytes[0], bytes[1]) = (self.flags, self.gso);
        let words = [self.headers, self.segment, self.checksum_start, self.checksum_offset, self.buffers];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short, or has an unknown segmentation type.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if bytes[1] > Self::GSO_TCPV4 {
            return Err(Malformed::Unsupported);
        }
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Ok(Self {
            flags: bytes[0],
            gso: bytes[1],
            headers: word(2),
            segment: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
            buffers: word(10),
        })
    }
}

/// Header of each request of a block device. The request's last byte, behind the data, is the status written by the
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// [`READ`](Self::READ), [`WRITE`](Self::WRITE).
    pub kind: u32,
    /// Start in units of 512 bytes.
    pub sector: u64,
}

impl BlockHeader {
    /// Bytes of the header.
    pub const LEN: usize = 16;
    /// Device to memory.
    pub const READ: u32 = 0;
    /// Memory to device.
    pub const WRITE: u32 = 1;
    /// Status of a successful request.
    pub const OK: u8 = 0;
    /// Status of a failed request.
    pub const FAILED: u8 = 1;
    /// Status of an unsupported request.
    pub const UNSUPPORTED: u8 = 2;

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sector.to_le_bytes());
        bytes
    }

    /// Decodes a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, _, _, _, _, i, j, k, l, m, n, o, p] = *bytes;
        Self { kind: u32::from_le_bytes([a, b, c, d]), sector: u64::from_le_bytes([i, j, k, l, m, n, o, p]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descriptors_and_headers_come_back(bytes: [u8; 16]) {
            prop_assert_eq!(Descriptor::parse(&bytes).emit(), bytes);
            if let Ok(header) = NetHeader::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..12]);
            }
            let request = BlockHeader::parse(&bytes);
            prop_assert_eq!(BlockHeader::parse(&request.emit()), request);
        }

        #[test]
        fn parts_of_a_ring_do_not_overlap(log2 in 0u32..15, count: u16) {
            let ring = Ring { start: 0x10_0000, entries: 1 << log2 };
            let (offered, used) = (ring.available_entry(count), ring.used_entry(count));
            prop_assert!(ring.descriptor(ring.entries - 1) + 16 <= ring.available());
            prop_assert!(ring.available() + 4 <= offered && offered + 2 <= ring.used());
            prop_assert!(ring.used() + 4 <= used && used + 8 <= ring.start + ring.len());
            prop_assert_eq!(ring.used() % 4096, 0);
        }
    }
}
