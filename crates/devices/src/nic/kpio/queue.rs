//! One queue: lines written, lines missing, and completed frames.

use std::collections::VecDeque;

use units::Time;
use wire::kpio::{Decoder, Format, LINE, signature};
use wire::nic::registers::{NO_VECTOR, counter, kpio as register};

use super::super::NicHandle;
use super::super::params::KpioParams;
use super::super::spare::Spare;
use super::super::token::LIVES;
use super::lines::{Lines, Written};

/// A complete frame, with check sequence, that waits for its turn.
pub struct Ready {
    pub bytes: Vec<u8>,
    /// Earliest time at which it can leave.
    pub at: Time,
    /// Position of the next frame. When this one has left, line memory is free up to there.
    pub(super) end: u32,
}

/// A kPIO queue.
pub struct KpioQueue {
    pub(super) control: u32,
    pub(super) signature: u64,
    pub(super) report_at: u64,
    pub(super) report_every: u32,
    pub running: bool,
    pub(super) life: u16,
    pub(super) lines: Lines,
    pub(super) decoder: Decoder,
    /// Values of the decoder's counters that have been added to the NIC's.
    pub(super) told: (u64, u64),
    pub ready: VecDeque<Ready>,
    /// Writes that wait in the port for room, in order.
    pub(super) held: VecDeque<(u64, Vec<u8>)>,
    /// Frames that began where they had no place, or of which only a piece of the first line arrived.
    pub(super) unplaced: u64,
    /// Log2 of the window's positions in the second format; the paper's format has one per line.
    pub(super) log2_positions: u8,
    /// When the port returns the last credits that it withholds.
    pub(super) credits_back: Time,
    /// Since when a missing line has held up others.
    pub(super) stuck: Option<Time>,
    pub(super) waits: bool,
    pub(super) reported: u32,
    pub(super) reports: bool,
    pub(super) vector: u32,
    /// Free-line count at which the driver wants an interrupt.
    pub(super) armed: Option<u32>,
}

impl KpioQueue {
    pub fn new(params: &KpioParams) -> Self {
        Self {
            control: 0,
            signature: signature::EOP,
            report_at: 0,
            report_every: 1,
            running: false,
            life: 0,
            lines: Lines::new(params.log2_lines),
            decoder: Decoder::new(Format::Framed, 0),
            told: (0, 0),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            unplaced: 0,
            log2_positions: params.log2_positions,
            credits_back: Time::ZERO,
            stuck: None,
            waits: false,
            reported: 0,
            reports: false,
            vector: NO_VECTOR,
            armed: None,
        }
    }

    pub(super) fn restart(&mut self, running: bool, longest: usize) {
        let format = if self.control & register::FRAMED != 0 {
            Format::Framed
        } else {
            Format::Signature(self.signature)
        };
        self.running = running;
        self.life = (self.life + 1) & LIVES;
        self.lines.restart(if format == Format::Framed { self.log2_positions } else { 0 });
        self.decoder = Decoder::new(format, longest);
        self.told = (0, 0);
        self.ready.clear();
        self.held.clear();
        (self.unplaced, self.stuck, self.armed) = (0, None, None);
        (self.waits, self.reports, self.reported) = (false, false, 0);
    }

    pub(super) fn has_short_lines(&self) -> bool {
        self.control & register::SHORT_LINES != 0
    }

    pub(super) fn dropped(&self) -> u64 {
        self.unplaced + self.decoder.dropped().frames()
    }

    /// Lines known to be missing. The paper's format cannot detect them.
    pub(super) fn missing(&self) -> u64 {
        match &self.decoder {
            Decoder::Framed(decoder) => decoder.missing(),
            Decoder::Signature(_) => 0,
        }
    }

    /// Takes a write that stays inside a line.
    pub(super) fn write(&mut self, handle: &NicHandle, function: u8, at: u64, piece: &[u8]) {
        if self.control & register::HOLD != 0 && self.lines.wants_freed(at).is_some() {
            self.make_room(at);
        }
        let what = self.lines.write(at, piece);
        let count = |which| handle.add(function, which, 1);
        if piece.len() < LINE {
            count(counter::KPIO_PIECES);
        }
        match what {
            Written::Wanted { is_ahead: false } => {}
            Written::Wanted { is_ahead: true } => count(counter::KPIO_AHEAD),
            Written::Twice { .. } => count(counter::KPIO_TWICE),
            Written::Outside { .. } => count(counter::KPIO_OUTSIDE),
        }
        // Of two frames in one place, the decoder will drop one.
        if let Written::Twice { begins: true } | Written::Outside { begins: true } = what {
            self.unplaced += 1;
        }
    }

    /// Whether a write has to wait in the port: others wait already, or there is no room until frames leave.
    pub(super) fn holds(&self, at: u64) -> bool {
        let may = self.control & register::HOLD != 0;
        may && (!self.held.is_empty() || self.waits_for_frames(at))
    }

    fn waits_for_frames(&self, at: u64) -> bool {
        !self.ready.is_empty() && self.lines.wants_freed(at).is_some()
    }

    /// Called when there is no room for a write and no frame that could leave to make some: a line is missing, which
    /// can only arrive behind this write.
    fn make_room(&mut self, at: u64) {
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

    /// Takes the first write waiting in the port if it has room. Returns whether it did; it may complete a frame, for
    /// which the next write then waits.
    pub(super) fn take_held(&mut self, handle: &NicHandle, function: u8, spare: &mut Spare) -> bool {
        let Some((at, bytes)) = self.held.pop_front() else { return false };
        if self.waits_for_frames(at) {
            self.held.push_front((at, bytes));
            return false;
        }
        self.write(handle, function, at, &bytes);
        spare.put(bytes);
        true
    }

    /// Whether as many lines are free as the driver waits for.
    pub(super) fn is_due(&self) -> bool {
        self.armed.is_some_and(|at| self.lines.freed().wrapping_sub(at) < 1 << 31)
    }

    /// Whether a line is missing: later lines have arrived, or the driver waits for lines while no frame is left to
    /// send. It may still be behind the writes that wait in the port.
    pub(super) fn is_missing(&self) -> bool {
        let is_promised = self.ready.is_empty() && self.armed.is_some() && !self.is_due();
        self.running && (self.lines.has_more() || is_promised) && self.held.is_empty()
    }

    /// Gives up the missing line.
    pub(super) fn give_up(&mut self) {
        if !self.lines.has_more() {
            // None of the lines that the driver waits for arrived, or only part of the last frame.
            if let Decoder::Framed(decoder) = &mut self.decoder {
                decoder.give_up();
            }
            if let Some(at) = self.armed.filter(|&at| self.lines.is_before(at)) {
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
    pub(super) fn settle(&mut self) {
        if let Decoder::Framed(decoder) = &mut self.decoder {
            decoder.give_up();
        }
        self.lines.forget();
    }

    /// Frees lines that belong to no pending frame.
    pub(super) fn free_idle_lines(&mut self) {
        if self.ready.is_empty() && !self.decoder.is_inside() {
            self.lines.free(self.lines.head());
        }
    }
}
