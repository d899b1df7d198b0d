//! UDP (RFC 768).

use std::fmt;
use std::net::Ipv4Addr;

use super::checksum::{Sum, udp_on_wire};
use super::protocol;
use crate::malformed::Malformed;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 6;

/// The fields of a UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpHeader {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Bytes of header and payload.
    pub len: u16,
    /// Checksum as encoded; zero for none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Parses the header of a datagram.
    ///
    /// # Errors
    /// If it is truncated or its length is invalid.
    pub fn parse(datagram: &[u8]) -> Result<Self, Malformed> {
        Self::parse_header(datagram, datagram.len() as u32)
    }

    /// Parses the header of a datagram with `available` bytes, which need not be in `header`.
    ///
    /// # Errors
    /// If it is truncated or its length is invalid.
    pub fn parse_header(header: &[u8], available: u32) -> Result<Self, Malformed> {
        let h: &[u8; HEADER_LEN] = header.first_chunk().ok_or(Malformed::Truncated)?;
        let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let header = Self { source: u16_at(0), destination: u16_at(2), len: u16_at(4), checksum: u16_at(6) };
        match usize::from(header.len) {
            len if len < HEADER_LEN => Err(Malformed::Length),
            len if len > available as usize => Err(Malformed::Truncated),
            _ => Ok(header),
        }
    }

    /// Writes the header unchanged to the start of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) {
        let fields = [self.source, self.destination, self.len, self.checksum];
        for (place, field) in bytes[..HEADER_LEN].chunks_exact_mut(2).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
    }

    /// Whether the checksum of a complete datagram is correct or absent.
    pub fn checksum_is_right(datagram: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        let Ok(header) = Self::parse(datagram) else { return false };
        let whole = &datagram[..usize::from(header.len)];
        header.checksum == 0 || pseudo(source, destination, header.len).with(whole).finish() == 0
    }

    /// Fills in the checksum of a complete datagram.
    ///
    /// # Panics
    /// If `datagram` is shorter than a header or longer than 64 KiB.
    pub fn fill_checksum(datagram: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr) {
        datagram[CHECKSUM_AT..HEADER_LEN].fill(0);
        let len = u16::try_from(datagram.len()).expect("a datagram fits into a packet");
        let sum = udp_on_wire(pseudo(source, destination, len).with(datagram).finish());
        datagram[CHECKSUM_AT..HEADER_LEN].copy_from_slice(&sum.to_be_bytes());
    }
}

fn pseudo(source: Ipv4Addr, destination: Ipv4Addr, len: u16) -> Sum {
    Sum::new().with_pseudo_header(source, destination, protocol::UDP, len)
}

impl fmt::Display for UdpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UDP {} > {}, {} B", self.source, self.destination, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damage_is_seen(
            data in proptest::collection::vec(any::<u8>(), 0..70), source in any::<u16>(), bit in 0usize..64,
        ) {
            let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
            let header = UdpHeader { source, destination: 9, len: (HEADER_LEN + data.len()) as u16, checksum: 0 };
            let mut datagram = [&[0; HEADER_LEN][..], &data].concat();
            header.emit(&mut datagram);
            prop_assert!(UdpHeader::checksum_is_right(&datagram, a, b), "no checksum is right");
            UdpHeader::fill_checksum(&mut datagram, a, b);
            prop_assert!(UdpHeader::checksum_is_right(&datagram, a, b));
            prop_assert!(!UdpHeader::checksum_is_right(&datagram, a, a));
            datagram[bit / 8] ^= 1 << (bit % 8);
            let sum_gone = datagram[6..8] == [0, 0];
            prop_assert!(sum_gone || !UdpHeader::checksum_is_right(&datagram, a, b));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(header) = UdpHeader::parse(&bytes) {
                let mut again = [0; HEADER_LEN];
                header.emit(&mut again);
                prop_assert_eq!(&again[..], &bytes[..HEADER_LEN]);
            }
        }
    }
}
