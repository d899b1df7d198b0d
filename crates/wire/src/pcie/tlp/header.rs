//! The first doubleword of every header.

use super::TlpError;
use std::fmt;

pub(super) const FMT_3DW: u8 = 0b000 << 5;
pub(super) const FMT_4DW: u8 = 0b001 << 5;
pub(super) const FMT_3DW_DATA: u8 = 0b010 << 5;
pub(super) const FMT_4DW_DATA: u8 = 0b011 << 5;

pub(super) const TYPE_MEM: u8 = 0b00000;
pub(super) const TYPE_IO: u8 = 0b00010;
pub(super) const TYPE_CFG0: u8 = 0b00100;
pub(super) const TYPE_CFG1: u8 = 0b00101;
pub(super) const TYPE_CPL: u8 = 0b01010;
pub(super) const TYPE_MSG: u8 = 0b10000;

// Bits of the first doubleword, read as one big-endian number.
const TAG_9: u32 = 1 << 23;
const TAG_8: u32 = 1 << 19;
const TC_SHIFT: u32 = 20;
const IDO: u32 = 1 << 18;
const DIGEST: u32 = 1 << 15;
const POISONED: u32 = 1 << 14;
const RELAXED: u32 = 1 << 13;
const NO_SNOOP: u32 = 1 << 12;
const AT_SHIFT: u32 = 10;
const LENGTH: u32 = 0x3ff;

/// The AT field: what a memory request's address is (ATS, base spec 10.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum AddressType {
    /// An untranslated address.
    #[default]
    Untranslated = 0,
    /// A translation request to the IOMMU.
    TranslationRequest = 1,
    /// A translated address, from the device's cache (ATC).
    Translated = 2,
    /// A reserved encoding; never in a parsed memory request.
    Reserved = 3,
}

impl AddressType {
    #[inline]
    fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Untranslated,
            1 => Self::TranslationRequest,
            2 => Self::Translated,
            _ => Self::Reserved,
        }
    }

    #[inline(always)]
    pub(super) fn checked(self) -> Result<Self, TlpError> {
        match self {
            Self::Reserved => {
                Err(TlpError::field("AT", 3u8, "0 (untranslated), 1 (translation request), 2 (translated)"))
            }
            known => Ok(known),
        }
    }
}

/// Fields common to all headers, besides the type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Common {
    /// TC, 0 to 7: selects the virtual channel.
    pub traffic_class: u8,
    /// RO: may pass earlier posted requests.
    pub relaxed_ordering: bool,
    /// NS: no snooping of caches required.
    pub no_snoop: bool,
    /// IDO: ordered only against packets of the same requester.
    pub id_based_ordering: bool,
    /// AT: address type; for memory requests only.
    pub address_type: AddressType,
    /// EP: poisoned data.
    pub poisoned: bool,
    /// TD: an ECRC follows the data.
    pub digest: bool,
}

impl Common {
    /// Traffic class 0, no attributes, no digest.
    pub const DEFAULT: Self = Self {
        traffic_class: 0,
        relaxed_ordering: false,
        no_snoop: false,
        id_based_ordering: false,
        address_type: AddressType::Untranslated,
        poisoned: false,
        digest: false,
    };

    #[inline(always)]
    pub(super) fn emit(&self, buf: &mut [u8], fmt_type: u8, tag: u16, length_dw: u16, at: AddressType) {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let dw = u32::from(fmt_type) << 24
            | u32::from(self.traffic_class & 7) << TC_SHIFT
            | flag(tag & 0x200 != 0, TAG_9)
            | flag(tag & 0x100 != 0, TAG_8)
            | flag(self.id_based_ordering, IDO)
            | flag(self.digest, DIGEST)
            | flag(self.poisoned, POISONED)
            | flag(self.relaxed_ordering, RELAXED)
            | flag(self.no_snoop, NO_SNOOP)
            | (at as u32) << AT_SHIFT
            | u32::from(length_dw) & LENGTH;
        buf[..4].copy_from_slice(&dw.to_be_bytes());
    }

    /// The common part, tag bits 9 and 8 in place, and the length in doublewords (1 to 1024).
    #[inline(always)]
    pub(super) fn parse(head: &[u8; 12]) -> (Self, u16, u16) {
        let dw = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let common = Self {
            traffic_class: (dw >> TC_SHIFT) as u8 & 7,
            relaxed_ordering: dw & RELAXED != 0,
            no_snoop: dw & NO_SNOOP != 0,
            id_based_ordering: dw & IDO != 0,
            address_type: AddressType::from_bits(dw >> AT_SHIFT),
            poisoned: dw & POISONED != 0,
            digest: dw & DIGEST != 0,
        };
        let tag = (dw & TAG_9) >> 14 | (dw & TAG_8) >> 11;
        // Zero stands for 1024: subtracting one turns it into the largest value.
        let length = ((dw & LENGTH).wrapping_sub(1) & LENGTH) + 1;
        (common, tag as u16, length as u16)
    }

    /// AT means something in memory requests only; elsewhere the bits are reserved and ignored.
    #[inline(always)]
    pub(super) fn without_address_type(self) -> Self {
        Self { address_type: AddressType::Untranslated, ..self }
    }

    pub(super) fn check(&self) -> Result<(), TlpError> {
        if self.traffic_class > 7 {
            return Err(TlpError::field("traffic class", self.traffic_class, "0 to 7"));
        }
        self.address_type.checked().map(drop)
    }

    /// The rules for configuration and I/O requests (base spec 2.2.7.1): nothing but the digest and poison bits.
    #[inline]
    pub(super) fn check_plain(&self, length_dw: u16) -> Result<(), TlpError> {
        let attributes = u8::from(self.no_snoop)
            | u8::from(self.relaxed_ordering) << 1
            | u8::from(self.id_based_ordering) << 2;
        if self.traffic_class != 0 {
            return Err(TlpError::field("TC of a configuration or I/O request", self.traffic_class, "0"));
        }
        if attributes != 0 {
            return Err(TlpError::field("attributes of a configuration or I/O request", attributes, "0"));
        }
        if length_dw != 1 {
            return Err(TlpError::field("length of a configuration or I/O request", length_dw, "1 dw"));
        }
        Ok(())
    }
}

impl fmt::Display for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.traffic_class != 0 {
            write!(f, " TC{}", self.traffic_class)?;
        }
        match self.address_type {
            AddressType::Untranslated => {}
            AddressType::TranslationRequest => write!(f, " AT=request")?,
            AddressType::Translated => write!(f, " AT=translated")?,
            AddressType::Reserved => write!(f, " AT=reserved")?,
        }
        for (on, name) in [
            (self.relaxed_ordering, " RO"),
            (self.no_snoop, " NS"),
            (self.id_based_ordering, " IDO"),
            (self.poisoned, " EP"),
            (self.digest, " TD"),
        ] {
            if on {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}
