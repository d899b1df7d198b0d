//! Transmit: descriptors become [jobs], jobs read their data, the data becomes frames, which leave through the
//! [ports](super::ports).
//!
//! The queues take turns, one packet each. Packets of a queue leave in descriptor order, even if their data arrives out
//! of order.

mod jobs;
pub mod queue;

use std::collections::VecDeque;
use std::rc::Rc;

use engine::Busy;
use platform::device::{DeviceBus, DmaError};
use units::{Duration, Time};
use wire::nic::descriptor::{END, INLINE, LEN, REPORT, TxDescriptor, inline_entries};
use wire::nic::registers::{INLINE_PAGE, counter};

use jobs::Jobs;
use queue::TxQueue;

use super::function::NicFunction;
use super::inline::InlinePage;
use super::params::NicParams;
use super::ports::{PacketMemory, Ports};
use super::ring::Ring;
use super::token::{Kind, Note};

/// A packet in a ring: its ring entries, with the last descriptor, and its length.
#[derive(Clone, Copy, Default)]
struct Packet {
    entries: u16,
    last: u16,
    bytes: u32,
    /// The last descriptor marks the end of the packet, and requests a completion.
    ends: bool,
    report: bool,
}

impl Packet {
    /// The next packet of a ring, if all its descriptors, or the maximum number, have been fetched.
    fn next(ring: &Ring, max_fragments: u8) -> Option<Self> {
        if !ring.is_running() {
            return None;
        }
        let mut next = Self::default();
        for n in 1.. {
            next.last = next.entries;
            let descriptor = TxDescriptor::parse(ring.peek(next.last)?);
            next.bytes += u32::from(descriptor.length);
            next.entries += 1;
            if descriptor.has(INLINE) {
                next.entries = next.entries.saturating_add(inline_entries(descriptor.length));
                ring.peek(next.entries - 1)?;
            }
            (next.ends, next.report) = (descriptor.has(END), descriptor.has(REPORT));
            // A packet without an end is rejected as a whole.
            if next.ends || n >= u16::from(max_fragments) {
                return Some(next);
            }
        }
        None
    }
}

/// The transmit half up to complete frames: arbitration, and the packets being read.
pub struct Sender {
    nic: Rc<NicParams>,
    jobs: Jobs,
    /// Queues with a packet to send, in turn.
    turns: VecDeque<(u8, u8)>,
    /// When the next packet can start.
    free: Time,
    busy: Busy,
    /// When the timer is set to look again.
    wake: Option<Time>,
}

impl Sender {
    pub fn new(nic: &Rc<NicParams>) -> Self {
        let (nic, jobs) = (Rc::clone(nic), Jobs::new(nic));
        Self { nic, jobs, turns: VecDeque::new(), free: Time::ZERO, busy: Busy::default(), wake: None }
    }

    /// The driver wrote a doorbell.
    pub fn doorbell(
        &mut self,
        bus: &mut dyn DeviceBus,
        of: &mut NicFunction,
        memory: &mut PacketMemory,
        queue: u8,
        tail: u16,
    ) {
        let ring = of.ring(queue, true);
        if !ring.is_running() {
            return;
        }
        if !ring.set_tail(bus.now(), tail) {
            return self.fail(bus, of, memory, queue);
        }
        if self.nic.doorbell_latency.is_zero() {
            of.tx[usize::from(queue)].fetch(bus);
        } else {
            let note = ring.note(Kind::Doorbell);
            bus.wake_at(bus.now() + self.nic.doorbell_latency, note.token());
        }
    }

    /// A write to the inline doorbell pages.
    pub fn inline_write(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        function: u8,
        at: u64,
        data: &[u8],
    ) {
        let (queue, at) = (at / INLINE_PAGE, at % INLINE_PAGE);
        let of = &mut functions[usize::from(function)];
        let state = of.tx.get_mut(queue as usize).filter(|state| state.ring.is_running());
        let Some(TxQueue { ring, page, .. }) = state else { return };
        let Some((count, entries)) = page.write(at, data) else { return };
        let queue = queue as u8;
        let tail = count.wrapping_add((entries.len() / LEN) as u16);
        if ring.set_tail(bus.now(), tail) && ring.take_inline(count, entries) {
            of.count(counter::INLINE_PACKETS, 1);
            self.list(of, queue);
            self.pump(bus, functions, ports);
        } else {
            self.doorbell(bus, of, &mut ports.memory, queue, tail);
        }
    }

    /// Stops a queue because of an invalid descriptor or a failed access.
    fn fail(&mut self, bus: &mut dyn DeviceBus, of: &mut NicFunction, memory: &mut PacketMemory, queue: u8) {
        self.abandon(of, memory, queue);
        of.fail_queue(bus, queue, true);
    }

