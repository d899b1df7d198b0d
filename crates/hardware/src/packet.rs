//! TLPs in flight, in a pool of reused buffers.

use wire::pcie::crc::{ecrc_is_right, write_ecrc};
use wire::pcie::tlp::DIGEST_LEN;
use wire::pcie::{FlowClass, OrderingKey, Tlp};

use crate::link::{Credits, ReceiveSpace};

/// A TLP in flight, owned by the holder of its ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketId(u32);

/// Properties of a TLP for the link layer, extracted from its header once.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Its flow class.
    pub class: FlowClass,
    /// Credits that it needs.
    pub credits: Credits,
}

impl Summary {
    /// Summary of `tlp`.
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
    pub epoch: u32,
    /// Padding bytes of the sender, if it moves data in units larger than a doubleword.
    pub padding: u16,
    /// Whether the scheduled delivery event is early and another one follows.
    pub put_off: bool,
    /// LCRC as sent; only computed with error injection, since it cannot fail otherwise.
    pub lcrc: Option<u32>,
    /// Receive buffer that it holds until it is consumed or forwarded.
    pub held: Option<ReceiveSpace>,
}

#[derive(Default)]
struct PacketSlot {
    /// Header, payload and digest: the first `length` bytes.
    bytes: Vec<u8>,
    length: usize,
    /// Decoded header; `None` if the bytes are no valid TLP any more.
    tlp: Option<Tlp>,
    summary: Option<Summary>,
    hop: Hop,
}

impl PacketSlot {
    #[cold]
    fn make_room(&mut self) {
        self.bytes.resize(self.length, 0);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Encodes `tlp` and returns the space for its payload, whose content is arbitrary.
    // Inlined, since callers know the kind of the TLP, so that most of the work is optimised away.
    #[inline(always)]
    fn encode(&mut self, tlp: &Tlp) -> &mut [u8] {
        let header = tlp.header_len();
        self.length = header + tlp.payload_len();
        if self.bytes.len() < self.length {
            self.make_room();
        }
        self.summary = Some(Summary::of(tlp));
        self.tlp = Some(*tlp);
        let (head, payload) = self.bytes[..self.length].split_at_mut(header);
        tlp.emit(head);
        debug_assert_eq!(Tlp::parse(head), Ok((*tlp, header)), "a header says what was encoded");
        payload
    }
}

/// All TLPs in flight of a simulation.
///
/// Slots and their buffers are reused, so nothing is allocated once the largest number of TLPs in flight has been
/// reached. The decoded header is kept beside the bytes, so that no hop has to decode it again.
#[derive(Default)]
pub struct PacketPool {
    slots: Vec<PacketSlot>,
    free: Vec<u32>,
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
        let room = slot.encode(tlp);
        // Do not leak bytes of an earlier packet where the caller leaves bytes out.
        if let Some(first) = room.first_chunk_mut::<4>() {
            *first = [0; 4];
        }
        if let Some(last) = room.last_chunk_mut::<4>() {
            *last = [0; 4];
        }
        fill(room);
        id
    }

    /// Copies a packet for a replay buffer.
    pub fn duplicate(&mut self, id: PacketId) -> PacketId {
        let (copy, _) = self.allocate();
        let (from, to) = (id.0 as usize, copy.0 as usize);
        let Ok([from, to]) = self.slots.get_disjoint_mut([from, to]) else {
            unreachable!("a packet in flight and a fresh one are two");
        };
        to.bytes.clear();
        to.bytes.extend_from_slice(from.bytes());
        (to.length, to.tlp, to.summary) = (from.length, from.tlp, from.summary);
        copy
    }

    #[inline]
    fn allocate(&mut self) -> (PacketId, &mut PacketSlot) {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let slot = &mut self.slots[index as usize];
        slot.hop = Hop::default();
        (PacketId(index), slot)
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        self.slots.push(PacketSlot::default());
        self.slots.len() as u32 - 1
    }

