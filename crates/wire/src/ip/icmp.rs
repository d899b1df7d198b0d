//! ICMP echo request and reply (RFC 792).

use std::fmt;

use super::checksum;
use crate::malformed::Malformed;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
const REPLY: u8 = 0;
const REQUEST: u8 = 8;

/// Header of an echo message; its data follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IcmpEcho {
    /// Reply rather than request.
    pub is_reply: bool,
    /// Chosen by the sender, which recognises its replies by it.
    pub identifier: u16,
    /// Sequence number.
    pub sequence: u16,
}

impl IcmpEcho {
    /// Parses a message (header and data) and verifies its checksum.
    ///
    /// # Errors
    /// If it is truncated, damaged, or not an echo message.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let h: &[u8; HEADER_LEN] = message.first_chunk().ok_or(Malformed::Truncated)?;
        if !checksum::is_right(message) {
            return Err(Malformed::Checksum);
        }
        let is_reply = match (h[0], h[1]) {
            (REPLY, 0) => true,
            (REQUEST, 0) => false,
            _ => return Err(Malformed::Unsupported),
        };
        let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
        Ok(Self { is_reply, identifier: u16_at(4), sequence: u16_at(6) })
    }

    /// Writes the header to the start of `message`, with the checksum of the whole message. The data must already be in
    /// place.
    ///
    /// # Panics
    /// If `message` is too short.
    pub fn emit(&self, message: &mut [u8]) {
        message[0] = if self.is_reply { REPLY } else { REQUEST };
        message[1..4].fill(0);
        message[4..6].copy_from_slice(&self.identifier.to_be_bytes());
        message[6..8].copy_from_slice(&self.sequence.to_be_bytes());
        let sum = checksum::of(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

impl fmt::Display for IcmpEcho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_reply { "reply" } else { "request" };
        write!(f, "echo {what}, id {}, seq {}", self.identifier, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_back_with_any_data(
            is_reply in any::<bool>(), identifier in any::<u16>(), sequence in any::<u16>(),
            data in proptest::collection::vec(any::<u8>(), 0..70), flip in 0usize..64,
        ) {
            let echo = IcmpEcho { is_reply, identifier, sequence };
            let mut message = [&[0; HEADER_LEN][..], &data].concat();
            echo.emit(&mut message);
            prop_assert_eq!(IcmpEcho::parse(&message), Ok(echo));
            message[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(IcmpEcho::parse(&message), Err(Malformed::Checksum));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = IcmpEcho::parse(&bytes);
        }
    }
}
