//! The requester side of a device's PCIe core: tags, splitting, reassembly, engines.

use std::collections::VecDeque;

use engine::Scheduler;
use platform::device::{Dma, DmaAttributes, DmaError, FunctionIndex, Token};
use units::{Duration, Time};
use wire::pcie::split::{split_aligned, split_read};
use wire::pcie::tlp::{AddressType, Common, CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::mover::{Bus, Direction, Drain, Memory, Transmit};
use super::params::{EndpointParams, EngineParams};
use super::{EndpointEvent, EndpointId};
use crate::detected::Detected;
use crate::event::Event;
use crate::link::LinkEnd;
use crate::packet::PacketId;
use crate::wires::Wires;

/// A DMA read of the device, from its request to its outcome.
#[derive(Default)]
struct Read {
    dma: Option<Dma>,
    end: Option<LinkEnd>,
    requester: Bdf,
    data: Vec<u8>,
    /// When its engine can send the first request.
    ready: Time,
    /// What has not been asked for yet.
    next: u64,
    left: u32,
    /// Requests whose data has not all come.
    outstanding: u32,
    /// When what has come is in the device's memory.
    in_place: Time,
    pieces: u32,
    completions: u32,
    failed: Option<DmaError>,
    /// Its function was reset since: the device is not told.
    forgotten: bool,
}

/// A function between two resets of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The function.
    pub function: FunctionIndex,
    number: u16,
}

impl Read {
    /// Works out when the bytes of a completion that began to arrive at `begin` are in the device's memory, `offset`
    /// bytes from the beginning of the read's data.
    fn place(
        &mut self,
        engine: &EngineParams,
        now: Time,
        begin: Time,
        offset: u64,
        bytes: u64,
        ps_per_byte: f64,
    ) {
        let Some(memory) = &engine.memory else {
            // One completion is handed over after the other.
            let mut time = Duration::from_ps(bytes * u64::from(engine.hand_over_ps_per_byte));
            if self.completions > 0 {
                time += engine.hand_over_per_completion;
            }
            self.completions += 1;
            self.in_place = self.in_place.max(now) + time;
            return;
        };
        let out = &memory.write_out;
        let chunk = u64::from(memory.chunk);
        let byte_time = |bytes: u64| Duration::from_ps((bytes as f64 * ps_per_byte) as u64);
        let mut arrived = begin + byte_time(COMPLETION_OVERHEAD);
        self.completions += 1;
        let (mut left, mut first_of_completion) = (bytes, true);
        while left > 0 {
            let piece = left.min(chunk);
            left -= piece;
            arrived = if left == 0 { now } else { arrived + byte_time(piece) };
            let mut time = Duration::from_ps(
                piece.max(if self.pieces == 0 { 64 } else { 0 }) * u64::from(out.ps_per_byte),
            );
            if self.pieces == 0 {
                // The first piece waits for a whole line's worth, less what it can tell is missing.
                let missing = 64u64.saturating_sub(piece) * u64::from(out.first_ps_per_byte);
                time = time.saturating_sub(Duration::from_ps(missing));
            } else if first_of_completion {
                // The first chunk is taken up again; data for later ones is gathered behind it.
                time += if offset < chunk { out.within_chunk } else { out.per_completion };
            }
            self.in_place = self.in_place.max(arrived) + time;
            self.pieces += 1;
            first_of_completion = false;
        }
    }
}

/// A DMA write that waits for its engine.
struct Write {
    dma: Dma,
    end: LinkEnd,
    requester: Bdf,
    data: Vec<u8>,
    ready: Time,
}

/// A non-posted request on its way.
#[derive(Clone, Copy, Default)]
struct Outstanding {
    /// Which read it belongs to; `None` if the tag is free.
    read: Option<u32>,
    /// Place in the read's data at which the request's bytes begin.
    offset: u32,
    /// Bytes that the request asked for.
    length: u32,
    /// Bytes that have not come yet.
    left: u32,
    /// Largest completion so far, in bytes.
    largest: u32,
    deadline: Time,
}