    /// Frees the packet's slot. The ID must not be used afterwards.
    pub fn free(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// The packet's header; `None` if its bytes are no valid TLP, as after an injected error that no CRC detected.
    #[inline]
    pub fn header(&self, id: PacketId) -> Option<&Tlp> {
        self.slots[id.0 as usize].tlp.as_ref()
    }

    /// The packet's header and payload; `None` if its bytes are no valid TLP.
    #[inline]
    pub fn decode(&self, id: PacketId) -> Option<(&Tlp, &[u8])> {
        let slot = &self.slots[id.0 as usize];
        let tlp = slot.tlp.as_ref()?;
        let digest = if tlp.common.digest { DIGEST_LEN } else { 0 };
        let end = slot.length.saturating_sub(digest).max(tlp.header_len());
        Some((tlp, &slot.bytes[tlp.header_len()..end]))
    }

    /// Appends an ECRC to a TLP without one.
    #[cold]
    pub fn protect(&mut self, id: PacketId) {
        let slot = &mut self.slots[id.0 as usize];
        if let Some(mut tlp) = slot.tlp.filter(|tlp| !tlp.common.digest) {
            tlp.common.digest = true;
            slot.length += DIGEST_LEN;
            if slot.bytes.len() < slot.length {
                slot.make_room();
            }
            tlp.emit(&mut slot.bytes[..tlp.header_len()]);
            write_ecrc(&mut slot.bytes[..slot.length]);
            slot.tlp = Some(tlp);
        }
    }

    /// Replaces a header with one of the same length, and updates the ECRC.
    ///
    /// # Panics
    /// If the length changes.
    pub fn rewrite(&mut self, id: PacketId, tlp: &Tlp) {
        let slot = &mut self.slots[id.0 as usize];
        assert_eq!(tlp.packet_len(), slot.length, "a header that is rewritten keeps its length");
        tlp.emit(&mut slot.bytes[..tlp.header_len()]);
        slot.tlp = Some(*tlp);
        if tlp.common.digest {
            write_ecrc(&mut slot.bytes[..slot.length]);
        }
    }

    /// Like [`rewrite`](Self::rewrite), but the header's length may change; the data is kept.
    ///
    /// # Panics
    /// If the data length changes.
    pub fn readdress(&mut self, id: PacketId, tlp: &Tlp) {
        let slot = &mut self.slots[id.0 as usize];
        let (length, header) = (tlp.packet_len(), tlp.header_len());
        if length != slot.length {
            let data = length - header;
            let old = slot.length - data;
            assert!([12, 16].contains(&old), "a TLP that is rewritten keeps its data");
            slot.length = length;
            if slot.bytes.len() < length {
                slot.make_room();
            }
            slot.bytes.copy_within(old..old + data, header);
        }
        self.rewrite(id, tlp);
    }

    /// Whether the TLP's ECRC matches its bytes.
    #[cold]
    pub fn ecrc_is_right(&self, id: PacketId) -> bool {
        ecrc_is_right(self.bytes(id))
    }

    /// The packet's summary.
    ///
    /// # Panics
    /// If the packet was never encoded, which is impossible.
    pub fn summary(&self, id: PacketId) -> Summary {
        self.slots[id.0 as usize].summary.expect("a packet in flight has been encoded")
    }

    /// The packet's key for the ordering rules; `None` if its bytes are no valid TLP any more.
    pub fn ordering(&self, id: PacketId) -> Option<OrderingKey> {
        self.header(id).map(OrderingKey::of)
    }

    /// Header, payload and digest as on the wire, without framing.
    pub fn bytes(&self, id: PacketId) -> &[u8] {
        self.slots[id.0 as usize].bytes()
    }

    /// Lets `act` corrupt or poison the bytes.
    #[cold]
    pub fn change_bytes<R>(&mut self, id: PacketId, act: impl FnOnce(&mut [u8]) -> R) -> R {
        let slot = &mut self.slots[id.0 as usize];
        let result = act(&mut slot.bytes[..slot.length]);
        slot.tlp = Tlp::parse(slot.bytes()).ok().map(|(tlp, _)| tlp);
        result
    }

    /// Length of the packet on the wire in bytes, without framing.
    pub fn length(&self, id: PacketId) -> usize {
        self.slots[id.0 as usize].length
    }

    /// The packet's length on the wire, without framing, and its link layer state, mutably.
    #[inline]
    pub fn length_and_hop(&mut self, id: PacketId) -> (usize, &mut Hop) {
        let slot = &mut self.slots[id.0 as usize];
        (slot.length, &mut slot.hop)
    }

    /// The packet's link layer state.
    pub fn hop(&self, id: PacketId) -> &Hop {
        &self.slots[id.0 as usize].hop
    }

    /// The packet's link layer state, mutably.
    pub fn hop_mut(&mut self, id: PacketId) -> &mut Hop {
        &mut self.slots[id.0 as usize].hop
    }

    /// Number of packets in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
