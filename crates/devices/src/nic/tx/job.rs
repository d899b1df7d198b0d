//! Packets on their way from memory: what their descriptors speak of is read, and becomes frames once it is here.

use platform::device::{DeviceBus, DmaError};
use wire::ethernet::HEADER_LEN;
use wire::ip::Cutter;
use wire::nic::descriptor::{
    END, INLINE, LEN, NETWORK_CHECKSUM, REPORT, THROUGH_FUNCTION, TRANSPORT_CHECKSUM, TxDescriptor,
};
use wire::nic::registers::{counter, feature};

use super::{Done, Next};
use crate::nic::Nic;
use crate::nic::mux::FromDma;
use crate::nic::segment::{fill_checksums, finish};
use crate::nic::token::{Kind, Note, request};

/// A part of a packet that one read brings.
#[derive(Clone, Copy)]
struct ReadPart {
    at: u32,
    length: u16,
    /// The function that reads it.
    through: u8,
    here: bool,
    /// Its read has ended, well or not.
    ended: bool,
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
    parts: Vec<ReadPart>,
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

/// The life of a job that is no more: no queue has it.
const NO_LIFE: u16 = u16::MAX;

impl Nic {
    /// Takes a packet's descriptors and reads its data.
    pub(super) fn begin(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8, next: Next) {
        let Next { entries, bytes, .. } = next;
        let ring = &self.functions[usize::from(function)].tx[usize::from(queue)].ring;
        let last = ring.peek(next.last).map(TxDescriptor::parse).unwrap_or_default();
        if !last.has(END) {
            // More fragments than a packet may have: where the next one begins is anybody's guess.
            self.queue_error(bus, function, queue);
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
                job.parts.push(ReadPart { at, length, through, here: false, ended: false });
                job.outstanding += 1;
                let address = fragment.address.wrapping_add(done.into());
                bus.read(request(through, address, length.into(), note));
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
    pub(in crate::nic) fn tx_data(
        &mut self,
        bus: &mut dyn DeviceBus,
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) {
        let Some(job) = self.sender.jobs.get_mut(usize::from(note.first)) else { return };
        if (job.function, job.queue, job.life) != (note.function, note.queue, note.life) {
            // Its queue was stopped meanwhile.
            return;
        }
        let Some(part) = job.parts.get_mut(usize::from(note.second)) else { return };
        job.outstanding -= 1;
        part.ended = true;
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

    /// A function was reset, and nothing is heard of its reads: packets of others that were read through it fail.
    pub(in crate::nic) fn lose_reads(&mut self, bus: &mut dyn DeviceBus, through: u8) {
        let lost: Vec<Note> = (0u16..)
            .zip(&self.sender.jobs)
            .filter(|(_, job)| job.life != NO_LIFE && job.function != through)
            .flat_map(|(index, job)| {
                let note = Note::new(Kind::TxData, job.life, job.function, job.queue);
                let parts =
                    (0u16..).zip(&job.parts).filter(|(_, part)| part.through == through && !part.ended);
                parts.map(move |(part, _)| note.with(index, part)).collect::<Vec<_>>()
            })
            .collect();
        lost.into_iter().for_each(|note| self.tx_data(bus, note, Err(DmaError::NotAllowed)));
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

    pub(super) fn end(&mut self, index: u16) {
        let job = &mut self.sender.jobs[usize::from(index)];
        job.life = NO_LIFE;
        // What was not handed to the wire is free at once.
        self.sender.held -= std::mem::take(&mut job.held);
        self.sender.free_jobs.push(index);
    }
}
