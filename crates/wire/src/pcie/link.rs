//! Link properties: generations, widths, encodings, framing, SKP ordered sets.
//!
//! Generation 6 (64 GT/s, PAM4) carries 236 bytes of TLPs in a FLIT of 256: 6 are for DLLPs, 8 for the CRC, 6 for the FEC (base
//! spec 6.0, 4.2.3). TLPs and DLLPs have no framing of their own, and a receiver has a TLP at the end of the FLIT that holds its
//! last byte. Headers are those of [`super::tlp`] here, as long as FLIT mode's without its optional content (OHC), so that tags
//! have ten bits; and a TLP is what is numbered and replayed, where hardware replays FLITs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use units::{BitRate, Duration};

/// Link speed, named by the generation that introduced it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Generation {
    /// 2.5 GT/s.
    Gen1 = 1,
    /// 5 GT/s.
    Gen2 = 2,
    /// 8 GT/s.
    Gen3 = 3,
    /// 16 GT/s.
    Gen4 = 4,
    /// 32 GT/s.
    Gen5 = 5,
    /// 64 GT/s.
    Gen6 = 6,
}

impl Generation {
    /// All generations, slowest first.
    pub const ALL: [Self; 6] = [Self::Gen1, Self::Gen2, Self::Gen3, Self::Gen4, Self::Gen5, Self::Gen6];

    /// The generation of this number, 1 to 6.
    #[inline]
    pub const fn from_number(n: u8) -> Option<Self> {
        match n {
            1..=6 => Some(Self::ALL[n as usize - 1]),
            _ => None,
        }
    }

    /// Number, 1 to 6, which is also the code of Max Link Speed and Current Link Speed.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Transfer rate per lane in MT/s (10^6 transfers per second).
    #[inline]
    pub const fn mt_per_s(self) -> u64 {
        match self {
            Self::Gen1 => 2_500,
            Self::Gen2 => 5_000,
            Self::Gen3 => 8_000,
            Self::Gen4 => 16_000,
            Self::Gen5 => 32_000,
            Self::Gen6 => 64_000,
        }
    }

    /// The encoding and framing used at this speed.
    #[inline]
    pub const fn framing(self) -> Framing {
        match self {
            Self::Gen1 | Self::Gen2 => Framing::Symbols,
            Self::Gen3 | Self::Gen4 | Self::Gen5 => Framing::Tokens,
            Self::Gen6 => Framing::Flits,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gen{}", self.number())
    }
}

/// Number of lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Width {
    /// One lane.
    X1 = 1,
    /// Two lanes.
    X2 = 2,
    /// Four lanes.
    X4 = 4,
    /// Eight lanes.
    X8 = 8,
    /// Twelve lanes (dropped in revision 6.0).
    X12 = 12,
    /// Sixteen lanes.
    X16 = 16,
    /// Thirty-two lanes (dropped in revision 6.0).
    X32 = 32,
}

impl Width {
    /// All widths, narrowest first.
    pub const ALL: [Self; 7] = [Self::X1, Self::X2, Self::X4, Self::X8, Self::X12, Self::X16, Self::X32];

    /// The width with this number of lanes.
    #[inline]
    pub fn from_lanes(lanes: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|w| w.lanes() == lanes)
    }

    /// Number of lanes, which is also the code of Maximum and Negotiated Link Width.
    #[inline]
    pub const fn lanes(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "x{}", self.lanes())
    }
}

/// Error: the text is not a generation or width.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkError {
    text: String,
    what: &'static str,
    allowed: &'static str,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no link {}, allowed: {}", self.text, self.what, self.allowed)
    }
}

impl std::error::Error for LinkError {}

impl FromStr for Generation {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        Self::ALL.into_iter().find(|g| g.to_string().eq_ignore_ascii_case(text)).ok_or_else(|| LinkError {
            text: text.into(),
            what: "generation",
            allowed: "gen1, gen2, gen3, gen4, gen5, gen6",
        })
    }
}

impl FromStr for Width {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        Self::ALL.into_iter().find(|w| w.to_string().eq_ignore_ascii_case(text)).ok_or_else(|| LinkError {
            text: text.into(),
            what: "width",
            allowed: "x1, x2, x4, x8, x12, x16, x32",
        })
    }
}

/// Bytes of a FLIT, and those of TLPs in it.
pub const FLIT_BYTES: u64 = 256;
const FLIT_TLP_BYTES: u64 = 236;

/// Packet framing on the lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// 8b/10b (2.5 and 5 GT/s): STP or SDP, sequence number, LCRC, END (base spec 4.2.1.2).
    Symbols,
    /// 128b/130b (8 to 32 GT/s): four-byte STP token with the sequence number, LCRC; two-byte SDP token (base spec
    /// 4.2.2.3).
    Tokens,
    /// FLITs (64 GT/s), which have a number and a CRC for all that is in them (base spec 6.0, 4.2.3).
    Flits,
}

