//! Inbound requests from devices to memory: intake, translation, cache lines, completions.

use std::rc::Rc;

use engine::Epoch;
use units::{Bytes, Duration, HostPhysical, Iova, Time};
use wire::pcie::tlp::{AddressType, CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};
use wire::vtd::Access;

use super::deferred::{Deferred, answer_tlp};
use super::means::Means;
use super::ordered::OrderedWrites;
use super::outside::{OutsideMemory, timed_as};
use super::peer::Peers;
use super::ports::Ports;
use super::quadrant::Quadrant;
use super::split::{Combining, Piece};
use super::stack::{Stack, WritePlaces};
use super::{Power, RootEvent, RootPort, RootPortParams};
use crate::detected::Detected;
use crate::enables::{enables, has_gaps};
use crate::iommu::{DmaRequest, Iommu};
use crate::memory::{Agent, Coverage, LINE, MemorySystem, NodeId};
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Address range in which a write is an interrupt message (Intel SDM volume 3, message signalled interrupts).
pub const INTERRUPT_RANGE: std::ops::Range<u64> = 0xfee0_0000..0xfef0_0000;

/// What a root port shares with others, by number.
#[derive(Clone, Copy, Default)]
pub(super) struct PortShares {
    stack: Option<usize>,
    quadrant: Option<usize>,
}

/// Inbound request path of a root complex.
#[derive(Default)]
pub(super) struct Inbound {
    /// Power management of the fabric between ports and memory.
    pub power: Option<Power>,
    /// What devices access instead of the host's own memory.
    pub outside: Option<Rc<dyn OutsideMemory>>,
    /// I/O stacks of the ports that belong to one.
    stacks: Vec<Stack>,
    /// Quadrants of the ports that belong to one.
    quadrants: Vec<Quadrant>,
    /// Requests to other devices.
    pub peers: Peers,
    deferred: Vec<Option<Deferred>>,
    free: Vec<u32>,
    /// Reused, so that a read allocates nothing.
    ready: Vec<Time>,
    pieces: Vec<Piece>,
}

impl Inbound {
    /// Makes room for another port. Returns what it shares.
    pub fn add_port(&mut self, port: &RootPortParams) -> PortShares {
        self.peers.grow(port.peer_reads.map_or(0, |own| own.places));
        PortShares {
            stack: port.stack.map(|own| Stack::join(&mut self.stacks, port.node, &own)),
            quadrant: port.quadrant.map(|own| Quadrant::join(&mut self.quadrants, port.node, &own)),
        }
    }

    /// The fabric's power management heeds what devices below all ports tolerate.
    pub fn heed_latencies(&mut self, ports: &Ports) {
        if let Some(power) = &mut self.power {
            power.tolerate(ports.all().iter().filter_map(RootPort::tolerated).min());
        }
    }

    /// How long quadrants' ways from memory and to it have been used until `now`.
    pub fn quadrants_busy(&self, now: Time) -> impl Iterator<Item = [Duration; 2]> {
        self.quadrants.iter().map(move |quadrant| quadrant.busy(now))
    }

    /// How long writes have waited for a place in each I/O stack, until `now`.
    pub fn stacks_waited(&self, now: Time) -> impl Iterator<Item = Duration> {
        self.stacks.iter().map(move |stack| stack.writes.waited(now))
    }

    /// Number of requests that wait for their translation or for a peer.
    pub fn under_way(&self) -> usize {
        self.deferred.iter().flatten().count() + self.peers.under_way()
    }

