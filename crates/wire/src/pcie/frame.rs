//! Framing of packets by the physical layer, with sequence number and LCRC.
//!
//! ```text
//! 8b/10b      | STP | 0 seq |  header data digest  | LCRC | END |   STP, SDP, END, EDB are K symbols
//!             | SDP |  DLLP and its CRC  | END |
//! 128b/130b   | STP token: 1111 length parity CRC seq |  header data digest  | LCRC |
//!             | f0 ac |  DLLP and its CRC  |
//! FLITs       |  header data digest  |     the FLIT has the number and the CRC, and a place of its own for a DLLP
//! ```
//!
//! See base spec 4.2.1.2 and 4.2.2.3. A nullified packet has an inverted LCRC and ends in EDB: one symbol, or a token
//! of four bytes after the LCRC.

use super::Framing;
use super::crc::lcrc;
use super::dllp::Sequence;
use std::fmt;

const STP: u8 = 0xfb; // K27.7
const SDP: u8 = 0x5c; // K28.2
const END: u8 = 0xfd; // K29.7
const EDB: u8 = 0xfe; // K30.7
const SDP_TOKEN: [u8; 2] = [0xf0, 0xac];
const EDB_TOKEN: [u8; 4] = [0xc0; 4];

/// A framed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A TLP with correct LCRC.
    Tlp {
        /// Its sequence number.
        sequence: Sequence,
        /// Header, data, digest.
        packet: &'a [u8],
    },
    /// A TLP nullified by its sender.
    Nullified,
    /// A DLLP, its CRC not yet checked.
    Dllp(&'a [u8; 6]),
}

