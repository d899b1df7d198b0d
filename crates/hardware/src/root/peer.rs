//! Peer-to-peer requests between devices below root ports.
//!
//! Writes keep the requester ID and tag, as do reads where the root complex forwards them unchanged; completions return
//! by that ID. A write's receive buffer is released when it has left through the other port. Some root complexes split
//! writes into lines. Others split reads into requests of their own and complete them in address order: each piece
//! holds a place in a table until its completion. Between ports on different sockets, all of it crosses the
//! interconnect. A port reflects a TLP only if the machine's ports do: with a switch below that redirects to the root.

use std::collections::VecDeque;

use engine::{Epoch, WaitTime};
use units::{Bytes, Duration, Time};
use wire::pcie::tlp::{AddressType, Common, CompletionHeader, CompletionStatus, MemoryRequest};
use wire::pcie::{Tlp, TlpKind};

use super::RootEvent;
use super::deferred::{Deferred, answer_tlp};
use super::means::Means;
use crate::memory::Cause;
use crate::packet::PacketId;

/// Highest tag. Pieces use tags from here down, requests of cores from 0 up.
const LAST_TAG: u16 = 255;

/// A device's peer-to-peer read that is split into pieces.
struct SplitRead {
    /// Port of the requester.
    from: u8,
    /// Port of the target.
    to: u8,
    /// Link epoch at the requester; completions are only valid within it.
    epoch: Epoch,
    common: Common,
    /// The request as received.
    request: MemoryRequest,
    /// Target address of the first byte.
    target: u64,
    /// When pieces may leave.
    start: Time,
    /// Length in bytes.
    length: u32,
    requested_bytes: u32,
    completed_bytes: u32,
    data: Vec<u8>,
    /// Requested pieces in order: bytes received, 0 while outstanding.
    pieces: VecDeque<u32>,
    /// Number of the first piece in `pieces`.
    first_piece: u32,
    outstanding_pieces: u32,
    /// Whether a piece failed: the requester has got an error instead of what was left, so nothing more is requested.
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
    /// Set when it was requested.
    epoch: Epoch,
}

/// Table of peer-to-peer reads.
#[derive(Default)]
pub(super) struct Peers {
    reads: Vec<Option<SplitRead>>,
    /// Reads with pieces left to request, oldest first.
    waiting: VecDeque<u32>,
    places: Vec<Option<PeerPiece>>,
    free: VecDeque<u16>,
    /// Time during which a read has waited for a free place.
    waited: WaitTime,
    /// Ends with each piece requested, so that a timeout finds its own piece only.
    epoch: Epoch,
    /// Reused, so that a copy allocates nothing.
    payload: Vec<u8>,
}

impl Peers {
    /// Grows the table to at least `places`.
    pub fn grow(&mut self, places: u16) {
        let had = self.places.len() as u16;
        self.places.resize(usize::from(had.max(places)), None);
        self.free.extend(had..had.max(places));
    }

    /// Number of tags reserved for pieces.
    pub fn tags(&self) -> usize {
        self.places.len()
    }

    /// How long reads have waited for free places, until `now`.
    pub fn waited(&self, now: Time) -> Duration {
        self.waited.until(now)
    }

    /// Number of reads that are split, and of their outstanding pieces.
    pub fn under_way(&self) -> usize {
        self.reads.iter().flatten().count() + self.places.iter().flatten().count()
    }

    fn add(&mut self, read: SplitRead) -> u32 {
        let index = self.reads.iter().position(Option::is_none).unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        self.reads[index] = Some(read);
        index as u32
    }

