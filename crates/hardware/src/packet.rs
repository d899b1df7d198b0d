//! TLPs in flight: their bytes, in a pool that is allocated once.

use units::Time;
use wire::pcie::{FlowClass, Tlp, TlpError};

use crate::link::{Credits, Held};

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
    /// Whether it may pass posted requests that wait.
    pub relaxed: bool,
}

impl Summary {
    /// What the link layer needs to know of `tlp`.
    pub fn of(tlp: &Tlp) -> Self {
        let data = (tlp.payload_len() as u32).div_ceil(16);
        Self {
            class: tlp.class(),
            credits: Credits { header: 1, data },
            relaxed: tlp.common.relaxed_ordering,
        }
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
    /// When its last byte arrives. Later than its delivery where the receiver cuts through.
    pub tail: Time,
    /// LCRC as sent; only filled in where errors are injected, since it cannot fail elsewhere.
    pub lcrc: Option<u32>,
    /// Receive buffer that it occupies until it is consumed or sent on.
    pub held: Option<Held>,
}

#[derive(Default)]
struct Slot {
    bytes: Vec<u8>,
    summary: Option<Summary>,
    hop: Hop,
}

/// All TLPs in flight of a simulation.
///
/// Slots and their buffers are reused, so that nothing is allocated once the
/// largest number of TLPs in flight has been seen.
#[derive(Default)]
pub struct PacketPool {
    slots: Vec<Slot>,
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
    pub fn encode(&mut self, tlp: &Tlp, payload: &[u8]) -> PacketId {
        let id = self.allocate();
        let slot = &mut self.slots[id.0 as usize];
        let header = tlp.header_len();
        slot.summary = Some(Summary::of(tlp));
        slot.bytes.resize(header, 0);
        tlp.emit(&mut slot.bytes);
        slot.bytes.extend_from_slice(payload);
        slot.bytes.resize(header + tlp.payload_len(), 0);
        id
    }

    /// Encodes `tlp` whose payload the caller fills in, padding included.
    pub fn encode_with(&mut self, tlp: &Tlp, fill: impl FnOnce(&mut [u8])) -> PacketId {
        let id = self.allocate();
        let slot = &mut self.slots[id.0 as usize];
        let header = tlp.header_len();
        slot.summary = Some(Summary::of(tlp));
        // The fill overwrites what it needs; clearing keeps stale bytes of an earlier packet out of the rest.
        slot.bytes.clear();
        slot.bytes.resize(header + tlp.payload_len(), 0);
        tlp.emit(&mut slot.bytes[..header]);
        fill(&mut slot.bytes[header..]);
        id
    }

    /// A second packet with the same bytes, for a replay buffer.
    pub fn duplicate(&mut self, id: PacketId) -> PacketId {
        let copy = self.allocate();
        let bytes = std::mem::take(&mut self.slots[copy.0 as usize].bytes);
        let mut bytes = bytes;
        bytes.clear();
        bytes.extend_from_slice(&self.slots[id.0 as usize].bytes);
        self.slots[copy.0 as usize].bytes = bytes;
        self.slots[copy.0 as usize].summary = self.slots[id.0 as usize].summary;
        copy
    }

    fn allocate(&mut self) -> PacketId {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize].hop = Hop::default();
                PacketId(index)
            }
            None => {
                self.slots.push(Slot::default());
                PacketId(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Gives the packet's slot back. The id must not be used afterwards.
    pub fn free(&mut self, id: PacketId) {
        self.free.push(id.0);
    }

    /// Decodes the packet's header from its bytes.
    ///
    /// # Errors
    /// If the bytes are no TLP, as after an injected error that no CRC caught.
    pub fn decode(&self, id: PacketId) -> Result<(Tlp, &[u8]), TlpError> {
        let bytes = &self.slots[id.0 as usize].bytes;
        let (tlp, header) = Tlp::parse(bytes)?;
        Ok((tlp, &bytes[header..]))
    }

    /// What the link layer needs to know of the packet.
    ///
    /// # Panics
    /// If the packet was never encoded, which cannot be.
    pub fn summary(&self, id: PacketId) -> Summary {
        self.slots[id.0 as usize].summary.expect("a packet in flight has been encoded")
    }

    /// Header, payload and digest as they stand on the wire, without framing.
    pub fn bytes(&self, id: PacketId) -> &[u8] {
        &self.slots[id.0 as usize].bytes
    }

    /// The bytes, to corrupt or poison them.
    pub fn bytes_mut(&mut self, id: PacketId) -> &mut [u8] {
        &mut self.slots[id.0 as usize].bytes
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