/// Framing errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// Starts neither a TLP nor a DLLP.
    Start(u8),
    /// The bytes end before the packet.
    Truncated,
    /// Wrong CRC or parity of an STP token: the link must enter recovery.
    Token,
    /// Wrong LCRC: the receiver sends a Nak.
    Lcrc {
        /// The LCRC of the packet's bytes.
        computed: u32,
        /// The LCRC in the packet.
        received: u32,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(byte) => write!(f, "framing error: {byte:#04x} starts neither a TLP nor a DLLP"),
            Self::Truncated => write!(f, "framing error: no end of the packet"),
            Self::Token => write!(f, "framing error: CRC or parity of the STP token"),
            Self::Lcrc { computed, received } => {
                write!(f, "bad TLP: LCRC is {received:#010x}, computed {computed:#010x}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

/// CRC of the length in an STP token, with polynomial x^4 + x + 1, bit 0 first.
fn token_crc(length_dw: u16) -> u8 {
    (0..11).fold(0u8, |crc, i| {
        let feedback = crc >> 3 ^ (length_dw >> i) as u8 & 1;
        (crc << 1 & 0xf) ^ if feedback & 1 == 1 { 0b0011 } else { 0 }
    })
}

fn stp_token(length_dw: u16, sequence: Sequence) -> [u8; 4] {
    let crc = token_crc(length_dw);
    let parity = ((length_dw & 0x7ff).count_ones() + crc.count_ones()) as u8 & 1;
    let [seq_high, seq_low] = sequence.get().to_be_bytes();
    [0x0f | (length_dw as u8) << 4, (length_dw >> 4) as u8 & 0x7f | parity << 7, crc << 4 | seq_high, seq_low]
}

/// Appends `packet` (header, data, digest) and its framing to `out`.
pub fn emit_tlp(framing: Framing, sequence: Sequence, packet: &[u8], out: &mut Vec<u8>) {
    let lcrc = lcrc(sequence.get(), packet).to_le_bytes();
    match framing {
        Framing::Symbols => {
            out.push(STP);
            out.extend_from_slice(&sequence.get().to_be_bytes());
            out.extend_from_slice(packet);
            out.extend_from_slice(&lcrc);
            out.push(END);
        }
        Framing::Tokens => {
            let length_dw = (packet.len() / 4 + 2) as u16;
            out.extend_from_slice(&stp_token(length_dw, sequence));
            out.extend_from_slice(packet);
            out.extend_from_slice(&lcrc);
        }
        Framing::Flits => out.extend_from_slice(packet),
    }
}

/// Appends a DLLP and its framing to `out`.
pub fn emit_dllp(framing: Framing, dllp: &[u8; 6], out: &mut Vec<u8>) {
    match framing {
        Framing::Symbols => {
            out.push(SDP);
            out.extend_from_slice(dllp);
            out.push(END);
        }
        Framing::Tokens => {
            out.extend_from_slice(&SDP_TOKEN);
            out.extend_from_slice(dllp);
        }
        Framing::Flits => {}
    }
}

/// Parses the framed packet at the start of `bytes` and returns it with its framed length.
///
/// In 8b/10b the END symbol cannot be told from data once it is a byte, so `bytes` must end with the packet.
///
/// # Errors
/// [`FrameError`]; only [`FrameError::Lcrc`] leaves the framing intact.
pub fn parse(framing: Framing, bytes: &[u8]) -> Result<(Frame<'_>, usize), FrameError> {
    match framing {
        Framing::Symbols => parse_symbols(bytes),
        Framing::Tokens => parse_tokens(bytes),
        // Which FLIT it is in, its bytes do not say.
        Framing::Flits => Ok((Frame::Tlp { sequence: Sequence::new(0), packet: bytes }, bytes.len())),
    }
}

fn checked<'a>(sequence: Sequence, packet: &'a [u8], received: &[u8; 4]) -> Result<Frame<'a>, FrameError> {
    let (computed, received) = (lcrc(sequence.get(), packet), u32::from_le_bytes(*received));
    if computed == received {
        Ok(Frame::Tlp { sequence, packet })
    } else {
        Err(FrameError::Lcrc { computed, received })
    }
}

fn parse_symbols(bytes: &[u8]) -> Result<(Frame<'_>, usize), FrameError> {
    match bytes {
        [SDP, dllp @ .., END] => {
            Ok((Frame::Dllp(dllp.try_into().map_err(|_| FrameError::Truncated)?), bytes.len()))
        }
        [STP, high, low, rest @ .., end @ (END | EDB)] => {
            let sequence = Sequence::new(u16::from_be_bytes([*high, *low]));
            let (packet, received) = rest.split_last_chunk::<4>().ok_or(FrameError::Truncated)?;
            match (checked(sequence, packet, received), end) {
                (Err(FrameError::Lcrc { computed, received }), &EDB) if computed == !received => {
                    Ok((Frame::Nullified, bytes.len()))
                }
                (Ok(_), &EDB) => Err(FrameError::Token),
                (result, _) => Ok((result?, bytes.len())),
            }
        }
        [STP | SDP, ..] | [] => Err(FrameError::Truncated),
        [other, ..] => Err(FrameError::Start(*other)),
    }
}

fn parse_tokens(bytes: &[u8]) -> Result<(Frame<'_>, usize), FrameError> {
    let Some(token) = bytes.first_chunk::<4>() else {
        return Err(FrameError::Truncated);
    };
    if token[..2] == SDP_TOKEN {
        let dllp = bytes.get(2..8).and_then(|d| d.try_into().ok()).ok_or(FrameError::Truncated)?;
        return Ok((Frame::Dllp(dllp), 8));
    }
    if token[0] & 0xf != 0xf {
        return Err(FrameError::Start(token[0]));
    }
    let length_dw = u16::from(token[0] >> 4) | u16::from(token[1] & 0x7f) << 4;
    let sequence = Sequence::new(u16::from_be_bytes([token[2], token[3]]));
    if stp_token(length_dw, sequence) != *token {
        return Err(FrameError::Token);
    }
    let len = usize::from(length_dw) * 4;
    let rest = bytes.get(4..len).ok_or(FrameError::Truncated)?;
    let (packet, received) = rest.split_last_chunk::<4>().ok_or(FrameError::Truncated)?;
    match checked(sequence, packet, received) {
        Err(FrameError::Lcrc { computed, received })
            if computed == !received && bytes.get(len..len + 4) == Some(&EDB_TOKEN) =>
        {
            Ok((Frame::Nullified, len + 4))
        }
        result => Ok((result?, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn token_crc_as_the_specification_writes_it_out() {
        // Base spec 4.2.2.3.1: the length bits that are XORed into each CRC bit.
        let equations: [&[u8]; 4] = [
            &[10, 7, 6, 4, 2, 1, 0],
            &[10, 9, 7, 5, 4, 3, 2],
            &[9, 8, 6, 4, 3, 2, 1],
            &[8, 7, 5, 3, 2, 1, 0],
        ];
        for length in 0..2048u16 {
            let expected = equations.iter().enumerate().fold(0, |crc, (bit, terms)| {
                crc | terms.iter().fold(0, |sum, t| sum ^ (length >> t) as u8 & 1) << bit
            });
            assert_eq!(token_crc(length), expected, "length {length}");
        }
    }

    #[test]
    fn lengths_on_the_wire() {
        for framing in [Framing::Symbols, Framing::Tokens] {
            let mut out = Vec::new();
            emit_tlp(framing, Sequence::new(5), &[0; 80], &mut out);
            assert_eq!(out.len(), 80 + framing.tlp_overhead());
            out.clear();
            emit_dllp(framing, &[0; 6], &mut out);
            assert_eq!(out.len(), framing.dllp_len());
        }
    }

    #[test]
    fn nullified() {
        for framing in [Framing::Symbols, Framing::Tokens] {
            let mut out = Vec::new();
            emit_tlp(framing, Sequence::new(5), &[7; 12], &mut out);
            match framing {
                Framing::Symbols => {
                    out[15..19].iter_mut().for_each(|b| *b = !*b);
                    out[19] = EDB;
                }
                Framing::Tokens | Framing::Flits => {
                    out[16..20].iter_mut().for_each(|b| *b = !*b);
                    out.extend_from_slice(&EDB_TOKEN);
                }
            }
            assert_eq!(parse(framing, &out), Ok((Frame::Nullified, out.len())));
            // Another bit error, or the end of a packet that is not nullified.
            let last_of_lcrc = out.len() - if framing == Framing::Tokens { 5 } else { 2 };
            let mut wrong = out.clone();
            wrong[last_of_lcrc] ^= 1;
            assert!(matches!(parse(framing, &wrong), Err(FrameError::Lcrc { .. })), "{framing:?}");
            match framing {
                Framing::Symbols => *out.last_mut().unwrap() = END,
                Framing::Tokens | Framing::Flits => *out.last_mut().unwrap() = 0,
            }
            assert!(matches!(parse(framing, &out), Err(FrameError::Lcrc { .. })), "{framing:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip_and_no_bit_error_goes_unseen(
            sequence in 0u16..4096, dw in 3usize..40, seed: u8, flip: proptest::sample::Index, tokens: bool
        ) {
            let framing = if tokens { Framing::Tokens } else { Framing::Symbols };
            let packet: Vec<u8> = (0..dw * 4).map(|i| (i as u8).wrapping_mul(seed)).collect();
            let sequence = Sequence::new(sequence);
            let mut out = Vec::new();
            emit_tlp(framing, sequence, &packet, &mut out);
            let len = out.len();
            prop_assert_eq!(parse(framing, &out), Ok((Frame::Tlp { sequence, packet: &packet }, len)));
            let bit = flip.index(len * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            // The upper four bits next to an 8b/10b sequence number are reserved.
            let reserved = !tokens && (12..16).contains(&bit);
            prop_assert!(parse(framing, &out).is_err() || reserved);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for framing in [Framing::Symbols, Framing::Tokens] {
                let _ = parse(framing, &bytes);
                for start in [STP, SDP, 0xf0, 0x4f] {
                    let mut framed = bytes.clone();
                    framed.insert(0, start);
                    framed.push(END);
                    let _ = parse(framing, &framed);
                }
            }
        }
    }
}
