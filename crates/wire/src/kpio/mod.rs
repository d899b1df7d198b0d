//! Frames in a kPIO+WC transmit queue: 64-byte lines that a core's write-combining buffers bring in any order.
//!
//! Larsen and Lee, "Reevaluation of Programmed I/O with Write-Combining Buffers" (`kpio-wc`), section III. A queue is
//! a window of a BAR, mapped write-combining. The driver writes each frame to the window's next lines and fills the
//! last one up, because only a full buffer leaves the core by itself. Two formats say where a frame ends:
//!
//! * [`signature`], the paper's: an eight-byte end-of-packet signature fills up. It rounds lengths up to eight bytes
//!   and cannot tell a signature from a payload that looks like one;
//! * [`framed`]: four bytes of length and number before a frame, four of checksum behind it. Where a frame begins is
//!   said by the address that its first line is written to, where no payload can say it.
//!
//! ```text
//! window of a queue, P positions of 64 bytes:
//! 0 ............ P * 64         lines that continue a frame (all lines of the paper's format, to as many as the device keeps)
//! P * 64 ....... 2 * P * 64     the same positions again: lines that begin a frame (framed only)
//! ```
//! Positions run round. The paper's format has as many as the device keeps lines: a line that comes too late is taken for one
//! of the next round. With length and checksum the device may have more positions than lines, so that a line which comes
//! too late or too early is known by its position.

pub mod framed;
pub mod signature;

use core::fmt;

/// Bytes of a line: of a write-combining buffer of x86 cores.
pub const LINE: usize = 64;

/// How frames stand in the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The paper's, with this signature.
    Signature(u64),
    /// With length and checksum.
    Framed,
}

impl Format {
    /// Lines that a frame of so many bytes takes.
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

/// A line as the queue hands it on, in the order of positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Its bytes. The last line of a frame may be shorter where the queue allows that.
    pub bytes: &'a [u8],
    /// It was written to the upper half of the window.
    pub is_first: bool,
    /// No byte of it was written twice.
    pub is_intact: bool,
}

/// What a line brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The frame goes on, or the line was filling.
    More,
    /// A frame is whole; its header where the format has one.
    Frame(framed::Header),
    /// A frame that would have ended here, or the line, is given up.
    Dropped(Drop),
}

/// Why a frame is given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Drop {
    /// Longer than a frame may be.
    TooLong,
    /// A length that cannot be.
    Header,
    /// Bytes of its lines were written twice.
    Overwritten,
    /// Its lines do not belong together.
    Checksum,
    /// Another frame begins before it ends, or lines of it never came.
    Cut,
    /// Its number has been used.
    Repeated,
    /// A line that belongs to no frame.
    Stray,
}

impl Drop {
    /// All of them, in the order of their numbers.
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

/// How many frames, and lines of none, were given up, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    /// Counts one.
    pub fn add(&mut self, why: Drop) {
        self.0[why as usize] += 1;
    }

    /// Those for one reason.
    pub fn of(&self, why: Drop) -> u64 {
        self.0[why as usize]
    }

    /// Frames: all but the lines of none.
    pub fn frames(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.of(Drop::Stray)
    }
}

/// A decoder of either format.
#[derive(Clone, Debug)]
pub enum Decoder {
    /// The paper's.
    Signature(signature::SignatureDecoder),
    /// With length and checksum.
    Framed(framed::FramedDecoder),
}

impl Decoder {
    /// For frames of at most `longest` bytes.
    pub fn new(format: Format, longest: usize) -> Self {
        match format {
            Format::Signature(eop) => Self::Signature(signature::SignatureDecoder::new(eop, longest)),
            Format::Framed => Self::Framed(framed::FramedDecoder::new(longest)),
        }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: Line<'_>) -> Outcome {
        match self {
            Self::Signature(decoder) => decoder.line(line.bytes),
            Self::Framed(decoder) => decoder.line(line),
        }
    }

    /// The frame that the last outcome told of.
    pub fn frame(&self) -> &[u8] {
        match self {
            Self::Signature(decoder) => decoder.frame(),
            Self::Framed(decoder) => decoder.frame(),
        }
    }

    /// Whether lines are missing to a frame that has begun.
    pub fn is_inside(&self) -> bool {
        match self {
            Self::Signature(decoder) => decoder.is_inside(),
            Self::Framed(decoder) => decoder.is_inside(),
        }
    }

    /// What was dropped, and why.
    pub fn dropped(&self) -> &Drops {
        match self {
            Self::Signature(decoder) => decoder.dropped(),
            Self::Framed(decoder) => decoder.dropped(),
        }
    }
}