    fn defer(&mut self, what: Deferred) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.deferred[slot as usize] = Some(what);
                slot
            }
            None => {
                self.deferred.push(Some(what));
                self.deferred.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, slot: u32) -> Deferred {
        self.free.push(slot);
        self.deferred[slot as usize].take().expect("a deferred request is taken once")
    }

    /// Handles a memory read or write that arrived at `port`.
    pub fn memory_request(
        &mut self,
        means: &mut Means<'_, '_>,
        port: u8,
        packet: PacketId,
        tlp: &Tlp,
        request: &MemoryRequest,
    ) {
        let is_write = matches!(tlp.kind, TlpKind::MemoryWrite(_));
        let (address, length) = request.byte_range();
        let lines = lines_of(address, length).len() as u64;
        let now = match &mut self.power {
            Some(power) => power.admit(means.cx.now(), Bytes::new(lines * LINE)),
            None => means.cx.now(),
        };
        let state = &mut means.ports[port];
        let through = state.intake.take(now, lines);
        let start = through + state.params().request_latency;
        if !is_write {
            means.cx.consume_credits(packet, through);
        }
        let node = state.params().node;
        let interrupt = is_write && INTERRUPT_RANGE.contains(&address);
        let (ready, target) = match means.iommus.get_mut(node.index()) {
            _ if self.outside.is_some() && !interrupt => {
                (start, self.target_outside(means.memory, request.requester, (address, length), is_write))
            }
            Some(iommu) if !interrupt => {
                // A small read is looked up once per completion, a large one as a whole.
                let split = &state.params().split;
                let unit = state.params().translation_unit.max(split.most(length));
                let is_small = !is_write && length <= split.small_up_to;
                let wanted = DmaRequest {
                    requester: request.requester,
                    address: Iova::new(address),
                    access: if is_write { Access::Write } else { Access::Read },
                    is_translated: tlp.common.address_type == AddressType::Translated,
                    pieces: if is_small { length.div_ceil(unit).max(1) } else { 1 },
                };
                let translation = iommu.translate(start, wanted, means.memory);
                (translation.ready, translation.outcome.ok().map(|translated| translated.address))
            }
            _ => (start, Some(HostPhysical::new(address))),
        };
        let deferred = Deferred { packet, port, range: (address, length), target };
        // While an older request waits for a page walk, this one must not access memory yet.
        match state.intake.wait_for_walk(start, ready, is_write) {
            Some(at) => {
                // Time of the memory access. Only then is it known when the bytes are globally ordered.
                means.translation_in_use(port, at);
                let slot = self.defer(deferred);
                means.at(at, RootEvent::Access { slot });
            }
            None => self.access(means, deferred, tlp, ready),
        }
    }

    /// Where in the host's own memory an access outside is timed, or the BAR that is accessed.
    #[cold]
    fn target_outside(
        &self,
        memory: &MemorySystem,
        requester: Bdf,
        (address, length): (u64, u32),
        writes: bool,
    ) -> Option<HostPhysical> {
        let outside = self.outside.as_ref()?;
        let address = Iova::new(address);
        match outside.place(requester, address, length, writes) {
            Some(place) => timed_as(memory.bytes(), place),
            None => outside.device(requester, address, length, writes),
        }
    }

    /// Performs the access of a request whose translation was delayed.
    #[inline(never)]
    pub fn deferred_access(&mut self, means: &mut Means<'_, '_>, slot: u32) {
        let deferred = self.take(slot);
        means.ports[deferred.port].intake.goes_on();
        let at = means.cx.now();
        match means.cx.wires.packets.header(deferred.packet).copied() {
            Some(tlp) => self.access(means, deferred, &tlp, at),
            None => means.cx.consume(deferred.packet, at),
        }
    }

    /// Performs the access of a translated request at `start`.
    #[inline(always)]
    fn access(&mut self, means: &mut Means<'_, '_>, what: Deferred, tlp: &Tlp, start: Time) {
        match &tlp.kind {
            TlpKind::MemoryRead(request) => self.read(means, what, tlp, request, start),
            TlpKind::MemoryWrite(request) => self.write(means, what, tlp, request, start),
            _ => unreachable!("only memory requests are deferred"),
        }
    }

    #[inline(always)]
    fn read(
        &mut self,
        means: &mut Means<'_, '_>,
        what: Deferred,
        tlp: &Tlp,
        request: &MemoryRequest,
        start: Time,
    ) {
        let ordered = means.ports[what.port].intake.ordered();
        let (address, length) = what.range;
        let bytes = means.memory.bytes();
        let installed = |target, length| bytes.check(target, length).is_ok();
        // One range of memory holds nearly every request.
        let home = what.target.and_then(|target| bytes.home_of(target, length as usize));
        let in_memory = what.target.filter(|&target| home.is_some() || installed(target, length as usize));
        if in_memory.is_none()
            && what.target.is_some_and(|target| !installed(target, 1))
            && self.peers.forward(means, what, tlp, request, start.max(ordered))
        {
            means.cx.wires.packets.free(what.packet);
            return;
        }
        let epoch = means.cx.wires.packets.hop(what.packet).epoch;
        let port = &mut means.ports[what.port];
        if epoch != means.cx.wires.link(port.end().link).epoch() {
            // The requester is gone, or was reset and has forgotten the request.
            means.cx.wires.packets.free(what.packet);
            return;
        }
        // A read must not pass earlier writes: it waits in the intake until they are globally ordered.
        let start = start.max(port.intake.ordered() + port.params().request_latency);
        let id = port.id();
        let Some(target) = in_memory else {
            means.cx.wires.packets.free(what.packet);
            means.counters.unsupported_requests += 1;
            let below = what.target.and_then(|target| means.ports.of_range(target, length.into()));
            let status = below.and_then(|to| means.ports[to].contains_as());
            let status = status.unwrap_or(CompletionStatus::UnsupportedRequest);
            let answer = CompletionHeader::for_read_error(id, request, status);
            answer_without_data(means, what.port, tlp, answer, start);
            return;
        };
        let packet = what.packet;
        let outside = self.outside.clone();
        let outside = outside.as_deref();
        let read =
            MemoryRead { tlp, request, packet, range: what.range, target, outside, home, start, epoch };
        means.counters.device_read_bytes += u64::from(length);
        // A read within a line needs no lists of lines and pieces.
        if address % LINE + u64::from(length) <= LINE {
            let quadrant = Quadrant::of(&mut self.quadrants, port.shares().quadrant, means.cx.now());
            let ready = start.max(read.line_ready(means.memory, port, quadrant, target.get()));
            note_read(&mut self.power, means.iommus, means.cx.wires, port, ready, (length, 1));
            let whole = Piece { address, length: length.max(1), first: 0, last: 0 };
            read.complete(means.cx, means.memory, port, &whole, (length, true), ready);
            return;
        }
        read.cut(means.memory, port, self, means.cx.now());
        let Self { ready, pieces, power, .. } = self;
        let latest = ready.last().copied().unwrap_or(start);
        note_read(power, means.iommus, means.cx.wires, port, latest, (length, pieces.len()));
        let mut done = 0;
        for piece in &*pieces {
            let remaining = length - done;
            done += piece.length;
            let last = (remaining, done == length);
            read.complete_next(means.cx, means.memory, port, piece, last, ready[piece.last]);
        }
    }

    #[inline(never)]
    fn write(
        &mut self,
        means: &mut Means<'_, '_>,
        what: Deferred,
        tlp: &Tlp,
        request: &MemoryRequest,
        start: Time,
    ) {
        let (address, length) = what.range;
        let port = &means.ports[what.port];
        // A relaxed write need not wait for earlier ones; what is not relaxed waits for it.
        let before = port.intake.ordered();
        let is_relaxed = tlp.common.relaxed_ordering;
        let mut ordered = if is_relaxed { start } else { start.max(before) };
        let release = port.params().posted_release_latency;
        let is_elsewhere = |target: HostPhysical| means.memory.bytes().check(target, 1).is_err();
        if !INTERRUPT_RANGE.contains(&address)
            && what.target.is_some_and(is_elsewhere)
            && self.peers.forward(means, what, tlp, request, ordered)
        {
            means.ports[what.port].intake.set_ordered(ordered.max(before));
            means.translation_in_use(what.port, ordered);
            means.cx.consume(what.packet, ordered + release);
            return;
        }
        if tlp.common.poisoned {
            means.counters.poisoned_writes += 1;
        } else if INTERRUPT_RANGE.contains(&address) {
            let data =
                means.cx.wires.packets.decode(what.packet).map_or(0, |(_, payload)| first_dword(payload));
            means.at(ordered, RootEvent::Interrupt { requester: request.requester, address, data });
        } else if let Some(target) =
            what.target.filter(|&t| means.memory.bytes().check(t, length as usize).is_ok())
        {
            if let Some((_, payload)) = means.cx.wires.packets.decode(what.packet) {
                let port = &mut means.ports[what.port];
                let PortShares { stack, quadrant } = port.shares();
                let (params, strict) = port.for_writes();
                let way = WriteWay {
                    places: stack.map(|number| &mut self.stacks[number].writes),
                    strict: (!is_relaxed).then_some((strict, ordered)),
                    quadrant: Quadrant::of(&mut self.quadrants, quadrant, means.cx.now()),
                };
                match &self.outside {
                    None => write_bytes(means.memory, target, request, payload),
                    Some(outside) => write_outside(&**outside, request, payload),
                }
                let there = write_lines(means.memory, way, params, start, target, request);
                ordered = ordered.max(there);
            }
            means.counters.device_write_bytes += u64::from(length);
        } else {
            means.counters.dropped_writes += 1;
        }
        means.ports[what.port].intake.set_ordered(ordered.max(before));
        if let Some(power) = &mut self.power {
            power.write_until(ordered);
        }
        means.translation_in_use(what.port, ordered);
        if tlp.common.poisoned {
            means.ports[what.port].detect(means.cx, Detected::Poisoned, Some(what.packet));
        }
        means.cx.consume(what.packet, ordered + release);
    }
}

