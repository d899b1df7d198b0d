//! Sending: descriptors become [jobs](job), jobs read their data, data becomes frames, which [leave].
//!
//! The queues take turns, a packet each. A queue's packets leave in the order of its descriptors, whatever
//! the order in which their data arrives.

mod job;
mod leave;

use std::collections::VecDeque;

use platform::device::{DeviceBus, DmaError};
use units::Time;
use wire::nic::descriptor::{END, INLINE, LEN, TxDescriptor, inline_entries};
use wire::nic::registers::counter;

use job::Job;
pub(super) use leave::Done;

use super::Nic;
use super::inline::InlinePage;
use super::ring::Ring;
use super::token::{Kind, Note, request};

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
            self.queue_error(bus, function, queue);
            return;
        }
        ring.note_filled(bus.now());
        if self.params.doorbell_latency.is_zero() {
            self.tx_fetch(bus, function, queue);
        } else {
            let note = Note::new(Kind::Doorbell, ring.life, function, queue);
            bus.wake_at(bus.now() + self.params.doorbell_latency, note.token());
        }
    }

    /// Stops a queue because of what it was given.
    fn queue_error(&mut self, bus: &mut dyn DeviceBus, function: u8, queue: u8) {
        self.abandon_jobs(function, queue);
        self.functions[usize::from(function)].fail_queue(bus, queue, true);
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
            bus.read(request(function, address, u32::from(number) * LEN as u32, note));
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
                self.queue_error(bus, note.function, note.queue);
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
            self.queue_error(bus, function, queue);
        } else {
            self.tx_fetch(bus, function, queue);
        }
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
