//! Memory requests: MRd and MWr (base spec 2.2.7).
//!
//! ```text
//!        7             0 7             0 7             0 7     4 3     0
//!       +-------------------------------+---------------+-------+-------+
//! byte 4|         requester ID          |   tag [7:0]   |last BE|1st BE |
//!       +-------------------------------+---------------+-------+-------+
//! byte 8|            address [31:2]; in a 4 DW header [63:32]       | PH|
//!       +-----------------------------------------------------------+---+
//! ```

use super::TlpError;
use crate::pcie::Bdf;
use std::fmt;

/// A read or a write of 1 to 1024 doublewords.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRequest {
    /// Requester ID.
    pub requester: Bdf,
    /// Tag, 0 to 1023; without meaning for writes.
    pub tag: u16,
    /// Byte address of the first doubleword, a multiple of 4. Below 4 GiB the header has three doublewords.
    pub address: u64,
    /// Doublewords, 1 to 1024.
    pub length_dw: u16,
    /// Enabled bytes of the first doubleword.
    pub first_be: u8,
    /// Enabled bytes of the last doubleword; 0 if there is only one.
    pub last_be: u8,
}

impl MemoryRequest {
    /// The request for `len` bytes at any byte address. `len` 0 makes a
    /// zero-length request: one doubleword, no byte enabled (a flush).
    ///
    /// The caller has split the transfer: `len` and the address stay within
    /// 4 KiB (see [`crate::pcie::split`]).
    #[inline]
    pub fn for_bytes(requester: Bdf, tag: u16, address: u64, len: u32) -> Self {
        let start = (address & 3) as u32;
        let end = start + len;
        debug_assert!(end <= 4096, "{len} bytes at {address:#x} do not fit one request");
        if (start | len) & 3 == 0 && len > 4 {
            // Nearly all traffic is of whole doublewords.
            let length_dw = (len / 4) as u16;
            return Self { requester, tag, address, length_dw, first_be: 0xf, last_be: 0xf };
        }
        let length_dw = end.div_ceil(4).max(1) as u16;
        let first = 0xf << start & 0xf;
        // Bytes enabled in the last doubleword: end & 3 of them, or all four.
        let last = 0xf >> (end.wrapping_neg() & 3);
        let (first_be, last_be) = match (len, length_dw) {
            (0, _) => (0, 0),
            (_, 1) => (first & last, 0),
            _ => (first, last),
        };
        Self { requester, tag, address: address & !3, length_dw, first_be, last_be }
    }

    /// Address of the first enabled byte, and bytes from it to the last enabled one; 0 for a zero-length request.
    #[inline]
    pub fn byte_range(&self) -> (u64, u32) {
        if self.first_be & self.last_be == 0xf {
            return (self.address, u32::from(self.length_dw) * 4);
        }
        if self.first_be == 0 && self.length_dw == 1 {
            return (self.address, 0);
        }
        let skip = self.first_be.trailing_zeros().min(4);
        let last = if self.length_dw == 1 { self.first_be } else { self.last_be };
        let cut = (last << 4).leading_zeros().min(4);
        (
            self.address.wrapping_add(u64::from(skip)),
            (u32::from(self.length_dw) * 4).saturating_sub(skip + cut),
        )
    }

    /// Byte count of the first (or only) completion of this read (base spec
    /// table 2-40): that of [`Self::byte_range`], but 1 for a zero-length read.
    #[inline]
    pub fn completion_byte_count(&self) -> u16 {
        self.byte_range().1.max(1) as u16
    }

