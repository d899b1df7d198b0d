//! Queues that take frames by programmed I/O: lines from write-combining buffers, put in order ([`lines`]), decoded
//! ([`wire::kpio`]), and handed to the multiplexer ([`super::mux`]).
//!
//! A line that does not come while others do is given up after some time: with length and checksum, the frame that
//! it belongs to is dropped and the queue goes on at the next first line; in the paper's format, which cannot know,
//! it goes on without the line. Lines that a driver waits for have been written before it said so: they are given up
//! in the same way, so that a driver whose lines were lost is not kept waiting.

mod lines;
mod queue;
mod registers;

use platform::device::DeviceBus;
use units::{Bytes, Duration, Time};
use wire::ethernet::HEADER_LEN;
use wire::kpio::{Decoder, LINE, Outcome, framed};
use wire::nic::registers::counter;

use super::Nic;
use super::completions::write;
use super::segment::{fill_checksums, finish};
use super::token::{Kind, Note};
pub use queue::{KpioQueue, Ready};

impl Nic {
    /// The longest frame that fits into a kPIO queue.
    fn kpio_longest(&self) -> usize {
        let lines = self.params.kpio.map_or(0, |kpio| 1usize << kpio.log2_lines);
        usize::from(self.params.max_frame).min((lines * LINE).saturating_sub(LINE)).min(framed::LONGEST)
    }

