//! Parse errors of network packets.

use std::fmt;

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Malformed {
    /// The bytes end before the header, or before the length in it.
    Truncated,
    /// A length in the header contradicts another one or the specification.
    Length,
    /// Unknown version, type or address format.
    Unsupported,
    /// A checksum is wrong.
    Checksum,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the packet ends too early",
            Self::Length => "a length in the header cannot be",
            Self::Unsupported => "an unknown version or type",
            Self::Checksum => "the checksum is wrong",
        })
    }
}

impl std::error::Error for Malformed {}