/// Completes an I/O or configuration request as unsupported, since upstream ones have no target (base spec 2.3.1).
pub(super) fn refuse(means: &mut Means<'_, '_>, port: u8, tlp: &Tlp, (requester, tag): (Bdf, u16)) {
    means.counters.unsupported_requests += 1;
    let state = &mut means.ports[port];
    state.detect(means.cx, Detected::UnsupportedNonPosted, None);
    let status = CompletionStatus::UnsupportedRequest;
    let answer = CompletionHeader::for_register(state.id(), requester, tag, status, 0);
    answer_without_data(means, port, tlp, answer, means.cx.now());
}

/// Blocks a memory request that the port's access control forbids (base spec 6.12.4).
pub(super) fn forbid(means: &mut Means<'_, '_>, port: u8, packet: PacketId, tlp: &Tlp) {
    means.counters.acs_violations += 1;
    let (now, state) = (means.cx.now(), &mut means.ports[port]);
    state.detect(means.cx, Detected::AcsViolation, Some(packet));
    if let TlpKind::MemoryRead(request) = &tlp.kind {
        let answer = CompletionHeader::for_read_error(state.id(), request, CompletionStatus::CompleterAbort);
        answer_without_data(means, port, tlp, answer, now);
    }
    means.cx.consume(packet, now);
}