    /// Descriptors of a queue arrived.
    pub fn fetched(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) {
        let of = &mut functions[usize::from(note.function)];
        let state = &mut of.tx[usize::from(note.queue)];
        if !state.ring.is_current(note) {
            return;
        }
        let Ok(bytes) = outcome else { return self.fail(bus, of, &mut ports.memory, note.queue) };
        state.ring.store(note.first, bytes);
        state.hungry = false;
        self.list(of, note.queue);
        self.pump(bus, functions, ports);
    }

    /// A part of a packet arrived.
    pub fn arrived(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) {
        if self.jobs.arrived(bus, functions, ports, note, outcome) {
            self.pump(bus, functions, ports);
        }
    }

    /// A function was reset, so its reads never complete: packets of others that used it for reading fail.
    pub fn lose_reads(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        ports: &mut Ports,
        through: u8,
    ) {
        for lost in self.jobs.reads_through(through) {
            self.arrived(bus, functions, ports, lost, Err(DmaError::NotAllowed));
        }
    }

    /// Puts a queue in line for its turn.
    fn list(&mut self, of: &mut NicFunction, queue: u8) {
        let state = &mut of.tx[usize::from(queue)];
        if !state.is_listed {
            state.is_listed = true;
            self.turns.push_back((of.number, queue));
        }
    }

    /// Time of packets' starts up to `now`.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy.until(now)
    }

    /// Starts packets while there is room.
    pub fn pump(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], ports: &mut Ports) {
        let now = bus.now();
        if self.wake.is_some_and(|at| at <= now) {
            self.wake = None;
        }
        ports.memory.pass(now);
        while let Some(&(function, queue)) = self.turns.front() {
            if self.free > now {
                return self.wake_at(bus, self.free);
            }
            let of = &mut functions[usize::from(function)];
            let ring = &of.tx[usize::from(queue)].ring;
            let Some(packet) = Packet::next(ring, self.nic.max_fragments) else {
                self.turns.pop_front();
                self.unlist(bus, of, &mut ports.memory, queue);
                continue;
            };
            if !ports.memory.has_room(packet.bytes, self.nic.tx.memory) {
                // Either a frame leaves, or data arrives and becomes a frame that will leave.
                if let Some(at) = ports.memory.next_leaves() {
                    self.wake_at(bus, at);
                }
                return;
            }
            self.turns.rotate_left(1);
            self.free = now + self.nic.tx.packet_time;
            self.busy.add(now, self.nic.tx.packet_time);
            if packet.ends {
                self.jobs.begin(bus, functions, ports, (function, queue), packet);
                functions[usize::from(function)].tx[usize::from(queue)].fetch(bus);
            } else {
                // Too many fragments: the start of the next packet is unknown.
                self.fail(bus, of, &mut ports.memory, queue);
            }
        }
    }

    fn wake_at(&mut self, bus: &mut dyn DeviceBus, at: Time) {
        if self.wake.is_none_or(|set| at < set) {
            self.wake = Some(at);
            bus.wake_at(at, Note::of_device(Kind::TxPump).token());
        }
    }

    /// Takes a queue without a whole packet out of the line.
    fn unlist(
        &mut self,
        bus: &mut dyn DeviceBus,
        of: &mut NicFunction,
        memory: &mut PacketMemory,
        queue: u8,
    ) {
        let state = &mut of.tx[usize::from(queue)];
        state.is_listed = false;
        if !state.ring.is_running() {
            return;
        }
        // The rest of a packet has to be fetched even if that takes only a few descriptors.
        state.hungry = state.ring.peek(0).is_some();
        if state.hungry && state.ring.is_cache_full() {
            self.fail(bus, of, memory, queue);
        } else {
            state.fetch(bus);
        }
    }

    /// Drops a queue's packets. Data that still arrives for them is ignored.
    pub fn abandon(&mut self, of: &mut NicFunction, memory: &mut PacketMemory, queue: u8) {
        let state = &mut of.tx[usize::from(queue)];
        state.hungry = false;
        state.page = InlinePage::default();
        for job in state.jobs.drain(..) {
            self.jobs.end(job, memory);
        }
    }

    /// Drops everything in flight: after a reset, no read completes.
    pub fn forget(&mut self, now: Time, functions: &mut [NicFunction]) {
        self.busy.cancel(now);
        *self = Self { busy: self.busy, ..Self::new(&self.nic) };
        for state in functions.iter_mut().flat_map(|f| &mut f.tx) {
            state.jobs.clear();
            (state.is_listed, state.hungry) = (false, false);
        }
    }
}
