//! Sending: descriptors become jobs, jobs read their data, data becomes frames.
//!
//! The queues take turns, a packet each. A queue's packets leave in the order of its descriptors, whatever
//! the order in which their data arrives.

use std::collections::VecDeque;

use platform::device::{DeviceBus, Dma, DmaAttributes, DmaError, EngineIndex, FunctionIndex};
use units::{Iova, Time};
use wire::ethernet::{FCS_LEN, HEADER_LEN};
use wire::ip::Cutter;
use wire::nic::Completion;
use wire::nic::completion::{END as COMPLETION_END, FAILED, Kind as CompletionKind};
use wire::nic::descriptor::{
    END, INLINE, LEN, NETWORK_CHECKSUM, REPORT, THROUGH_FUNCTION, TRANSPORT_CHECKSUM, TxDescriptor,
    inline_entries,
};
use wire::nic::registers::{counter, event, feature};

use super::inline::InlinePage;
use super::mux::FromDma;
use super::ring::{CompletionMode, Ring};
use super::segment::{fill_checksums, finish};
use super::token::{Kind, Note};
use super::{Nic, READ_ENGINE};

/// A TX queue.
pub struct TxQueue {
    pub ring: Ring,
    /// Packets whose data is on its way, oldest first: places in the jobs' table.
    pub jobs: VecDeque<u16>,
    /// Whether it waits for its turn.
    pub is_listed: bool,
    /// A packet's first descriptors are here, its last are not.
    pub hungry: bool,
    /// What has been written to the queue's page.
    pub page: InlinePage,
}

impl TxQueue {
    pub fn new(cache: u16) -> Self {
        Self {
            ring: Ring::new(cache),
            jobs: VecDeque::new(),
            is_listed: false,
            hungry: false,
            page: InlinePage::default(),
        }
    }
}

/// A packet in a ring: its entries, the last of its descriptors among them, and its bytes.
#[derive(Clone, Copy)]
struct Next {
    entries: u16,
    last: u16,
    bytes: u32,
}

/// A part of a packet that one read brings.
#[derive(Clone, Copy)]
struct Part {
    at: u32,
    length: u16,
    here: bool,
}

/// A packet on its way from memory to the wire.
#[derive(Default)]
pub struct Job {
    function: u8,
    queue: u8,
    life: u16,
    head: TxDescriptor,
    descriptors: u16,
    report: bool,
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// Parts that are here without a gap, and their bytes.
    whole_parts: usize,
    whole_bytes: usize,
    /// Reads that have not ended.
    outstanding: u16,
    failed: bool,
    cutter: Option<Cutter>,
    segments: usize,
    /// Bytes of the device's memory that it holds.
    held: u32,
}

/// A packet that is done with, for the completion of its descriptors.
#[derive(Clone, Copy)]
pub struct Done {
    function: u8,
    queue: u8,
    life: u16,
    descriptors: u16,
    failed: bool,
    report: bool,
}

/// The life of a job that is no more: no queue has it.
const NO_LIFE: u16 = u16::MAX;

/// What the queues share: packet memory, turns.
#[derive(Default)]
pub struct Sender {
    pub jobs: Vec<Job>,
    pub free_jobs: Vec<u16>,
    /// Queues with a packet to send.
    turns: VecDeque<(u8, u8)>,
    /// Bytes of packets in the device.
    held: u32,
    /// Frames that wait for the wire, and when they will have left.
    leaving: VecDeque<(Time, u32)>,
    /// Buffers of frames that have left.
    pub spare: Vec<Vec<u8>>,
    /// When the next packet can be begun.
    free: Time,
    /// When a timer will look again.
    wake: Option<Time>,
}

impl Nic {
    /// The driver wrote a doorbell.
    pub(super) fn doorbell(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, tail: u16) {
        let ring = &mut self.functions[usize::from(function)].tx[usize::from(queue)].ring;
        if !ring.running {
            return;
        }
        if !ring.set_tail(tail) {
            self.queue_error(bus, function, queue, true);
            return;
        }
        if self.params.doorbell_latency.is_zero() {
            self.tx_fetch(bus, function, queue);
        } else {
            let note = Note::new(Kind::Doorbell, ring.life, function, queue);
            bus.wake_at(bus.now() + self.params.doorbell_latency, note.token());
        }
    }