fn answer_without_data(means: &mut Means<'_, '_>, port: u8, tlp: &Tlp, answer: CompletionHeader, at: Time) {
    let packet = means.cx.wires.packets.encode(&answer_tlp(tlp, TlpKind::Completion(answer)), &[]);
    let port = &mut means.ports[port];
    means.cx.wires.tie(port.end(), packet);
    port.queue_completion(means.cx, at, packet);
}

/// Tells a host's power management and its port's IOMMU of a read whose data is available at `latest`; `count`
/// completions bring it.
#[inline(always)]
fn note_read(
    power: &mut Option<Power>,
    iommus: &mut [Iommu],
    wires: &Wires,
    port: &RootPort,
    latest: Time,
    (length, count): (u32, usize),
) {
    if let Some(power) = power {
        let link = wires.link(port.end().link);
        let wire_bytes = u64::from(length) + (link.framing_bytes() + 12) * count as u64;
        let on_wire = link.wire_time(port.end().side, wire_bytes);
        power.read_until(latest, latest + port.params().completion_latency, on_wire);
    }
    if let Some(iommu) = iommus.get_mut(port.params().node.index()) {
        iommu.in_use_until(latest);
    }
}

/// A device's read of memory, which may be answered by several completions.
#[derive(Clone, Copy)]
struct MemoryRead<'a> {
    tlp: &'a Tlp,
    request: &'a MemoryRequest,
    packet: PacketId,
    range: (u64, u32),
    target: HostPhysical,
    /// What has the bytes, if it is not the host's own memory.
    outside: Option<&'a dyn OutsideMemory>,
    /// The node whose memory holds all of it, if one range does.
    home: Option<NodeId>,
    /// When its first line is looked up.
    start: Time,
    /// Link epoch in which it arrived.
    epoch: Epoch,
}

