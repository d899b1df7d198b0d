//! TCP options.

use crate::malformed::Malformed;

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// Maximum number of blocks that fit into 40 bytes.
const MAX_BLOCKS: usize = 4;

/// Ranges of received sequence numbers, as (first, last + 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlocks {
    blocks: [(u32, u32); MAX_BLOCKS],
    len: u8,
}

impl SackBlocks {
    /// The first four of `blocks`.
    pub fn new(blocks: &[(u32, u32)]) -> Self {
        let mut all = Self::default();
        for (place, block) in all.blocks.iter_mut().zip(blocks) {
            *place = *block;
            all.len += 1;
        }
        all
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// Options of a header. Unknown ones are skipped by the parser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TcpOptions {
    /// Maximum segment size that the sender accepts.
    pub mss: Option<u16>,
    /// Window scale: shift of the sender's window.
    pub window_scale: Option<u8>,
    /// The sender supports SACK.
    pub sack_permitted: bool,
    /// The sender's timestamp, and the last timestamp received from the peer.
    pub timestamps: Option<(u32, u32)>,
    /// Data received beyond the acknowledgement number.
    pub sack: SackBlocks,
}

impl TcpOptions {
    /// Parses the bytes between a header and its data.
    ///
    /// # Errors
    /// If the length of an option is invalid.
    pub fn parse(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match *kind {
                END => break,
                NOTHING => bytes = rest,
                kind => {
                    let len = usize::from(*rest.first().ok_or(Malformed::Length)?);
                    let data = bytes.get(2..len).ok_or(Malformed::Length)?;
                    options.take(kind, data)?;
                    bytes = &bytes[len..];
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, data: &[u8]) -> Result<(), Malformed> {
        let u32_at = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        match (kind, data.len()) {
            (MSS, 2) => self.mss = Some(u16::from_be_bytes([data[0], data[1]])),
            (WINDOW_SCALE, 1) => self.window_scale = Some(data[0]),
            (SACK_PERMITTED, 0) => self.sack_permitted = true,
            (TIMESTAMPS, 8) => self.timestamps = Some((u32_at(0), u32_at(4))),
            (SACK, 8 | 16 | 24 | 32) => {
                self.sack = SackBlocks::default();
                for at in (0..data.len()).step_by(8) {
                    self.sack.blocks[at / 8] = (u32_at(at), u32_at(at + 4));
                    self.sack.len += 1;
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | SACK | TIMESTAMPS, _) => return Err(Malformed::Length),
            _ => {}
        }
        Ok(())
    }

    /// Encoded length in bytes, padded to a multiple of four.
    ///
    /// SACK blocks that do not fit after the other options are dropped, as stacks do.
    pub fn len(&self) -> usize {
        let blocks = self.blocks_that_fit();
        (self.fixed_len() + if blocks == 0 { 0 } else { 2 + 8 * blocks }).next_multiple_of(4)
    }

    /// Whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn fixed_len(&self) -> usize {
        let present = |is: bool, len| if is { len } else { 0 };
        present(self.mss.is_some(), 4)
            + present(self.window_scale.is_some(), 3)
            + present(self.sack_permitted, 2)
            + present(self.timestamps.is_some(), 10)
    }

    fn blocks_that_fit(&self) -> usize {
        ((40 - self.fixed_len()).saturating_sub(2) / 8).min(usize::from(self.sack.len))
    }

    /// Writes the options to `bytes`, [`Self::len`] bytes long; the rest is padded with No-Operation.
    ///
    /// # Panics
    /// If `bytes` is too short.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes.fill(NOTHING);
        let mut at = 0;
        let mut put = |option: &[u8]| {
            bytes[at..at + option.len()].copy_from_slice(option);
            at += option.len();
        };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            put(&[MSS, 4, high, low]);
        }
        if let Some(shift) = self.window_scale {
            put(&[WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            put(&[SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        let blocks = self.blocks_that_fit();
        if blocks > 0 {
            put(&[SACK, 2 + 8 * blocks as u8]);
            for &(first, behind) in &self.sack.as_slice()[..blocks] {
                put(&first.to_be_bytes());
                put(&behind.to_be_bytes());
            }
        }
    }
}