    /// Stops a queue because of what it was given.
    pub(super) fn queue_error(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, is_tx: bool) {
        self.functions[usize::from(function)].ring(queue, is_tx).fail();
        if is_tx {
            self.abandon_jobs(function, queue);
        }
        self.event(bus, function, event::QUEUE_ERROR);
    }

    /// Fetches descriptors of a TX queue if it is time.
    pub(super) fn tx_fetch(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        let batch = self.params.tx.fetch;
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        let life = state.ring.life;
        while let Some((count, address, number)) = state.ring.next_fetch(batch, state.hungry) {
            let note = Note::new(Kind::TxFetch, life, function, queue).with(count, number);
            self.handle.add(function, counter::FETCHES, 1);
            self.handle.add(function, counter::FETCHED, number.into());
            bus.read(read(function, address, u32::from(number) * LEN as u32, note));
        }
    }

    /// Descriptors of a TX queue arrived.
    pub(super) fn tx_fetched(
        &mut self,
        bus: &mut dyn DeviceBus,
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) {
        let state = &mut self.functions[usize::from(note.function)].tx[usize::from(note.queue)];
        if state.ring.life != note.life {
            return;
        }
        match outcome {
            Ok(bytes) => state.ring.store(note.first, bytes),
            Err(_) => {
                self.queue_error(bus, note.function, note.queue, true);
                return;
            }
        }
        state.hungry = false;
        self.list(note.function, note.queue);
        self.pump(bus);
    }

    /// Lets a queue wait for its turn.
    pub(super) fn list(&mut self, function: u8, queue: u8) {
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        if !state.is_listed {
            state.is_listed = true;
            self.sender.turns.push_back((function, queue));
        }
    }

    /// Begins packets while there is room for them.
    pub(super) fn pump(&mut self, bus: &mut dyn DeviceBus) {
        let now = bus.now();
        if self.sender.wake.is_some_and(|at| at <= now) {
            self.sender.wake = None;
        }
        while let Some(&(_, bytes)) = self.sender.leaving.front().filter(|(at, _)| *at <= now) {
            self.sender.held -= bytes;
            self.sender.leaving.pop_front();
        }
        while let Some(&(function, queue)) = self.sender.turns.front() {
            if self.sender.free > now {
                self.wake_sender(bus, self.sender.free);
                return;
            }
            let state = &self.functions[usize::from(function)].tx[usize::from(queue)];
            let Some(next) = self.next_packet(&state.ring) else {
                self.sender.turns.pop_front();
                self.unlist(bus, function, queue);
                continue;
            };
            let has_room = self.sender.held == 0 || self.sender.held + next.bytes <= self.params.tx.memory;
            if !has_room {
                // Either a frame leaves, or data arrives and becomes one that will.
                if let Some(&(at, _)) = self.sender.leaving.front() {
                    self.wake_sender(bus, at);
                }
                return;
            }
            self.sender.turns.rotate_left(1);
            self.sender.free = now + self.params.tx.packet_time;
            self.begin(bus, function, queue, next);
            self.tx_fetch(bus, function, queue);
        }
    }

    fn wake_sender(&mut self, bus: &mut dyn DeviceBus, at: Time) {
        if self.sender.wake.is_none_or(|set| at < set) {
            self.sender.wake = Some(at);
            bus.wake_at(at, Note::new(Kind::TxPump, 0, 0, 0).token());
        }
    }

    /// The next packet, if all of its descriptors are here, or as many as can be.
    fn next_packet(&self, ring: &Ring) -> Option<Next> {
        if !ring.running {
            return None;
        }
        let mut next = Next { entries: 0, last: 0, bytes: 0 };
        for n in 1.. {
            next.last = next.entries;
            let descriptor = TxDescriptor::parse(ring.peek(next.last)?);
            next.bytes += u32::from(descriptor.length);
            next.entries += 1;
            if descriptor.has(INLINE) {
                next.entries = next.entries.saturating_add(inline_entries(descriptor.length));
                ring.peek(next.entries - 1)?;
            }
            // A packet without an end is refused as a whole.
            if descriptor.has(END) || n >= u16::from(self.params.max_fragments) {
                return Some(next);
            }
        }
        None
    }

