//! TLPs in flight, in a pool of reused buffers.
//!
//! Components work on decoded headers. A header's bytes are written when somebody looks at them: a tap, a CRC, an error
//! log.

use std::ops::Range;

use engine::Epoch;
use units::Time;
use wire::pcie::crc::{ecrc_is_right, write_ecrc};
use wire::pcie::tlp::{Common, DIGEST_LEN};
use wire::pcie::{FlowClass, OrderingKey, Tlp};

use crate::link::{Credits, Planned, ReceiveSpace};
use crate::table::{Queue, Table};

/// A TLP in flight, owned by the holder of its ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketId(u32);

/// Properties of a TLP for the link layer, extracted from its header once.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Posted, non-posted or completion: decides which credits it uses and what it may pass.
    pub class: FlowClass,
    /// Credits that it needs.
    pub credits: Credits,
}

impl Summary {
    /// What the header of `tlp` says to the link layer.
    #[inline]
    pub fn of(tlp: &Tlp) -> Self {
        let data = (tlp.payload_len() as u32).div_ceil(16);
        Self { class: tlp.class(), credits: Credits { header: 1, data } }
    }
}

/// Link layer state of a TLP on its current hop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    /// Sequence number assigned by the transmitter of this hop.
    pub sequence: u16,
    /// Link epoch in which the TLP was sent. A TLP of an earlier epoch is lost.
    pub epoch: Epoch,
    /// Padding bytes of the sender, if it moves data in units larger than a doubleword.
    pub padding: u16,
    /// Whether the scheduled delivery event is early and another one follows.
    pub put_off: bool,
    /// LCRC as sent; only computed with error injection, since it cannot fail otherwise.
    pub lcrc: Option<u32>,
    /// Receive buffer that it holds until it is consumed or forwarded.
    pub held: Option<ReceiveSpace>,
}

/// What a link has to know of a TLP.
pub struct OnLink<'a> {
    /// Its class and credits.
    pub needs: Summary,
    /// Its length on the wire in bytes, without framing.
    pub length: usize,
    /// Its link layer state.
    pub hop: &'a mut Hop,
}

/// Place of the payload in a packet's buffer: the header ends there, whatever its length.
const PAYLOAD: usize = 16;

struct PacketSlot {
    /// Header, payload and digest.
    bytes: Vec<u8>,
    /// Bytes of payload and digest.
    behind: u32,
    /// Bytes of the header.
    header: u32,
    /// Whether the header's bytes have been written.
    is_written: bool,
    /// Decoded header; `None` if the bytes are no valid TLP any more.
    tlp: Option<Tlp>,
    summary: Summary,
    hop: Hop,
    /// When it leaves and arrives, if it is planned for later.
    planned: Planned,
}

impl PacketSlot {
    fn new() -> Self {
        let summary = Summary { class: FlowClass::Posted, credits: Credits::default() };
        Self {
            bytes: vec![0; PAYLOAD],
            behind: 0,
            header: 0,
            is_written: true,
            tlp: None,
            summary,
            hop: Hop::default(),
            planned: Planned::default(),
        }
    }

    #[inline]
    fn length(&self) -> usize {
        (self.header + self.behind) as usize
    }

    #[cold]
    fn make_room(&mut self) {
        self.bytes.resize(PAYLOAD + self.behind as usize, 0);
    }

    /// Place of header, payload and digest in the buffer.
    fn place(&self) -> Range<usize> {
        PAYLOAD - self.header as usize..PAYLOAD + self.behind as usize
    }

    /// Header, payload and digest as on the wire.
    fn written(&mut self) -> &mut [u8] {
        let place = self.place();
        let bytes = &mut self.bytes[place];
        if let Some(tlp) = self.tlp.filter(|_| !self.is_written) {
            tlp.emit(bytes);
            debug_assert_eq!(
                Tlp::parse(bytes),
                Ok((tlp, self.header as usize)),
                "a header says what was encoded"
            );
            self.is_written = true;
        }
        bytes
    }

    /// Makes `tlp` the header, and returns the space for its payload, whose content is arbitrary.
    // Inlined, since callers know the kind of the TLP, so that most of the work is optimised away.
    #[inline(always)]
    fn encode(&mut self, tlp: &Tlp) -> &mut [u8] {
        let payload = tlp.payload_len();
        (self.header, self.behind) = (tlp.header_len() as u32, payload as u32);
        self.summary = Summary::of(tlp);
        // An ECRC is added where the TLP is sent.
        let common = Common { digest: false, ..tlp.common };
        self.tlp = Some(Tlp { common, ..*tlp });
        self.is_written = false;
        if self.bytes.len() < PAYLOAD + payload {
            self.make_room();
        }
        &mut self.bytes[PAYLOAD..PAYLOAD + payload]
    }

