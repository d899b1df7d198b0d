//! Queues that take frames by programmed I/O: lines from write-combining buffers, put in order ([`lines`]), decoded
//! ([`wire::kpio`]), and handed to the multiplexer ([`super::mux`]).
//!
//! A line that does not come while others do is given up after some time: with length and checksum, the frame that
//! it belongs to is dropped and the queue goes on at the next first line; in the paper's format, which cannot know,
//! it goes on without the line. Lines that a driver waits for have been written before it said so: they are given up
//! in the same way, so that a driver whose lines were lost is not kept waiting.

mod lines;

use std::collections::VecDeque;

use platform::device::DeviceBus;
use units::{Bytes, Duration, Time};
use wire::ethernet::HEADER_LEN;
use wire::kpio::{Decoder, Format, LINE, Outcome, framed, signature};
use wire::nic::registers::{NO_VECTOR, counter, kpio as register};

use super::completions::write;
use super::params::KpioParams;
use super::segment::{fill_checksums, finish};
use super::token::{Kind, Note};
use super::{Nic, NicHandle};
use lines::{Lines, Written};

/// A whole frame, check sequence included, that waits for its turn.
pub struct Ready {
    pub bytes: Vec<u8>,
    /// When it can leave.
    pub at: Time,
    /// Where the next frame begins: its lines' memory is free up to there when it has left.
    end: u32,
}

/// A kPIO queue.
pub struct KpioQueue {
    control: u32,
    signature: u64,
    report_at: u64,
    report_every: u32,
    pub running: bool,
    life: u16,
    lines: Lines,
    decoder: Decoder,
    /// What the counters have been told of the decoder's.
    told: (u64, u64),
    pub ready: VecDeque<Ready>,
    /// Writes that wait in the port for room, in order.
    held: VecDeque<(u64, Vec<u8>)>,
    /// Frames that began where there was no place for them, or did not get further than a piece of their first line.
    unplaced: u64,
    /// Positions in the window of the second format; the paper's has as many as lines.
    log2_positions: u8,
    /// When the port gives back the last credits that it keeps.
    credits_back: Time,
    /// Since when a line is missing that others wait for.
    stuck: Option<Time>,
    waits: bool,
    reported: u32,
    reports: bool,
    vector: u32,
    /// The driver wants to be interrupted when so many lines are free again.
    armed: Option<u32>,
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

    fn restart(&mut self, running: bool, longest: usize) {
        let format = if self.control & register::FRAMED != 0 {
            Format::Framed
        } else {
            Format::Signature(self.signature)
        };
        self.running = running;
        self.life = (self.life + 1) & 0xfff;
        self.lines.restart(if format == Format::Framed { self.log2_positions } else { 0 });
        self.decoder = Decoder::new(format, longest);
        self.told = (0, 0);
        self.ready.clear();
        self.held.clear();
        (self.unplaced, self.stuck, self.armed) = (0, None, None);
        (self.waits, self.reports, self.reported) = (false, false, 0);
    }

    fn has_short_lines(&self) -> bool {
        self.control & register::SHORT_LINES != 0
    }

    fn dropped(&self) -> u64 {
        self.unplaced + self.decoder.dropped().frames()
    }

    /// Takes a write that stays inside a line.
    fn write(&mut self, handle: &NicHandle, function: u8, at: u64, piece: &[u8]) {
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
        // Of two frames in one place the decoder will drop one.
        if let Written::Twice { begins: true } | Written::Outside { begins: true } = what {
            self.unplaced += 1;
        }
    }

    /// Whether a write has to wait in the port: others do, or there is no room until frames have left.
    fn holds(&self, at: u64) -> bool {
        let may = self.control & register::HOLD != 0;
        may && (!self.held.is_empty() || self.waits_for_frames(at))
    }

    fn waits_for_frames(&self, at: u64) -> bool {
        !self.ready.is_empty() && self.lines.wants_freed(at).is_some()
    }

    /// There is no room for a write, and no frame whose leaving would make some: a line is missing, and if it comes, then
    /// behind this one.
    fn make_room(&mut self, at: u64) {
        // What has been decoded is kept there.
        self.lines.free(self.lines.head());
        if self.lines.wants_freed(at).is_none() || self.lines.has_more() {
            return;
        }
        match &mut self.decoder {
            // It comes late, or the frame's beginning is lost.
            Decoder::Framed(_) if !self.lines.is_first(at) => return,
            Decoder::Framed(decoder) => decoder.give_up(),
            Decoder::Signature(_) => {}
        }
        self.lines.jump(at);
    }

