//! Peer-to-peer requests between devices below root ports.
//!
//! Writes keep the requester ID and tag, as do reads where the root complex forwards them unchanged; completions return
//! by that ID. A write's receive buffer is released when it has left through the other port. Some root complexes split
//! writes into lines. Others split reads into requests of their own and complete them in address order: each piece
//! holds a place in a table until its completion. Between ports on different sockets, all of it crosses the
//! interconnect. A port reflects a TLP only if the machine's ports do: with a switch below that redirects to the root.

use std::collections::VecDeque;

use engine::Scheduler;
use units::{Bytes, HostPhysical, Time};
use wire::pcie::tlp::{AddressType, Common, CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Bdf, Tlp, TlpKind};

use super::inbound::{Deferred, answer_tlp};
use super::{Host, RootEvent};
use crate::event::Event;
use crate::memory::Cause;
use crate::packet::PacketId;
use crate::wires::{Context, Wires};

/// Highest tag. Pieces use tags from here down, requests of cores from 0 up.
const LAST_TAG: u16 = 255;

/// How a root complex splits peer-to-peer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerReads {
    /// Largest piece in bytes, a power of two; pieces end at its multiples.
    pub largest: u32,
    /// Largest number of outstanding pieces, at most 128.
    pub places: u16,
}

/// A TLP to forward through another port.
struct Copy {
    packet: PacketId,
    port: u8,
    at: Time,
}

/// A device's peer-to-peer read that is split into pieces.
struct Read {
    from: u8,
    to: u8,
    /// Link epoch at the requester; completions are only valid within it.
    epoch: u32,
    common: Common,
    /// The request as received.
    request: MemoryRequest,
    /// Target address of the first byte.
    target: u64,
    start: Time,
    length: u32,
    asked: u32,
    given: u32,
    data: Vec<u8>,
    /// Requested pieces in order: bytes received, 0 while outstanding.
    pieces: VecDeque<u32>,
    /// Number of the first piece in `pieces`.
    first_piece: u32,
    under_way: u32,
    failed: bool,
}

/// An outstanding piece.
#[derive(Clone, Copy)]
struct PeerPiece {
    read: u32,
    number: u32,
    offset: u32,
    length: u32,
    received: u32,
    /// Generation of its place, to detect reuse.
    generation: u32,
}

/// Table of peer-to-peer reads.
#[derive(Default)]
pub(super) struct Peers {
    reads: Vec<Option<Read>>,
    /// Reads with pieces left to request, oldest first.
    waiting: VecDeque<u32>,
    places: Vec<Option<PeerPiece>>,
    free: VecDeque<u16>,
    generation: u32,
    /// Reused, so that a copy allocates nothing.
    payload: Vec<u8>,
}

impl Peers {
    /// Grows the table to at least `places`.
    pub(super) fn grow(&mut self, places: u16) {
        let had = self.places.len() as u16;
        self.places.resize(usize::from(had.max(places)), None);
        self.free.extend(had..had.max(places));
    }

    /// Number of tags reserved for pieces.
    pub(super) fn tags(&self) -> usize {
        self.places.len()
    }

    fn add(&mut self, read: Read) -> u32 {
        let index = self.reads.iter().position(Option::is_none).unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        self.reads[index] = Some(read);
        index as u32
    }
}

impl Host {
    /// The port to a peer that owns a range, for a request that arrived through another port.
    pub(super) fn peer_port(&self, wires: &Wires, from: u8, at: HostPhysical, length: u32) -> Option<u8> {
        let last = at.get().checked_add(u64::from(length.max(1)) - 1)?;
        let reflects = self.ports[usize::from(from)].params.reflects_peers;
        let port = self.outbound.port_of(at.get()).filter(|&port| port != from || reflects)?;
        (self.outbound.port_of(last) == Some(port) && self.port(port).is_up(wires)).then_some(port)
    }

