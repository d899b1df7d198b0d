//! What a link is made of: framing of packets on the lanes.

/// How packets are framed on the lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// 8b/10b (2.5 and 5 GT/s): STP or SDP, sequence number, LCRC, END (base spec 4.2.1.2).
    Symbols,
    /// 128b/130b (8 to 32 GT/s): four-byte STP token that holds the sequence
    /// number, LCRC; two-byte SDP token (base spec 4.2.2.3).
    Tokens,
}

impl Framing {
    /// Bytes on the lanes around the header, data and digest of a TLP.
    #[inline]
    pub const fn tlp_overhead(self) -> usize {
        match self {
            Self::Symbols => 1 + 2 + 4 + 1,
            Self::Tokens => 4 + 4,
        }
    }

    /// Bytes on the lanes of one DLLP: framing, six bytes, of which two are the CRC.
    #[inline]
    pub const fn dllp_len(self) -> usize {
        match self {
            Self::Symbols => 1 + 6 + 1,
            Self::Tokens => 2 + 6,
        }
    }
}
