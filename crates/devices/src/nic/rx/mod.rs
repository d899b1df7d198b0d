//! Receive: frames are checked, steered to a function and a queue, and written into its buffers.

pub mod queue;

use std::collections::VecDeque;
use std::rc::Rc;

use engine::Busy;
use platform::device::{DeviceBus, DmaError};
use units::{Duration, Time};
use wire::ip::Dissection;
use wire::ip::dissect::Verdict;
use wire::nic::completion::{
    END, FAILED, HASHED, HASHED_PORTS, HELD, INLINE, Kind as CompletionKind, NETWORK_RIGHT, NETWORK_WRONG,
    STEERED, TRANSPORT_RIGHT, TRANSPORT_WRONG,
};
use wire::nic::registers::{HELD_BYTES, counter, feature};
use wire::nic::{Completion, RxDescriptor};

use super::function::NicFunction;
use super::params::NicParams;
use super::spare::Spare;
use super::steering::{Match, Order, Placement};
use super::token::{Kind, Note, request};

use queue::{RxQueue, Seen};

/// The receive half: packet memory, engine and arbitration.
pub struct Receiver {
    nic: Rc<NicParams>,
    /// Bytes of frames in the device.
    held: u32,
    /// When the engine can process the next frame.
    free: Time,
    busy: Busy,
    wake: Option<Time>,
    /// Queues with waiting frames, in turn.
    turns: VecDeque<(u8, u8)>,
    spare: Spare,
    /// Number of the next fence.
    next_fence: u16,
}

/// Whether a frame was placed in buffers.
enum Placed {
    Yes,
    /// Buffers are being fetched, or the engine is busy.
    NotYet,
    /// The driver has posted no buffer.
    NoBuffer,
}

impl Receiver {
    pub fn new(nic: Rc<NicParams>) -> Self {
        Self {
            nic,
            held: 0,
            free: Time::ZERO,
            busy: Busy::default(),
            wake: None,
            turns: VecDeque::new(),
            spare: Spare::default(),
            next_fence: 0,
        }
    }

    /// Time of frames' processing up to `now`.
    pub fn busy(&self, now: Time) -> Duration {
        self.busy.until(now)
    }