impl Framing {
    /// Bytes on the lanes in addition to the header, data and digest of a TLP.
    #[inline]
    pub const fn tlp_overhead(self) -> usize {
        match self {
            Self::Symbols => 1 + 2 + 4 + 1,
            Self::Tokens => 4 + 4,
            Self::Flits => 0,
        }
    }

    /// Bytes on the lanes per DLLP: framing plus six bytes, two of them the CRC; none where each FLIT has room for one.
    #[inline]
    pub const fn dllp_len(self) -> usize {
        match self {
            Self::Symbols => 1 + 6 + 1,
            Self::Tokens => 2 + 6,
            Self::Flits => 0,
        }
    }

    /// Encoding efficiency as (data bits, bits on the lane): 8 in 10, 128 in 130, or the bytes of TLPs in a FLIT.
    #[inline]
    pub const fn encoding(self) -> (u64, u64) {
        match self {
            Self::Symbols => (8, 10),
            Self::Tokens => (128, 130),
            Self::Flits => (FLIT_TLP_BYTES, FLIT_BYTES),
        }
    }
}

/// Bit rate of a link per direction after line encoding, before framing.
pub const fn data_rate(generation: Generation, width: Width) -> BitRate {
    let (data, line) = generation.framing().encoding();
    BitRate::from_bits_per_s(generation.mt_per_s() * 1_000_000 * width.lanes() as u64 * data / line)
}

/// Bytes on the lanes in addition to the header, data and digest of a TLP.
pub const fn framing_bytes(generation: Generation) -> u64 {
    generation.framing().tlp_overhead() as u64
}

/// Interval between SKP ordered sets, and the time that each takes.
///
/// A transmitter schedules one every 1180 to 1538 symbol times in 8b/10b and every 370 to 375 blocks in 128b/130b, with
/// a common clock or no spread spectrum (base spec 4.2.7.3); this returns the longer interval. It is four symbols, or
/// one block of sixteen (4.2.7.1, 4.2.7.2), on all lanes at once, hence the same for every width. Of FLITs: forty symbols
/// (6.0, 4.2.8.2), taken to come as often by the lane's bits.
pub const fn skip_interval(generation: Generation, _width: Width) -> (Duration, Duration) {
    let (interval_bits, length_bits) = match generation.framing() {
        Framing::Symbols => (1538 * 10, 4 * 10),
        Framing::Tokens => (375 * 130, 130),
        Framing::Flits => (375 * 130, 40 * 8),
    };
    let mt = generation.mt_per_s();
    (Duration::from_ps(interval_bits * 1_000_000 / mt), Duration::from_ps(length_bits * 1_000_000 / mt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_after_encoding() {
        let gbit = |g, w| data_rate(g, w).as_gbit_per_s_f64();
        assert_eq!(gbit(Generation::Gen1, Width::X1), 2.0);
        assert_eq!(gbit(Generation::Gen2, Width::X16), 64.0);
        assert!((gbit(Generation::Gen3, Width::X8) - 63.0154).abs() < 1e-4);
        assert!((gbit(Generation::Gen5, Width::X16) - 504.1231).abs() < 1e-4);
        // 121 GB/s of 128, as the specification's authors count it.
        assert_eq!(gbit(Generation::Gen6, Width::X16), 944.0);
    }

    #[test]
    fn skip_ordered_sets() {
        let (interval, length) = skip_interval(Generation::Gen1, Width::X4);
        assert_eq!((interval, length), (Duration::from_ns(1538 * 4), Duration::from_ns(16)));
        let (interval, length) = skip_interval(Generation::Gen3, Width::X8);
        assert_eq!((interval, length), (Duration::from_ps(6_093_750), Duration::from_ps(16_250)));
    }

    #[test]
    fn names() {
        for g in Generation::ALL {
            assert_eq!(g.to_string().parse(), Ok(g));
            assert_eq!(Generation::from_number(g.number()), Some(g));
        }
        for w in Width::ALL {
            assert_eq!(w.to_string().parse(), Ok(w));
            assert_eq!(Width::from_lanes(w.lanes()), Some(w));
        }
        assert_eq!(Width::from_lanes(3), None);
        let error = "x3".parse::<Width>().unwrap_err().to_string();
        assert_eq!(error, "`x3` is no link width, allowed: x1, x2, x4, x8, x12, x16, x32");
        assert_eq!("gen3".parse(), Ok(Generation::Gen3));
    }
}
