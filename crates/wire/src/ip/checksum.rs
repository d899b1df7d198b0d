//! The Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16-bit words.

use std::net::Ipv4Addr;

/// A checksum in progress. Pieces may have any length; a piece at an odd offset is summed with its bytes swapped.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    total: u64,
    odd: bool,
}

/// Sums little-endian words: the sum of byte-swapped words is the byte-swapped sum (RFC 1071, section 2 B).
fn words(bytes: &[u8]) -> u64 {
    let chunks = bytes.chunks_exact(4);
    let mut last = [0; 4];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let rest = u64::from(u32::from_le_bytes(last));
    chunks.map(|c| u64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]]))).sum::<u64>() + rest
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

impl Sum {
    /// An empty sum.
    pub const fn new() -> Self {
        Self { total: 0, odd: false }
    }

    /// Appends `bytes`.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        let piece = fold(words(bytes));
        self.total += u64::from(if self.odd { piece.swap_bytes() } else { piece });
        self.odd ^= bytes.len() % 2 == 1;
        self
    }

    /// Adds the pseudo-header of TCP and UDP over IPv4 (RFC 768, RFC 9293 section 3.1).
    #[must_use]
    pub fn with_pseudo_header(
        self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        length: u16,
    ) -> Self {
        let [high, low] = length.to_be_bytes();
        self.with(&source.octets()).with(&destination.octets()).with(&[0, protocol, high, low])
    }

    /// The sum folded to 16 bits, not complemented, which a stack puts in the checksum field for checksum offload.
    pub fn partial(self) -> u16 {
        fold(self.total).swap_bytes()
    }

    /// The checksum. Zero if the data includes its own correct checksum.
    pub fn finish(self) -> u16 {
        !self.partial()
    }
}

/// The checksum of `bytes`.
pub fn of(bytes: &[u8]) -> u16 {
    Sum::new().with(bytes).finish()
}

/// Whether `bytes`, which include their checksum, are undamaged.
pub fn is_right(bytes: &[u8]) -> bool {
    of(bytes) == 0
}

/// Updates a checksum for a changed word (RFC 1624, equation 3).
pub const fn replaced(sum: u16, old: u16, new: u16) -> u16 {
    let total = !sum as u32 + !old as u32 + new as u32;
    let total = (total & 0xffff) + (total >> 16);
    !((total & 0xffff) + (total >> 16)) as u16
}

/// Encodes a UDP checksum: zero means none, so a zero checksum is sent as all ones (RFC 768).
pub const fn udp_on_wire(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 1071, section 3.
    #[test]
    fn example_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().with(&bytes).partial(), 0xddf2);
        assert_eq!(of(&bytes), 0x220d);
    }

    /// Reference implementation, word by word as in the RFC.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn pieces_sum_like_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(of(&bytes), plain(&bytes));
            prop_assert_eq!(Sum::new().with(a).with(b).finish(), plain(&bytes));
        }

        #[test]
        fn data_with_its_checksum_is_right(mut bytes in proptest::collection::vec(any::<u8>(), 2..200)) {
            bytes[0] = 0;
            bytes[1] = 0;
            let sum = of(&bytes);
            bytes[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(is_right(&bytes));
        }
    }
}
