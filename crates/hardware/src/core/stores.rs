//! Store buffer: stores to devices in program order, and their way out.

use std::collections::VecDeque;

use engine::{Completer, Completion, Rng, Trace, oneshot};
use platform::cpu::StoreMark;
use platform::mmio::Store;
use units::{Duration, Time};

use super::buffers::{BufferState, Buffers};
use super::fills::FillBuffers;
use super::pieces::{LINE, request, span};
use super::{StoreCounters, StoreParams};
use crate::memory::{Cause, CoreId};
use wire::pcie::tlp::MemoryRequest;

/// Life of a line in a write-combining buffer, for traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinePassed {
    /// Its host-physical address.
    pub line: u64,
    /// When a store allocated the buffer.
    pub opened: Time,
    /// When its first bytes left.
    pub left: Time,
    /// When the buffer became free again.
    pub accepted: Time,
}

/// Kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoreKind {
    Uncached,
    Combining,
    Direct,
    Flush,
    Barrier,
    /// Waits for another core's stores, until `mask` is 0.
    Follow,
}

/// The part of a store in one line, or a barrier.
#[derive(Clone, Debug)]
struct StoreEntry {
    /// Sequence number in program order.
    number: u64,
    when: Time,
    kind: StoreKind,
    port: u8,
    line: u64,
    mask: u64,
    bytes: [u8; LINE as usize],
    /// Store buffer entries that it occupies.
    stores: u16,
}

impl StoreEntry {
    /// Whether the core's later ordinary stores are seen after it (SDM volume 3, 8.2.2: true for all but
    /// write-combining stores).
    const fn orders(&self) -> bool {
        matches!(self.kind, StoreKind::Uncached | StoreKind::Barrier | StoreKind::Follow)
    }

    /// Whether it has to be accepted before what is behind a mark.
    fn is_before(&self, mark: StoreMark) -> bool {
        self.orders() && self.number < mark.number && self.when <= mark.until
    }
}

/// A TLP that leaves a core.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Root port.
    pub port: u8,
    /// The request, without the requester.
    pub request: MemoryRequest,
    /// When it reaches the port.
    pub arrives: Time,
    /// The line's bytes.
    bytes: [u8; LINE as usize],
    /// Offset of the payload in the line.
    start: usize,
}

impl Departure {
    /// The payload. Disabled bytes are zero or older data of the same line.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.start..self.start + usize::from(self.request.length_dw) * 4]
    }
}

/// Paths from a core to the root ports, of its own socket and of others.
pub(crate) trait WayOut {
    /// Whether a port has a place for another TLP.
    fn has_room(&mut self, port: u8) -> bool;
    /// A TLP leaves the core. Returns when it reaches its port, if that is on another socket.
    fn cross(&mut self, port: u8, cause: Cause, bytes: u64) -> Option<Time>;
    /// A TLP has reached its port. Returns when the core's socket knows that it was accepted.
    fn answer(&mut self, port: u8, cause: Cause, arrived: Time) -> Time;
}

/// Next action of a store unit.
#[derive(Debug)]
pub(crate) enum Step {
    /// A TLP leaves, for which the port has a place.
    Leave(Departure),
    /// Wait until `until`, or for an event if `None`; if `blocked`, also until a port has room.
    Wait { until: Option<Time>, blocked: bool },
}

/// A core's path of stores to devices.
pub struct StoreUnit {
    params: StoreParams,
    queue: VecDeque<StoreEntry>,
    /// Number of stores, flushes and barriers so far.
    entered: u64,
    /// Entries of other cores that wait for stores before a mark of this core.
    followers: Vec<(StoreMark, CoreId, u64)>,
    buffers: Buffers,
    /// The oldest entry is an uncached store in flight, accepted at this time.
    uncached: Option<Time>,
    /// When the last access to another socket arrives; later ones must not arrive earlier.
    reached: Time,
    /// When the next TLP can leave the core.
    next_departure: Time,
    /// Since when the oldest entry has been waiting.
    waits_since: Option<Time>,
    waiters: Vec<(usize, Completer<()>)>,
    counters: StoreCounters,
    trace: Trace<LinePassed>,
    /// When the unit is run next.
    pub(crate) wake: Option<Time>,
}

impl StoreUnit {
    /// Creates an empty unit.
    pub fn new(params: StoreParams, rng: Rng) -> Self {
        Self {
            buffers: Buffers::new(&params, rng),
            params,
            queue: VecDeque::new(),
            entered: 0,
            followers: Vec::new(),
            uncached: None,
            reached: Time::ZERO,
            next_departure: Time::ZERO,
            waits_since: None,
            waiters: Vec::new(),
            counters: StoreCounters::default(),
            trace: Trace::off(),
            wake: None,
        }
    }