    /// A queue has no whole packet.
    fn unlist(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        state.is_listed = false;
        if !state.ring.running {
            return;
        }
        // The end of a packet must be fetched however few descriptors that takes.
        state.hungry = state.ring.peek(0).is_some();
        if state.hungry && state.ring.is_cache_full() {
            self.queue_error(bus, function, queue, true);
        } else {
            self.tx_fetch(bus, function, queue);
        }
    }

    /// Takes a packet's descriptors and reads its data.
    fn begin(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, next: Next) {
        let Next { entries, bytes, .. } = next;
        let ring = &self.functions[usize::from(function)].tx[usize::from(queue)].ring;
        let last = ring.peek(next.last).map(TxDescriptor::parse).unwrap_or_default();
        if !last.has(END) {
            // More fragments than a packet may have: where the next one begins is anybody's guess.
            self.queue_error(bus, function, queue, true);
            return;
        }
        let index = self.sender.free_jobs.pop().unwrap_or_else(|| {
            self.sender.jobs.push(Job::default());
            self.sender.jobs.len() as u16 - 1
        });
        // Physical functions, which come first, are one another's hands.
        let hands = match self.functions[usize::from(function)].physical {
            None => 0..self.params.functions.len() as u8,
            Some(_) => 0..0,
        };
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        let job = &mut self.sender.jobs[usize::from(index)];
        (job.function, job.queue, job.life) = (function, queue, state.ring.life);
        (job.descriptors, job.held) = (entries, bytes);
        (job.whole_parts, job.whole_bytes, job.outstanding, job.segments) = (0, 0, 0, 0);
        (job.failed, job.report, job.cutter) = (false, false, None);
        job.parts.clear();
        job.bytes.clear();
        job.bytes.resize(bytes as usize, 0);
        self.sender.held += bytes;
        let descriptor = |n| state.ring.peek(n).map(TxDescriptor::parse).unwrap_or_default();
        job.head = descriptor(0);
        job.report = last.has(REPORT);
        let is_cut = job.head.segment > 0;
        let longest = if is_cut { self.params.tso_max } else { u32::from(self.params.max_frame) };
        let mut at = 0;
        job.failed = bytes > longest || bytes < HEADER_LEN as u32;
        let mut n = 0;
        while n <= next.last {
            let fragment = descriptor(n);
            n += 1;
            let through = if fragment.has(THROUGH_FUNCTION) { fragment.function } else { function };
            if fragment.length == 0 || !(through == function || hands.contains(&through)) {
                job.failed = true;
            }
            // What is cut is read.
            job.failed |= fragment.has(INLINE) && is_cut;
            if job.failed {
                break;
            }
            if fragment.has(INLINE) {
                for piece in job.bytes[at as usize..][..usize::from(fragment.length)].chunks_mut(LEN) {
                    if let Some(entry) = state.ring.peek(n) {
                        piece.copy_from_slice(&entry[..piece.len()]);
                    }
                    n += 1;
                }
                at += u32::from(fragment.length);
                continue;
            }
            let mut done = 0;
            while done < fragment.length {
                let length = (fragment.length - done).min(self.params.read_chunk.max(64) as u16);
                let note = Note::new(Kind::TxData, state.ring.life, function, queue)
                    .with(index, job.parts.len() as u16);
                job.parts.push(Part { at, length, here: false });
                job.outstanding += 1;
                let address = fragment.address.wrapping_add(done.into());
                bus.read(read(through, address, length.into(), note));
                at += u32::from(length);
                done += length;
            }
        }
        state.ring.consume(entries);
        state.jobs.push_back(index);
        if job.outstanding == 0 {
            self.advance(bus, function, queue);
        }
    }

    /// A part of a packet arrived.
    pub(super) fn tx_data(&mut self, bus: &mut dyn DeviceBus, note: Note, outcome: Result<&[u8], DmaError>) {
        let Some(job) = self.sender.jobs.get_mut(usize::from(note.first)) else { return };
        if (job.function, job.queue, job.life) != (note.function, note.queue, note.life) {
            // Its queue was stopped meanwhile.
            return;
        }
        let Some(part) = job.parts.get_mut(usize::from(note.second)) else { return };
        job.outstanding -= 1;
        match outcome {
            Ok(bytes) if bytes.len() == usize::from(part.length) => {
                job.bytes[part.at as usize..][..bytes.len()].copy_from_slice(bytes);
                part.here = true;
            }
            _ => job.failed = true,
        }
        while let Some(part) = job.parts.get(job.whole_parts).filter(|part| part.here) {
            job.whole_bytes += usize::from(part.length);
            job.whole_parts += 1;
        }
        self.advance(bus, note.function, note.queue);
        self.pump(bus);
    }