    /// Forwards a request to a peer at `start`, if it targets one. The packet is then consumed except for its credits.
    pub(super) fn send_to_peer(
        &mut self,
        cx: &mut Context<'_>,
        what: &Deferred,
        tlp: &Tlp,
        request: &MemoryRequest,
        start: Time,
    ) -> bool {
        let (address, length) = request.byte_range();
        let Some(target) = what.target else { return false };
        let Some(to) = self.peer_port(cx.wires, what.port, target, length) else { return false };
        let mut common = tlp.common;
        common.address_type = AddressType::Untranslated;
        let cuts = self.ports[usize::from(what.port)].params.peer_reads.is_some();
        if matches!(tlp.kind, TlpKind::MemoryRead(_)) && cuts && length > 0 {
            let start = self.cross((what.port, to), start, 0);
            let read = Read {
                from: what.port,
                to,
                epoch: cx.wires.packets.hop(what.packet).epoch,
                common,
                request: *request,
                target: target.get(),
                start,
                length,
                asked: 0,
                given: 0,
                data: vec![0; length as usize],
                pieces: VecDeque::new(),
                first_piece: 0,
                under_way: 0,
                failed: false,
            };
            let index = self.peers.add(read);
            self.peers.waiting.push_back(index);
            self.ask_peers(cx);
            return true;
        }
        let request = MemoryRequest { address: target.get() - (address - request.address), ..*request };
        let TlpKind::MemoryWrite(_) = tlp.kind else {
            let kind = TlpKind::MemoryRead(request);
            let copy = self.copy_on(cx, what.packet, &Tlp { common, kind }, (what.port, to, start), None);
            self.send_copy(cx.scheduler, copy);
            return true;
        };
        // A write of at most two doublewords may have disabled bytes, and is forwarded unchanged.
        let largest = self.ports[usize::from(what.port)].params.peer_writes.filter(|_| length > 8);
        let from = target.get();
        let mut done = 0;
        while done < length || length == 0 {
            let at = from + u64::from(done);
            let to_boundary = |largest| u64::from(largest) - at % u64::from(largest);
            let here = largest.map_or(u64::MAX, to_boundary).min(u64::from(length - done)) as u32;
            let request = match here == length {
                true => request,
                false => MemoryRequest::for_bytes(request.requester, request.tag, at, here),
            };
            let kind = TlpKind::MemoryWrite(request);
            let part = (here < length).then(|| {
                let begin = (address & 3) as usize + done as usize;
                ((at & 3) as usize, begin..begin + here as usize)
            });
            let copy = self.copy_on(cx, what.packet, &Tlp { common, kind }, (what.port, to, start), part);
            done += here;
            if done == length {
                // Its receive buffer is released when the last piece has left.
                let held = cx.wires.packets.hop_mut(what.packet).held.take();
                cx.wires.packets.hop_mut(copy.packet).held = held;
            }
            self.send_copy(cx.scheduler, copy);
            let own = &mut self.ports[usize::from(what.port)];
            own.last_to_peer += own.params.peer_write_interval;
            if length == 0 {
                break;
            }
        }
        true
    }

    /// Forwards a completion for a device below another port at `start`; `false` if it is for this root complex.
    pub(super) fn send_to_requester(
        &mut self,
        cx: &mut Context<'_>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        start: Time,
    ) -> bool {
        if self.ports[usize::from(port)].id == header.requester {
            return self.peer_answered(cx, port, packet, header, start);
        }
        let reflects = self.ports[usize::from(port)].params.reflects_peers;
        let to = self.ports.iter().position(|port| port.buses.contains(&header.requester.bus()));
        let Some(to) = to.filter(|&to| to != usize::from(port) || reflects) else { return false };
        let now = cx.now();
        if let Some(&tlp) = cx.wires.packets.header(packet) {
            let copy = self.copy_on(cx, packet, &tlp, (port, to as u8, start), None);
            self.send_copy(cx.scheduler, copy);
        }
        cx.consume(packet, now);
        true
    }

    /// When `bytes` that leave one port at `at` reach another, behind earlier traffic between the two.
    fn cross(&mut self, (from, to): (u8, u8), at: Time, bytes: u64) -> Time {
        let [from_node, to_node] = [from, to].map(|port| self.ports[usize::from(port)].params.node);
        let there = match from_node == to_node {
            true => at,
            false => self.memory.charge_interconnect(at, Cause::Dma, from_node, to_node, Bytes::new(bytes)),
        };
        let last = &mut self.ports[usize::from(from)].last_to_peer;
        *last = there.max(*last);
        *last
    }

