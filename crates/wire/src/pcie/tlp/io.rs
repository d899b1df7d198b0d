//! I/O requests: IORd and IOWr, one doubleword at a 32-bit address (base spec 2.2.7.1).

use super::{Common, TlpError};
use crate::pcie::Bdf;
use std::fmt;

/// A read or a write of up to four bytes of I/O space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// Requester ID.
    pub requester: Bdf,
    /// Tag, 0 to 1023.
    pub tag: u16,
    /// Byte address, a multiple of 4.
    pub address: u32,
    /// Enabled bytes.
    pub first_be: u8,
}

impl IoRequest {
    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) {
        buf[4..6].copy_from_slice(&self.requester.bits().to_be_bytes());
        buf[6] = self.tag as u8;
        buf[7] = self.first_be & 0xf;
        buf[8..12].copy_from_slice(&(self.address & !3).to_be_bytes());
    }

    pub(super) fn parse(
        head: &[u8; 12],
        tag_high: u16,
        length_dw: u16,
        common: &Common,
    ) -> Result<Self, TlpError> {
        common.check_plain(length_dw)?;
        if head[7] >> 4 != 0 {
            return Err(TlpError::field("last byte enables of an I/O request", head[7] >> 4, "0"));
        }
        Ok(Self {
            requester: Bdf::from_bits(u16::from_be_bytes([head[4], head[5]])),
            tag: tag_high | u16::from(head[6]),
            address: u32::from_be_bytes([head[8], head[9], head[10], head[11]]) & !3,
            first_be: head[7] & 0xf,
        })
    }

    pub(super) fn check(&self, common: &Common) -> Result<(), TlpError> {
        common.check_plain(1)?;
        if self.address & 3 != 0 {
            return Err(TlpError::field("address", self.address, "multiples of 4"));
        }
        if self.first_be > 0xf {
            return Err(TlpError::field("first byte enables", self.first_be, "0 to 0xf"));
        }
        Ok(())
    }
}

impl fmt::Display for IoRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tag {} addr {:#x} be {:x}", self.requester, self.tag, self.address, self.first_be)
    }
}
