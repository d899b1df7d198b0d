//! Packets being read from memory: their data is read and turned into frames as it arrives.

use std::rc::Rc;

use engine::Epoch;
use platform::device::{DeviceBus, DmaError};
use wire::ethernet::HEADER_LEN;
use wire::ip::Cutter;
use wire::nic::descriptor::{
    INLINE, LEN, NETWORK_CHECKSUM, THROUGH_FUNCTION, TRANSPORT_CHECKSUM, TxDescriptor,
};
use wire::nic::registers::{counter, feature};

use super::Packet;
use crate::nic::function::{NicFunction, Sent};
use crate::nic::params::NicParams;
use crate::nic::ports::{PacketMemory, Ports};
use crate::nic::segment::{fill_checksums, finish};
use crate::nic::token::{Kind, Note, request};

/// A part of a packet that is fetched by one read.
#[derive(Clone, Copy)]
struct ReadPart {
    at: u32,
    length: u16,
    /// The function that issues the read.
    through: u8,
    here: bool,
    /// The read has completed, successfully or not.
    ended: bool,
}

/// A packet on its way from memory to the wire.
#[derive(Default)]
struct TxJob {
    function: u8,
    queue: u8,
    life: Epoch,
    head: TxDescriptor,
    descriptors: u16,
    report: bool,
    bytes: Vec<u8>,
    /// None if the job is unused.
    parts: Vec<ReadPart>,
    /// Parts that have arrived without a gap, and their bytes.
    whole_parts: usize,
    whole_bytes: usize,
    /// Reads in flight.
    outstanding: u16,
    failed: bool,
    cutter: Option<Cutter>,
    segments: usize,
    /// Packet memory occupied, in bytes.
    held: u32,
}

/// All packets being read.
pub struct Jobs {
    nic: Rc<NicParams>,
    table: Vec<TxJob>,
    free: Vec<u16>,
    /// Reused so that segmentation does not allocate.
    frame: Vec<u8>,
}

impl Jobs {
    pub fn new(nic: &Rc<NicParams>) -> Self {
        Self { nic: Rc::clone(nic), table: Vec::new(), free: Vec::new(), frame: Vec::new() }
    }

