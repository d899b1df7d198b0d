//! Messages: Msg and MsgD (base spec 2.2.8).
//!
//! ```text
//!        7             0 7             0 7             0 7             0
//!       +-------------------------------+---------------+---------------+
//! byte 4|         requester ID          |   tag [7:0]   | message code  |
//!       +-------------------------------+---------------+---------------+
//! byte 8|     an address, a target ID, or what the message defines      |
//!       +                                                               +
//!     12|                                                               |
//!       +---------------------------------------------------------------+
//! ```

use super::TlpError;
use super::header::TYPE_MSG;
use crate::pcie::config::ltr;
use crate::pcie::{Bdf, IntxLine};
use std::fmt;
use units::Duration;

/// Routing of a message (bits 2 to 0 of the type, base spec table 2-20).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Routing {
    /// Towards the root complex.
    ToRootComplex = 0,
    /// By the address in bytes 8 to 15.
    ByAddress = 1,
    /// By the target ID in bytes 8 and 9.
    ById = 2,
    /// Broadcast from the root complex.
    Broadcast = 3,
    /// Local: ends at the receiver.
    Local = 4,
    /// Gathered by switches and forwarded to the root complex.
    Gathered = 5,
}

/// Message code (base spec appendix F).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageCode(pub u8);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl MessageCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The specification's name, if it is one of those known here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Unlocks after a locked sequence.
    UNLOCK = 0x00, "Unlock";
    /// ATS: invalidate translations.
    INVALIDATE_REQUEST = 0x01, "Invalidate Request";
    /// ATS: translations invalidated.
    INVALIDATE_COMPLETION = 0x02, "Invalidate Completion";
    /// PRI: page request.
    PAGE_REQUEST = 0x04, "Page Request";
    /// PRI: page response.
    PAGE_RESPONSE = 0x05, "PRG Response";
    /// Latency tolerance reporting.
    LTR = 0x10, "LTR";
    /// Refuses to enter L1 under ASPM.
    PM_ACTIVE_STATE_NAK = 0x14, "PM_Active_State_Nak";
    /// Power management event.
    PM_PME = 0x18, "PM_PME";
    /// Announces power off.
    PME_TURN_OFF = 0x19, "PME_Turn_Off";
    /// Answers `PME_TURN_OFF`.
    PME_TO_ACK = 0x1b, "PME_TO_Ack";
    /// Interrupt line A goes active.
    ASSERT_INTA = 0x20, "Assert_INTA";
    /// Interrupt line B goes active.
    ASSERT_INTB = 0x21, "Assert_INTB";
    /// Interrupt line C goes active.
    ASSERT_INTC = 0x22, "Assert_INTC";
    /// Interrupt line D goes active.
    ASSERT_INTD = 0x23, "Assert_INTD";
    /// Interrupt line A goes inactive.
    DEASSERT_INTA = 0x24, "Deassert_INTA";
    /// Interrupt line B goes inactive.
    DEASSERT_INTB = 0x25, "Deassert_INTB";
    /// Interrupt line C goes inactive.
    DEASSERT_INTC = 0x26, "Deassert_INTC";
    /// Interrupt line D goes inactive.
    DEASSERT_INTD = 0x27, "Deassert_INTD";
    /// A correctable error.
    ERR_COR = 0x30, "ERR_COR";
    /// An uncorrectable error that leaves the link usable.
    ERR_NONFATAL = 0x31, "ERR_NONFATAL";
    /// An uncorrectable error after which the link cannot be trusted.
    ERR_FATAL = 0x33, "ERR_FATAL";
    /// Obsolete hot-plug message (1.0a), ignored by receivers.
    ATTENTION_BUTTON_PRESSED = 0x48, "Attention_Button_Pressed";
    /// Slot power limit; one doubleword of data.
    SET_SLOT_POWER_LIMIT = 0x50, "Set_Slot_Power_Limit";
    /// Vendor-defined; receivers that do not support it report an error.
    VENDOR_TYPE_0 = 0x7e, "Vendor_Defined Type 0";
    /// Vendor-defined; receivers that do not support it ignore it.
    VENDOR_TYPE_1 = 0x7f, "Vendor_Defined Type 1";
}

impl fmt::Debug for MessageCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "code {:#04x}", self.0),
        }
    }
}

/// A message, with or without data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Requester ID.
    pub requester: Bdf,
    /// Tag, 0 to 1023; most messages do not use it.
    pub tag: u16,
    /// Which way it takes, and where it ends.
    pub routing: Routing,
    /// What it means.
    pub code: MessageCode,
    /// Bytes 8 to 15 of the header.
    pub content: [u8; 8],
    /// Doublewords of data, 0 to 1024; 0 makes it a Msg, more a MsgD.
    pub length_dw: u16,
}

impl Message {
    /// A message without data, with zeros in bytes 8 to 15.
    pub const fn plain(requester: Bdf, routing: Routing, code: MessageCode) -> Self {
        Self { requester, tag: 0, routing, code, content: [0; 8], length_dw: 0 }
    }

