//! The TCP header (RFC 9293) and common options: MSS, window scale and timestamps (RFC 7323), SACK (RFC 2018).

mod options;

use std::fmt;
use std::net::Ipv4Addr;

pub use options::{SackBlocks, TcpOptions};

use super::checksum::Sum;
use super::protocol;
use crate::malformed::Malformed;

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum in the header.
pub const CHECKSUM_AT: usize = 16;
/// Offset of the sequence number in the header.
pub const SEQUENCE_AT: usize = 4;
/// Offset of the flags byte in the header.
pub const FLAGS_AT: usize = 13;

/// Control bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(1 << 0);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(1 << 1);
    /// Reset the connection.
    pub const RST: Self = Self(1 << 2);
    /// Push function.
    pub const PSH: Self = Self(1 << 3);
    /// The acknowledgement number is valid.
    pub const ACK: Self = Self(1 << 4);
    /// ECN echo.
    pub const ECE: Self = Self(1 << 6);
    /// Congestion window reduced.
    pub const CWR: Self = Self(1 << 7);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [char; 8] = ['F', 'S', 'R', 'P', '.', 'U', 'E', 'W'];
        LETTERS
            .iter()
            .enumerate()
            .filter(|(bit, _)| self.0 >> bit & 1 == 1)
            .try_for_each(|(_, c)| write!(f, "{c}"))
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

/// The fields of a TCP header, except its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpHeader {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Sequence number of the first byte of data.
    pub sequence: u32,
    /// Next sequence number expected from the peer.
    pub acknowledgement: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Receive window as encoded, not scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, as far as they are known: others are skipped.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Parses the header of a segment and returns it with its length. The checksum is not verified.
    ///
    /// # Errors
    /// If it is truncated, or its length or that of an option is invalid.
    pub fn parse(segment: &[u8]) -> Result<(Self, usize), Malformed> {
        let h: &[u8; HEADER_LEN] = segment.first_chunk().ok_or(Malformed::Truncated)?;
        let len = usize::from(h[12] >> 4) * 4;
        if len < HEADER_LEN {
            return Err(Malformed::Length);
        }
        let options = TcpOptions::parse(segment.get(HEADER_LEN..len).ok_or(Malformed::Truncated)?)?;
        let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
        let header = Self {
            source: u16_at(0),
            destination: u16_at(2),
            sequence: u32_at(4),
            acknowledgement: u32_at(8),
            flags: TcpFlags(h[FLAGS_AT]),
            window: u16_at(14),
            urgent: u16_at(18),
            options,
        };
        Ok((header, len))
    }

    /// Length in bytes, including options.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Always false.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header with a zero checksum to the start of `bytes` and returns its length.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let len = self.len();
        let bytes = &mut bytes[..len];
        bytes[..2].copy_from_slice(&self.source.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        bytes[12] = ((len / 4) as u8) << 4;
        bytes[13] = self.flags.0;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..18].fill(0);
        bytes[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(&mut bytes[HEADER_LEN..]);
        len
    }

    /// Whether the checksum of a segment (header and data) is correct.
    pub fn checksum_is_right(segment: &[u8], source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        u16::try_from(segment.len())
            .is_ok_and(|len| pseudo(source, destination, len).with(segment).finish() == 0)
    }

    /// Fills in the checksum of a segment (header and data).
    ///
    /// # Panics
    /// If `segment` is shorter than a header or longer than 64 KiB.
    pub fn fill_checksum(segment: &mut [u8], source: Ipv4Addr, destination: Ipv4Addr) {
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let len = u16::try_from(segment.len()).expect("a segment fits into a packet");
        let sum = pseudo(source, destination, len).with(segment).finish();
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

fn pseudo(source: Ipv4Addr, destination: Ipv4Addr, len: u16) -> Sum {
    Sum::new().with_pseudo_header(source, destination, protocol::TCP, len)
}

impl fmt::Display for TcpHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TCP {} > {} [{}], seq {}", self.source, self.destination, self.flags, self.sequence)?;
        if self.flags.contains(TcpFlags::ACK) {
            write!(f, ", ack {}", self.acknowledgement)?;
        }
        write!(f, ", win {}", self.window)
    }
}

#[cfg(test)]
mod tests;