    /// Takes a packet's descriptors and reads its data.
    pub fn begin(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        (function, queue): (u8, u8),
        packet: Packet,
    ) {
        let Packet { entries, bytes, .. } = packet;
        let index = self.free.pop().unwrap_or_else(|| {
            self.table.push(TxJob::default());
            self.table.len() as u16 - 1
        });
        let of = &mut functions[usize::from(function)];
        // Physical functions, which come first, can read for one another.
        let hands = match of.physical {
            None => 0..self.nic.functions.len() as u8,
            Some(_) => 0..0,
        };
        let state = &mut of.tx[usize::from(queue)];
        let job = &mut self.table[usize::from(index)];
        (job.function, job.queue, job.life) = (function, queue, state.ring.life());
        (job.descriptors, job.held) = (entries, bytes);
        (job.whole_parts, job.whole_bytes, job.outstanding, job.segments) = (0, 0, 0, 0);
        (job.report, job.cutter) = (packet.report, None);
        // Stale bytes are never visible: all are overwritten, or the packet fails.
        job.bytes.resize(bytes as usize, 0);
        ports.memory.take(bytes);
        let descriptor = |n| state.ring.peek(n).map(TxDescriptor::parse).unwrap_or_default();
        job.head = descriptor(0);
        let is_cut = job.head.segment > 0;
        let longest = if is_cut { self.nic.tso_max } else { u32::from(self.nic.max_frame) };
        let mut at = 0;
        job.failed = bytes > longest || bytes < HEADER_LEN as u32;
        let mut n = 0;
        while n <= packet.last {
            let fragment = descriptor(n);
            n += 1;
            let through = if fragment.has(THROUGH_FUNCTION) { fragment.function } else { function };
            if fragment.length == 0 || !(through == function || hands.contains(&through)) {
                job.failed = true;
            }
            // Inline data cannot be segmented: packets for TSO have to be read from memory.
            job.failed |= fragment.has(INLINE) && is_cut;
            if job.failed {
                break;
            }
            if fragment.has(INLINE) {
                for piece in job.bytes[at as usize..][..usize::from(fragment.length)].chunks_mut(LEN) {
                    match state.ring.peek(n) {
                        Some(entry) => piece.copy_from_slice(&entry[..piece.len()]),
                        None => piece.fill(0),
                    }
                    n += 1;
                }
                at += u32::from(fragment.length);
                continue;
            }
            let mut done = 0;
            while done < fragment.length {
                let length = (fragment.length - done).min(self.nic.read_chunk.max(64) as u16);
                let note = state.ring.note(Kind::TxData).with(index, job.parts.len() as u16);
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
            self.advance(bus, functions, ports, (function, queue));
        }
    }

    /// A part of a packet arrived. Returns whether the packet still exists.
    pub fn arrived(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) -> bool {
        let Some(job) = self.table.get_mut(usize::from(note.first)) else { return false };
        if (job.function, job.queue) != (note.function, note.queue) || !note.is_of(job.life) {
            // Its queue was stopped in the meantime.
            return false;
        }
        // One that was given up may still be answered.
        let part = job.parts.get_mut(usize::from(note.second)).filter(|part| !part.ended);
        let Some(part) = part else { return false };
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
        self.advance(bus, functions, ports, (note.function, note.queue));
        true
    }

    /// Reads in flight through a function on behalf of others.
    pub fn reads_through(&self, through: u8) -> Vec<Note> {
        let others = |(_, job): &(u16, &TxJob)| job.function != through;
        let reads = (0u16..).zip(&self.table).filter(others).flat_map(|(index, job)| {
            let note = Note::new(Kind::TxData, job.life, job.function, job.queue);
            let parts = (0u16..).zip(&job.parts);
            let under_way = parts.filter(|(_, part)| part.through == through && !part.ended);
            under_way.map(move |(part, _)| note.with(index, part))
        });
        reads.collect()
    }

    /// Sends what is ready of a queue's oldest packets.
    fn advance(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        (function, queue): (u8, u8),
    ) {
        loop {
            let jobs = &functions[usize::from(function)].tx[usize::from(queue)].jobs;
            let Some(&index) = jobs.front() else { return };
            let job = &mut self.table[usize::from(index)];
            if job.head.segment > 0 && !job.failed {
                job.send_segments(bus, functions, ports, &mut self.frame);
            }
            if job.outstanding > 0 {
                return;
            }
            if job.head.segment == 0 && !job.failed {
                job.send_whole(bus, functions, ports);
            } else if job.cutter.is_none() {
                // The headers would be longer than the packet: nothing was segmented.
                job.failed = true;
            }
            let sent = Sent {
                function,
                queue,
                life: job.life,
                descriptors: job.descriptors,
                failed: job.failed,
                report: job.report,
            };
            functions[usize::from(function)].tx[usize::from(queue)].jobs.pop_front();
            self.end(index, &mut ports.memory);
            ports.sent(bus, functions, sent);
        }
    }

    /// Removes a packet that was handed to the ports, failed, or was dropped.
    pub fn end(&mut self, index: u16, memory: &mut PacketMemory) {
        let job = &mut self.table[usize::from(index)];
        job.parts.clear();
        // Memory that was not handed to the wire is freed at once.
        memory.free(std::mem::take(&mut job.held));
        self.free.push(index);
    }
}

impl TxJob {
    /// Sends a packet without segmentation.
    fn send_whole(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], ports: &mut Ports) {
        if functions[usize::from(self.function)].has(feature::TX_CHECKSUM) {
            let (network, transport) = (self.head.has(NETWORK_CHECKSUM), self.head.has(TRANSPORT_CHECKSUM));
            if network || transport {
                fill_checksums(&mut self.bytes, network, transport);
            }
        }
        finish(&mut self.bytes);
        let held = std::mem::take(&mut self.held);
        ports.send(bus, functions, self.function, &self.bytes, held);
    }

    /// Sends the segments whose data has arrived.
    fn send_segments(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        frame: &mut Vec<u8>,
    ) {
        let headers = usize::from(self.head.headers);
        if self.cutter.is_none() && self.whole_bytes >= headers {
            let may = functions[usize::from(self.function)].has(feature::TSO);
            match Cutter::new(&self.bytes[..headers], self.head.segment, self.bytes.len()) {
                Ok(cutter) if may => self.cutter = Some(cutter),
                _ => self.failed = true,
            }
        }
        let Some(cutter) = self.cutter else { return };
        while let Some((begin, end)) = cutter.place(self.segments).filter(|(_, end)| *end <= self.whole_bytes)
        {
            cutter.cut(&self.bytes, &self.bytes[begin..end], self.segments, frame);
            fill_checksums(frame, true, true);
            self.segments += 1;
            // Packet memory is freed as segments leave.
            let is_last = cutter.place(self.segments).is_none();
            let held = if is_last { self.held } else { ((end - begin) as u32).min(self.held) };
            self.held -= held;
            finish(frame);
            functions[usize::from(self.function)].count(counter::TX_SEGMENTS, 1);
            ports.send(bus, functions, self.function, frame, held);
        }
    }
}