    /// Sends what can be sent of a queue's oldest packets.
    fn advance(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        loop {
            let state = &self.functions[usize::from(function)].tx[usize::from(queue)];
            let Some(&index) = state.jobs.front() else { return };
            let job = &mut self.sender.jobs[usize::from(index)];
            if job.head.segment > 0 && !job.failed {
                self.send_segments(bus, index);
            }
            let job = &mut self.sender.jobs[usize::from(index)];
            if job.outstanding > 0 {
                return;
            }
            if job.head.segment == 0 && !job.failed {
                self.send_whole(bus, index);
            } else if job.cutter.is_none() {
                // Its headers would be longer than all of it: nothing was cut.
                job.failed = true;
            }
            self.functions[usize::from(function)].tx[usize::from(queue)].jobs.pop_front();
            self.finish_job(bus, index);
        }
    }

    fn send_whole(&mut self, bus: &mut dyn DeviceBus, index: u16) {
        let job = &mut self.sender.jobs[usize::from(index)];
        let function = job.function;
        let mut bytes = std::mem::take(&mut job.bytes);
        let held = std::mem::take(&mut job.held);
        if self.functions[usize::from(function)].has(feature::TX_CHECKSUM) {
            let (network, transport) = (job.head.has(NETWORK_CHECKSUM), job.head.has(TRANSPORT_CHECKSUM));
            if network || transport {
                fill_checksums(&mut bytes, network, transport);
            }
        }
        finish(&mut bytes);
        self.emit(bus, function, &bytes, held);
        self.sender.jobs[usize::from(index)].bytes = bytes;
    }

    /// Sends the segments of a packet whose data is here.
    fn send_segments(&mut self, bus: &mut dyn DeviceBus, index: u16) {
        let job = &mut self.sender.jobs[usize::from(index)];
        let function = job.function;
        let headers = usize::from(job.head.headers);
        if job.cutter.is_none() && job.whole_bytes >= headers {
            let may = self.functions[usize::from(function)].has(feature::TSO);
            match Cutter::new(&job.bytes[..headers], job.head.segment, job.bytes.len()) {
                Ok(cutter) if may => job.cutter = Some(cutter),
                _ => job.failed = true,
            }
        }
        let Some(cutter) = job.cutter else { return };
        let mut frame = std::mem::take(&mut self.frame);
        loop {
            let job = &mut self.sender.jobs[usize::from(index)];
            let Some((begin, end)) = cutter.place(job.segments).filter(|(_, end)| *end <= job.whole_bytes)
            else {
                break;
            };
            cutter.cut(&job.bytes, &job.bytes[begin..end], job.segments, &mut frame);
            fill_checksums(&mut frame, true, true);
            job.segments += 1;
            // The packet's memory is given back as its data leaves.
            let is_last = cutter.place(job.segments).is_none();
            let held = if is_last { job.held } else { ((end - begin) as u32).min(job.held) };
            job.held -= held;
            finish(&mut frame);
            self.handle.add(function, counter::TX_SEGMENTS, 1);
            self.emit(bus, function, &frame, held);
        }
        self.frame = frame;
    }