    /// A write to the windows.
    pub(super) fn kpio_write(&mut self, bus: &mut dyn DeviceBus, function: u8, at: u64, data: &[u8]) {
        let Some(params) = self.params.kpio else { return };
        let (queue, mut at) = ((at / params.window()) as usize, at % params.window());
        let Some(state) = self.functions[usize::from(function)].kpio.get_mut(queue).filter(|q| q.running)
        else {
            return;
        };
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(LINE - at as usize % LINE));
            if state.holds(at) {
                let mut bytes = self.sender.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(piece);
                state.held.push_back((at, bytes));
            } else {
                state.write(&self.handle, function, at, piece);
            }
            at += piece.len() as u64;
            rest = behind;
        }
        self.kpio_drain(bus, function, queue as u8);
    }

    /// Decodes the lines that are there, and takes those that waited for room.
    fn kpio_drain(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        let Some(params) = self.params.kpio else { return };
        let ready_at = bus.now() + params.latency;
        let (mut lines, mut frames) = (0, 0);
        loop {
            let (more_lines, more_frames) = self.kpio_decode(function, queue, ready_at);
            (lines, frames) = (lines + more_lines, frames + more_frames);
            let Self { functions, handle, sender, .. } = self;
            let state = &mut functions[usize::from(function)].kpio[usize::from(queue)];
            state.free_idle_lines();
            if !state.take_held(handle, function, &mut sender.spare) {
                break;
            }
        }
        self.handle.add(function, counter::KPIO_LINES, lines);
        self.kpio_count(function, queue);
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        let is_missing = state.is_missing();
        if lines > 0 || !is_missing {
            state.stuck = None;
        }
        if is_missing {
            state.stuck.get_or_insert(bus.now());
        }
        if state.stuck.is_some() && !state.waits {
            state.waits = true;
            let note = Note::new(Kind::KpioPatience, state.life, function, queue);
            bus.wake_at(bus.now() + params.patience, note.token());
        }
        if frames > 0 {
            let port = self.functions[usize::from(function)].port();
            (0..frames).for_each(|_| self.mux_list(function, queue));
            self.mux_pump(bus, port);
        }
        self.kpio_report(bus, function, queue);
    }

    /// Decodes the lines that are there: how many, and how many frames came of them.
    fn kpio_decode(&mut self, function: u8, queue: u8, ready_at: Time) -> (u64, u64) {
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        let is_short = state.has_short_lines();
        let (mut lines, mut frames) = (0, 0);
        loop {
            let KpioQueue { lines: memory, decoder, .. } = state;
            let needs = |is_first: bool, begun: &[u8]| match &*decoder {
                Decoder::Framed(decoder) if is_short => decoder.needs(is_first, begun),
                _ => LINE,
            };
            let Some(line) = memory.next(needs) else { return (lines, frames) };
            let outcome = decoder.line(line);
            memory.advance();
            lines += 1;
            let Outcome::Frame(header) = outcome else { continue };
            let frame = decoder.frame();
            if frame.len() < HEADER_LEN {
                continue;
            }
            let mut bytes = self.sender.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame);
            if header.network_checksum || header.transport_checksum {
                fill_checksums(&mut bytes, header.network_checksum, header.transport_checksum);
            }
            finish(&mut bytes);
            state.ready.push_back(Ready { bytes, at: ready_at, end: state.lines.head() });
            frames += 1;
        }
    }

    /// Brings the counters up to the decoder's.
    fn kpio_count(&mut self, function: u8, queue: u8) {
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        let missing = match &state.decoder {
            Decoder::Framed(decoder) => decoder.missing(),
            Decoder::Signature(_) => 0,
        };
        let now = (state.dropped(), missing);
        let before = std::mem::replace(&mut state.told, now);
        self.handle.add(function, counter::KPIO_DROPPED, now.0 - before.0);
        self.handle.add(function, counter::KPIO_MISSING, now.1 - before.1);
    }

    /// A queue may have waited long enough for a line.
    pub(super) fn kpio_patience_due(&mut self, bus: &mut dyn DeviceBus, note: Note) {
        let Some(params) = self.params.kpio else { return };
        let state = &mut self.functions[usize::from(note.function)].kpio[usize::from(note.queue)];
        if state.life != note.life {
            return;
        }
        state.waits = false;
        if !state.is_missing() {
            state.stuck = None;
        }
        let Some(since) = state.stuck else { return };
        // What is missing may wait for credits.
        let due = since.max(state.credits_back) + params.patience;
        if due > bus.now() {
            state.waits = true;
            bus.wake_at(due, note.token());
            return;
        }
        self.handle.add(note.function, counter::KPIO_WAITS, 1);
        state.stuck = None;
        state.give_up();
        self.kpio_drain(bus, note.function, note.queue);
    }

    /// A queue's oldest frame has been handed to the wire.
    pub(super) fn kpio_left(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, frame: Ready) {
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        state.lines.free(frame.end);
        state.free_idle_lines();
        self.sender.spare.push(frame.bytes);
        // Room for what waits in the port; and what was missing may not be any more.
        self.kpio_drain(bus, function, queue);
    }

    /// How long a write to the windows waits in the port: until the frames that are in its way have left, if nothing else
    /// takes their turns.
    pub(super) fn kpio_holds(&mut self, bus: &dyn DeviceBus, function: u8, at: u64) -> Duration {
        let Some(params) = self.params.kpio else { return Duration::ZERO };
        let (number, at) = ((at / params.window()) as usize, at % params.window());
        let state = &self.functions[usize::from(function)];
        let port = state.port();
        let Some(queue) = state.kpio.get(number).filter(|queue| queue.running && queue.holds(at)) else {
            return Duration::ZERO;
        };
        let wanted = queue.lines.wants_freed(at).unwrap_or(queue.lines.freed());
        let mut leaves = self.mux_free(port).max(bus.now());
        for frame in &queue.ready {
            if frame.end.wrapping_sub(wanted) < 1 << 31 {
                break;
            }
            leaves += self.params.rate.time_for(Bytes::new(frame.bytes.len() as u64));
        }
        // What waits in front of it has to go through the queue, too.
        let waiting: u64 = queue.held.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let back = leaves + self.params.rate.time_for(Bytes::new(waiting));
        let state = &mut self.functions[usize::from(function)].kpio[number];
        state.credits_back = state.credits_back.max(back);
        back.since(bus.now())
    }

    /// Tells the driver of freed lines if there are enough, or later.
    fn kpio_report(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        let delay = self.params.kpio.map(|kpio| kpio.report_delay).unwrap_or_default();
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        let unreported = state.lines.freed().wrapping_sub(state.reported);
        if state.is_due() {
            let vector = state.vector;
            state.armed = None;
            // The interrupt comes behind the write.
            if unreported > 0 && state.report_at != 0 {
                self.kpio_write_report(bus, function, queue);
            }
            self.raise(bus, function, vector);
            return;
        }
        if unreported == 0 || state.report_at == 0 {
            return;
        }
        if unreported >= state.report_every.max(1) || delay.is_zero() {
            self.kpio_write_report(bus, function, queue);
        } else if !state.reports {
            state.reports = true;
            let note = Note::new(Kind::KpioReport, state.life, function, queue);
            bus.wake_at(bus.now() + delay, note.token());
        }
    }

    /// Freed lines have waited long enough.
    pub(super) fn kpio_report_due(&mut self, bus: &mut dyn DeviceBus, note: Note) {
        let state = &mut self.functions[usize::from(note.function)].kpio[usize::from(note.queue)];
        if state.life == note.life {
            state.reports = false;
            if state.lines.freed() != state.reported {
                self.kpio_write_report(bus, note.function, note.queue);
            }
        }
    }

    fn kpio_write_report(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        let state = &mut self.functions[usize::from(function)].kpio[usize::from(queue)];
        state.reported = state.lines.freed();
        let note = Note::new(Kind::KpioReport, state.life, function, queue);
        let request = write(function, state.report_at, 4, note.token());
        bus.write(request, &state.reported.to_le_bytes());
    }
}