    /// Makes `tlp` the header, and lets `fill` write the payload.
    #[inline(always)]
    fn encode_with(&mut self, tlp: &Tlp, fill: impl FnOnce(&mut [u8])) {
        let room = self.encode(tlp);
        // Do not leak bytes of an earlier packet where the caller leaves bytes out.
        if let Some(first) = room.first_chunk_mut::<4>() {
            *first = [0; 4];
        }
        if let Some(last) = room.last_chunk_mut::<4>() {
            *last = [0; 4];
        }
        fill(room);
    }
}

/// All TLPs in flight of a simulation.
///
/// Slots and their buffers are reused, so nothing is allocated once the largest number of TLPs in flight has been
/// reached. The decoded header is kept beside the bytes, so that no hop has to decode it again.
#[derive(Default)]
pub struct PacketPool {
    slots: Table<PacketSlot>,
}

impl PacketPool {
    /// Creates an empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes `tlp` with `payload` into a new packet.
    ///
    /// A payload whose length is not a multiple of four is padded with zeros, like bytes disabled by byte enables.
    #[inline(always)]
    pub fn encode(&mut self, tlp: &Tlp, payload: &[u8]) -> PacketId {
        let (id, slot) = self.allocate();
        let room = slot.encode(tlp);
        if room.is_empty() {
            return id;
        }
        let (data, padding) = room.split_at_mut(payload.len().min(room.len()));
        data.copy_from_slice(&payload[..data.len()]);
        padding.fill(0);
        id
    }

    /// Encodes `tlp`; the caller fills in the whole payload. It may only leave out bytes of the first and last
    /// doubleword, which are then zero.
    #[inline(always)]
    pub fn encode_with(&mut self, tlp: &Tlp, fill: impl FnOnce(&mut [u8])) -> PacketId {
        let (id, slot) = self.allocate();
        slot.encode_with(tlp, fill);
        id
    }

    /// Makes a request, whose receive buffer has been released, its last completion, with `padding` bytes of its
    /// sender; otherwise like [`encode_with`](Self::encode_with). It is lost if the link has gone down since the request.
    #[inline(always)]
    pub fn answer(&mut self, request: PacketId, tlp: &Tlp, padding: u16, fill: impl FnOnce(&mut [u8])) {
        let slot = &mut self.slots[request.0];
        slot.hop = Hop { epoch: slot.hop.epoch, padding, ..Hop::default() };
        slot.encode_with(tlp, fill);
    }

    /// Copies a packet for a replay buffer.
    pub fn duplicate(&mut self, id: PacketId) -> PacketId {
        let (copy, _) = self.allocate();
        let pair = self.slots.pair_mut(id.0, copy.0);
        let [from, to] = pair.expect("a packet in flight and a fresh one are two");
        to.bytes.clone_from(&from.bytes);
        (to.behind, to.header, to.is_written) = (from.behind, from.header, from.is_written);
        (to.tlp, to.summary) = (from.tlp, from.summary);
        copy
    }

    #[inline]
    fn allocate(&mut self) -> (PacketId, &mut PacketSlot) {
        let index = self.slots.take().unwrap_or_else(|| self.grow());
        let slot = &mut self.slots[index];
        slot.hop = Hop::default();
        (PacketId(index), slot)
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.slots.add(PacketSlot::new())
    }

    /// Frees the packet's slot. The ID must not be used afterwards.
    pub fn free(&mut self, id: PacketId) {
        self.slots.free(id.0);
    }

    /// The packet's header; `None` if its bytes are no valid TLP, as after an injected error that no CRC detected.
    #[inline]
    pub fn header(&self, id: PacketId) -> Option<&Tlp> {
        self.slots[id.0].tlp.as_ref()
    }

    /// The packet's header and payload; `None` if its bytes are no valid TLP.
    #[inline]
    pub fn decode(&self, id: PacketId) -> Option<(&Tlp, &[u8])> {
        let slot = &self.slots[id.0];
        let tlp = slot.tlp.as_ref()?;
        let digest = if tlp.common.digest { DIGEST_LEN } else { 0 };
        let payload = (slot.behind as usize).saturating_sub(digest);
        Some((tlp, &slot.bytes[PAYLOAD..PAYLOAD + payload]))
    }

