//! One queue: registers, and what its lines, the port, the driver and a missing line ask for.

use engine::Epoch;
use platform::device::DeviceBus;
use units::{BitRate, Bytes, Duration, Time};
use wire::kpio::{Format, LINE, signature};
use wire::nic::registers::{counter, kpio as register};

use super::backlog::Backlog;
use super::frames::{Frames, Ready};
use super::lines::Written;
use super::params::KpioParams;
use super::patience::Patience;
use super::reports::Reports;
use crate::nic::NicHandle;
use crate::nic::fields::{with_high, with_low};
use crate::nic::params::QueueWindow;
use crate::nic::spare::Spare;
use crate::nic::token::{Kind, Note};

/// The upper half of [`register::SIGNATURE`].
const SIGNATURE_HIGH: u64 = register::SIGNATURE + 4;

/// A queue of a physical function.
pub struct Queue {
    of: QueueWindow,
    handle: NicHandle,
    params: KpioParams,
    /// Bytes of the longest frame that fits into it.
    longest: usize,
    control: u32,
    signature: u64,
    is_running: bool,
    life: Epoch,
    frames: Frames,
    backlog: Backlog,
    reports: Reports,
    patience: Patience,
    /// Dropped and missing frames that have been added to the NIC's counters.
    counted: (u64, u64),
}

impl Queue {
    /// A stopped queue, for frames of at most `longest` bytes.
    pub fn new(of: QueueWindow, handle: &NicHandle, params: KpioParams, longest: usize) -> Self {
        Self {
            of,
            handle: handle.clone(),
            params,
            longest,
            control: 0,
            signature: signature::EOP,
            is_running: false,
            life: Epoch::default(),
            frames: Frames::new(params.log2_lines),
            backlog: Backlog::default(),
            reports: Reports::default(),
            patience: Patience::default(),
            counted: (0, 0),
        }
    }

    pub fn is_running(&self) -> bool {
        self.is_running
    }

    fn restart(&mut self, is_running: bool) {
        let has = |mode| self.control & mode != 0;
        let (format, log2_positions) = match has(register::FRAMED) {
            true => (Format::Framed, self.params.log2_positions),
            false => (Format::Signature(self.signature), 0),
        };
        self.frames.restart(format, has(register::SHORT_LINES), log2_positions, self.longest);
        self.backlog.clear();
        self.reports.restart();
        self.patience = Patience::default();
        self.counted = (0, 0);
        self.life.end();
        self.is_running = is_running;
    }

    /// Stops it and clears the driver's settings.
    pub fn reset(&mut self) {
        (self.control, self.signature, self.reports) = (0, signature::EOP, Reports::default());
        self.restart(false);
    }

    /// Reads a register.
    pub fn register(&self, at: u64) -> u32 {
        match at {
            register::CONTROL => self.control,
            register::STATUS if self.is_running => register::RUNNING,
            register::FREED => self.frames.freed(),
            register::NEXT => self.frames.head(),
            register::SIGNATURE => self.signature as u32,
            SIGNATURE_HIGH => (self.signature >> 32) as u32,
            register::DROPPED => self.frames.dropped() as u32,
            register::MISSING => self.frames.missing() as u32,
            _ => self.reports.register(at).unwrap_or(0),
        }
    }

    /// Writes a register. Returns whether that gives the queue work.
    pub fn set_register(&mut self, at: u64, value: u32) -> bool {
        match at {
            register::CONTROL => {
                let is_on = value & register::ENABLE != 0;
                if is_on != self.is_running {
                    self.control = value;
                    self.restart(is_on);
                }
            }
            register::NEXT if self.is_running => {
                self.frames.settle();
                return true;
            }
            register::SIGNATURE if !self.is_running => self.signature = with_low(self.signature, value),
            SIGNATURE_HIGH if !self.is_running => self.signature = with_high(self.signature, value),
            _ => self.reports.set_register(at, value, self.is_running),
        }
        at == register::ARM_AT
    }

    /// Takes a write to the window.
    pub fn write(&mut self, mut at: u64, mut data: &[u8], spare: &mut Spare) {
        while !data.is_empty() {
            let (piece, behind) = data.split_at(data.len().min(LINE - at as usize % LINE));
            if self.must_wait(at) {
                self.backlog.push(at, piece, spare);
            } else {
                self.store(at, piece);
            }
            at += piece.len() as u64;
            data = behind;
        }
    }

    /// Whether a write has to wait in the port: others wait already, or there is no room until frames leave.
    fn must_wait(&self, at: u64) -> bool {
        self.may_wait() && (!self.backlog.is_empty() || self.frames.are_in_the_way(at))
    }

