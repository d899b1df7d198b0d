//! TLPs in flight: their bytes, in a pool that is allocated once.

use wire::pcie::crc::{ecrc_is_right, write_ecrc};
use wire::pcie::tlp::DIGEST_LEN;
use wire::pcie::{FlowClass, OrderingKey, Tlp};

use crate::link::{Credits, ReceiveSpace};

/// A TLP in flight, owned by whoever holds its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketId(u32);

/// What the link layer needs to know of a TLP, read off its header once.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Its flow class.
    pub class: FlowClass,
    /// Credits that it takes.
    pub credits: Credits,
}

impl Summary {
    /// What the link layer needs to know of `tlp`.
    #[inline]
    pub fn of(tlp: &Tlp) -> Self {
        let data = (tlp.payload_len() as u32).div_ceil(16);
        Self { class: tlp.class(), credits: Credits { header: 1, data } }
    }
}

/// The link layer's notes about a TLP on its current hop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    /// Sequence number given by the transmitter of this hop.
    pub sequence: u16,
    /// Training of the link during which the TLP was sent: a later one lost it.
    pub epoch: u32,
    /// Bytes that its sender leaves empty around it, where it moves data in units larger than a doubleword.
    pub padding: u16,
    /// Whether the event that is to deliver it came too early: there is another one.
    pub put_off: bool,
    /// LCRC as sent; only filled in where errors are injected, since it cannot fail elsewhere.
    pub lcrc: Option<u32>,
    /// Receive buffer that it occupies until it is consumed or sent on.
    pub held: Option<ReceiveSpace>,
}

#[derive(Default)]
struct PacketSlot {
    /// Header, payload and digest: the first `length` bytes.
    bytes: Vec<u8>,
    length: usize,
    /// The header, decoded; `None` if the bytes are no TLP any more.
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

    /// Makes the bytes those of `tlp` and gives the room for its payload, which holds anything.
    // Inlined, since who encodes a TLP knows of what kind it is: most of the work then folds away.
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
/// Slots and their buffers are reused, so that nothing is allocated once the
/// largest number of TLPs in flight has been seen. Beside the bytes stands the
/// header as they say it, so that no hop has to decode it again.
#[derive(Default)]
pub struct PacketPool {
    slots: Vec<PacketSlot>,
    free: Vec<u32>,
}

impl PacketPool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes `tlp` with `payload` into a fresh packet.
    ///
    /// A payload whose length is no multiple of four is padded with zeros, as
    /// the bytes that the byte enables leave out are on the wire.
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

    /// Encodes `tlp` whose payload the caller fills in: all of it, but for bytes of the first and the last
    /// doubleword, which are zero if they are left alone.
    #[inline(always)]
    pub fn encode_with(&mut self, tlp: &Tlp, fill: impl FnOnce(&mut [u8])) -> PacketId {
        let (id, slot) = self.allocate();
        let room = slot.encode(tlp);
        // Nothing of an earlier packet may show where the caller leaves bytes out.
        if let Some(first) = room.first_chunk_mut::<4>() {
            *first = [0; 4];
        }
        if let Some(last) = room.last_chunk_mut::<4>() {
            *last = [0; 4];
        }
        fill(room);
        id
    }

    /// A second packet with the same bytes, for a replay buffer.
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

    /// Gives the packet's slot back. The id must not be used afterwards.
    pub fn free(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// The packet's header; `None` if its bytes are no TLP, as after an injected error that no CRC caught.
    #[inline]
    pub fn header(&self, id: PacketId) -> Option<&Tlp> {
        self.slots[id.0 as usize].tlp.as_ref()
    }

    /// The packet's header and its payload; `None` if its bytes are no TLP.
    #[inline]
    pub fn decode(&self, id: PacketId) -> Option<(&Tlp, &[u8])> {
        let slot = &self.slots[id.0 as usize];
        let tlp = slot.tlp.as_ref()?;
        let digest = if tlp.common.digest { DIGEST_LEN } else { 0 };
        let end = slot.length.saturating_sub(digest).max(tlp.header_len());
        Some((tlp, &slot.bytes[tlp.header_len()..end]))
    }

    /// Puts the ECRC behind a TLP that has none.
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

    /// Changes what a header says that stays as long as it was; an ECRC follows.
    ///
    /// # Panics
    /// If it would become longer or shorter.
    pub fn rewrite(&mut self, id: PacketId, tlp: &Tlp) {
        let slot = &mut self.slots[id.0 as usize];
        assert_eq!(tlp.packet_len(), slot.length, "a header that is rewritten keeps its length");
        tlp.emit(&mut slot.bytes[..tlp.header_len()]);
        slot.tlp = Some(*tlp);
        if tlp.common.digest {
            write_ecrc(&mut slot.bytes[..slot.length]);
        }
    }

    /// As [`rewrite`](Self::rewrite), where the header may become longer or shorter: the data stays.
    ///
    /// # Panics
    /// If the TLP has another length of data.
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

    /// Whether the TLP's ECRC is that of its bytes.
    #[cold]
    pub fn ecrc_is_right(&self, id: PacketId) -> bool {
        ecrc_is_right(self.bytes(id))
    }

    /// What the link layer needs to know of the packet.
    ///
    /// # Panics
    /// If the packet was never encoded, which cannot be.
    pub fn summary(&self, id: PacketId) -> Summary {
        self.slots[id.0 as usize].summary.expect("a packet in flight has been encoded")
    }

    /// What the ordering rules look at of the packet; `None` if its bytes are no TLP any more.
    pub fn ordering(&self, id: PacketId) -> Option<OrderingKey> {
        self.header(id).map(OrderingKey::of)
    }

    /// Header, payload and digest as they stand on the wire, without framing.
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

    /// How many bytes the packet has on the wire, without framing.
    pub fn length(&self, id: PacketId) -> usize {
        self.slots[id.0 as usize].length
    }

    /// The packet's length on the wire, without framing, and the link layer's notes about it, to change them.
    #[inline]
    pub fn length_and_hop(&mut self, id: PacketId) -> (usize, &mut Hop) {
        let slot = &mut self.slots[id.0 as usize];
        (slot.length, &mut slot.hop)
    }

    /// The link layer's notes about the packet.
    pub fn hop(&self, id: PacketId) -> &Hop {
        &self.slots[id.0 as usize].hop
    }

    /// The link layer's notes about the packet, to change them.
    pub fn hop_mut(&mut self, id: PacketId) -> &mut Hop {
        &mut self.slots[id.0 as usize].hop
    }

    /// How many packets are in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