/// How a read ended, as the device will be told.
pub struct Finished {
    read: u32,
    epoch: u16,
    /// The device's own number.
    pub token: Token,
    /// The data, to be given back with [`Requester::recycle`].
    pub data: Vec<u8>,
    /// Why there is none.
    pub failed: Option<DmaError>,
}

/// Counts of the requester side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Bytes read, as asked for by the device.
    pub bytes_read: u64,
    /// Bytes written, as asked for by the device.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Write requests sent.
    pub write_requests: u64,
    /// Completions received that answered a request.
    pub completions: u64,
    /// Completions received that answered none.
    pub unexpected_completions: u64,
    /// Requests that no completion answered in time.
    pub timeouts: u64,
    /// Completions with a status other than success.
    pub failed_completions: u64,
    /// Completions whose payload was marked as damaged.
    pub poisoned_completions: u64,
    /// Largest number of tags in use at once.
    pub most_tags: u16,
    /// Time during which a read waited for a tag.
    pub waited_for_tags: Duration,
}

/// The requester side of one device.
pub struct Requester {
    id: EndpointId,
    params: EndpointParams,
    reads: Vec<Read>,
    free_reads: Vec<u32>,
    /// Reads that still have something to ask for, oldest first.
    to_issue: VecDeque<u32>,
    tags: Vec<Outstanding>,
    free_tags: VecDeque<u16>,
    /// Bytes that outstanding requests have asked for.
    buffered: u32,
    /// When the next read request can be sent.
    next_issue: Time,
    /// When the core will look again whether a read can go on.
    issue_wake: Option<Time>,
    to_write: VecDeque<Write>,
    writes_in_hand: u16,
    write_wake: Option<Time>,
    spare_buffers: Vec<Vec<u8>>,
    drain: Drain,
    bus: Bus,
    memory: Memory,
    path: Transmit,
    /// When the last posted request begins to leave: others follow it.
    last_posted: Time,
    /// Payload size that the host allows, in bytes.
    pub max_payload: u32,
    /// Largest read request that the host allows, in bytes.
    pub max_read_request: u32,
    timeout_armed: bool,
    starved_since: Option<Time>,
    counters: RequesterCounters,
    /// What was wrong with the last completion, and whose request it answered: for the core to report.
    pub(super) detected: Option<(FunctionIndex, Detected)>,
    /// Counts resets: events of before the last one mean nothing any more.
    epoch: u16,
    /// Counts each function's own resets.
    lives: Vec<u16>,
}

/// Smallest payload and read request sizes, in force after a reset (PCIe base specification, Device Control register).
const RESET_MAX_PAYLOAD: u32 = 128;
const RESET_MAX_READ_REQUEST: u32 = 512;

impl Requester {
    /// An idle requester with all tags free.
    pub fn new(id: EndpointId, params: EndpointParams) -> Self {
        Self {
            id,
            reads: Vec::new(),
            free_reads: Vec::new(),
            to_issue: VecDeque::new(),
            tags: vec![Outstanding::default(); usize::from(params.tags)],
            free_tags: (0..params.tags).collect(),
            buffered: 0,
            next_issue: Time::ZERO,
            issue_wake: None,
            to_write: VecDeque::new(),
            writes_in_hand: 0,
            write_wake: None,
            spare_buffers: Vec::new(),
            drain: Drain::new(params.drain),
            bus: Bus::new(params.bus),
            memory: Memory::default(),
            path: Transmit::new(params.transmit),
            last_posted: Time::ZERO,
            max_payload: RESET_MAX_PAYLOAD,
            max_read_request: RESET_MAX_READ_REQUEST,
            timeout_armed: false,
            starved_since: None,
            counters: RequesterCounters::default(),
            detected: None,
            epoch: 0,
            lives: Vec::new(),
            params,
        }
    }