    fn may_wait(&self) -> bool {
        self.control & register::HOLD != 0
    }

    /// Stores a write that stays inside a line.
    fn store(&mut self, at: u64, piece: &[u8]) {
        if self.may_wait() {
            self.frames.make_room(at);
        }
        if piece.len() < LINE {
            self.count(counter::KPIO_PIECES, 1);
        }
        match self.frames.write(at, piece) {
            Written::Wanted { is_ahead } => self.count(counter::KPIO_AHEAD, is_ahead.into()),
            Written::Twice { .. } => self.count(counter::KPIO_TWICE, 1),
            Written::Outside { .. } => self.count(counter::KPIO_OUTSIDE, 1),
        }
    }

    fn count(&self, which: usize, amount: u64) {
        self.handle.add(self.of.function, which, amount);
    }

    fn note(&self, kind: Kind) -> Note {
        Note::new(kind, self.life, self.of.function, self.of.queue)
    }

    /// Decodes the lines that have arrived, and takes waiting writes that now have room. Returns how many frames were
    /// completed.
    pub fn drain(&mut self, bus: &mut dyn DeviceBus, spare: &mut Spare) -> u64 {
        let ready_at = bus.now() + self.params.latency;
        let (mut lines, mut frames) = (0, 0);
        loop {
            let (more_lines, more_frames) = self.frames.decode(ready_at, spare);
            (lines, frames) = (lines + more_lines, frames + more_frames);
            // It may complete a frame, for which the next write then waits.
            let Some((at, bytes)) = self.backlog.take(|at| self.frames.are_in_the_way(at)) else { break };
            self.store(at, &bytes);
            spare.put(bytes);
        }
        self.count(counter::KPIO_LINES, lines);
        let now = (self.frames.dropped(), self.frames.missing());
        let before = std::mem::replace(&mut self.counted, now);
        self.count(counter::KPIO_DROPPED, now.0 - before.0);
        self.count(counter::KPIO_MISSING, now.1 - before.1);
        let lacks_line = self.lacks_line();
        if self.patience.look(bus.now(), lines > 0, lacks_line) {
            bus.wake_at(bus.now() + self.params.patience, self.note(Kind::MissingLine).token());
        }
        frames
    }

    /// The count that the driver waits for: it has written that many lines.
    fn promised(&self) -> Option<u32> {
        self.reports.awaited(self.frames.freed())
    }

    /// Whether a line is missing that is not behind the writes that wait in the port.
    fn lacks_line(&self) -> bool {
        self.is_running && self.backlog.is_empty() && self.frames.lacks_line(self.promised())
    }

    /// A timer expired. Returns whether that gives the queue work.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, note: Note) -> bool {
        if !note.is_of(self.life) {
            return false;
        }
        if note.kind == Kind::FreedLines {
            self.reports.due(bus, note, self.frames.freed());
            return false;
        }
        let (lacks_line, credits_back) = (self.lacks_line(), self.backlog.credits_back());
        let end = self.patience.ends(bus.now(), lacks_line, credits_back, self.params.patience);
        let Some(end) = end else { return false };
        if end > bus.now() {
            bus.wake_at(end, note.token());
            return false;
        }
        self.frames.give_up(self.promised());
        self.count(counter::KPIO_WAITS, 1);
        true
    }

    /// Takes the oldest complete frame; `None` if the queue was stopped in the meantime.
    pub fn take(&mut self) -> Option<Ready> {
        self.frames.take()
    }

    /// That frame has been handed to the wire, which took it or not.
    pub fn left(&mut self, frame: &Ready, was_sent: bool) {
        self.frames.left(frame);
        self.count(counter::KPIO_FRAMES, was_sent.into());
    }

    /// How long a write arriving at `now` waits in the port: until the frames in its way have left, if the wire is free
    /// at `free` with `rate` and nothing else takes its turns.
    pub fn holds(&mut self, at: u64, now: Time, free: Time, rate: BitRate) -> Duration {
        if !self.is_running || !self.must_wait(at) {
            return Duration::ZERO;
        }
        // Writes that wait ahead of it also have to pass through the queue.
        let waiting = rate.time_for(Bytes::new(self.backlog.bytes()));
        let back = self.frames.leave_the_way(at, free.max(now), rate) + waiting;
        self.backlog.withhold(back);
        back.since(now)
    }

    /// Reports freed lines to the driver now if there are enough, else later. Returns the vector of the interrupt if one
    /// is due; it must follow the report.
    pub fn report(&mut self, bus: &mut dyn DeviceBus) -> Option<u32> {
        let (note, freed) = (self.note(Kind::FreedLines), self.frames.freed());
        self.reports.report(bus, note, freed, self.params.report_delay)
    }
}
