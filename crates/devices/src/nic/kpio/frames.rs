//! From lines to frames: line memory, decoder, and complete frames that wait for their turn.

use std::collections::VecDeque;

use units::{BitRate, Bytes, Time};
use wire::ethernet::HEADER_LEN;
use wire::kpio::{Decoder, Format, LINE, Outcome};

use super::lines::{Lines, Written};
use crate::nic::segment::{fill_checksums, finish};
use crate::nic::spare::Spare;

/// A complete frame, with check sequence, that waits for its turn.
pub struct Ready {
    pub bytes: Vec<u8>,
    /// Earliest time at which it can leave.
    pub at: Time,
    /// Position of the next frame. When this one has left, line memory is free up to there.
    end: u32,
}

/// A queue's lines and frames.
pub struct Frames {
    lines: Lines,
    decoder: Decoder,
    /// The padding behind a frame is not written.
    has_short_lines: bool,
    ready: VecDeque<Ready>,
    /// Frames that began where they had no place, or of which only a piece of the first line arrived.
    unplaced: u64,
}

impl Frames {
    pub fn new(log2_lines: u8) -> Self {
        Self {
            lines: Lines::new(log2_lines),
            decoder: Decoder::new(Format::Framed, 0),
            has_short_lines: false,
            ready: VecDeque::new(),
            unplaced: 0,
        }
    }

    /// Restarts empty, for frames of at most `longest` bytes in a window of `1 << log2_positions` positions.
    pub fn restart(&mut self, format: Format, has_short_lines: bool, log2_positions: u8, longest: usize) {
        self.lines.restart(log2_positions);
        self.decoder = Decoder::new(format, longest);
        self.has_short_lines = has_short_lines;
        self.ready.clear();
        self.unplaced = 0;
    }

    /// Total of lines taken out.
    pub fn head(&self) -> u32 {
        self.lines.head()
    }

    /// Total of lines freed.
    pub fn freed(&self) -> u32 {
        self.lines.freed()
    }

    /// Frames that were given up.
    pub fn dropped(&self) -> u64 {
        self.unplaced + self.decoder.dropped().frames()
    }

    /// Frames known to be missing. The paper's format cannot detect them.
    pub fn missing(&self) -> u64 {
        match &self.decoder {
            Decoder::Framed(decoder) => decoder.missing(),
            Decoder::Signature(_) => 0,
        }
    }

    /// Whether a write has no room until frames leave.
    pub fn are_in_the_way(&self, at: u64) -> bool {
        !self.ready.is_empty() && self.lines.wants_freed(at).is_some()
    }

    /// When those that are in the way of a write have left, if the wire takes the first at `free` and nothing else.
    pub fn leave_the_way(&self, at: u64, free: Time, rate: BitRate) -> Time {
        let wanted = self.lines.wants_freed(at).unwrap_or(self.lines.freed());
        let are_in_the_way = |frame: &&Ready| frame.end.wrapping_sub(wanted) >= 1 << 31;
        let frames = self.ready.iter().take_while(are_in_the_way);
        frames.fold(free, |time, frame| time + rate.time_for(Bytes::new(frame.bytes.len() as u64)))
    }

    /// Takes a write that stays inside a line.
    pub fn write(&mut self, at: u64, piece: &[u8]) -> Written {
        let written = self.lines.write(at, piece);
        // Of two frames in one place, the decoder will drop one.
        if let Written::Twice { begins: true } | Written::Outside { begins: true } = written {
            self.unplaced += 1;
        }
        written
    }

    /// Called when there may be no room for a write and no frame that could leave to make some: a line is missing, which
    /// can only arrive behind this write.
    pub fn make_room(&mut self, at: u64) {
        if self.lines.wants_freed(at).is_none() {
            return;
        }
        // Lines that have been decoded are kept in the decoder.
        self.lines.free(self.lines.head());
        if self.lines.wants_freed(at).is_none() || self.lines.has_more() {
            return;
        }
        match &mut self.decoder {
            // The write is late, or the beginning of its frame is lost.
            Decoder::Framed(_) if !self.lines.is_first(at) => return,
            Decoder::Framed(decoder) => decoder.give_up(),
            Decoder::Signature(_) => {}
        }
        self.lines.jump(at);
    }

    /// Decodes the lines that have arrived, into frames that can leave at `ready_at`, and frees those of no frame.
    /// Returns the number of lines and of completed frames.
    pub fn decode(&mut self, ready_at: Time, spare: &mut Spare) -> (u64, u64) {
        let (mut lines, mut frames) = (0, 0);
        loop {
            let Self { lines: memory, decoder, has_short_lines, .. } = self;
            let needs = |is_first: bool, begun: &[u8]| match &*decoder {
                Decoder::Framed(decoder) if *has_short_lines => decoder.needs(is_first, begun),
                _ => LINE,
            };
            let Some(line) = memory.next(needs) else { break };
            let outcome = decoder.line(line);
            memory.advance();
            lines += 1;
            let Outcome::Frame(header) = outcome else { continue };
            let frame = decoder.frame();
            if frame.len() < HEADER_LEN {
                continue;
            }
            let mut bytes = spare.copy(frame);
            if header.network_checksum || header.transport_checksum {
                fill_checksums(&mut bytes, header.network_checksum, header.transport_checksum);
            }
            finish(&mut bytes);
            self.ready.push_back(Ready { bytes, at: ready_at, end: self.lines.head() });
            frames += 1;
        }
        self.free_idle();
        (lines, frames)
    }

    /// Takes the oldest frame.
    pub fn take(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// A frame has been handed to the wire: frees its lines.
    pub fn left(&mut self, frame: &Ready) {
        self.lines.free(frame.end);
        self.free_idle();
    }

    /// Frees lines that belong to no pending frame.
    fn free_idle(&mut self) {
        if self.ready.is_empty() && !self.decoder.is_inside() {
            self.lines.free(self.lines.head());
        }
    }

    /// Whether a line is missing: later ones have arrived, or the driver has written up to a count, `promised`, while no
    /// frame is left to send.
    pub fn lacks_line(&self, promised: Option<u32>) -> bool {
        self.lines.has_more() || self.ready.is_empty() && promised.is_some()
    }

    /// Gives up the missing line.
    pub fn give_up(&mut self, promised: Option<u32>) {
        if !self.lines.has_more() {
            // None of the lines that the driver waits for arrived, or only part of the last frame.
            if let Decoder::Framed(decoder) = &mut self.decoder {
                decoder.give_up();
            }
            if let Some(at) = promised.filter(|&at| self.lines.is_before(at)) {
                self.lines.skip_to(at);
            }
            return;
        }
        let lines = &mut self.lines;
        match &mut self.decoder {
            Decoder::Framed(decoder) => {
                // The rest of a frame up to its expected end, or a first line that never became complete.
                let mut left = if decoder.is_inside() { decoder.lines_left() } else { 1 };
                let was_inside = decoder.is_inside();
                decoder.give_up();
                self.unplaced += u64::from(!was_inside && lines.is_begun());
                while left > 0 && !(was_inside && lines.is_at_first()) {
                    lines.advance();
                    left -= 1;
                }
                while lines.has_more() && !lines.is_at_first() {
                    lines.advance();
                }
            }
            Decoder::Signature(_) => {
                // Skips the line.
                lines.advance();
                while lines.has_more() && lines.is_at_nothing() {
                    lines.advance();
                }
            }
        }
    }

    /// The driver has lost its position: lines received out of order are useless.
    pub fn settle(&mut self) {
        if let Decoder::Framed(decoder) = &mut self.decoder {
            decoder.give_up();
        }
        self.lines.forget();
    }
}
