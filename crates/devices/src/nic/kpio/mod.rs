//! Transmit queues for programmed I/O: lines from write-combining buffers are reordered ([`lines`]), decoded
//! ([`wire::kpio`]) and passed to the multiplexer ([`super::mux`]) by [`super::ports`].
//!
//! A missing line is given up some time after later lines have arrived. In the format with length and checksum, its
//! frame is dropped and the queue resumes at the next first line; in the paper's format, which cannot detect loss, the
//! queue continues without the line. A driver announces that it waits only after writing its lines, so these are given
//! up in the same way: a driver that lost lines does not wait forever.

mod lines;
mod queue;
mod registers;

use platform::device::DeviceBus;
use units::{BitRate, Bytes, Duration, Time};
use wire::ethernet::HEADER_LEN;
use wire::kpio::{Decoder, LINE, Outcome, framed};
use wire::nic::registers::counter;

use super::NicHandle;
use super::params::KpioParams;
use super::segment::{fill_checksums, finish};
use super::spare::Spare;
use super::token::{Kind, Note, request};
use queue::KpioQueue;
pub use queue::Ready;
pub use registers::Due;

/// The programmed I/O part of a NIC. It handles queues and lines; sending complete frames and raising interrupts is
/// left to the NIC.
pub struct Kpio {
    params: KpioParams,
    handle: NicHandle,
    /// Bytes of the longest frame that fits into a queue.
    longest: usize,
    /// Queues by physical function.
    functions: Vec<Vec<KpioQueue>>,
    spare: Spare,
}

impl Kpio {
    /// Stopped queues for `functions` functions of a NIC whose frames have at most `max_frame` bytes.
    pub fn new(params: KpioParams, functions: usize, max_frame: u16, handle: NicHandle) -> Self {
        let lines = 1usize << params.log2_lines;
        let longest = usize::from(max_frame).min((lines * LINE).saturating_sub(LINE)).min(framed::LONGEST);
        let queues = || (0..params.queues).map(|_| KpioQueue::new(&params)).collect();
        let functions = (0..functions).map(|_| queues()).collect();
        Self { params, handle, longest, functions, spare: Spare::default() }
    }

    /// Number of a function's running queues.
    pub fn running(&self, function: u8) -> usize {
        self.functions
            .get(usize::from(function))
            .map_or(0, |queues| queues.iter().filter(|queue| queue.running).count())
    }

    fn queue(&mut self, function: u8, queue: u8) -> &mut KpioQueue {
        &mut self.functions[usize::from(function)][usize::from(queue)]
    }

