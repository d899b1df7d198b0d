//! Transaction layer packets (base spec 2.2): the header, without payload and digest.
//!
//! The first doubleword is common to all:
//!
//! ```text
//!        7 6 5 4 3 2 1 0 7 6 5 4 3 2 1 0 7 6 5 4 3 2 1 0 7 6 5 4 3 2 1 0
//!       +-----+---------+-+-----+-+-+-+-+-+-+---+---+-------------------+
//! byte 0| Fmt |  Type   |9| TC  |8|I|L|H|D|P|Atr|AT |      Length       |
//!       +-----+---------+-+-----+-+-+-+-+-+-+---+---+-------------------+
//! ```
//!
//! 9, 8: two upper tag bits; I: attribute 2, ID-based ordering; L: lightweight
//! notification; H: processing hints; D: digest follows; P: poisoned; Atr:
//! relaxed ordering and no snoop; AT: address type.

pub mod completion;
pub mod config;
mod error;
mod header;
pub mod io;
pub mod memory;
pub mod message;

pub use completion::{CompletionHeader, CompletionStatus};
pub use config::{ConfigRequest, ConfigType};
pub use error::TlpError;
pub use header::{AddressType, Common};
pub use io::IoRequest;
pub use memory::MemoryRequest;
pub use message::{Message, MessageCode, Routing};

use super::{Bdf, Framing};
use header::{
    FMT_3DW, FMT_3DW_DATA, FMT_4DW, FMT_4DW_DATA, TYPE_CFG0, TYPE_CFG1, TYPE_CPL, TYPE_IO, TYPE_MEM,
};
use std::fmt;

/// Length of the TLP digest (ECRC), in bytes.
pub const DIGEST_LEN: usize = 4;
/// Bytes that one unit of data credit stands for (base spec 2.6.1).
pub const DATA_CREDIT: usize = 16;

const MRD_3DW: u8 = FMT_3DW | TYPE_MEM;
const MRD_4DW: u8 = FMT_4DW | TYPE_MEM;
const MWR_3DW: u8 = FMT_3DW_DATA | TYPE_MEM;
const MWR_4DW: u8 = FMT_4DW_DATA | TYPE_MEM;
const CPLD: u8 = FMT_3DW_DATA | TYPE_CPL;

/// The header of a transaction layer packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tlp {
    /// Fields common to all packets.
    pub common: Common,
    /// Fields specific to the packet's type.
    pub kind: TlpKind,
}

/// The types of packet. The locked and atomic ones are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlpKind {
    /// MRd.
    MemoryRead(MemoryRequest),
    /// MWr.
    MemoryWrite(MemoryRequest),
    /// IORd.
    IoRead(IoRequest),
    /// IOWr.
    IoWrite(IoRequest),
    /// CfgRd0, CfgRd1.
    ConfigRead(ConfigRequest),
    /// CfgWr0, CfgWr1.
    ConfigWrite(ConfigRequest),
    /// Msg, MsgD.
    Message(Message),
    /// Cpl: a completion without data.
    Completion(CompletionHeader),
    /// CplD: a completion with data.
    CompletionData(CompletionHeader),
}

/// The three kinds of traffic that flow control and ordering tell apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlowClass {
    /// Memory writes and messages: no completion.
    Posted,
    /// Reads, and writes to configuration and I/O space.
    NonPosted,
    /// Completions, which end non-posted requests.
    Completion,
}

impl FlowClass {
    /// All classes, in the order of [`Self::index`].
    pub const ALL: [Self; 3] = [Self::Posted, Self::NonPosted, Self::Completion];

    /// 0, 1, 2: for tables by class.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl Tlp {
    /// A packet of this type with no attributes, traffic class 0.
    #[inline]
    pub const fn new(kind: TlpKind) -> Self {
        Self { common: Common::DEFAULT, kind }
    }

    /// Length of the header in bytes, 12 or 16.
    #[inline]
    pub fn header_len(&self) -> usize {
        match &self.kind {
            TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => r.header_len(),
            TlpKind::Message(_) => 16,
            _ => 12,
        }
    }

    /// Length of the data in doublewords.
    #[inline]
    pub fn payload_dw(&self) -> u16 {
        match &self.kind {
            TlpKind::MemoryWrite(r) => r.length_dw,
            TlpKind::IoWrite(_) | TlpKind::ConfigWrite(_) => 1,
            TlpKind::Message(m) => m.length_dw,
            TlpKind::CompletionData(c) => c.length_dw,
            TlpKind::MemoryRead(_) | TlpKind::IoRead(_) | TlpKind::ConfigRead(_) | TlpKind::Completion(_) => {
                0
            }
        }
    }