    /// Bytes of frames in the device.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Delivers a frame to a function, to the queue selected by rule or hash, unless its `order` names one. `steered` is a rule
    /// of the card and its queue, where functions have no flow rules of their own. Returns its placement unless it is
    /// dropped.
    pub fn deliver(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        function: u8,
        (frame, parts): (&[u8], Option<Dissection>),
        order: Order,
        steered: Option<(u16, u16)>,
    ) -> Option<Placement> {
        let now = bus.now();
        let state = &mut functions[usize::from(function)];
        if frame.len() > usize::from(state.max_frame) {
            state.count(counter::RX_LENGTH_ERRORS, 1);
            return None;
        }
        let (mut seen, mut queue, mut left) = (Seen::default(), 0, None);
        if let Some(parts) = &parts
            && state.has(feature::RSS)
            && let Some((hash, with_ports)) = state.rss.hash(&parts.flow)
        {
            seen.hash = hash;
            seen.flags |= HASHED | if with_ports { HASHED_PORTS } else { 0 };
            queue = state.rss.queue(hash);
        }
        let has_rules = state.has(feature::FLOW_RULES);
        let flow = parts.as_ref().filter(|_| has_rules).map(|parts| &parts.flow);
        let mut unknown = None;
        let by_card = steered.filter(|_| has_rules);
        let by_card = by_card.map(|(number, target)| Match { number, target, last: &mut unknown });
        if let Some(found) = state.rules.find(now, frame, flow).or(by_card) {
            (seen.rule, seen.flags) = (found.number, seen.flags | STEERED);
            // With a new rule, the flow was steered by its hash before, so any frame of that queue may belong to it.
            let rx = &state.rx;
            let hashed =
                || Placement { function, queue, count: rx.get(usize::from(queue)).map_or(0, |q| q.came) };
            let last = match order {
                Order::Behind(last) => Some(last),
                // It comes from another function, and has nothing here.
                Order::Fenced(_) => None,
                _ => Some(found.last.unwrap_or_else(hashed)),
            };
            let last = last.filter(|last| last.queue != found.target);
            let waits = |last: &Placement| {
                rx.get(usize::from(last.queue)).is_some_and(|old| old.has_waiting(last.count))
            };
            queue = match (order, last) {
                (Order::InQueue(stays), _) => stays,
                (_, Some(last)) if waits(&last) => last.queue,
                (_, last) => {
                    left = last.map(|last| last.queue);
                    found.target
                }
            };
            let came = rx.get(usize::from(queue)).map_or(0, |q| q.came);
            *found.last = Some(Placement { function, queue, count: came.wrapping_add(1) });
        } else if let Order::InQueue(stays) = order {
            queue = stays;
        }
        if let Some(parts) = parts.filter(|_| state.has(feature::RX_CHECKSUM)) {
            seen.flags |= verdict(parts.network_verdict(frame), NETWORK_RIGHT, NETWORK_WRONG);
            seen.flags |= verdict(parts.transport_verdict(frame), TRANSPORT_RIGHT, TRANSPORT_WRONG);
        }
        let Some(rx) = state.rx.get_mut(usize::from(queue)).filter(|q| q.ring.is_running()) else {
            state.count(counter::RX_NO_QUEUE, 1);
            return None;
        };
        if self.held + frame.len() as u32 > self.nic.rx.memory {
            state.count(counter::RX_OVERFLOW, 1);
            return None;
        }
        rx.came = rx.came.wrapping_add(1);
        let place = Placement { function, queue, count: rx.came };
        let has_others = !rx.waiting.is_empty();
        let queue = queue as u8;
        if let Order::Fenced(old) = order {
            seen.fence = Some(self.fence(bus, functions, (function, queue), old));
        }
        let state = &mut functions[usize::from(function)];
        if let Some(left) = left.filter(|&left| usize::from(left) < state.rx.len()) {
            state.flush(bus, left as u8, false);
        }
        let placed = if has_others { Placed::NotYet } else { self.place(bus, state, queue, frame, seen) };
        match placed {
            Placed::Yes => {}
            Placed::NoBuffer => state.drop_frame(queue),
            Placed::NotYet => {
                self.held += frame.len() as u32;
                state.rx[usize::from(queue)].waiting.push_back((self.spare.copy(frame), seen));
                self.list(state, queue);
                state.rx[usize::from(queue)].fetch(bus);
                self.wake(bus);
            }
        }
        Some(place)
    }

    /// Makes a queue of another function write its pending completions, and issues a read through that function, which
    /// completes when all its writes are in memory. Returns the fence number that frames of this queue wait for.
    fn fence(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        (function, queue): (u8, u8),
        old: Placement,
    ) -> u16 {
        let left = &mut functions[usize::from(old.function)];
        left.flush(bus, old.queue as u8, false);
        let number = self.next_fence;
        self.next_fence = number.wrapping_add(1);
        let at = left.ring(old.queue as u8, false).address();
        let state = &mut functions[usize::from(function)].rx[usize::from(queue)];
        state.fences.push((number, old.function));
        let note = state.ring.note(Kind::RxFetch).with(number, 0);
        bus.read(request(old.function, at, 0, note));
        number
    }

    /// All earlier writes through a function are in memory, or will never be.
    fn fence_passed(&mut self, bus: &mut dyn DeviceBus, of: &mut NicFunction, queue: u8, number: u16) {
        of.rx[usize::from(queue)].fences.retain(|&(other, _)| other != number);
        self.drain(bus, of, queue);
    }