    /// Takes the first write that waits in the port if it need not. Whether it did: it may complete a frame, for which the
    /// next one then waits.
    fn take_held(&mut self, handle: &NicHandle, function: u8, spare: &mut Vec<Vec<u8>>) -> bool {
        let Some((at, bytes)) = self.held.pop_front() else { return false };
        if self.waits_for_frames(at) {
            self.held.push_front((at, bytes));
            return false;
        }
        self.write(handle, function, at, &bytes);
        spare.push(bytes);
        true
    }

    /// Whether as many lines are free as the driver waits for.
    fn is_due(&self) -> bool {
        self.armed.is_some_and(|at| self.lines.freed().wrapping_sub(at) < 1 << 31)
    }

    /// Whether a line has not come though others say that it was written, or a driver that waits for it to leave while no frame
    /// does. It may come behind what waits in the port.
    fn is_missing(&self) -> bool {
        let is_promised = self.ready.is_empty() && self.armed.is_some() && !self.is_due();
        self.running && (self.lines.has_more() || is_promised) && self.held.is_empty()
    }

    /// The line that is missing does not come any more.
    fn give_up(&mut self) {
        if !self.lines.has_more() {
            // Nothing came of those that the driver waits for, or not all of the last frame.
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
                // The rest of a frame, up to where it should have ended; or a first line that did not become whole.
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
                // The line is left out.
                lines.advance();
                while lines.has_more() && lines.is_at_nothing() {
                    lines.advance();
                }
            }
        }
    }

    /// Lines that belong to no frame that waits are free.
    fn free_idle_lines(&mut self) {
        if self.ready.is_empty() && !self.decoder.is_inside() {
            self.lines.free(self.lines.head());
        }
    }
}

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

    /// Reads a register of a queue.
    pub(super) fn kpio_register(&self, function: u8, queue: usize, at: u64) -> u32 {
        let state = &self.functions[usize::from(function)].kpio[queue];
        match at {
            register::CONTROL => state.control,
            register::STATUS if state.running => register::RUNNING,
            register::FREED => state.lines.freed(),
            register::VECTOR => state.vector,
            register::ARM_AT => state.armed.unwrap_or(0),
            register::NEXT => state.lines.head(),
            register::REPORT_EVERY => state.report_every,
            register::REPORT => state.report_at as u32,
            0x14 => (state.report_at >> 32) as u32,
            register::SIGNATURE => state.signature as u32,
            0x1c => (state.signature >> 32) as u32,
            register::DROPPED => state.dropped() as u32,
            register::MISSING => match &state.decoder {
                Decoder::Framed(decoder) => decoder.missing() as u32,
                Decoder::Signature(_) => 0,
            },
            _ => 0,
        }
    }

    /// Writes a register of a queue.
    pub(super) fn set_kpio_register(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        queue: usize,
        at: u64,
        value: u32,
    ) {
        let longest = self.kpio_longest();
        let state = &mut self.functions[usize::from(function)].kpio[queue];
        let (low, high) = (u64::from(value), u64::from(value) << 32);
        match at {
            register::CONTROL => {
                let (was, is) = (state.running, value & register::ENABLE != 0);
                if was != is {
                    state.control = value;
                    state.restart(is, longest);
                    self.count_kpio();
                }
            }
            register::REPORT_EVERY => state.report_every = value,
            register::VECTOR => state.vector = value,
            register::ARM_AT => {
                state.armed = Some(value);
                self.kpio_drain(bus, function, queue as u8);
            }
            _ if state.running => {}
            register::REPORT => state.report_at = state.report_at & !0xffff_ffff | low,
            0x14 => state.report_at = state.report_at & 0xffff_ffff | high,
            register::SIGNATURE => state.signature = state.signature & !0xffff_ffff | low,
            0x1c => state.signature = state.signature & 0xffff_ffff | high,
            _ => {}
        }
    }

    /// Stops all kPIO queues of a function and forgets what the driver set.
    pub(super) fn kpio_reset(&mut self, function: u8) {
        for state in &mut self.functions[usize::from(function)].kpio {
            state.restart(false, 0);
            (state.control, state.report_at, state.report_every) = (0, 0, 1);
            (state.signature, state.vector) = (signature::EOP, NO_VECTOR);
        }
        self.count_kpio();
    }

    /// Notes how many queues run at each port.
    fn count_kpio(&mut self) {
        for (port, mux) in self.muxes.iter_mut().enumerate() {
            let here = self.functions.iter().filter(|f| usize::from(f.port().0) == port);
            mux.queues = here.flat_map(|f| &f.kpio).filter(|queue| queue.running).count() as u16;
        }
    }

    /// What `KPIO` reads.
    pub(super) fn kpio_limits(&self) -> u32 {
        self.params.kpio.map_or(0, |kpio| {
            u32::from(kpio.queues) | u32::from(kpio.log2_lines) << 8 | u32::from(kpio.log2_positions) << 16
        })
    }
}