    /// A frame is whole: it goes to the wire, at once or in its turn.
    fn emit(&mut self, bus: &mut dyn DeviceBus, function: u8, frame: &[u8], held: u32) {
        let port = self.functions[usize::from(function)].port();
        if self.is_muxed(port) {
            let mut bytes = self.sender.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame);
            self.mux_dma(bus, port, FromDma::Frame { function, bytes, held });
        } else {
            let now = bus.now();
            self.hand_on(bus, function, frame, now, held);
        }
    }

    /// Hands a frame, not before `ready`, to the wire, or to another function behind the same port. Gives when it will
    /// have left by the wire.
    pub(super) fn hand_on(
        &mut self,
        bus: &mut dyn DeviceBus,
        function: u8,
        frame: &[u8],
        ready: Time,
        held: u32,
    ) -> Option<Time> {
        let length = frame.len() - FCS_LEN;
        let port = self.functions[usize::from(function)].port();
        if self.is_spoofed(function, frame) {
            self.sender.held -= held;
            self.handle.add(function, counter::TX_SPOOFED, 1);
            return None;
        }
        if self.functions.len() > 1 && !self.send_inside(bus, function, frame) {
            self.sender.held -= held;
            self.handle.add(function, counter::TX_FRAMES, 1);
            self.handle.add(function, counter::TX_BYTES, length as u64);
            return None;
        }
        let ready = ready.max(bus.now() + self.params.tx.latency);
        let left = match self.params.loopback {
            Some(latency) => Some(self.send_around(bus, port, ready, latency, frame)),
            None => bus.ethernet().and_then(|ethernet| ethernet.send(port, ready, frame)),
        };
        match left {
            Some(left) => {
                self.handle.add(function, counter::TX_FRAMES, 1);
                self.handle.add(function, counter::TX_BYTES, length as u64);
                self.sender.leaving.push_back((left, held));
            }
            None => {
                self.sender.held -= held;
                self.handle.add(function, counter::TX_NO_CARRIER, 1);
            }
        }
        left
    }

    /// A packet has been handed to the wire, or has failed: its descriptors are done, in its turn.
    fn finish_job(&mut self, bus: &mut dyn DeviceBus, index: u16) {
        let job = &self.sender.jobs[usize::from(index)];
        let done = Done {
            function: job.function,
            queue: job.queue,
            life: job.life,
            descriptors: job.descriptors,
            failed: job.failed,
            report: job.report,
        };
        self.end(index);
        let port = self.functions[usize::from(done.function)].port();
        if self.is_muxed(port) {
            self.mux_dma(bus, port, FromDma::Done(done));
        } else {
            self.report_done(bus, done);
        }
    }

    /// Tells the driver of a packet's descriptors.
    pub(super) fn report_done(&mut self, bus: &mut dyn DeviceBus, done: Done) {
        let Done { function, queue, life, descriptors, failed, report } = done;
        let ring = &mut self.functions[usize::from(function)].tx[usize::from(queue)].ring;
        if ring.life != life {
            return;
        }
        if failed {
            ring.dropped += 1;
            self.handle.add(function, counter::TX_ERRORS, 1);
        }
        let mode = ring.setup.mode();
        let flags = if failed { FAILED } else { 0 };
        for n in 1..=descriptors {
            let ring = &mut self.functions[usize::from(function)].tx[usize::from(queue)].ring;
            ring.done = ring.done.wrapping_add(1);
            let is_last = n == descriptors;
            let is_told = match mode {
                CompletionMode::InPlace => true,
                CompletionMode::Ring => is_last && (report || failed),
                CompletionMode::Word | CompletionMode::Register => is_last,
            };
            if is_told {
                let flags = if is_last { flags | COMPLETION_END } else { flags };
                let completion = Completion {
                    count: ring.done,
                    flags,
                    kind: CompletionKind::Sent,
                    ..Completion::default()
                };
                self.complete(bus, function, queue, true, completion, is_last.into());
            }
        }
    }

    fn end(&mut self, index: u16) {
        let job = &mut self.sender.jobs[usize::from(index)];
        job.life = NO_LIFE;
        // What was not handed to the wire is free at once.
        self.sender.held -= std::mem::take(&mut job.held);
        self.sender.free_jobs.push(index);
    }

    /// Forgets a queue's packets; what their reads bring is ignored.
    pub(super) fn abandon_jobs(&mut self, function: u8, queue: u8) {
        let state = &mut self.functions[usize::from(function)].tx[usize::from(queue)];
        state.hungry = false;
        state.page = InlinePage::default();
        while let Some(index) = self.functions[usize::from(function)].tx[usize::from(queue)].jobs.pop_front()
        {
            self.end(index);
        }
    }

    /// Forgets everything under way: after a reset, no read comes back.
    pub(super) fn forget_sending(&mut self) {
        self.sender = Sender::default();
        for state in self.functions.iter_mut().flat_map(|f| &mut f.tx) {
            state.jobs.clear();
            (state.is_listed, state.hungry) = (false, false);
        }
    }
}

pub(super) fn read(function: u8, address: u64, length: u32, note: Note) -> Dma {
    Dma {
        function: FunctionIndex(function),
        address: Iova::new(address),
        length,
        engine: if note.kind == Kind::TxData { READ_ENGINE } else { EngineIndex(0) },
        local: 0,
        token: note.token(),
        attributes: DmaAttributes::default(),
    }
}