    /// Makes a copy of `tlp` for another port, with the payload of `packet` or `part` of it.
    fn copy_on(
        &mut self,
        cx: &mut Context<'_>,
        packet: PacketId,
        tlp: &Tlp,
        (from, to, start): (u8, u8, Time),
        part: Option<(usize, std::ops::Range<usize>)>,
    ) -> Copy {
        let mut bytes = std::mem::take(&mut self.peers.payload);
        bytes.clear();
        if let Some((_, payload)) = cx.wires.packets.decode(packet) {
            match part.and_then(|(lead, part)| Some((lead, payload.get(part)?))) {
                None => bytes.extend_from_slice(payload),
                Some((lead, part)) => {
                    // The first and last bytes may lie anywhere in their doublewords.
                    bytes.resize(lead, 0);
                    bytes.extend_from_slice(part);
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                }
            }
        }
        let packet = cx.wires.packets.encode(tlp, &bytes);
        let start = self.cross((from, to), start.max(cx.now()), bytes.len() as u64);
        self.peers.payload = bytes;
        let state = &self.ports[usize::from(to)];
        cx.wires.tie(state.end, packet);
        Copy { packet, port: to, at: start + state.params.peer_latency }
    }

    /// Sends a copy.
    fn send_copy(&self, scheduler: &mut Scheduler<Event>, copy: Copy) {
        self.port(copy.port).send(scheduler, copy.at, copy.packet);
    }

    /// Requests pieces of peer-to-peer reads while there are free places.
    fn ask_peers(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        while let Some(&index) = self.peers.waiting.front() {
            let Some(place) = self.peers.free.pop_front() else { return };
            let read = self.peers.reads[index as usize].as_mut().expect("a read that waits is not over");
            let largest =
                self.ports[usize::from(read.from)].params.peer_reads.map_or(u32::MAX, |own| own.largest);
            let at = read.target + u64::from(read.asked);
            let to_boundary = u64::from(largest) - at % u64::from(largest);
            let length = to_boundary.min(u64::from(read.length - read.asked)) as u32;
            let port = &self.ports[usize::from(read.to)];
            let request = MemoryRequest::for_bytes(port.id, LAST_TAG - place, at, length);
            let packet = cx
                .wires
                .packets
                .encode(&Tlp { common: read.common, kind: TlpKind::MemoryRead(request) }, &[]);
            cx.wires.tie(port.end, packet);
            let leaves = read.start.max(now) + port.params.peer_latency;
            let generation = self.peers.generation.wrapping_add(1);
            self.peers.generation = generation;
            let number = read.first_piece + read.pieces.len() as u32;
            let offset = read.asked;
            self.peers.places[usize::from(place)] =
                Some(PeerPiece { read: index, number, offset, length, received: 0, generation });
            read.pieces.push_back(0);
            read.asked += length;
            read.under_way += 1;
            let (to, timeout) = (read.to, port.params.completion_timeout);
            if read.asked == read.length {
                self.peers.waiting.pop_front();
            }
            self.ports[usize::from(to)].send(cx.scheduler, leaves, packet);
            let late = RootEvent::PeerTimeout { place, generation };
            cx.scheduler.at(leaves + timeout, Event::Root(self.id, late));
        }
    }

    /// Handles the completion of a piece; `false` if it belongs to none.
    fn peer_answered(
        &mut self,
        cx: &mut Context<'_>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        at: Time,
    ) -> bool {
        let Some(place) = LAST_TAG.checked_sub(header.tag) else { return false };
        let Some(&Some(mut piece)) = self.peers.places.get(usize::from(place)) else { return false };
        let read = self.peers.reads[piece.read as usize].as_mut().expect("a piece's read is not over");
        let left = piece.length - piece.received;
        if read.to != port
            || header.status == CompletionStatus::Successful && u32::from(header.byte_count) != left
        {
            return false;
        }
        let here = header.bytes_here().min(left);
        let (lead, to) = (usize::from(header.lower_address & 3), (piece.offset + piece.received) as usize);
        let decoded = cx.wires.packets.decode(packet).filter(|(tlp, _)| !tlp.common.poisoned);
        let bytes = decoded.and_then(|(_, payload)| payload.get(lead..lead + here as usize));
        let is_good = header.status == CompletionStatus::Successful && bytes.is_some() && here > 0;
        if let Some(bytes) = bytes.filter(|_| is_good) {
            read.data[to..to + bytes.len()].copy_from_slice(bytes);
            piece.received += here;
        }
        cx.consume(packet, cx.now());
        if is_good && piece.received < piece.length {
            self.peers.places[usize::from(place)] = Some(piece);
        } else {
            self.end_piece(cx, place, piece, is_good, at);
        }
        true
    }