impl MemoryRead<'_> {
    /// When the data of its line at `line` is available.
    #[inline(always)]
    fn line_ready(
        &self,
        memory: &mut MemorySystem,
        port: &mut RootPort,
        quadrant: Option<&mut Quadrant>,
        line: u64,
    ) -> Time {
        let line = line / LINE * LINE;
        let (node, place) = (port.params().node, HostPhysical::new(line));
        let there = match self.home {
            Some(home) => memory.dma_read_from(self.start, node, home, place),
            None => memory.dma_read(self.start, node, place),
        };
        let ready = quadrant.map_or(there.ready, |quadrant| quadrant.read(there.ready));
        port.intake.line_read(line, self.start, ready)
    }

    /// Looks all lines up, and cuts the data into completions.
    #[inline(never)]
    fn cut(
        self,
        memory: &mut MemorySystem,
        port: &mut RootPort,
        Inbound { ready, pieces, quadrants, .. }: &mut Inbound,
        now: Time,
    ) {
        let (address, length) = self.range;
        let mut quadrant = Quadrant::of(quadrants, port.shares().quadrant, now);
        ready.clear();
        memory.announce(Agent::Device(port.params().node), self.target, Bytes::new(length.into()));
        let mut latest = self.start;
        for line in lines_of(self.target.get(), length) {
            latest = latest.max(self.line_ready(memory, port, quadrant.as_deref_mut(), line));
            ready.push(latest);
        }
        let combining = if port.intake.ordered() > now {
            Combining::Nothing
        } else if port.is_busy(self.start) {
            Combining::Waiting
        } else {
            Combining::Large
        };
        port.params().split.cut(address, length, ready, combining, port.params().max_payload, pieces);
    }

    /// [`complete`](Self::complete) for one of several pieces.
    #[inline(never)]
    fn complete_next(
        self,
        cx: &mut Context<'_>,
        memory: &MemorySystem,
        port: &mut RootPort,
        piece: &Piece,
        last: (u32, bool),
        ready: Time,
    ) {
        self.complete(cx, memory, port, piece, last, ready);
    }

    /// Sends the completion with a `piece` of the data once it is `ready`. `remaining` bytes have not been sent before.
    /// The request becomes the last completion.
    #[inline(always)]
    fn complete(
        &self,
        cx: &mut Context<'_>,
        memory: &MemorySystem,
        port: &mut RootPort,
        piece: &Piece,
        (remaining, is_last): (u32, bool),
        ready: Time,
    ) {
        let answer =
            CompletionHeader::with_data(port.id(), self.request, piece.address, piece.length, remaining);
        let lead = (piece.address & 3) as usize;
        let from = self.target + (piece.address - self.range.0);
        let answer = answer_tlp(self.tlp, TlpKind::CompletionData(answer));
        let fill = |payload: &mut [u8]| {
            let payload = &mut payload[lead..lead + piece.length as usize];
            match self.outside {
                None => memory.bytes().read_installed(from, payload),
                Some(outside) => outside.read(self.request.requester, Iova::new(piece.address), payload),
            }
        };
        let (packets, padding) = (&mut cx.wires.packets, port.params().split.padding(piece));
        let packet = if is_last {
            packets.answer(self.packet, &answer, padding, fill);
            self.packet
        } else {
            let packet = packets.encode_with(&answer, fill);
            let hop = packets.hop_mut(packet);
            (hop.padding, hop.epoch) = (padding, self.epoch);
            packet
        };
        port.queue_completion(cx, ready, packet);
    }
}