    /// Forwards a request to a peer at `start`, if it targets one. The packet is then consumed except for its credits.
    pub fn forward(
        &mut self,
        means: &mut Means<'_, '_>,
        what: Deferred,
        tlp: &Tlp,
        request: &MemoryRequest,
        start: Time,
    ) -> bool {
        let (address, length) = request.byte_range();
        let Some(target) = what.target else { return false };
        let to = means.ports.of_range(target, length.into()).filter(|&to| means.ports.joins(what.port, to));
        let Some(to) = to.filter(|&to| means.ports[to].is_up(means.cx.wires)) else { return false };
        let mut common = tlp.common;
        common.address_type = AddressType::Untranslated;
        let cuts = means.ports[what.port].params().peer_reads.is_some();
        if matches!(tlp.kind, TlpKind::MemoryRead(_)) && cuts && length > 0 {
            let start = cross(means, (what.port, to), start, 0);
            let read = SplitRead {
                from: what.port,
                to,
                epoch: means.cx.wires.packets.hop(what.packet).epoch,
                common,
                request: *request,
                target: target.get(),
                start,
                length,
                requested_bytes: 0,
                completed_bytes: 0,
                data: vec![0; length as usize],
                pieces: VecDeque::new(),
                first_piece: 0,
                outstanding_pieces: 0,
                failed: false,
            };
            let index = self.add(read);
            self.waiting.push_back(index);
            self.ask(means);
            return true;
        }
        let request = MemoryRequest { address: target.get() - (address - request.address), ..*request };
        let TlpKind::MemoryWrite(_) = tlp.kind else {
            let kind = TlpKind::MemoryRead(request);
            self.send_on(means, what.packet, &Tlp { common, kind }, (what.port, to, start), None);
            return true;
        };
        // A write of at most two doublewords may have disabled bytes, and is forwarded unchanged.
        let largest = means.ports[what.port].params().peer_writes.filter(|_| length > 8);
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
            let is_strict = !common.relaxed_ordering;
            let strict = &mut means.ports[what.port].ordered_to_peers;
            let leaves = if is_strict { strict.leaves(start) } else { start };
            let way = (what.port, to, leaves);
            let (copy, there) = self.send_on(means, what.packet, &Tlp { common, kind }, way, part);
            if is_strict {
                means.ports[what.port].ordered_to_peers.occupy(there);
            }
            done += here;
            if done == length {
                // Its receive buffer is released when the last piece has left.
                let held = means.cx.wires.packets.hop_mut(what.packet).held.take();
                means.cx.wires.packets.hop_mut(copy).held = held;
            }
            means.ports[what.port].space_peer_writes();
            if length == 0 {
                break;
            }
        }
        true
    }

    /// Forwards a completion for a device below another port at `start`; `false` if it is for this root complex.
    pub fn answered(
        &mut self,
        means: &mut Means<'_, '_>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        start: Time,
    ) -> bool {
        if means.ports[port].id() == header.requester {
            return self.piece_answered(means, port, packet, header, start);
        }
        let to = means.ports.of_bus(header.requester.bus());
        let Some(to) = to.filter(|&to| means.ports.joins(port, to)) else { return false };
        let now = means.cx.now();
        if let Some(&tlp) = means.cx.wires.packets.header(packet) {
            self.send_on(means, packet, &tlp, (port, to, start), None);
        }
        means.cx.consume(packet, now);
        true
    }

    /// Sends a copy of `tlp` through another port, with the payload of `packet` or `part` of it. Returns when it is at that port's link.
    fn send_on(
        &mut self,
        means: &mut Means<'_, '_>,
        packet: PacketId,
        tlp: &Tlp,
        (from, to, start): (u8, u8, Time),
        part: Option<(usize, std::ops::Range<usize>)>,
    ) -> (PacketId, Time) {
        let mut bytes = std::mem::take(&mut self.payload);
        bytes.clear();
        if let Some((_, payload)) = means.cx.wires.packets.decode(packet) {
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
        let packet = means.cx.wires.packets.encode(tlp, &bytes);
        let start = cross(means, (from, to), start.max(means.cx.now()), bytes.len() as u64);
        self.payload = bytes;
        let state = &means.ports[to];
        means.cx.wires.tie(state.end(), packet);
        let there = start + state.params().peer_latency;
        state.send(means.cx, there, packet);
        (packet, there)
    }

    /// Requests pieces of peer-to-peer reads while there are free places.
    fn ask(&mut self, means: &mut Means<'_, '_>) {
        let now = means.cx.now();
        while let Some(&index) = self.waiting.front() {
            let Some(place) = self.free.pop_front() else {
                return self.waited.begin(now);
            };
            self.waited.end(now);
            let read = self.reads[index as usize].as_mut().expect("a read that waits is not over");
            let largest = means.ports[read.from].params().peer_reads.map_or(u32::MAX, |own| own.largest);
            let at = read.target + u64::from(read.requested_bytes);
            let to_boundary = u64::from(largest) - at % u64::from(largest);
            let length = to_boundary.min(u64::from(read.length - read.requested_bytes)) as u32;
            let port = &means.ports[read.to];
            let request = MemoryRequest::for_bytes(port.id(), LAST_TAG - place, at, length);
            let packet = means
                .cx
                .wires
                .packets
                .encode(&Tlp { common: read.common, kind: TlpKind::MemoryRead(request) }, &[]);
            means.cx.wires.tie(port.end(), packet);
            let leaves = read.start.max(now) + port.params().peer_latency;
            self.epoch.end();
            let epoch = self.epoch;
            let number = read.first_piece + read.pieces.len() as u32;
            let offset = read.requested_bytes;
            self.places[usize::from(place)] =
                Some(PeerPiece { read: index, number, offset, length, received: 0, epoch });
            read.pieces.push_back(0);
            read.requested_bytes += length;
            read.outstanding_pieces += 1;
            let timeout = port.params().completion_timeout;
            port.send(means.cx, leaves, packet);
            if read.requested_bytes == read.length {
                self.waiting.pop_front();
            }
            means.at(leaves + timeout, RootEvent::PeerTimeout { place, epoch });
        }
    }

    /// Handles the completion of a piece; `false` if it belongs to none.
    fn piece_answered(
        &mut self,
        means: &mut Means<'_, '_>,
        port: u8,
        packet: PacketId,
        header: &CompletionHeader,
        at: Time,
    ) -> bool {
        let Some(place) = LAST_TAG.checked_sub(header.tag) else { return false };
        let Some(&Some(mut piece)) = self.places.get(usize::from(place)) else { return false };
        let read = self.reads[piece.read as usize].as_mut().expect("a piece's read is not over");
        let left = piece.length - piece.received;
        if read.to != port
            || header.status == CompletionStatus::Successful && u32::from(header.byte_count) != left
        {
            return false;
        }
        let here = header.bytes_here().min(left);
        let (lead, to) = (usize::from(header.lower_address & 3), (piece.offset + piece.received) as usize);
        let decoded = means.cx.wires.packets.decode(packet).filter(|(tlp, _)| !tlp.common.poisoned);
        let bytes = decoded.and_then(|(_, payload)| payload.get(lead..lead + here as usize));
        let is_good = header.status == CompletionStatus::Successful && bytes.is_some() && here > 0;
        if let Some(bytes) = bytes.filter(|_| is_good) {
            read.data[to..to + bytes.len()].copy_from_slice(bytes);
            piece.received += here;
        }
        means.cx.consume(packet, means.cx.now());
        if is_good && piece.received < piece.length {
            self.places[usize::from(place)] = Some(piece);
        } else {
            self.end_piece(means, place, piece, is_good, at);
        }
        true
    }

    /// A piece was completed or has failed: sends the available data of its read to the requester, in order.
    fn end_piece(
        &mut self,
        means: &mut Means<'_, '_>,
        place: u16,
        piece: PeerPiece,
        is_good: bool,
        at: Time,
    ) {
        self.places[usize::from(place)] = None;
        self.free.push_back(place);
        let index = piece.read as usize;
        let mut read = self.reads[index].take().expect("a piece's read is not over");
        read.outstanding_pieces -= 1;
        if !is_good && !read.failed {
            read.failed = true;
            read.requested_bytes = read.length;
            self.waiting.retain(|&other| other != piece.read);
            let completer = means.ports[read.to].id();
            let status = CompletionStatus::CompleterAbort;
            let error = CompletionHeader::for_read_error(completer, &read.request, status);
            answer(means, &read, TlpKind::Completion(error), &[], at);
        }
        if !read.failed {
            read.pieces[(piece.number - read.first_piece) as usize] = piece.length;
            while let Some(&length) = read.pieces.front().filter(|&&length| length > 0) {
                let completer = means.ports[read.to].id();
                let from = read.request.byte_range().0 + u64::from(read.completed_bytes);
                let left = read.length - read.completed_bytes;
                let header = CompletionHeader::with_data(completer, &read.request, from, length, left);
                let bytes =
                    &read.data[read.completed_bytes as usize..(read.completed_bytes + length) as usize];
                answer(means, &read, TlpKind::CompletionData(header), bytes, at);
                read.completed_bytes += length;
                read.first_piece += 1;
                read.pieces.pop_front();
            }
        }
        if read.outstanding_pieces > 0 || read.requested_bytes < read.length {
            self.reads[index] = Some(read);
        }
        self.ask(means);
    }

    /// Times a piece out if it is still outstanding.
    pub fn timeout(&mut self, means: &mut Means<'_, '_>, place: u16, epoch: Epoch) {
        if let Some(&Some(piece)) = self.places.get(usize::from(place))
            && piece.epoch == epoch
        {
            self.end_piece(means, place, piece, false, means.cx.now());
        }
    }

    /// No completion will come through a port any more.
    pub fn abandon(&mut self, means: &mut Means<'_, '_>, port: u8) {
        for place in 0..self.places.len() as u16 {
            let Some(piece) = self.places[usize::from(place)] else { continue };
            let read = self.reads[piece.read as usize].as_ref();
            if read.is_some_and(|read| read.to == port) {
                self.end_piece(means, place, piece, false, means.cx.now());
            }
        }
    }
}