    /// A piece was completed or has failed: sends the available data of its read to the requester, in order.
    fn end_piece(&mut self, cx: &mut Context<'_>, place: u16, piece: PeerPiece, is_good: bool, at: Time) {
        self.peers.places[usize::from(place)] = None;
        self.peers.free.push_back(place);
        let index = piece.read as usize;
        let mut read = self.peers.reads[index].take().expect("a piece's read is not over");
        read.under_way -= 1;
        if !is_good && !read.failed {
            read.failed = true;
            read.asked = read.length;
            self.peers.waiting.retain(|&other| other != piece.read);
            let completer = self.ports[usize::from(read.to)].id;
            let status = CompletionStatus::CompleterAbort;
            let error = CompletionHeader::for_read_error(completer, &read.request, status);
            self.answer_peer(cx, &read, TlpKind::Completion(error), &[], at);
        }
        if !read.failed {
            read.pieces[(piece.number - read.first_piece) as usize] = piece.length;
            while let Some(&length) = read.pieces.front().filter(|&&length| length > 0) {
                let completer = self.ports[usize::from(read.to)].id;
                let from = read.request.byte_range().0 + u64::from(read.given);
                let left = read.length - read.given;
                let header = CompletionHeader::with_data(completer, &read.request, from, length, left);
                let bytes = &read.data[read.given as usize..(read.given + length) as usize];
                self.answer_peer(cx, &read, TlpKind::CompletionData(header), bytes, at);
                read.given += length;
                read.first_piece += 1;
                read.pieces.pop_front();
            }
        }
        if read.under_way > 0 || read.asked < read.length {
            self.peers.reads[index] = Some(read);
        }
        self.ask_peers(cx);
    }

    /// Sends a completion of the root complex to the requester of a peer-to-peer read.
    fn answer_peer(&mut self, cx: &mut Context<'_>, read: &Read, kind: TlpKind, bytes: &[u8], at: Time) {
        let request = Tlp { common: read.common, kind: TlpKind::MemoryRead(read.request) };
        let lead = (read.request.byte_range().0 + u64::from(read.given)) as usize & 3;
        let packet = cx.wires.packets.encode_with(&answer_tlp(&request, kind), |payload| {
            if !bytes.is_empty() {
                payload[lead..lead + bytes.len()].copy_from_slice(bytes);
            }
        });
        // If the link went down since, the requester is gone.
        cx.wires.packets.hop_mut(packet).epoch = read.epoch;
        let there = self.cross((read.to, read.from), at.max(cx.now()), bytes.len() as u64);
        let port = self.port(read.from);
        port.send(cx.scheduler, there + port.params.peer_latency, packet);
    }

    /// Times a piece out if it is still outstanding.
    pub(super) fn peer_timeout(&mut self, cx: &mut Context<'_>, place: u16, generation: u32) {
        if let Some(&Some(piece)) = self.peers.places.get(usize::from(place))
            && piece.generation == generation
        {
            self.end_piece(cx, place, piece, false, cx.now());
        }
    }

    /// No completion will come through a port any more.
    pub(super) fn abandon_peers(&mut self, cx: &mut Context<'_>, port: u8) {
        for place in 0..self.peers.places.len() as u16 {
            let Some(piece) = self.peers.places[usize::from(place)] else { continue };
            let read = self.peers.reads[piece.read as usize].as_ref();
            if read.is_some_and(|read| read.to == port) {
                self.end_piece(cx, place, piece, false, cx.now());
            }
        }
    }

    /// Whether a device below the root port `from` can reach all of a range of another device.
    pub fn has_way_to(&self, from: Bdf, at: HostPhysical, length: u64) -> bool {
        let from = self.ports.iter().position(|port| port.id == from);
        let (first, last) =
            (self.outbound.port_of(at.get()), self.outbound.port_of(at.get() + length.max(1) - 1));
        let reaches = |from: usize| first != Some(from as u8) || self.ports[from].params.reflects_peers;
        first.is_some() && first == last && from.is_some_and(reaches)
    }
}