    /// A function was reset and writes nothing more: releases all who wait for its writes.
    pub fn release_fences(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction], of: u8) {
        for function in functions {
            for queue in 0..function.rx.len() {
                let fences = &mut function.rx[queue].fences;
                let before = fences.len();
                fences.retain(|&(_, old)| old != of);
                if fences.len() < before {
                    self.drain(bus, function, queue as u8);
                }
            }
        }
    }

    /// Puts a queue with waiting frames in line for its turn.
    fn list(&mut self, of: &mut NicFunction, queue: u8) {
        let rx = &mut of.rx[usize::from(queue)];
        if !rx.is_listed {
            rx.is_listed = true;
            self.turns.push_back((of.number, queue));
        }
    }

    fn wake(&mut self, bus: &mut dyn DeviceBus) {
        let at = self.free;
        if at > bus.now() && self.wake.is_none_or(|set| at < set) {
            self.wake = Some(at);
            bus.wake_at(at, Note::of_device(Kind::RxPump).token());
        }
    }

    /// Writes a frame into the next buffers of a queue, if there are enough.
    fn place(
        &mut self,
        bus: &mut dyn DeviceBus,
        of: &mut NicFunction,
        queue: u8,
        frame: &[u8],
        seen: Seen,
    ) -> Placed {
        let now = bus.now();
        let state = &of.rx[usize::from(queue)];
        let is_fenced = seen.fence.is_some_and(|fence| state.fences.iter().any(|&(other, _)| other == fence));
        if self.free > now || is_fenced {
            return Placed::NotYet;
        }
        let ring = &state.ring;
        let (mut buffers, mut room) = (0, 0);
        while room < frame.len() {
            match ring.peek(buffers).map(RxDescriptor::parse) {
                Some(buffer) => {
                    room += usize::from(buffer.length);
                    buffers += 1;
                    if buffer.length == 0 {
                        break;
                    }
                }
                None if ring.is_cache_full() && ring.held() <= buffers => break,
                None if ring.posted() > buffers => return Placed::NotYet,
                None => return Placed::NoBuffer,
            }
        }
        let fits = room >= frame.len();
        self.free = now + self.nic.rx.packet_time;
        self.busy.add(now, self.nic.rx.packet_time);
        let note = ring.note(Kind::RxData);
        if fits {
            of.count(counter::RX_FRAMES, 1);
            of.count(counter::RX_BYTES, frame.len() as u64);
        } else {
            // A buffer of length zero, or more buffers than the device can cache: they are completed as failed.
            of.drop_frame(queue);
        }
        let takes_inline = self.nic.features & feature::INLINE != 0;
        let mut done = 0;
        for n in 1..=buffers {
            let ring = &mut of.rx[usize::from(queue)].ring;
            let Some(buffer) = ring.peek(0).map(RxDescriptor::parse) else { break };
            let count = ring.consume(1);
            ring.finish();
            let length = usize::from(buffer.length).min(frame.len() - done);
            let mut flags = seen.flags | if n == buffers { END } else { 0 };
            let is_inline = takes_inline && fits && buffers == 1 && frame.len() <= ring.inline_room();
            let is_held = fits && !is_inline && buffers == 1 && of.hold_frame(queue, count, frame);
            if is_inline {
                flags |= INLINE;
            } else if is_held {
                flags |= HELD;
            } else if fits {
                self.held += length as u32;
                let chunks = frame[done..done + length].chunks(self.nic.write_chunk.max(16) as usize);
                let mut at = buffer.address;
                for chunk in chunks {
                    let note = note.with(chunk.len() as u16, 0);
                    bus.write(request(of.number, at, chunk.len() as u32, note), chunk);
                    at = at.wrapping_add(chunk.len() as u64);
                }
            } else {
                flags = FAILED | flags & END;
            }
            let completion = Completion {
                hash: seen.hash,
                length: if fits { length as u16 } else { 0 },
                count,
                flags,
                rule: seen.rule,
                kind: CompletionKind::Received,
            };
            done += length;
            if is_inline {
                of.rx[usize::from(queue)].ring.complete_inline(bus, completion, frame);
            } else {
                of.complete(bus, queue, false, completion, u16::from(n == buffers));
            }
        }
        let rx = &mut of.rx[usize::from(queue)];
        rx.ring.note_filled(now);
        rx.fetch(bus);
        Placed::Yes
    }

    /// The driver posted buffers.
    pub fn doorbell(&mut self, bus: &mut dyn DeviceBus, of: &mut NicFunction, queue: u8, tail: u16) {
        let rx = &mut of.rx[usize::from(queue)];
        if !rx.ring.is_running() {
            return;
        }
        if rx.ring.set_tail(bus.now(), tail) {
            rx.fetch(bus);
        } else {
            of.fail_queue(bus, queue, false);
        }
    }

    /// Free buffers arrived.
    pub fn fetched(
        &mut self,
        bus: &mut dyn DeviceBus,
        functions: &mut [NicFunction],
        note: Note,
        outcome: Result<&[u8], DmaError>,
    ) {
        let of = &mut functions[usize::from(note.function)];
        let ring = &mut of.rx[usize::from(note.queue)].ring;
        if !ring.is_current(note) {
            return;
        }
        if note.second == 0 {
            return self.fence_passed(bus, of, note.queue, note.first);
        }
        match outcome {
            Ok(bytes) => {
                ring.store(note.first, bytes);
                self.drain(bus, of, note.queue);
            }
            Err(_) => of.fail_queue(bus, note.queue, false),
        }
    }

    /// The engine is free again.
    pub fn pump(&mut self, bus: &mut dyn DeviceBus, functions: &mut [NicFunction]) {
        self.wake = None;
        for _ in 0..self.turns.len() {
            let Some((function, queue)) = self.turns.pop_front() else { return };
            let of = &mut functions[usize::from(function)];
            of.rx[usize::from(queue)].is_listed = false;
            self.drain(bus, of, queue);
        }
    }

    /// Places the frames that wait at a queue.
    fn drain(&mut self, bus: &mut dyn DeviceBus, of: &mut NicFunction, queue: u8) {
        while let Some((frame, seen)) = of.rx[usize::from(queue)].waiting.pop_front() {
            match self.place(bus, of, queue, &frame, seen) {
                Placed::NotYet => {
                    of.rx[usize::from(queue)].waiting.push_front((frame, seen));
                    self.list(of, queue);
                    self.wake(bus);
                    return;
                }
                Placed::Yes => {}
                Placed::NoBuffer => of.drop_frame(queue),
            }
            self.held -= frame.len() as u32;
            self.spare.put(frame);
        }
    }

    /// A part of a frame has left for memory.
    pub fn written(&mut self, note: Note) {
        self.held = self.held.saturating_sub(note.first.into());
    }

    /// Drops the frames that wait at a queue.
    pub fn abandon(&mut self, of: &mut NicFunction, queue: u8) {
        let state = &mut of.rx[usize::from(queue)];
        state.fences.clear();
        for (frame, _) in state.waiting.drain(..) {
            self.held -= frame.len() as u32;
            self.spare.put(frame);
        }
    }

    /// Recomputes the bytes held in the device, since writes in flight may never report completion.
    pub fn recount(&mut self, functions: &[NicFunction]) {
        let queues = functions.iter().flat_map(|f| &f.rx);
        self.held = queues.flat_map(|q| &q.waiting).map(|(frame, _)| frame.len() as u32).sum();
    }

    /// Drops everything in flight: after a reset, no request completes.
    pub fn forget(&mut self, now: Time, functions: &mut [NicFunction]) {
        self.busy.cancel(now);
        *self = Self { busy: self.busy, ..Self::new(Rc::clone(&self.nic)) };
        for state in functions.iter_mut().flat_map(|f| &mut f.rx) {
            state.waiting.clear();
            state.fences.clear();
            state.is_listed = false;
        }
    }
}