/// Writes the enabled bytes of `payload` at `target`.
#[inline(always)]
fn write_bytes(memory: &mut MemorySystem, target: HostPhysical, request: &MemoryRequest, payload: &[u8]) {
    let (address, length) = request.byte_range();
    let lead = (address & 3) as usize;
    if has_gaps(request) {
        // Non-contiguous byte enables: write the enabled bytes one by one.
        for (index, &byte) in payload.iter().enumerate() {
            if enables(request, index) {
                let place = HostPhysical::new(target.get() + index as u64 - lead as u64);
                let written = memory.bytes_mut().write(place, &[byte]);
                debug_assert!(written.is_ok(), "the whole request was checked");
            }
        }
    } else if let Some(bytes) = payload.get(lead..lead + length as usize) {
        let written = memory.bytes_mut().write(target, bytes);
        debug_assert!(written.is_ok(), "the whole request was checked");
    }
}

/// Writes the enabled bytes of `payload` outside.
#[cold]
fn write_outside(outside: &dyn OutsideMemory, request: &MemoryRequest, payload: &[u8]) {
    let (address, length) = request.byte_range();
    let lead = (address & 3) as usize;
    let first = address - lead as u64;
    if has_gaps(request) {
        for (index, byte) in payload.iter().enumerate().filter(|(index, _)| enables(request, *index)) {
            outside.write(request.requester, Iova::new(first + index as u64), std::slice::from_ref(byte));
        }
    } else if let Some(bytes) = payload.get(lead..lead + length as usize) {
        outside.write(request.requester, Iova::new(address), bytes);
    }
}

/// What the lines of a write pass on their way to memory.
struct WriteWay<'a> {
    /// Places of the I/O stack, if these are limited.
    places: Option<&'a mut WritePlaces>,
    /// Places of strictly ordered writes, with the time when earlier ones are globally ordered; none for relaxed ones.
    strict: Option<(&'a mut OrderedWrites, Time)>,
    /// The port's quadrant.
    quadrant: Option<&'a mut Quadrant>,
}

/// When all lines of a write at `target` are globally ordered. Partially written lines are merged one after another.
fn write_lines(
    memory: &mut MemorySystem,
    WriteWay { mut places, mut strict, mut quadrant }: WriteWay<'_>,
    port: &RootPortParams,
    start: Time,
    target: HostPhysical,
    request: &MemoryRequest,
) -> Time {
    let (_, length) = request.byte_range();
    let (first, end) = (target.get(), target.get() + u64::from(length));
    let (mut ordered, mut merged) = (start, Duration::ZERO);
    let node = port.node;
    memory.announce(Agent::Device(node), target, Bytes::new(length.into()));
    for line in lines_of(first, length) {
        let line_at = HostPhysical::new(line);
        let whole = line >= first && line + LINE <= end && !has_gaps(request);
        // A place is taken when the request arrives, which is earlier than the lookup by the latency.
        let waits = places.as_mut().map_or(Duration::ZERO, |places| {
            let arrived = start - port.request_latency;
            places.free_at(arrived).since(arrived)
        });
        let (covers, after) = match whole {
            true => (Coverage::FullLine, Duration::ZERO),
            false => {
                merged += port.partial_line;
                (Coverage::Partial, merged)
            }
        };
        let leaves = start + waits + after;
        let leaves = strict.as_mut().map_or(leaves, |(own, _)| own.leaves(leaves));
        let there = quadrant.as_mut().map_or(leaves, |quadrant| quadrant.write(leaves));
        let written = memory.dma_write(there, node, line_at, covers);
        if let Some(places) = &mut places {
            places.occupy(written.taken);
        }
        ordered = ordered.max(written.ready);
        if let Some((own, before)) = &mut strict {
            own.occupy(ordered.max(*before));
        }
    }
    ordered
}

/// Addresses of the cache lines that the `length` bytes at `address` overlap.
fn lines_of(address: u64, length: u32) -> impl ExactSizeIterator<Item = u64> {
    let first = address / LINE;
    let count = ((address % LINE + u64::from(length.max(1)) - 1) / LINE) as u32 + 1;
    (0..count).map(move |line| (first + u64::from(line)) * LINE)
}

fn first_dword(payload: &[u8]) -> u32 {
    payload.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
