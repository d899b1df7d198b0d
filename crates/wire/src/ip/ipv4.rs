//! The IPv4 header (RFC 791), including fragments and options.

use std::fmt;
use std::net::Ipv4Addr;

use super::checksum;
use crate::malformed::Malformed;

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Maximum bytes of options.
pub const MAX_OPTIONS: usize = 40;

const DONT_FRAGMENT: u16 = 1 << 14;
const MORE_FRAGMENTS: u16 = 1 << 13;

/// Encoded options: a multiple of four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Options {
    bytes: [u8; MAX_OPTIONS],
    len: u8,
}

impl Ipv4Options {
    /// No options.
    pub const NONE: Self = Self { bytes: [0; MAX_OPTIONS], len: 0 };

    /// Copies options, padded with End of Option List; `None` if there are more than 40 bytes.
    pub fn new(options: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_OPTIONS];
        bytes.get_mut(..options.len())?.copy_from_slice(options);
        Some(Self { bytes, len: options.len().next_multiple_of(4) as u8 })
    }

    /// The encoded options, including padding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The fields of an IPv4 header, except its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// Differentiated services and explicit congestion notification.
    pub traffic_class: u8,
    /// Total length: bytes of header and payload.
    pub total_len: u16,
    /// Identification, shared by the fragments of a packet.
    pub identification: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Fragment offset, in units of 8 bytes (13 bits).
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Sender's address.
    pub source: Ipv4Addr,
    /// Receiver's address.
    pub destination: Ipv4Addr,
    /// Options in encoded form, not interpreted.
    pub options: Ipv4Options,
}

impl Ipv4Header {
    /// A header of an unfragmented packet with `payload` bytes of payload.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: u16) -> Self {
        Self {
            traffic_class: 0,
            total_len: HEADER_LEN as u16 + payload,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            source,
            destination,
            options: Ipv4Options::NONE,
        }
    }

    /// Parses a header and returns it with its length. Checks lengths, but not the checksum.
    ///
    /// # Errors
    /// If it is truncated, not version 4, or has invalid lengths.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Self::parse_header(bytes, bytes.len())
    }

    /// Parses the header of a packet with `available` bytes, which need not be in `bytes`.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_header(bytes: &[u8], available: usize) -> Result<(Self, usize), Malformed> {
        let h: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        if h[0] >> 4 != 4 {
            return Err(Malformed::Unsupported);
        }
        let len = usize::from(h[0] & 0xf) * 4;
        if len < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let options = bytes.get(HEADER_LEN..len).and_then(Ipv4Options::new).ok_or(Malformed::Truncated)?;
        let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let (total_len, fragment) = (u16_at(2), u16_at(6));
        if usize::from(total_len) < len {
            return Err(Malformed::Length);
        }
        if usize::from(total_len) > available {
            return Err(Malformed::Truncated);
        }
        let header = Self {
            traffic_class: h[1],
            total_len,
            identification: u16_at(4),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: fragment & 0x1fff,
            ttl: h[8],
            protocol: h[9],
            source: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
            destination: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
            options,
        };
        Ok((header, len))
    }

    /// Parses a header and verifies its checksum.
    ///
    /// # Errors
    /// As [`Self::parse`], or [`Malformed::Checksum`].
    pub fn parse_checked(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        Self::parse_checked_header(bytes, bytes.len())
    }

    /// Parses the header of a packet with `available` bytes, which need not be in `bytes`, and verifies its checksum.
    ///
    /// # Errors
    /// As [`Self::parse_checked`].
    pub fn parse_checked_header(bytes: &[u8], available: usize) -> Result<(Self, usize), Malformed> {
        let (header, len) = Self::parse_header(bytes, available)?;
        if checksum::is_right(&bytes[..len]) { Ok((header, len)) } else { Err(Malformed::Checksum) }
    }

    /// Length of the header in bytes.
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len as usize
    }

    /// Always false.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Whether the packet is a fragment.
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Bytes of payload.
    pub const fn payload_len(&self) -> usize {
        (self.total_len as usize).saturating_sub(self.len())
    }

    /// Writes the header with its checksum to the start of `bytes` and returns its length.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let len = self.len();
        let bytes = &mut bytes[..len];
        bytes[0] = 0x40 | (len / 4) as u8;
        bytes[1] = self.traffic_class;
        bytes[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.identification.to_be_bytes());
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 }
            | self.fragment_offset & 0x1fff;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        bytes[10..12].fill(0);
        bytes[12..16].copy_from_slice(&self.source.octets());
        bytes[16..20].copy_from_slice(&self.destination.octets());
        bytes[20..].copy_from_slice(self.options.as_bytes());
        let sum = checksum::of(bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        len
    }
}

impl fmt::Display for Ipv4Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} > {}, protocol {}, {} B",
            self.source, self.destination, self.protocol, self.total_len
        )?;
        if self.is_fragment() {
            let more = if self.more_fragments { "+" } else { "" };
            write!(f, ", fragment {:#06x} at {}{more}", self.identification, self.fragment_offset * 8)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checksum_of_a_well_known_header() {
        let header = Ipv4Header {
            dont_fragment: true,
            ttl: 64,
            ..Ipv4Header::new(Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199), 17, 95)
        };
        let mut bytes = [0; 20];
        header.emit(&mut bytes);
        assert_eq!(bytes[10..12], [0xb8, 0x61]);
    }

    #[test]
    fn what_is_wrong_is_told() {
        let mut bytes = [0; 40];
        Ipv4Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 6, 20).emit(&mut bytes);
        assert!(Ipv4Header::parse_checked(&bytes).is_ok());
        assert_eq!(Ipv4Header::parse(&bytes[..39]), Err(Malformed::Truncated));
        bytes[8] = 1;
        assert_eq!(Ipv4Header::parse_checked(&bytes), Err(Malformed::Checksum));
        bytes[0] = 0x44;
        assert_eq!(Ipv4Header::parse(&bytes), Err(Malformed::Length));
        bytes[0] = 0x65;
        assert_eq!(Ipv4Header::parse(&bytes), Err(Malformed::Unsupported));
    }

    proptest! {
        #[test]
        fn what_parses_comes_back(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), lengths in any::<bool>()) {
            if lengths && bytes.len() >= 20 {
                bytes[0] = 0x45 + bytes[0] % 5;
                bytes[2] = 0;
                bytes[3] = bytes.len() as u8;
                bytes[6] &= 0x7f;
            }
            if let Ok((header, len)) = Ipv4Header::parse(&bytes) {
                let mut again = vec![0; len];
                header.emit(&mut again);
                prop_assert_eq!(Ipv4Header::parse_checked(&[&again[..], &bytes[len..]].concat()), Ok((header, len)));
                let _ = header.to_string();
            }
        }
    }
}
