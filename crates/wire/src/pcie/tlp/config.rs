//! Configuration requests: CfgRd and CfgWr of type 0 (for this bus) and 1 (to
//! be passed on), base spec 2.2.7.1.
//!
//! ```text
//!        7             0 7             0 7     4 3     0 7         2 1 0
//!       +---------------+---------+-----+-------+-------+-----------+---+
//! byte 8|      bus      | device  | fn  |   0   |ext reg| register  | 0 |
//!       +---------------+---------+-----+-------+-------+-----------+---+
//! ```

use super::header::{TYPE_CFG0, TYPE_CFG1};
use super::{Common, TlpError};
use crate::pcie::Bdf;
use std::fmt;

/// Type of a configuration request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigType {
    /// The device at the other end of the link.
    Type0,
    /// A function behind a bridge, which passes it on or turns it into type 0.
    Type1,
}

/// A read or a write of up to four bytes of configuration space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigRequest {
    /// Requester ID.
    pub requester: Bdf,
    /// Tag, 0 to 1023.
    pub tag: u16,
    /// Target function.
    pub target: Bdf,
    /// Byte offset in it, 0 to 4092, a multiple of 4.
    pub register: u16,
    /// Enabled bytes.
    pub first_be: u8,
    /// Type 0 on the target's own bus, type 1 above it.
    pub config_type: ConfigType,
}

impl ConfigRequest {
    #[inline]
    pub(super) fn type_bits(&self) -> u8 {
        match self.config_type {
            ConfigType::Type0 => TYPE_CFG0,
            ConfigType::Type1 => TYPE_CFG1,
        }
    }

    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) {
        buf[4..6].copy_from_slice(&self.requester.bits().to_be_bytes());
        buf[6] = self.tag as u8;
        buf[7] = self.first_be & 0xf;
        buf[8..10].copy_from_slice(&self.target.bits().to_be_bytes());
        buf[10..12].copy_from_slice(&(self.register & 0xffc).to_be_bytes());
    }

    pub(super) fn parse(
        head: &[u8; 12],
        tag_high: u16,
        length_dw: u16,
        common: &Common,
    ) -> Result<Self, TlpError> {
        common.check_plain(length_dw)?;
        if head[7] >> 4 != 0 {
            return Err(TlpError::field("last byte enables of a configuration request", head[7] >> 4, "0"));
        }
        Ok(Self {
            requester: Bdf::from_bits(u16::from_be_bytes([head[4], head[5]])),
            tag: tag_high | u16::from(head[6]),
            target: Bdf::from_bits(u16::from_be_bytes([head[8], head[9]])),
            register: u16::from_be_bytes([head[10], head[11]]) & 0xffc,
            first_be: head[7] & 0xf,
            config_type: if head[0] & 1 == 0 { ConfigType::Type0 } else { ConfigType::Type1 },
        })
    }

    pub(super) fn check(&self, common: &Common) -> Result<(), TlpError> {
        common.check_plain(1)?;
        if self.register & !0xffc != 0 {
            return Err(TlpError::field("register", self.register, "multiples of 4 up to 0xffc"));
        }
        if self.first_be > 0xf {
            return Err(TlpError::field("first byte enables", self.first_be, "0 to 0xf"));
        }
        Ok(())
    }
}

impl fmt::Display for ConfigRequest {
    /// Begins with the type's digit, to follow `CfgRd`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} tag {} to {} reg {:#x} be {:x}",
            self.type_bits() & 1,
            self.requester,
            self.tag,
            self.target,
            self.register,
            self.first_be
        )
    }
}
