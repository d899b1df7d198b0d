//! Completions: Cpl and CplD (base spec 2.2.9).
//!
//! ```text
//!        7             0 7             0 7   5 4 3     0 7             0
//!       +-------------------------------+-----+-+-------+---------------+
//! byte 4|         completer ID          |statu|B|     byte count        |
//!       +-------------------------------+-----+-+-------+-+-------------+
//! byte 8|         requester ID          |   tag [7:0]   |0|lower address|
//!       +-------------------------------+---------------+-+-------------+
//! ```
//!
//! B (byte count modified) is set by PCI-X bridges only: sent as 0, ignored.

use super::TlpError;
use super::memory::MemoryRequest;
use crate::pcie::Bdf;
use std::fmt;

/// How a request ended; only a successful read has data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CompletionStatus {
    /// SC.
    Successful = 0b000,
    /// UR: no function handles this request. Receivers treat reserved codes the same way.
    UnsupportedRequest = 0b001,
    /// CRS (RRS since 6.0): retry later; for configuration requests only.
    ConfigRetry = 0b010,
    /// CA: the completer could not complete the request.
    CompleterAbort = 0b100,
}

/// Fields specific to completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionHeader {
    /// Completer ID.
    pub completer: Bdf,
    /// How the request ended.
    pub status: CompletionStatus,
    /// Remaining bytes of the request, including this packet; 1 to 4096.
    pub byte_count: u16,
    /// Bits 6 to 0 of the address of the first byte in this packet.
    pub lower_address: u8,
    /// Requester ID.
    pub requester: Bdf,
    /// The request's tag, 0 to 1023.
    pub tag: u16,
    /// Doublewords of data in this packet, 1 to 1024; 0 in a Cpl.
    pub length_dw: u16,
}

impl CompletionHeader {
    /// The completion with `len` bytes from `address`, of which `remaining` bytes (including these) are still to come.
    #[inline]
    pub fn with_data(
        completer: Bdf,
        request: &MemoryRequest,
        address: u64,
        len: u32,
        remaining: u32,
    ) -> Self {
        Self {
            completer,
            status: CompletionStatus::Successful,
            byte_count: remaining.max(1) as u16,
            lower_address: address as u8 & 0x7f,
            requester: request.requester,
            tag: request.tag,
            length_dw: (((address & 3) as u32 + len.max(1) - 1) / 4) as u16 + 1,
        }
    }

    /// The completion without data that ends `request` with `status`: of a read, all of its bytes are still missing.
    #[inline]
    pub fn for_read_error(completer: Bdf, request: &MemoryRequest, status: CompletionStatus) -> Self {
        let (address, _) = request.byte_range();
        Self {
            completer,
            status,
            byte_count: request.completion_byte_count(),
            lower_address: address as u8 & 0x7f,
            requester: request.requester,
            tag: request.tag,
            length_dw: 0,
        }
    }

    /// The completion of a configuration or I/O request: byte count 4, lower address 0 (base spec 2.2.9).
    #[inline]
    pub fn for_register(
        completer: Bdf,
        requester: Bdf,
        tag: u16,
        status: CompletionStatus,
        length_dw: u16,
    ) -> Self {
        Self { completer, status, byte_count: 4, lower_address: 0, requester, tag, length_dw }
    }

    /// Bytes of the request in this packet's data: those of the first doubleword before the address do not count.
    #[inline]
    pub fn bytes_here(&self) -> u32 {
        let room = u32::from(self.length_dw) * 4;
        room.saturating_sub(u32::from(self.lower_address & 3)).min(u32::from(self.byte_count))
    }

    /// Whether this is the last packet of its request.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.status != CompletionStatus::Successful
            || self.length_dw == 0
            || self.bytes_here() >= u32::from(self.byte_count)
    }

    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) {
        let first = u32::from(self.completer.bits()) << 16
            | (self.status as u32) << 13
            | u32::from(self.byte_count) & 0xfff;
        let second = u32::from(self.requester.bits()) << 16
            | u32::from(self.tag & 0xff) << 8
            | u32::from(self.lower_address & 0x7f);
        buf[4..12].copy_from_slice(&(u64::from(first) << 32 | u64::from(second)).to_be_bytes());
    }

    #[inline(always)]
    pub(super) fn parse(head: &[u8; 12], tag_high: u16, length_dw: u16) -> Self {
        let first = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let second = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        Self {
            completer: Bdf::from_bits((first >> 16) as u16),
            status: match first >> 13 & 7 {
                0b000 => CompletionStatus::Successful,
                0b010 => CompletionStatus::ConfigRetry,
                0b100 => CompletionStatus::CompleterAbort,
                _ => CompletionStatus::UnsupportedRequest,
            },
            byte_count: ((first.wrapping_sub(1) & 0xfff) + 1) as u16,
            lower_address: second as u8 & 0x7f,
            requester: Bdf::from_bits((second >> 16) as u16),
            tag: tag_high | (second >> 8) as u16 & 0xff,
            length_dw,
        }
    }

    pub(super) fn check(&self, data: bool) -> Result<(), TlpError> {
        if !(1..=4096).contains(&self.byte_count) {
            return Err(TlpError::field("byte count", self.byte_count, "1 to 4096"));
        }
        if self.lower_address > 0x7f {
            return Err(TlpError::field("lower address", self.lower_address, "0 to 0x7f"));
        }
        match (data, self.length_dw) {
            (true, 1..=1024) | (false, 0) => Ok(()),
            (true, n) => Err(TlpError::field("length of a CplD", n, "1 to 1024 dw")),
            (false, n) => Err(TlpError::field("length of a Cpl", n, "0 dw")),
        }
    }
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Successful => "SC",
            Self::UnsupportedRequest => "UR",
            Self::ConfigRetry => "CRS",
            Self::CompleterAbort => "CA",
        })
    }
}

impl fmt::Display for CompletionHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status;
        write!(
            f,
            "{} {status} to {} tag {} count {} lower {:#04x}",
            self.completer, self.requester, self.tag, self.byte_count, self.lower_address
        )?;
        if self.length_dw > 0 {
            write!(f, " len {} dw", self.length_dw)?;
        }
        Ok(())
    }
}