    /// Appends an ECRC to a TLP without one.
    #[cold]
    pub fn protect(&mut self, id: PacketId) {
        let slot = &mut self.slots[id.0];
        if let Some(mut tlp) = slot.tlp.filter(|tlp| !tlp.common.digest) {
            tlp.common.digest = true;
            slot.behind += DIGEST_LEN as u32;
            if slot.bytes.len() < PAYLOAD + slot.behind as usize {
                slot.make_room();
            }
            self.rewrite(id, &tlp);
        }
    }

    /// Replaces a header, and updates the ECRC. The header's length may change; the data is kept.
    ///
    /// # Panics
    /// If the data length changes.
    pub fn rewrite(&mut self, id: PacketId, tlp: &Tlp) {
        let slot = &mut self.slots[id.0];
        let header = tlp.header_len();
        assert_eq!(tlp.packet_len() - header, slot.behind as usize, "a TLP that is rewritten keeps its data");
        (slot.header, slot.tlp, slot.is_written) = (header as u32, Some(*tlp), false);
        if tlp.common.digest {
            write_ecrc(slot.written());
        }
    }

    /// Whether the TLP's ECRC matches its bytes.
    #[cold]
    pub fn ecrc_is_right(&self, id: PacketId) -> bool {
        // A header with a digest has been written, for its ECRC.
        let slot = &self.slots[id.0];
        ecrc_is_right(&slot.bytes[slot.place()])
    }

    /// The packet's summary.
    #[inline]
    pub fn summary(&self, id: PacketId) -> Summary {
        self.slots[id.0].summary
    }

    /// The packet's key for the ordering rules; `None` if its bytes are no valid TLP any more.
    pub fn ordering(&self, id: PacketId) -> Option<OrderingKey> {
        self.header(id).map(OrderingKey::of)
    }

    /// Header, payload and digest as on the wire, without framing.
    pub fn bytes(&mut self, id: PacketId) -> &[u8] {
        self.slots[id.0].written()
    }

    /// Lets `act` corrupt or poison the bytes.
    #[cold]
    pub fn change_bytes<R>(&mut self, id: PacketId, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let slot = &mut self.slots[id.0];
        let bytes = slot.written();
        let result = act(bytes);
        let parsed = Tlp::parse(bytes).ok();
        // The data stays where it is.
        slot.tlp = parsed.filter(|&(_, header)| header == slot.header as usize).map(|(tlp, _)| tlp);
        result
    }

    /// Length of the packet on the wire in bytes, without framing.
    #[inline]
    pub fn length(&self, id: PacketId) -> usize {
        self.slots[id.0].length()
    }

    /// What a link has to know of the packet.
    #[inline(always)]
    pub fn on_link(&mut self, id: PacketId) -> OnLink<'_> {
        let slot = &mut self.slots[id.0];
        OnLink { needs: slot.summary, length: slot.length(), hop: &mut slot.hop }
    }

    /// The packet's link layer state.
    pub fn hop(&self, id: PacketId) -> &Hop {
        &self.slots[id.0].hop
    }

    /// The packet's link layer state, mutably.
    pub fn hop_mut(&mut self, id: PacketId) -> &mut Hop {
        &mut self.slots[id.0].hop
    }

    /// Number of packets in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    /// Plans a TLP behind the others of `queue`.
    #[inline(always)]
    pub(crate) fn plan(&mut self, queue: &mut Queue, id: PacketId, planned: Planned) {
        self.slots[id.0].planned = planned;
        self.slots.append(queue, id.0);
    }

    /// Takes the first TLP from a queue of planned ones.
    #[inline(always)]
    pub(crate) fn pop_planned(&mut self, queue: &mut Queue) -> Option<(PacketId, Planned)> {
        let id = self.slots.pop(queue)?;
        Some((PacketId(id), self.slots[id].planned))
    }

    /// When the first TLP of a queue of planned ones leaves; [`Time::NEVER`] if there is none.
    #[inline(always)]
    pub(crate) fn first_planned(&self, queue: &Queue) -> Time {
        queue.first().map_or(Time::NEVER, |id| self.slots[id].planned.at)
    }

    /// The TLPs of a queue of planned ones.
    pub(crate) fn planned(&self, queue: &Queue) -> impl Iterator<Item = PacketId> {
        self.slots.queued(queue).map(PacketId)
    }
}