    /// Length of the data in bytes, a multiple of 4.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(self.payload_dw()) * 4
    }

    /// Length of header, data and digest in bytes.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.header_len() + self.payload_len() + if self.common.digest { DIGEST_LEN } else { 0 }
    }

    /// Bytes on the lanes: the packet with framing, sequence number and LCRC.
    #[inline]
    pub fn wire_len(&self, framing: Framing) -> usize {
        self.packet_len() + framing.tlp_overhead()
    }

    /// The class for flow control and ordering.
    #[inline]
    pub fn class(&self) -> FlowClass {
        match &self.kind {
            TlpKind::MemoryWrite(_) | TlpKind::Message(_) => FlowClass::Posted,
            TlpKind::Completion(_) | TlpKind::CompletionData(_) => FlowClass::Completion,
            _ => FlowClass::NonPosted,
        }
    }

    /// Credits the packet takes: class, headers (always 1), units of data (16 B each; base spec 2.6.1).
    #[inline]
    pub fn credits(&self) -> (FlowClass, u16, u16) {
        (self.class(), 1, self.payload_dw().div_ceil((DATA_CREDIT / 4) as u16))
    }

    /// The sender: requester of a request, completer of a completion.
    #[inline]
    pub fn sender(&self) -> Bdf {
        match &self.kind {
            TlpKind::Completion(c) | TlpKind::CompletionData(c) => c.completer,
            _ => self.requester(),
        }
    }

    /// The requester: the sender of a request, the receiver of a completion.
    #[inline]
    pub fn requester(&self) -> Bdf {
        match &self.kind {
            TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => r.requester,
            TlpKind::IoRead(r) | TlpKind::IoWrite(r) => r.requester,
            TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => r.requester,
            TlpKind::Message(m) => m.requester,
            TlpKind::Completion(c) | TlpKind::CompletionData(c) => c.requester,
        }
    }

    /// The tag, 0 to 1023.
    #[inline]
    pub fn tag(&self) -> u16 {
        match &self.kind {
            TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => r.tag,
            TlpKind::IoRead(r) | TlpKind::IoWrite(r) => r.tag,
            TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => r.tag,
            TlpKind::Message(m) => m.tag,
            TlpKind::Completion(c) | TlpKind::CompletionData(c) => c.tag,
        }
    }

    /// Writes the header into the first [`Self::header_len`] bytes of `buf`.
    ///
    /// Fields that [`Self::check`] would reject are cut to their width.
    ///
    /// # Panics
    /// If `buf` is shorter than the header.
    // Who emits a header has just made it: inlined, the choice of its kind folds away.
    #[inline(always)]
    pub fn emit(&self, buf: &mut [u8]) {
        let c = &self.common;
        match &self.kind {
            TlpKind::MemoryRead(r) => {
                let fmt = if r.header_len() == 16 { FMT_4DW } else { FMT_3DW };
                c.emit(buf, fmt | TYPE_MEM, r.tag, r.length_dw, c.address_type);
                r.emit(buf);
            }
            TlpKind::MemoryWrite(r) => {
                let fmt = if r.header_len() == 16 { FMT_4DW_DATA } else { FMT_3DW_DATA };
                c.emit(buf, fmt | TYPE_MEM, r.tag, r.length_dw, c.address_type);
                r.emit(buf);
            }
            TlpKind::Completion(h) => {
                c.emit(buf, FMT_3DW | TYPE_CPL, h.tag, 0, AddressType::Untranslated);
                h.emit(buf);
            }
            TlpKind::CompletionData(h) => {
                c.emit(buf, FMT_3DW_DATA | TYPE_CPL, h.tag, h.length_dw, AddressType::Untranslated);
                h.emit(buf);
            }
            TlpKind::IoRead(r) => {
                c.emit(buf, FMT_3DW | TYPE_IO, r.tag, 1, AddressType::Untranslated);
                r.emit(buf);
            }
            TlpKind::IoWrite(r) => {
                c.emit(buf, FMT_3DW_DATA | TYPE_IO, r.tag, 1, AddressType::Untranslated);
                r.emit(buf);
            }
            TlpKind::ConfigRead(r) => {
                c.emit(buf, FMT_3DW | r.type_bits(), r.tag, 1, AddressType::Untranslated);
                r.emit(buf);
            }
            TlpKind::ConfigWrite(r) => {
                c.emit(buf, FMT_3DW_DATA | r.type_bits(), r.tag, 1, AddressType::Untranslated);
                r.emit(buf);
            }
            TlpKind::Message(m) => {
                let fmt = if m.length_dw > 0 { FMT_4DW_DATA } else { FMT_4DW };
                c.emit(buf, fmt | m.type_bits(), m.tag, m.length_dw, AddressType::Untranslated);
                m.emit(buf);
            }
        }
    }

    /// Reads a header from the start of `bytes`; also returns its length, 12 or 16.
    ///
    /// Data and digest are not looked at: [`Self::payload_len`] says how much should follow.
    ///
    /// # Errors
    /// [`TlpError`] names the field and what it may hold.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), TlpError> {
        let Some(head) = bytes.first_chunk::<12>() else {
            return Err(TlpError::Truncated { needed: 12, got: bytes.len() });
        };
        // The traffic that counts comes first, each kind built in one go: this is the hot path.
        match head[0] {
            MRD_4DW | MWR_4DW => {
                let Some(long) = bytes.first_chunk::<16>() else {
                    return Err(TlpError::Truncated { needed: 16, got: bytes.len() });
                };
                let (common, tag, length) = Common::parse(head);
                common.address_type.checked()?;
                let request = MemoryRequest::parse_4dw(long, tag, length)?;
                Ok((Self { common, kind: memory_kind(head[0] == MWR_4DW, request) }, 16))
            }
            MRD_3DW | MWR_3DW => {
                let (common, tag, length) = Common::parse(head);
                common.address_type.checked()?;
                let request = MemoryRequest::parse_3dw(head, tag, length)?;
                Ok((Self { common, kind: memory_kind(head[0] == MWR_3DW, request) }, 12))
            }
            CPLD => {
                let (common, tag, length) = Common::parse(head);
                let kind = TlpKind::CompletionData(CompletionHeader::parse(head, tag, length));
                Ok((Self { common: common.without_address_type(), kind }, 12))
            }
            _ => Self::parse_rare(bytes, head),
        }
    }

    #[inline(never)]
    fn parse_rare(bytes: &[u8], head: &[u8; 12]) -> Result<(Self, usize), TlpError> {
        let (common, tag, length) = Common::parse(head);
        let common = common.without_address_type();
        let four = || match bytes.first_chunk::<16>() {
            Some(head) => Ok(head),
            None => Err(TlpError::Truncated { needed: 16, got: bytes.len() }),
        };
        let (kind, len) = match (head[0] & 0x1f, head[0] & 0xe0) {
            (TYPE_CPL, FMT_3DW) => (TlpKind::Completion(CompletionHeader::parse(head, tag, 0)), 12),
            (TYPE_IO, FMT_3DW) => (TlpKind::IoRead(IoRequest::parse(head, tag, length, &common)?), 12),
            (TYPE_IO, FMT_3DW_DATA) => (TlpKind::IoWrite(IoRequest::parse(head, tag, length, &common)?), 12),
            (TYPE_CFG0 | TYPE_CFG1, FMT_3DW) => {
                (TlpKind::ConfigRead(ConfigRequest::parse(head, tag, length, &common)?), 12)
            }
            (TYPE_CFG0 | TYPE_CFG1, FMT_3DW_DATA) => {
                (TlpKind::ConfigWrite(ConfigRequest::parse(head, tag, length, &common)?), 12)
            }
            (0x10..=0x17, FMT_4DW) => (TlpKind::Message(Message::parse(four()?, tag, 0)?), 16),
            (0x10..=0x17, FMT_4DW_DATA) => (TlpKind::Message(Message::parse(four()?, tag, length)?), 16),
            _ => return Err(TlpError::unsupported(head[0])),
        };
        Ok((Self { common, kind }, len))
    }

    /// Whether the packet obeys the rules for its type, as a received one would have to.
    ///
    /// # Errors
    /// The first field that does not.
    pub fn check(&self) -> Result<(), TlpError> {
        self.common.check()?;
        if self.tag() > 1023 {
            return Err(TlpError::field("tag", self.tag(), "0 to 1023"));
        }
        match &self.kind {
            TlpKind::MemoryRead(r) | TlpKind::MemoryWrite(r) => r.check(),
            TlpKind::IoRead(r) | TlpKind::IoWrite(r) => r.check(&self.common),
            TlpKind::ConfigRead(r) | TlpKind::ConfigWrite(r) => r.check(&self.common),
            TlpKind::Message(m) => m.check(),
            TlpKind::Completion(c) => c.check(false),
            TlpKind::CompletionData(c) => c.check(true),
        }
    }
}