    /// Records every line that leaves a buffer from now on.
    pub(crate) fn watch(&mut self, trace: Trace<LinePassed>) {
        self.trace = trace;
    }

    /// What it was created with.
    pub fn params(&self) -> &StoreParams {
        &self.params
    }

    /// What it has counted so far.
    pub fn counters(&self) -> &StoreCounters {
        &self.counters
    }

    /// Line buffers that are combining or not accepted yet.
    pub fn combining(&self) -> usize {
        self.buffers.held()
    }

    /// Whether it holds no store and no line.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.buffers.is_empty()
    }

    /// Whether a flush or a fence at `when` has nothing to do here.
    pub(crate) fn is_idle(&mut self, when: Time) -> bool {
        self.buffers.settle(when);
        self.is_empty() && self.next_departure <= when
    }

    /// Whether everything that left for other sockets has arrived at `when`.
    pub(crate) fn has_arrived(&self, when: Time) -> bool {
        self.reached <= when
    }

    /// When an access that would reach its port on another socket at `arrives` does, behind earlier ones.
    pub(crate) fn reaches(&mut self, arrives: Time) -> Time {
        self.reached = self.reached.max(arrives);
        self.reached
    }

    /// Executed stores that are still in the store buffer.
    pub fn pending(&self) -> usize {
        self.queue.iter().map(|entry| usize::from(entry.stores)).sum()
    }

    /// Records a line fill of the core from `begin` to `end`.
    pub fn line_fill(&mut self, begin: Time, end: Time) {
        self.buffers.line_fill(begin, end);
    }

    /// When each of the core's buffers is available to a miss at `when`, as far as known. If all are combining, a line
    /// is evicted, as for another line to combine.
    pub fn fill_buffers(&mut self, when: Time) -> FillBuffers {
        if let Some(buffers) = self.buffers.for_fills(when) {
            return buffers;
        }
        let pressed = u64::from(self.buffers.press());
        self.counters.partial_lines += pressed;
        self.counters.pressed_lines += pressed;
        let leaves = self.next_departure.max(when) + self.params.accept_latency;
        FillBuffers::new([if self.buffers.any_leaving() { leaves } else { when }])
    }

    /// Resolves when at most `most` stores are pending.
    pub fn pending_at_most(&mut self, most: usize) -> Completion<()> {
        let (completer, completion) = oneshot();
        if self.pending() <= most {
            completer.complete(());
        } else {
            self.waiters.push((most, completer));
        }
        completion
    }

    /// The core's position at `when`.
    pub fn mark(&self, when: Time) -> StoreMark {
        StoreMark { number: self.entered, until: when }
    }

    /// Whether uncached stores or fences before a mark have not been accepted.
    pub(crate) fn holds_before(&self, mark: StoreMark) -> bool {
        self.queue.iter().any(|entry| entry.is_before(mark))
    }

    /// When they will have been accepted if every port has room. `way` gives the idle round-trip time to a port.
    pub(crate) fn accepted_before(&self, mark: StoreMark, way: impl Fn(u8) -> Duration) -> Time {
        let in_flight = self.uncached.zip(self.queue.front());
        let before = in_flight.filter(|(_, head)| head.is_before(mark));
        let mut last = before.map_or(Time::ZERO, |(accepted, _)| accepted);
        // A barrier with no line to evict waits for nothing.
        let mut lines = !self.buffers.is_empty();
        for entry in self.queue.iter().skip(usize::from(in_flight.is_some())) {
            lines |= matches!(entry.kind, StoreKind::Combining | StoreKind::Direct);
            if !entry.is_before(mark) {
                continue;
            }
            last = last.max(entry.when);
            last += match entry.kind {
                StoreKind::Uncached => self.params.uncached_latency + way(entry.port),
                StoreKind::Barrier if std::mem::take(&mut lines) => self.params.accept_latency,
                _ => Duration::ZERO,
            };
        }
        last
    }

    /// Makes `core`'s stores behind its entry `number` wait for those before the mark here.
    pub(crate) fn add_follower(&mut self, mark: StoreMark, core: CoreId, number: u64) {
        self.followers.push((mark, core, number));
    }

    /// Takes the followers that no longer have to wait.
    pub(crate) fn take_followers(&mut self) -> Vec<(CoreId, u64)> {
        if self.followers.is_empty() {
            return Vec::new();
        }
        let Self { queue, followers, .. } = self;
        let holds = |mark: StoreMark| queue.iter().any(|entry| entry.is_before(mark));
        followers
            .extract_if(.., |&mut (mark, ..)| !holds(mark))
            .map(|(_, core, number)| (core, number))
            .collect()
    }

    /// Waits for another core from `when` on. Returns the number of the waiting entry.
    pub(crate) fn follow(&mut self, when: Time) -> u64 {
        let number = self.entered;
        self.enter(StoreEntry {
            number,
            when,
            kind: StoreKind::Follow,
            port: 0,
            line: 0,
            mask: 1,
            bytes: [0; LINE as usize],
            stores: 1,
        });
        number
    }

    /// Ends the wait of an entry.
    pub(crate) fn go_on(&mut self, number: u64) {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.number == number) {
            entry.mask = 0;
        }
    }

    fn enter(&mut self, entry: StoreEntry) {
        self.entered += 1;
        // An interrupt may have computed up to an earlier time than the task that it interrupted.
        let behind = self.queue.iter().rev().take_while(|other| other.when > entry.when).count();
        self.queue.insert(self.queue.len() - behind, entry);
    }

    /// Adds an operation of the core at `when`, for a device below `port`; of several at that time, it is the last.
    pub(crate) fn push(&mut self, when: Time, port: u8, store: Store<'_>) {
        let (kind, address, from, width) = match store {
            Store::Uncached(address, bytes) => (StoreKind::Uncached, address, bytes, LINE as u8),
            Store::Combining { address, bytes, width } => (StoreKind::Combining, address, bytes, width),
            Store::Direct(address, line) => (StoreKind::Direct, address, &line[..], LINE as u8),
            Store::Flush(address) => (StoreKind::Flush, address, &[][..], 1),
            Store::Barrier => (StoreKind::Barrier, 0, &[][..], 1),
        };
        let start = (address % LINE) as usize;
        debug_assert!(start + from.len() <= LINE as usize, "a store lies within one line");
        let mut bytes = [0; LINE as usize];
        bytes[start..start + from.len()].copy_from_slice(from);
        let mask = if from.is_empty() { 0 } else { span(start as u32, from.len() as u32) };
        let stores = from.len().div_ceil(usize::from(width.max(1))).max(1) as u16;
        self.counters.stores += if from.is_empty() { 0 } else { u64::from(stores) };
        let line = address - start as u64;
        self.enter(StoreEntry { number: self.entered, when, kind, port, line, mask, bytes, stores });
    }

    /// Runs the unit at `now`.
    pub(crate) fn step(&mut self, now: Time, way: &mut impl WayOut) -> Step {
        self.buffers.settle(now);
        let mut head_waits = false;
        while self.queue.front().is_some_and(|head| head.when <= now) {
            if !self.absorb(now) {
                head_waits = true;
                break;
            }
            self.queue.pop_front();
            if let Some(since) = self.waits_since.take() {
                self.counters.waited += now.since(since);
            }
            self.tell_waiters();
        }
        if head_waits {
            self.waits_since.get_or_insert(now);
        }
        let uncached_ready = head_waits
            && self.uncached.is_none()
            && self.buffers.is_empty()
            && self.queue.front().is_some_and(|head| head.kind == StoreKind::Uncached);
        let wants_out = uncached_ready || self.buffers.any_leaving();
        let mut blocked = false;
        if wants_out && self.next_departure <= now {
            if uncached_ready {
                let head = self.queue.front().expect("an uncached store is the oldest");
                if way.has_room(head.port) {
                    return Step::Leave(self.uncached_leaves(now, way));
                }
            } else if let Some(index) = self.buffers.choose(|port| way.has_room(port)) {
                return Step::Leave(self.piece_leaves(now, index, way));
            }
            blocked = true;
        }
        let next_store = self.queue.front().filter(|_| !head_waits).map(|head| head.when);
        let accepted = self.uncached.filter(|_| head_waits);
        let is_fence =
            |head: &&StoreEntry| head_waits && head.kind == StoreKind::Barrier && self.reached > now;
        let reached = self.queue.front().filter(is_fence).map(|_| self.reached);
        let free = if head_waits { self.buffers.next_free() } else { None };
        let departure = (wants_out && !blocked).then_some(self.next_departure);
        let until = [next_store, accepted, reached, free, departure].into_iter().flatten().min();
        Step::Wait { until, blocked }
    }

    /// Advances the oldest entry; `false` if it has to wait.
    fn absorb(&mut self, now: Time) -> bool {
        if let Some(accepted) = self.uncached {
            if accepted > now {
                return false;
            }
            self.uncached = None;
            return true;
        }
        let Some(head) = self.queue.front() else { return false };
        match head.kind {
            StoreKind::Barrier => {
                self.counters.partial_lines += self.buffers.evict_all();
                // An uncached store is complete when its own socket has it, but a fence waits for the far one.
                self.buffers.is_empty() && self.reached <= now
            }
            StoreKind::Uncached => {
                self.counters.partial_lines += self.buffers.evict_all();
                false
            }
            StoreKind::Flush => {
                self.counters.partial_lines += u64::from(self.buffers.evict(head.line));
                true
            }
            StoreKind::Combining | StoreKind::Direct => self.combine(now),
            StoreKind::Follow => head.mask == 0,
        }
    }

    /// Merges the oldest entry into a buffer; `false` if there is none.
    fn combine(&mut self, now: Time) -> bool {
        let Self { queue, buffers, counters, .. } = self;
        let Some(head) = queue.front() else { return false };
        let direct = head.kind == StoreKind::Direct;
        let (line, port) = (head.line, head.port);
        let open = match buffers.find(line) {
            Some(buffer) if buffer.state == BufferState::Open && !direct => buffer,
            // Bytes stored later must not arrive earlier: the line leaves first.
            Some(_) => {
                counters.partial_lines += u64::from(buffers.evict(line));
                return false;
            }
            None => match buffers.allocate(line, port, now) {
                Some(buffer) => buffer,
                None => {
                    let pressed = u64::from(buffers.press());
                    counters.partial_lines += pressed;
                    counters.pressed_lines += pressed;
                    return false;
                }
            },
        };
        open.mask |= head.mask;
        for (to, (&from, _)) in open
            .bytes
            .iter_mut()
            .zip(head.bytes.iter().zip(0u32..))
            .filter(|(_, (_, n))| head.mask >> n & 1 == 1)
        {
            *to = from;
        }
        open.direct = direct;
        if open.mask == u64::MAX {
            counters.full_lines += u64::from(!direct);
            buffers.evict(line);
        }
        true
    }

    fn uncached_leaves(&mut self, now: Time, way: &mut impl WayOut) -> Departure {
        let oldest = self.queue.front().expect("an uncached store is the oldest");
        let &StoreEntry { port, line, mask, bytes, .. } = oldest;
        let (request, start) = request(line, mask);
        let crossed = way.cross(port, Cause::MmioDoorbell, mask.count_ones().into());
        let arrives = crossed.map_or(now, |there| self.reaches(there));
        let seen = way.answer(port, Cause::MmioDoorbell, arrives);
        self.counters.bytes += u64::from(mask.count_ones());
        self.counters.uncached_tlps += 1;
        self.uncached = Some(seen + self.params.uncached_latency);
        self.next_departure = now + self.params.evict_interval;
        Departure { port, request, arrives, bytes, start }
    }

    fn piece_leaves(&mut self, now: Time, index: usize, way: &mut impl WayOut) -> Departure {
        let (line, piece) = self.buffers.take_piece(index, self.params.partial_chunk, now);
        let (request, start) = request(line.line, piece);
        let crossed = way.cross(line.port, Cause::MmioWriteCombining, piece.count_ones().into());
        let arrives = crossed.map_or(now, |there| self.reaches(there));
        let accepted = way.answer(line.port, Cause::MmioWriteCombining, arrives) + self.params.accept_latency;
        let last = self.buffers.accept_if_last(index, accepted);
        if last && self.buffers.left(line.order) {
            self.counters.overtakes += 1;
        }
        if last {
            let (opened, left) = (line.opened, line.left.unwrap_or(now));
            self.trace.record(|| LinePassed { line: line.line, opened, left, accepted });
        }
        self.counters.bytes += u64::from(piece.count_ones());
        self.counters.direct_tlps += u64::from(line.direct);
        self.counters.partial_tlps += u64::from(piece != u64::MAX);
        self.next_departure = now + self.params.evict_interval;
        Departure { port: line.port, request, arrives, bytes: line.bytes, start }
    }

    fn tell_waiters(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let pending = self.pending();
        for (_, completer) in self.waiters.extract_if(.., |(most, _)| pending <= *most) {
            completer.complete(());
        }
    }

    /// How long oldest stores have waited so far, including the current one.
    pub fn waited(&self, now: Time) -> Duration {
        self.counters.waited + self.waits_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Ports through which something is waiting to leave.
    pub(crate) fn wanted_ports(&self) -> impl Iterator<Item = u8> + '_ {
        let uncached =
            self.queue.front().filter(|head| head.kind == StoreKind::Uncached).map(|head| head.port);
        self.buffers.leaving_ports().chain(uncached)
    }
}