    /// Number of the current life of the device, since its last reset.
    pub fn epoch(&self) -> u16 {
        self.epoch
    }

    /// What it has done so far.
    pub fn counters(&self) -> &RequesterCounters {
        &self.counters
    }

    /// Tags in use.
    pub fn tags_in_use(&self) -> u16 {
        self.params.tags - self.free_tags.len() as u16
    }

    fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.id, event)
    }

    fn allocate_read(&mut self) -> u32 {
        self.free_reads.pop().unwrap_or_else(|| {
            self.reads.push(Read::default());
            self.reads.len() as u32 - 1
        })
    }

    /// Begins a DMA read from `end` in the name of `requester`.
    pub fn read(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        requester: Bdf,
        dma: Dma,
    ) {
        // A read never leaves before the writes that were sent before it.
        let ready = (scheduler.now() + self.params.engine(dma.engine).start_latency).max(self.last_posted);
        let index = self.allocate_read();
        let read = &mut self.reads[index as usize];
        let mut data = std::mem::take(&mut read.data);
        // What an earlier read left there is seen by nobody: all of it is overwritten, or the read fails.
        data.resize(dma.length as usize, 0);
        *read = Read {
            dma: Some(dma),
            end: Some(end),
            requester,
            data,
            ready,
            next: dma.address.get(),
            left: dma.length,
            ..Read::default()
        };
        self.counters.bytes_read += u64::from(dma.length);
        self.to_issue.push_back(index);
        // One that finds others before it waits for what they wait for.
        if self.to_issue.len() == 1 {
            self.issue_reads(wires, scheduler);
        }
    }

    /// Tells the device that a read came to nothing, without a TLP.
    pub fn refuse_read(&mut self, scheduler: &mut Scheduler<Event>, dma: Dma) {
        let index = self.allocate_read();
        let data = std::mem::take(&mut self.reads[index as usize].data);
        let failed = Some(DmaError::NotAllowed);
        self.reads[index as usize] = Read { dma: Some(dma), data, failed, ..Read::default() };
        let event = self.event(EndpointEvent::ReadDone { read: index, epoch: self.epoch });
        scheduler.at(scheduler.now(), event);
    }

    /// Sends read requests while there are tags.
    pub fn issue_reads(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        let largest = self.max_read_request.min(self.params.max_read_request);
        if self.issue_wake.is_some_and(|at| at <= now) {
            self.issue_wake = None;
        }
        while let Some(&index) = self.to_issue.front() {
            let due = self.reads[index as usize].ready.max(self.next_issue);
            if due > now {
                if self.free_tags.is_empty() {
                    // The tag that comes free first is the event that is waited for.
                    self.starved_since.get_or_insert(due);
                } else if self.issue_wake.is_none_or(|at| at > due) {
                    self.issue_wake = Some(due);
                    scheduler.at(due, self.event(EndpointEvent::IssueReads { epoch: self.epoch }));
                }
                break;
            }
            let next = self.reads[index as usize].left.min(largest);
            let has_room = self.buffered == 0 || self.buffered + next <= self.params.read_buffer;
            let Some(tag) = has_room.then(|| self.free_tags.pop_front()).flatten() else {
                self.starved_since.get_or_insert(now);
                break;
            };
            if let Some(since) = self.starved_since.take() {
                self.counters.waited_for_tags += now.since(since);
            }
            self.next_issue = now + self.params.issue_interval;
            let read = &mut self.reads[index as usize];
            let dma = read.dma.expect("a read that is issued has been asked for");
            // A read of nothing is a request with all byte enables clear (a flush of what was written before).
            let (address, length) =
                split_read(read.next, u64::from(read.left), largest).next().unwrap_or((read.next, 0));
            let request = MemoryRequest::for_bytes(read.requester, tag, address, length);
            let tlp = Tlp { common: common(dma.attributes), kind: TlpKind::MemoryRead(request) };
            self.tags[usize::from(tag)] = Outstanding {
                read: Some(index),
                offset: dma.length - read.left,
                length,
                left: length,
                largest: 0,
                deadline: now + self.params.completion_timeout,
            };
            read.next = address + u64::from(length);
            read.left -= length;
            read.outstanding += 1;
            self.buffered += length;
            let end = read.end.expect("a read that is issued has a port");
            if read.left == 0 {
                self.to_issue.pop_front();
            }
            self.counters.read_requests += 1;
            self.counters.most_tags = self.counters.most_tags.max(self.tags_in_use());
            let packet = wires.packets.encode(&tlp, &[]);
            wires.send(scheduler, end, packet);
        }
        if !self.timeout_armed && self.tags_in_use() > 0 {
            self.timeout_armed = true;
            let event = self.event(EndpointEvent::CheckTimeouts { epoch: self.epoch });
            scheduler.after(self.params.completion_timeout, event);
        }
    }

    /// Writes `data` through `end` in the name of `requester`.
    pub fn write(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        requester: Bdf,
        dma: Dma,
        data: &[u8],
    ) {
        debug_assert_eq!(data.len(), dma.length as usize);
        let mut buffer = self.spare_buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        self.counters.bytes_written += data.len() as u64;
        let ready = scheduler.now() + self.params.engine(dma.engine).start_latency;
        self.to_write.push_back(Write { dma, end, requester, data: buffer, ready });
        self.start_writes(wires, scheduler);
    }

    /// Lets the engines take the next writes in hand.
    pub fn start_writes(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>) {
        let now = scheduler.now();
        if self.write_wake.is_some_and(|at| at <= now) {
            self.write_wake = None;
        }
        while self.writes_in_hand < self.params.writes_in_hand.max(1) {
            let Some(write) = self.to_write.front() else { return };
            // What the link cannot take yet stays here; the link asks for more when it has sent what waits.
            if wires.link(write.end.link).waiting(write.end.side) > 0 {
                return;
            }
            if write.ready > now {
                if self.write_wake.is_none_or(|at| at > write.ready) {
                    self.write_wake = Some(write.ready);
                    scheduler.at(write.ready, self.event(EndpointEvent::StartWrites { epoch: self.epoch }));
                }
                return;
            }
            let Some(write) = self.to_write.pop_front() else { return };
            self.start_write(wires, scheduler, write);
        }
    }

    /// Fetches a write's data and sends its TLPs as the stages on the way get to them.
    fn start_write(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, write: Write) {
        let now = scheduler.now();
        let engine = self.params.engine(write.dma.engine);
        let (write_done, start_latency) = (engine.write_done, engine.start_latency);
        let length = write.data.len() as u64;
        let fetched = match &engine.memory {
            Some(memory) => {
                self.drain.give_way(now, length);
                let passed = self.bus.pass(now, Direction::Out, length);
                passed.max(self.memory.read(now, memory, write.dma.local, length))
            }
            None => now,
        };
        if fetched > now {
            self.writes_in_hand += 1;
            scheduler.at(fetched, self.event(EndpointEvent::WriteFetched { epoch: self.epoch }));
        }
        let mut gone = fetched;
        let mut done = 0usize;
        for (address, piece) in split_aligned(write.dma.address.get(), length, self.max_payload) {
            let request = MemoryRequest::for_bytes(write.requester, 0, address, piece);
            let tlp = Tlp { common: common(write.dma.attributes), kind: TlpKind::MemoryWrite(request) };
            let lead = (address & 3) as usize;
            let bytes = &write.data[done..done + piece as usize];
            let packet = wires.packets.encode_with(&tlp, |payload| {
                payload[lead..lead + bytes.len()].copy_from_slice(bytes);
            });
            let is_long = tlp.header_len() == 16;
            let (first, last) = (done == 0, done + piece as usize == write.data.len());
            done += piece as usize;
            let (start, free) = self.path.send(
                fetched,
                is_long,
                tlp.payload_len() as u64,
                self.max_payload.into(),
                first,
                last,
            );
            gone = free;
            self.counters.write_requests += 1;
            self.send_posted(wires, scheduler, write.end, packet, start);
        }
        // Counted from the request's reaching the engine: what the engine's start took has passed already.
        let stages = write_done.map(|stage| stage.time_for(length).saturating_sub(start_latency));
        let known = stages.into_iter().fold(gone, |at, stage| at.max(now + stage));
        let event = EndpointEvent::WriteDone {
            token: write.dma.token,
            epoch: self.epoch,
            life: self.life(write.dma.function),
        };
        scheduler.at(known, self.event(event));
        self.spare_buffers.push(write.data);
    }

    /// The data of a write has been fetched: its engine is free for the next.
    pub fn write_fetched(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>) {
        self.writes_in_hand -= 1;
        self.start_writes(wires, scheduler);
    }

    /// Sends an interrupt message after the writes that are done.
    pub fn send_message(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        requester: Bdf,
        address: u64,
        data: u32,
    ) {
        let request = MemoryRequest::for_bytes(requester, 0, address, 4);
        let packet = wires.packets.encode(&Tlp::new(TlpKind::MemoryWrite(request)), &data.to_le_bytes());
        let now = scheduler.now();
        // Writes that no engine has in hand yet have not been acknowledged to the device either.
        let (start, _) = self.path.send(now, address >> 32 != 0, 4, 4, true, true);
        self.send_posted(wires, scheduler, end, packet, start);
    }

    /// Hands a posted TLP to the link at `at`, behind those before it.
    fn send_posted(
        &mut self,
        wires: &mut Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        packet: PacketId,
        at: Time,
    ) {
        let at = at.max(self.last_posted);
        self.last_posted = at;
        if at == scheduler.now() {
            wires.send(scheduler, end, packet);
        } else {
            scheduler.at(at, self.event(EndpointEvent::Transmit { end, packet, epoch: self.epoch }));
        }
    }

    /// Takes a completion with its payload, around which its sender left `padding` bytes empty. Returns when it has left the receive buffer.
    #[allow(clippy::too_many_arguments)]
    pub fn completion(
        &mut self,
        wires: &Wires,
        scheduler: &mut Scheduler<Event>,
        end: LinkEnd,
        header: &CompletionHeader,
        poisoned: bool,
        padding: u16,
        payload: &[u8],
    ) -> Time {
        let now = scheduler.now();
        let tag = usize::from(header.tag);
        let entry = self.tags.get(tag).copied().unwrap_or_default();
        let (Some(index), true) = (entry.read, entry.left > 0 || entry.length == 0) else {
            self.counters.unexpected_completions += 1;
            self.detected = Some((FunctionIndex(0), Detected::UnexpectedCompletion));
            return now;
        };
        let read = &mut self.reads[index as usize];
        let dma = read.dma.expect("a read with a tag has been asked for");
        self.counters.completions += 1;
        let mut here = 0;
        if header.status != CompletionStatus::Successful {
            self.counters.failed_completions += 1;
            read.failed = Some(match header.status {
                CompletionStatus::CompleterAbort => DmaError::CompleterAbort,
                _ => DmaError::UnsupportedRequest,
            });
            // An error ends the request, whatever part of it has been answered.
            self.tags[tag].left = 0;
        } else {
            let lead = usize::from(header.lower_address & 3);
            here = header.bytes_here().min(entry.left);
            let place = (entry.offset + entry.length - entry.left) as usize;
            match (poisoned, payload.get(lead..lead + here as usize)) {
                (false, Some(bytes)) => read.data[place..place + bytes.len()].copy_from_slice(bytes),
                _ => {
                    self.counters.poisoned_completions += 1;
                    self.detected = Some((dma.function, Detected::Poisoned));
                    read.failed = Some(DmaError::Poisoned);
                }
            }
            self.tags[tag].left -= here;
        }
        let entry = &mut self.tags[tag];
        let first = entry.largest == 0;
        entry.largest = entry.largest.max(here.max(1));
        let (last, entry) = (entry.left == 0, *entry);
        let link = wires.link(end.link);
        let wire_bytes = link.framing_bytes() + 12 + u64::from(header.length_dw) * 4 + u64::from(padding);
        let out = self.drain.take(now, wire_bytes, first);
        let engine = self.params.engine(dma.engine);
        let drained = match engine.memory {
            Some(_) => self.bus.pass(now, Direction::In, u64::from(here)).max(out),
            None => out,
        };
        let arrived = now - link.wire_time(end.side.opposite(), wire_bytes);
        let ps_per_byte = link.wire_time_per_byte_ps();
        let offset = u64::from(entry.offset + entry.length - entry.left - here);
        self.reads[index as usize].place(engine, now, arrived, offset, u64::from(here), ps_per_byte);
        if last {
            self.request_answered(scheduler, header.tag, entry, index, drained);
        }
        drained
    }

    /// All completions of a request have come.
    fn request_answered(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        tag: u16,
        entry: Outstanding,
        index: u32,
        drained: Time,
    ) {
        let read = &mut self.reads[index as usize];
        let dma = read.dma.as_ref().expect("a read with a tag has been asked for");
        let engine = self.params.engine(dma.engine);
        read.outstanding -= 1;
        let mut free = drained;
        if let Some(memory) = &engine.memory {
            let ragged = entry.largest <= memory.chunk;
            let local = dma.local + u64::from(entry.offset);
            // Data that does not begin with a word is shifted as it is written out, and waits for that.
            let shifted = local % u64::from(memory.word.max(1)) != 0;
            // The last line is shifted while the next transfer begins.
            let last = memory.write_out.per_completion * u64::from(read.completions.saturating_sub(1))
                + Duration::from_ps(64 * u64::from(memory.write_out.ps_per_byte));
            let shifted_at = Time::from_ps(read.in_place.as_ps().saturating_sub(last.as_ps()));
            let drained = if shifted { drained.max(shifted_at) } else { drained };
            free = free.max(self.memory.write(drained, memory, local, u64::from(entry.length), ragged));
        }
        if read.outstanding == 0 && (read.left == 0 || read.failed.is_some()) {
            let mut done = read.in_place.max(scheduler.now()) + engine.read_done_latency;
            if let Some(memory) = &engine.memory {
                let word = u64::from(memory.word.max(1));
                if dma.local % word != 0 {
                    done += memory.write_out.unaligned_head;
                }
                if (dma.local + u64::from(dma.length)) % word != 0 {
                    done += memory.write_out.unaligned_tail;
                }
                done += memory.write_out.short_chunk * memory.short_chunk_operations(dma.local, dma.length);
            }
            if read.left > 0 {
                // The rest of a read that failed is not asked for.
                read.left = 0;
                self.to_issue.retain(|&waiting| waiting != index);
            }
            scheduler.at(done, self.event(EndpointEvent::ReadDone { read: index, epoch: self.epoch }));
        }
        let event = self.event(EndpointEvent::TagFree { tag, epoch: self.epoch });
        scheduler.at(free + self.params.tag_release, event);
    }

    /// A tag's data has been dealt with: it is free again.
    pub fn tag_free(&mut self, wires: &mut Wires, scheduler: &mut Scheduler<Event>, tag: u16) {
        let entry = &mut self.tags[usize::from(tag)];
        entry.read = None;
        self.buffered -= entry.length;
        self.free_tags.push_back(tag);
        self.issue_reads(wires, scheduler);
    }

    /// The outcome of a read that has ended.
    pub fn take_finished(&mut self, read: u32) -> Option<Finished> {
        let slot = &mut self.reads[read as usize];
        let token = slot.dma.take()?.token;
        if slot.forgotten {
            self.free_reads.push(read);
            return None;
        }
        Some(Finished {
            read,
            epoch: self.epoch,
            token,
            data: std::mem::take(&mut slot.data),
            failed: slot.failed,
        })
    }

    /// Takes a finished read's place and buffer back for another one.
    pub fn recycle(&mut self, finished: Finished) {
        // After a reset, nobody knows of the read any more.
        if finished.epoch == self.epoch {
            self.reads[finished.read as usize].data = finished.data;
            self.free_reads.push(finished.read);
        }
    }

    /// Ends requests that have waited too long; gives the functions whose they were, once for each request.
    pub fn check_timeouts(&mut self, scheduler: &mut Scheduler<Event>) -> Vec<FunctionIndex> {
        let mut late = Vec::new();
        let now = scheduler.now();
        self.timeout_armed = false;
        let mut next: Option<Time> = None;
        for tag in 0..self.params.tags {
            let entry = self.tags[usize::from(tag)];
            // A request whose last completion is being dealt with has been answered.
            let (Some(index), true) = (entry.read, entry.left > 0) else { continue };
            if entry.deadline <= now {
                self.counters.timeouts += 1;
                self.reads[index as usize].failed = Some(DmaError::Timeout);
                self.tags[usize::from(tag)].left = 0;
                let dma = self.reads[index as usize].dma.expect("a read with a tag has been asked for");
                late.push(dma.function);
                self.request_answered(scheduler, tag, entry, index, now);
            } else {
                next = Some(next.map_or(entry.deadline, |n| n.min(entry.deadline)));
            }
        }
        if let Some(at) = next {
            self.timeout_armed = true;
            scheduler.at(at, self.event(EndpointEvent::CheckTimeouts { epoch: self.epoch }));
        }
        late
    }

    /// What a function is between two resets of its own.
    pub fn life(&self, function: FunctionIndex) -> Life {
        let number = self.lives.get(usize::from(function.0)).copied().unwrap_or_default();
        Life { function, number }
    }

    /// Forgets what one function has under way. Requests that have been sent keep their tags until they are
    /// answered, since the tags are everybody's; what is answered then is dropped (base spec 6.6.2).
    pub fn reset_function(&mut self, function: FunctionIndex) {
        let index = usize::from(function.0);
        self.lives.resize(self.lives.len().max(index + 1), 0);
        self.lives[index] = self.lives[index].wrapping_add(1);
        self.to_write.retain(|write| write.dma.function != function);
        for number in 0..self.reads.len() as u32 {
            let read = &mut self.reads[number as usize];
            if read.dma.is_none_or(|dma| dma.function != function) {
                continue;
            }
            read.forgotten = true;
            // What it has not asked for yet it never will.
            let waiting = self.to_issue.len();
            self.to_issue.retain(|&other| other != number);
            read.left = 0;
            if read.outstanding == 0 && self.to_issue.len() < waiting {
                read.dma = None;
                self.free_reads.push(number);
            }
        }
    }

    /// Forgets everything under way: the device was reset.
    pub fn reset(&mut self) {
        let counters = std::mem::take(&mut self.counters);
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { counters, epoch, ..Self::new(self.id, self.params.clone()) };
    }
}

/// Header, sequence number, LCRC and framing of a completion.
const COMPLETION_OVERHEAD: u64 = 20;

fn common(attributes: DmaAttributes) -> Common {
    Common {
        relaxed_ordering: attributes.relaxed_ordering,
        no_snoop: attributes.no_snoop,
        id_based_ordering: attributes.id_based_ordering,
        address_type: if attributes.translated { AddressType::Translated } else { AddressType::Untranslated },
        ..Common::default()
    }
}