#[inline]
fn memory_kind(write: bool, request: MemoryRequest) -> TlpKind {
    if write { TlpKind::MemoryWrite(request) } else { TlpKind::MemoryRead(request) }
}

impl fmt::Display for Tlp {
    /// One line, as an analyser shows it: `MWr(64) 03:00.0 tag 5 addr 0x1_0000_1000 len 16 dw be f/f TC0 RO`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            TlpKind::MemoryRead(r) => write!(f, "MRd({}) {r}", r.header_len() / 4 * 32 - 64)?,
            TlpKind::MemoryWrite(r) => write!(f, "MWr({}) {r}", r.header_len() / 4 * 32 - 64)?,
            TlpKind::IoRead(r) => write!(f, "IORd {r}")?,
            TlpKind::IoWrite(r) => write!(f, "IOWr {r}")?,
            TlpKind::ConfigRead(r) => write!(f, "CfgRd{r}")?,
            TlpKind::ConfigWrite(r) => write!(f, "CfgWr{r}")?,
            TlpKind::Message(m) => write!(f, "{m}")?,
            TlpKind::Completion(c) => write!(f, "Cpl {c}")?,
            TlpKind::CompletionData(c) => write!(f, "CplD {c}")?,
        }
        write!(f, "{}", self.common)
    }
}

#[cfg(test)]
mod tests;
