//! Ethernet II frames (IEEE 802.3-2018, clause 3) with VLAN tags (IEEE 802.1Q), and their check sequence.

pub mod address;
pub mod arp;
mod fcs;
mod pause;

use std::fmt;

pub use address::MacAddr;
pub use arp::{Arp, ArpOperation};
pub use fcs::{append_fcs, fcs, fcs_is_right};
pub use pause::Pause;

use crate::malformed::Malformed;

/// Bytes of a header without tag.
pub const HEADER_LEN: usize = 14;
/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;
/// Bytes of the frame check sequence.
pub const FCS_LEN: usize = 4;
/// Minimum frame size, check sequence included (clause 4.4.2, minFrameSize).
pub const LEAST_FRAME: usize = 64;
/// Overhead of each frame on the wire: preamble and start delimiter (8 bytes) and inter-frame gap (12).
pub const BETWEEN_FRAMES: usize = 20;

/// EtherType: the payload's protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (C-TAG).
    pub const VLAN: Self = Self(0x8100);
    /// MAC control (IEEE 802.3, clause 31).
    pub const CONTROL: Self = Self(0x8808);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// For experiments (IEEE 802, local experimental EtherType 1).
    pub const EXPERIMENTAL: Self = Self(0x88b5);
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::VLAN => f.write_str("VLAN"),
            Self::IPV6 => f.write_str("IPv6"),
            Self(other) => write!(f, "{other:#06x}"),
        }
    }
}

/// Tag control information of a VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag(pub u16);

impl VlanTag {
    /// VLAN identifier, 12 bits.
    pub const fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Priority code point, 3 bits.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetHeader {
    /// Destination: a station, a group or all.
    pub destination: MacAddr,
    /// Source: always a single station.
    pub source: MacAddr,
    /// The outermost tag, if any.
    pub vlan: Option<VlanTag>,
    /// Protocol of the payload.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// A header without a tag.
    pub const fn new(source: MacAddr, destination: MacAddr, ether_type: EtherType) -> Self {
        Self { destination, source, vlan: None, ether_type }
    }

    /// Reads a header. Also gives its length.
    ///
    /// # Errors
    /// If the bytes end before it does.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let plain = Self {
            destination: MacAddr([d0, d1, d2, d3, d4, d5]),
            source: MacAddr([s0, s1, s2, s3, s4, s5]),
            vlan: None,
            ether_type: EtherType(u16::from_be_bytes([t0, t1])),
        };
        if plain.ether_type != EtherType::VLAN {
            return Ok((plain, HEADER_LEN));
        }
        let &[c0, c1, t0, t1] = bytes[HEADER_LEN..].first_chunk().ok_or(Malformed::Truncated)?;
        let vlan = Some(VlanTag(u16::from_be_bytes([c0, c1])));
        let ether_type = EtherType(u16::from_be_bytes([t0, t1]));
        Ok((Self { vlan, ether_type, ..plain }, HEADER_LEN + TAG_LEN))
    }

    /// Length of the header in bytes.
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
    }

    /// Always false.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the beginning of `bytes`, and gives its length.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        let mut at = 12;
        if let Some(tag) = self.vlan {
            bytes[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
            bytes[14..16].copy_from_slice(&tag.0.to_be_bytes());
            at = 16;
        }
        bytes[at..at + 2].copy_from_slice(&self.ether_type.0.to_be_bytes());
        at + 2
    }
}

impl fmt::Display for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source, self.destination)?;
        if let Some(tag) = self.vlan {
            write!(f, ", vlan {}", tag.id())?;
        }
        write!(f, ", {}", self.ether_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_lies_before_the_type() {
        let header = EthernetHeader {
            vlan: Some(VlanTag(0x6005)),
            ..EthernetHeader::new(MacAddr::local(1), MacAddr::BROADCAST, EtherType::IPV4)
        };
        let mut bytes = [0; 18];
        assert_eq!(header.emit(&mut bytes), 18);
        assert_eq!(bytes[12..], [0x81, 0x00, 0x60, 0x05, 0x08, 0x00]);
        assert_eq!(EthernetHeader::parse(&bytes), Ok((header, 18)));
        assert_eq!((header.vlan.unwrap().id(), header.vlan.unwrap().priority()), (5, 3));
        assert_eq!(header.to_string(), "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, vlan 5, IPv4");
    }

    proptest! {
        #[test]
        fn what_parses_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((header, len)) = EthernetHeader::parse(&bytes) {
                let mut again = vec![0; len];
                prop_assert_eq!(header.emit(&mut again), len);
                prop_assert_eq!(&again[..], &bytes[..len]);
            }
        }
    }
}