    /// Assert_INTx or Deassert_INTx.
    pub const fn intx(requester: Bdf, line: IntxLine, assert: bool) -> Self {
        let code = if assert { MessageCode::ASSERT_INTA } else { MessageCode::DEASSERT_INTA };
        Self::plain(requester, Routing::Local, MessageCode(code.0 + line as u8))
    }

    /// The line of an Assert_INTx or Deassert_INTx, and its new state.
    pub const fn line(&self) -> Option<(IntxLine, bool)> {
        let (first, active) = match self.code.0 {
            0x20..=0x23 => (MessageCode::ASSERT_INTA.0, true),
            0x24..=0x27 => (MessageCode::DEASSERT_INTA.0, false),
            _ => return None,
        };
        Some((IntxLine::ALL[(self.code.0 - first) as usize], active))
    }

    /// ERR_COR, ERR_NONFATAL or ERR_FATAL.
    pub const fn error(requester: Bdf, code: MessageCode) -> Self {
        Self::plain(requester, Routing::ToRootComplex, code)
    }

    /// Latency tolerance report (base spec 2.2.8.7): latencies for requests that snoop and for those that do not; `None` requires
    /// nothing.
    pub fn latency(requester: Bdf, latencies: [Option<Duration>; 2]) -> Self {
        let [snoop, no_snoop] = latencies.map(|latency| ltr::encode_requirement(latency).to_be_bytes());
        let content = [0, 0, 0, 0, no_snoop[0], no_snoop[1], snoop[0], snoop[1]];
        Self { content, ..Self::plain(requester, Routing::Local, MessageCode::LTR) }
    }

    /// What a latency tolerance report says.
    pub fn latencies(&self) -> Option<[Option<Duration>; 2]> {
        let half = |at: usize| u16::from_be_bytes([self.content[at], self.content[at + 1]]);
        (self.code == MessageCode::LTR).then(|| [6, 4].map(|at| ltr::decode_requirement(half(at))))
    }

    /// Vendor-defined (base spec 2.2.8.6): vendor ID in bytes 10 and 11, the vendor's own in 12 to 15.
    pub const fn vendor(
        requester: Bdf,
        routing: Routing,
        code: MessageCode,
        vendor: u16,
        own: [u8; 4],
    ) -> Self {
        let [v0, v1] = vendor.to_be_bytes();
        let content = [0, 0, v0, v1, own[0], own[1], own[2], own[3]];
        Self { content, ..Self::plain(requester, routing, code) }
    }

    /// The receiver of a message that is routed by ID.
    pub const fn target(&self) -> Option<Bdf> {
        match self.routing {
            Routing::ById => Some(Bdf::from_bits(u16::from_be_bytes([self.content[0], self.content[1]]))),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn type_bits(&self) -> u8 {
        TYPE_MSG | self.routing as u8
    }

    #[inline]
    pub(super) fn emit(&self, buf: &mut [u8]) {
        buf[4..6].copy_from_slice(&self.requester.bits().to_be_bytes());
        buf[6] = self.tag as u8;
        buf[7] = self.code.0;
        buf[8..16].copy_from_slice(&self.content);
    }

    pub(super) fn parse(head: &[u8; 16], tag_high: u16, length_dw: u16) -> Result<Self, TlpError> {
        let routing = match head[0] & 7 {
            0 => Routing::ToRootComplex,
            1 => Routing::ByAddress,
            2 => Routing::ById,
            3 => Routing::Broadcast,
            4 => Routing::Local,
            5 => Routing::Gathered,
            other => return Err(TlpError::field("message routing", other, "0 to 5")),
        };
        let mut content = [0; 8];
        content.copy_from_slice(&head[8..16]);
        Ok(Self {
            requester: Bdf::from_bits(u16::from_be_bytes([head[4], head[5]])),
            tag: tag_high | u16::from(head[6]),
            routing,
            code: MessageCode(head[7]),
            content,
            length_dw,
        })
    }

    pub(super) fn check(&self) -> Result<(), TlpError> {
        if self.length_dw > 1024 {
            return Err(TlpError::field("length of a message", self.length_dw, "0 to 1024 dw"));
        }
        Ok(())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.length_dw > 0 { "MsgD" } else { "Msg" };
        write!(f, "{name} {:?} {}", self.code, self.requester)?;
        if let Some(latencies) = self.latencies() {
            for (what, latency) in ["snoop", "no-snoop"].into_iter().zip(latencies) {
                match latency {
                    Some(latency) => write!(f, " {what} {latency}")?,
                    None => write!(f, " {what} any")?,
                }
            }
        }
        match (self.routing, self.target()) {
            (_, Some(target)) => write!(f, " to {target}")?,
            (Routing::ToRootComplex, _) => write!(f, " to root complex")?,
            (Routing::ByAddress, _) => write!(f, " to addr {:#x}", u64::from_be_bytes(self.content))?,
            (Routing::Broadcast, _) => write!(f, " broadcast")?,
            (Routing::Local, _) => write!(f, " local")?,
            (Routing::Gathered, _) => write!(f, " gathered")?,
            (Routing::ById, None) => {}
        }
        if self.length_dw > 0 {
            write!(f, " len {} dw", self.length_dw)?;
        }
        Ok(())
    }
}