    /// Takes a write to a function's windows. Returns the queue that now has work to do.
    pub fn write(&mut self, function: u8, at: u64, data: &[u8]) -> Option<u8> {
        let (number, mut at) = ((at / self.params.window()) as usize, at % self.params.window());
        let queues = self.functions.get_mut(usize::from(function))?;
        let queue = queues.get_mut(number).filter(|queue| queue.running)?;
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(LINE - at as usize % LINE));
            if queue.holds(at) {
                queue.held.push_back((at, self.spare.copy(piece)));
            } else {
                queue.write(&self.handle, function, at, piece);
            }
            at += piece.len() as u64;
            rest = behind;
        }
        Some(number as u8)
    }

    /// Decodes a queue's lines that have arrived, and takes waiting writes that now have room. Returns how many frames
    /// were completed.
    pub fn drain(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u8) -> u64 {
        let ready_at = bus.now() + self.params.latency;
        let (mut lines, mut frames) = (0, 0);
        let Self { functions, spare, params, handle, .. } = self;
        let queue = &mut functions[usize::from(function)][usize::from(number)];
        loop {
            let (more_lines, more_frames) = queue.decode(ready_at, spare);
            (lines, frames) = (lines + more_lines, frames + more_frames);
            queue.free_idle_lines();
            if !queue.take_held(handle, function, spare) {
                break;
            }
        }
        handle.add(function, counter::KPIO_LINES, lines);
        queue.count(handle, function);
        let is_missing = queue.is_missing();
        if lines > 0 || !is_missing {
            queue.stuck = None;
        }
        if is_missing {
            queue.stuck.get_or_insert(bus.now());
        }
        if queue.stuck.is_some() && !queue.waits {
            queue.waits = true;
            let note = Note::new(Kind::KpioPatience, queue.life, function, number);
            bus.wake_at(bus.now() + params.patience, note.token());
        }
        frames
    }

    /// A timer expired. Returns whether a queue has work to do.
    pub fn due(&mut self, bus: &mut dyn DeviceBus, note: Note) -> bool {
        if note.kind == Kind::KpioPatience {
            return self.patience_due(bus, note);
        }
        self.report_due(bus, note);
        false
    }

    /// The wait for a missing line may be over. If so, gives up the line and returns true.
    fn patience_due(&mut self, bus: &mut dyn DeviceBus, note: Note) -> bool {
        let patience = self.params.patience;
        let queue = self.queue(note.function, note.queue);
        if queue.life != note.life {
            return false;
        }
        queue.waits = false;
        if !queue.is_missing() {
            queue.stuck = None;
        }
        let Some(since) = queue.stuck else { return false };
        // The missing line may be waiting for credits.
        let due = since.max(queue.credits_back) + patience;
        if due > bus.now() {
            queue.waits = true;
            bus.wake_at(due, note.token());
            return false;
        }
        queue.stuck = None;
        queue.give_up();
        self.handle.add(note.function, counter::KPIO_WAITS, 1);
        true
    }

    /// Takes a queue's oldest frame; `None` if the queue was stopped in the meantime.
    pub fn take_frame(&mut self, function: u8, queue: u8) -> Option<Ready> {
        self.queue(function, queue).ready.pop_front()
    }

    /// A frame has been handed to the wire: frees its lines.
    pub fn frame_left(&mut self, function: u8, queue: u8, frame: Ready) {
        let state = self.queue(function, queue);
        state.lines.free(frame.end);
        state.free_idle_lines();
        self.spare.put(frame.bytes);
    }

    /// How long a write to a function's windows arriving at `now` waits in the port: until the frames in its way have
    /// left, if the wire is free at `free` with `rate` and nothing else takes its turns.
    pub fn holds(&mut self, function: u8, at: u64, now: Time, free: Time, rate: BitRate) -> Duration {
        let (number, at) = ((at / self.params.window()) as usize, at % self.params.window());
        let queues = self.functions.get_mut(usize::from(function));
        let queue = queues.and_then(|queues| queues.get_mut(number));
        let Some(queue) = queue.filter(|queue| queue.running && queue.holds(at)) else {
            return Duration::ZERO;
        };
        let wanted = queue.lines.wants_freed(at).unwrap_or(queue.lines.freed());
        let mut leaves = free.max(now);
        for frame in &queue.ready {
            if frame.end.wrapping_sub(wanted) < 1 << 31 {
                break;
            }
            leaves += rate.time_for(Bytes::new(frame.bytes.len() as u64));
        }
        // Writes that wait ahead of it also have to pass through the queue.
        let waiting: u64 = queue.held.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let back = leaves + rate.time_for(Bytes::new(waiting));
        queue.credits_back = queue.credits_back.max(back);
        back.since(now)
    }

    /// Reports a queue's freed lines to the driver now if there are enough, else later. Returns the vector of the
    /// interrupt if one is due; it must follow the report.
    pub fn report(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u8) -> Option<u32> {
        let delay = self.params.report_delay;
        let queue = self.queue(function, number);
        let unreported = queue.lines.freed().wrapping_sub(queue.reported);
        if queue.is_due() {
            queue.armed = None;
            if unreported > 0 && queue.report_at != 0 {
                queue.write_report(bus, function, number);
            }
            return Some(queue.vector);
        }
        if unreported == 0 || queue.report_at == 0 {
            return None;
        }
        if unreported >= queue.report_every.max(1) || delay.is_zero() {
            queue.write_report(bus, function, number);
        } else if !queue.reports {
            queue.reports = true;
            let note = Note::new(Kind::KpioReport, queue.life, function, number);
            bus.wake_at(bus.now() + delay, note.token());
        }
        None
    }

    /// Freed lines have waited long enough.
    fn report_due(&mut self, bus: &mut dyn DeviceBus, note: Note) {
        let queue = self.queue(note.function, note.queue);
        if queue.life == note.life {
            queue.reports = false;
            if queue.lines.freed() != queue.reported {
                queue.write_report(bus, note.function, note.queue);
            }
        }
    }
}

impl KpioQueue {
    /// Decodes the lines that have arrived. Returns the number of lines and of completed frames.
    fn decode(&mut self, ready_at: Time, spare: &mut Spare) -> (u64, u64) {
        let is_short = self.has_short_lines();
        let (mut lines, mut frames) = (0, 0);
        loop {
            let Self { lines: memory, decoder, .. } = self;
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
            let mut bytes = spare.copy(frame);
            if header.network_checksum || header.transport_checksum {
                fill_checksums(&mut bytes, header.network_checksum, header.transport_checksum);
            }
            finish(&mut bytes);
            self.ready.push_back(Ready { bytes, at: ready_at, end: self.lines.head() });
            frames += 1;
        }
    }

    /// Updates the NIC's counters from the decoder's.
    fn count(&mut self, handle: &NicHandle, function: u8) {
        let now = (self.dropped(), self.missing());
        let before = std::mem::replace(&mut self.told, now);
        handle.add(function, counter::KPIO_DROPPED, now.0 - before.0);
        handle.add(function, counter::KPIO_MISSING, now.1 - before.1);
    }

    fn write_report(&mut self, bus: &mut dyn DeviceBus, function: u8, number: u8) {
        self.reported = self.lines.freed();
        let note = Note::new(Kind::KpioReport, self.life, function, number);
        bus.write(request(function, self.report_at, 4, note), &self.reported.to_le_bytes());
    }
}