/// When `bytes` that leave one port at `at` reach another, behind earlier traffic between the two.
fn cross(means: &mut Means<'_, '_>, (from, to): (u8, u8), at: Time, bytes: u64) -> Time {
    let [from_node, to_node] = [from, to].map(|port| means.ports[port].params().node);
    let there = match from_node == to_node {
        true => at,
        false => {
            let at = means.ports[from].on_peer_link(at, bytes);
            means.memory.charge_interconnect(at, Cause::Dma, from_node, to_node, Bytes::new(bytes))
        }
    };
    means.ports[from].in_order_to_peer(there)
}

/// Sends a completion of the root complex to the requester of a read.
fn answer(means: &mut Means<'_, '_>, read: &SplitRead, kind: TlpKind, bytes: &[u8], at: Time) {
    let request = Tlp { common: read.common, kind: TlpKind::MemoryRead(read.request) };
    let lead = (read.request.byte_range().0 + u64::from(read.completed_bytes)) as usize & 3;
    let packet = means.cx.wires.packets.encode_with(&answer_tlp(&request, kind), |payload| {
        if !bytes.is_empty() {
            payload[lead..lead + bytes.len()].copy_from_slice(bytes);
        }
    });
    // If the link went down since, the requester is gone.
    means.cx.wires.packets.hop_mut(packet).epoch = read.epoch;
    let there = cross(means, (read.to, read.from), at.max(means.cx.now()), bytes.len() as u64);
    let port = &means.ports[read.from];
    port.send(means.cx, there + port.params().peer_latency, packet);
}
