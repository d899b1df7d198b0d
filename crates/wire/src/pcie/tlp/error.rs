//! Parse errors of TLP headers.

use std::fmt;

/// Reason why bytes are not a supported TLP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlpError {
    /// Fewer bytes than the header has.
    Truncated {
        /// Bytes required.
        needed: usize,
        /// Bytes available.
        got: usize,
    },
    /// An unsupported or undefined type.
    Unsupported {
        /// Fmt and Type, the first byte of the header.
        fmt_type: u8,
        /// Name in the specification.
        name: &'static str,
    },
    /// Invalid field value: a malformed TLP.
    Field {
        /// The field's name.
        field: &'static str,
        /// Value found.
        value: u64,
        /// Values allowed.
        allowed: &'static str,
    },
}

impl TlpError {
    #[cold]
    pub(super) fn field(field: &'static str, value: impl Into<u64>, allowed: &'static str) -> Self {
        Self::Field { field, value: value.into(), allowed }
    }

    #[cold]
    pub(super) fn unsupported(fmt_type: u8) -> Self {
        let name = match (fmt_type >> 5, fmt_type & 0x1f) {
            (4, _) => "TLP prefix",
            (0 | 1, 1) => "MRdLk",
            (0, 0b01011) => "CplLk",
            (2, 0b01011) => "CplDLk",
            (0, 0b11011) => "TCfgRd (deprecated)",
            (2 | 3, 0b01100) => "FetchAdd",
            (2 | 3, 0b01101) => "Swap",
            (2 | 3, 0b01110) => "CAS",
            (2 | 3, 0b11011) => "DMWr",
            _ => "undefined type",
        };
        Self::Unsupported { fmt_type, name }
    }
}

impl fmt::Display for TlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, got } => {
                write!(f, "truncated header: {got} bytes, needs {needed}")
            }
            Self::Unsupported { fmt_type, name } => write!(
                f,
                "unsupported TLP: fmt {:#05b} type {:#07b} ({name}); supported are MRd, MWr, IORd, IOWr, \
                 CfgRd0/1, CfgWr0/1, Msg, MsgD, Cpl, CplD",
                fmt_type >> 5,
                fmt_type & 0x1f
            ),
            Self::Field { field, value, allowed } => {
                write!(f, "malformed TLP: {field} is {value:#x}, allowed: {allowed}")
            }
        }
    }
}

impl std::error::Error for TlpError {}