    /// 12 below 4 GiB, 16 above.
    #[inline]
    pub fn header_len(&self) -> usize {
        if self.address >> 32 == 0 { 12 } else { 16 }
    }

    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) {
        let id = u32::from(self.requester.bits()) << 16
            | u32::from(self.tag & 0xff) << 8
            | u32::from(self.last_be & 0xf) << 4
            | u32::from(self.first_be & 0xf);
        if self.address >> 32 == 0 {
            let tail = u64::from(id) << 32 | self.address & !3;
            buf[4..12].copy_from_slice(&tail.to_be_bytes());
        } else {
            buf[4..8].copy_from_slice(&id.to_be_bytes());
            buf[8..16].copy_from_slice(&(self.address & !3).to_be_bytes());
        }
    }

    #[inline(always)]
    fn parse(id: [u8; 4], tag_high: u16, length_dw: u16, address: u64) -> Result<Self, TlpError> {
        let id = u32::from_be_bytes(id);
        let request = Self {
            requester: Bdf::from_bits((id >> 16) as u16),
            tag: tag_high | (id >> 8) as u16 & 0xff,
            address: address & !3,
            length_dw,
            first_be: id as u8 & 0xf,
            last_be: (id >> 4) as u8 & 0xf,
        };
        // Nearly all traffic enables every byte of its doublewords.
        if id & 0xff != 0xff || length_dw == 1 {
            request.check_byte_enables()?;
        }
        request.check_page()?;
        Ok(request)
    }

    #[inline(always)]
    pub(super) fn parse_3dw(head: &[u8; 12], tag_high: u16, length_dw: u16) -> Result<Self, TlpError> {
        let address = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        Self::parse([head[4], head[5], head[6], head[7]], tag_high, length_dw, u64::from(address))
    }

    #[inline(always)]
    pub(super) fn parse_4dw(head: &[u8; 16], tag_high: u16, length_dw: u16) -> Result<Self, TlpError> {
        let mut address = [0; 8];
        address.copy_from_slice(&head[8..16]);
        let address = u64::from_be_bytes(address);
        if address >> 32 == 0 {
            return Err(TlpError::field(
                "address of a 4 DW header",
                address,
                "4 GiB and above (3 DW headers below)",
            ));
        }
        Self::parse([head[4], head[5], head[6], head[7]], tag_high, length_dw, address)
    }

    pub(super) fn check(&self) -> Result<(), TlpError> {
        if self.address & 3 != 0 {
            return Err(TlpError::field("address", self.address, "multiples of 4"));
        }
        if !(1..=1024).contains(&self.length_dw) {
            return Err(TlpError::field("length", self.length_dw, "1 to 1024 dw"));
        }
        self.check_byte_enables()?;
        self.check_page()
    }

    #[inline(always)]
    fn check_page(&self) -> Result<(), TlpError> {
        if (self.address & 0xfff) + u64::from(self.length_dw) * 4 > 4096 {
            return Err(TlpError::field(
                "address and length",
                self.address,
                "nothing across a 4 KiB boundary",
            ));
        }
        Ok(())
    }

    /// Byte enable rules (base spec 2.2.5).
    #[inline]
    fn check_byte_enables(&self) -> Result<(), TlpError> {
        let (first, last) = (self.first_be, self.last_be);
        if first > 0xf {
            return Err(TlpError::field("first byte enables", first, "0 to 0xf"));
        }
        if self.length_dw == 1 {
            return if last == 0 {
                Ok(())
            } else {
                Err(TlpError::field("last byte enables of a single doubleword", last, "0"))
            };
        }
        // Two doublewords in one aligned quadword may have holes.
        if self.length_dw == 2 && self.address & 7 == 0 {
            if first == 0 {
                return Err(TlpError::field("first byte enables of a longer request", first, "1 to 0xf"));
            }
            if last == 0 || last > 0xf {
                return Err(TlpError::field("last byte enables of a longer request", last, "1 to 0xf"));
            }
            return Ok(());
        }
        if !matches!(first, 0xf | 0xe | 0xc | 0x8) {
            return Err(TlpError::field(
                "first byte enables of a longer request",
                first,
                "0xf, 0xe, 0xc, 0x8",
            ));
        }
        if !matches!(last, 0xf | 0x7 | 0x3 | 0x1) {
            return Err(TlpError::field("last byte enables of a longer request", last, "0xf, 0x7, 0x3, 0x1"));
        }
        Ok(())
    }
}

impl fmt::Display for MemoryRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tag {} addr {:#x} len {} dw be {:x}/{:x}",
            self.requester, self.tag, self.address, self.length_dw, self.first_be, self.last_be
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn byte_enables_as_the_specification_tabulates_them() {
        let of = |addr, len| {
            let r = MemoryRequest::for_bytes(Bdf::default(), 0, addr, len);
            (r.address, r.length_dw, r.first_be, r.last_be)
        };
        assert_eq!(of(0x1000, 64), (0x1000, 16, 0xf, 0xf));
        assert_eq!(of(0x1000, 4), (0x1000, 1, 0xf, 0));
        assert_eq!(of(0x1001, 2), (0x1000, 1, 0b0110, 0));
        assert_eq!(of(0x1003, 1), (0x1000, 1, 0b1000, 0));
        assert_eq!(of(0x1003, 2), (0x1000, 2, 0b1000, 0b0001));
        assert_eq!(of(0x1000, 65), (0x1000, 17, 0xf, 0b0001));
        assert_eq!(of(0x1002, 63), (0x1000, 17, 0b1100, 0b0001));
        assert_eq!(of(0x1002, 0), (0x1000, 1, 0, 0));
        assert_eq!(of(0x1000, 4096), (0x1000, 1024, 0xf, 0xf));
    }

    #[test]
    fn holes_count_from_first_to_last_byte() {
        let mut r = MemoryRequest::for_bytes(Bdf::default(), 0, 0x2000, 8);
        (r.first_be, r.last_be) = (0b0100, 0b0010);
        assert_eq!(r.check(), Ok(()));
        assert_eq!(r.byte_range(), (0x2002, 4));
        r.length_dw = 1;
        (r.first_be, r.last_be) = (0b1001, 0);
        assert_eq!(r.byte_range(), (0x2000, 4));
        r.first_be = 0;
        assert_eq!((r.byte_range(), r.completion_byte_count()), ((0x2000, 0), 1));
    }

    proptest! {
        #[test]
        fn byte_range_gives_back_the_bytes(page in 0u64..1 << 52, start in 0u64..4096, len in 0u32..=4096) {
            let len = len.min(4096 - start as u32);
            let address = (page << 12) + start;
            let r = MemoryRequest::for_bytes(Bdf::default(), 7, address, len);
            prop_assert_eq!(r.check(), Ok(()));
            let expected = if len == 0 { address & !3 } else { address };
            prop_assert_eq!(r.byte_range(), (expected, len));
        }
    }
}