impl NicFunction {
    /// Holds a frame in the device for buffer `count` of a queue, if the driver wants that and its slot is free.
    fn hold_frame(&mut self, queue: u8, count: u16, frame: &[u8]) -> bool {
        let most = self.longest_held.min(HELD_BYTES as u16);
        if frame.len() > usize::from(most) || self.physical.is_some() {
            return false;
        }
        let Some(window) = self.nic().windows().of(queue) else { return false };
        let RxQueue { held, ring, .. } = &mut self.rx[usize::from(queue)];
        let is_kept = held.put(ring, window, count, frame);
        self.count(counter::RX_HELD, is_kept.into());
        is_kept
    }

    /// Reads the receive windows; zeros where no frame has been.
    pub fn read_held(&self, at: u64, into: &mut [u8]) {
        into.fill(0);
        let (queue, at) = self.nic().windows().split(at);
        if let Some(bytes) = self.rx.get(queue).and_then(|rx| rx.held.get(at as usize, into.len())) {
            into.copy_from_slice(bytes);
        }
    }

    /// Drops a frame for lack of buffers.
    fn drop_frame(&mut self, queue: u8) {
        self.rx[usize::from(queue)].ring.count_dropped();
        self.count(counter::RX_NO_BUFFER, 1);
    }
}

fn verdict(verdict: Verdict, right: u16, wrong: u16) -> u16 {
    match verdict {
        Verdict::Unknown => 0,
        Verdict::Right => right,
        Verdict::Wrong => wrong,
    }
}
