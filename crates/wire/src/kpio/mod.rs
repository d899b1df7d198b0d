//! Frames in a kPIO+WC transmit queue: 64-byte lines that arrive from a core's write-combining buffers in any order.
//!
//! Larsen and Lee, "Reevaluation of Programmed I/O with Write-Combining Buffers" (`kpio-wc`), section III. A queue is a
//! window of a BAR, mapped write-combining. The driver writes each frame to the next lines of the window and pads the
//! last one, because only a full buffer leaves the core by itself. Two formats mark where a frame ends:
//!
//! * [`signature`], the paper's: padding with an eight-byte end-of-packet signature. It rounds lengths up to eight
//!   bytes and cannot tell a signature from a payload that looks like one;
//! * [`framed`]: four bytes of length and number before a frame, four of checksum behind it. A frame's first line is
//!   marked by the address that it is written to, which no payload can imitate.
//!
//! ```text
//! window of a queue, P positions of 64 bytes:
//! 0 ............ P * 64         lines that continue a frame (paper's format: all lines, as many as the device keeps)
//! P * 64 ....... 2 * P * 64     the same positions again: lines that begin a frame (framed only)
//! ```
//! Positions wrap around. The paper's format has as many as the device has lines, so a late line is mistaken for one of
//! the next round. With length and checksum, the device may have more positions than lines, so that a line that is too
//! late or too early is recognised by its position.

pub mod framed;
pub mod signature;

use core::fmt;

pub use crate::LINE;

/// Format of frames in the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The paper's format, with this signature.
    Signature(u64),
    /// With length and checksum.
    Framed,
}

impl Format {
    /// Lines of a frame of `length` bytes.
    pub const fn lines(self, length: usize) -> usize {
        match self {
            Self::Signature(_) => signature::lines(length),
            Self::Framed => framed::lines(length),
        }
    }

    /// Appends a frame's lines to `out`.
    pub fn encode(self, header: framed::Header, frame: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Signature(eop) => signature::encode(frame, eop, out),
            Self::Framed => framed::encode(header, frame, out),
        }
    }
}

/// A line from the queue, in order of positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Its bytes. The last line of a frame may be shorter if the queue allows that.
    pub bytes: &'a [u8],
    /// It was written to the upper half of the window.
    pub is_first: bool,
    /// No byte of it was written twice.
    pub is_intact: bool,
}

/// Result of processing a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The frame continues, or the line was padding.
    More,
    /// A frame is complete, with its header if the format has one.
    Frame(framed::Header),
    /// The frame that would have ended here, or the line, was dropped.
    Dropped(Drop),
}

/// Reason for dropping a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Drop {
    /// The frame exceeds the maximum length.
    TooLong,
    /// The length is invalid.
    Header,
    /// Bytes of its lines were written twice.
    Overwritten,
    /// The lines do not belong together.
    Checksum,
    /// Another frame begins before its end, or lines of it never arrived.
    Cut,
    /// Its number was already used.
    Repeated,
    /// A line outside any frame.
    Stray,
}

impl Drop {
    /// All reasons, in numerical order.
    pub const ALL: [Self; 7] = [
        Self::TooLong,
        Self::Header,
        Self::Overwritten,
        Self::Checksum,
        Self::Cut,
        Self::Repeated,
        Self::Stray,
    ];
}

impl fmt::Display for Drop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "too long",
            Self::Header => "impossible length",
            Self::Overwritten => "written twice",
            Self::Checksum => "wrong checksum",
            Self::Cut => "cut short",
            Self::Repeated => "number used before",
            Self::Stray => "line of no frame",
        })
    }
}

/// Dropped frames and stray lines, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    /// Counts a drop.
    pub fn add(&mut self, why: Drop) {
        self.0[why as usize] += 1;
    }

    /// Drops for one reason.
    pub fn of(&self, why: Drop) -> u64 {
        self.0[why as usize]
    }

    /// Dropped frames, without stray lines.
    pub fn frames(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.of(Drop::Stray)
    }
}

/// A decoder of either format.
#[derive(Clone, Debug)]
pub enum Decoder {
    /// The paper's format.
    Signature(signature::SignatureDecoder),
    /// With length and checksum.
    Framed(framed::FramedDecoder),
}

impl Decoder {
    /// A decoder for frames of at most `longest` bytes.
    pub fn new(format: Format, longest: usize) -> Self {
        match format {
            Format::Signature(eop) => Self::Signature(signature::SignatureDecoder::new(eop, longest)),
            Format::Framed => Self::Framed(framed::FramedDecoder::new(longest)),
        }
    }

    /// Processes the next line.
    pub fn line(&mut self, line: Line<'_>) -> Outcome {
        match self {
            Self::Signature(decoder) => decoder.line(line.bytes),
            Self::Framed(decoder) => decoder.line(line),
        }
    }

    /// The frame of the last outcome.
    pub fn frame(&self) -> &[u8] {
        match self {
            Self::Signature(decoder) => decoder.frame(),
            Self::Framed(decoder) => decoder.frame(),
        }
    }

    /// Whether a frame has begun that is not complete.
    pub fn is_inside(&self) -> bool {
        match self {
            Self::Signature(decoder) => decoder.is_inside(),
            Self::Framed(decoder) => decoder.is_inside(),
        }
    }

    /// Frames dropped, by reason.
    pub fn dropped(&self) -> &Drops {
        match self {
            Self::Signature(decoder) => decoder.dropped(),
            Self::Framed(decoder) => decoder.dropped(),
        }
    }
}
