//! Registers of an adapter with a non-transparent bridge (NTB), and the addresses on its cables.
//!
//! An adapter is an endpoint of its host. BAR 0 holds registers. BAR 2 is the window, divided into segments of equal
//! size, each of which maps a range of another host. Two requester tables, one per direction, translate requester IDs,
//! so that completions find their way back.
//!
//! The register layout of the modelled adapters is not documented publicly. This layout is our own; its elements are
//! common to all such bridges.

use crate::pcie::Bdf;

/// Bytes of BAR 0.
pub const REGISTER_BYTES: u64 = 0x1_0000;
/// Number of the BAR that holds the registers.
pub const REGISTER_BAR: u8 = 0;
/// Number of the BAR whose accesses leave through the cables.
pub const WINDOW_BAR: u8 = 2;

/// The adapter's own node number in the cluster.
pub const NODE: u64 = 0x00;
/// Number of segments in the window.
pub const SEGMENTS: u64 = 0x04;
/// Bytes of a segment, 64 bits.
pub const SEGMENT_BYTES: u64 = 0x08;
/// Entries of each requester table.
pub const REQUESTERS: u64 = 0x10;
/// A bit per node with which requests can be exchanged, 64 bits: a cable to it is up, and has not been down since
/// software last wrote the bit. As requests in flight were lost when it went down, later ones must not arrive until
/// software agrees.
pub const REACHABLE: u64 = 0x18;

/// Segments: 16 bytes each, see [`WindowSegment`].
pub const SEGMENT_TABLE: u64 = 0x1000;
/// Maximum number of segments.
pub const MOST_SEGMENTS: u32 = 1024;
/// Requesters of this host: 4 bytes each, see [`local_entry`].
pub const LOCAL_TABLE: u64 = 0x8000;
/// Requesters of other hosts: 4 bytes each, see [`remote_entry`].
pub const REMOTE_TABLE: u64 = 0x9000;
/// Maximum requesters per table.
pub const MOST_REQUESTERS: u32 = 256;

/// Registers from here to [`SHARED_END`] can also be accessed by other nodes.
pub const SHARED: u64 = 0xa000;
/// Writes set bits and raise an interrupt; reads return the bits that are set.
pub const DOORBELL: u64 = 0xa000;
/// Writes clear bits.
pub const DOORBELL_CLEAR: u64 = 0xa004;
/// Scratchpad: words that any node may read and write, 4 bytes each.
pub const SCRATCHPADS: u64 = 0xa100;
/// Number of scratchpad words.
pub const SCRATCHPAD_COUNT: usize = 16;
/// End of the registers that other nodes can access.
pub const SHARED_END: u64 = 0xb000;

/// Doorbell bit that the adapter sets itself when a cable goes down or comes up.
pub const LINK_CHANGED: u32 = 1 << 31;
/// Offset of the MSI-X table. Its only vector is sent when a doorbell bit is set.
pub const MSIX_TABLE: u32 = 0xc000;
/// Offset of the pending bits.
pub const MSIX_PENDING: u32 = 0xd000;

/// Bit of a segment's control word: the segment is in use.
const SEGMENT_ON: u64 = 1;
/// Bit of a segment's control word: maps the registers of the other adapter.
const SEGMENT_REGISTERS: u64 = 2;
/// Bit of a requester entry: the entry is in use.
const ENTRY_ON: u32 = 1 << 31;

/// Target of a window segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowSegment {
    /// Target node.
    pub node: u8,
    /// Maps the registers of the node's adapter instead of its host's addresses.
    pub registers: bool,
    /// Start address at the target, a multiple of the segment size; 0 for registers.
    pub target: u64,
}

impl WindowSegment {
    /// Encodes the entry as two words.
    pub fn words(self) -> [u64; 2] {
        let registers = if self.registers { SEGMENT_REGISTERS } else { 0 };
        [self.target, SEGMENT_ON | registers | u64::from(self.node) << 16]
    }

    /// Decodes two words of an entry; `None` if it is not in use.
    pub fn from_words([target, control]: [u64; 2]) -> Option<Self> {
        (control & SEGMENT_ON != 0).then_some(Self {
            node: (control >> 16) as u8,
            registers: control & SEGMENT_REGISTERS != 0,
            target,
        })
    }
}

/// An entry for a requester of this host.
pub fn local_entry(requester: Option<Bdf>) -> u32 {
    requester.map_or(0, |requester| ENTRY_ON | u32::from(requester.bits()))
}

/// The requester of a [`local_entry`]; `None` if it is not in use.
pub fn local_requester(entry: u32) -> Option<Bdf> {
    (entry & ENTRY_ON != 0).then(|| Bdf::from_bits(entry as u16))
}

/// An entry for a requester of another node, identified by its index in that node's local table.
pub fn remote_entry(requester: Option<(u8, u8)>) -> u32 {
    requester.map_or(0, |(node, index)| ENTRY_ON | u32::from(node) << 8 | u32::from(index))
}

/// The node and index of a remote entry.
pub fn remote_requester(entry: u32) -> Option<(u8, u8)> {
    (entry & ENTRY_ON != 0).then_some(((entry >> 8) as u8, entry as u8))
}

/// Requester ID that stands for entry `index` of the remote table in the host of an adapter on `bus`. With 32 entries,
/// each is a device of its own.
pub fn alias(bus: u8, index: u8) -> Bdf {
    Bdf::new_ari(bus, index.rotate_left(3))
}

/// The index for an [`alias`].
pub fn place_of(alias: Bdf) -> u8 {
    alias.ari_function().rotate_right(3)
}

/// Address bits within a node, more than any host uses.
const ADDRESS_BITS: u32 = 51;

/// Address of a packet on a cable: a node, and an address there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CableAddress {
    /// Target node.
    pub node: u8,
    /// Addresses a register of the node's adapter.
    pub registers: bool,
    /// Address at the node.
    pub address: u64,
}

impl CableAddress {
    /// Encodes the address for a packet.
    pub const fn bits(self) -> u64 {
        let address = self.address & ((1 << ADDRESS_BITS) - 1);
        (self.node as u64) << (ADDRESS_BITS + 1) | (self.registers as u64) << ADDRESS_BITS | address
    }

    /// Decodes an address from a packet.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            node: (bits >> (ADDRESS_BITS + 1)) as u8,
            registers: bits >> ADDRESS_BITS & 1 != 0,
            address: bits & ((1 << ADDRESS_BITS) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_entries_say_is_what_was_put_in() {
        let segment = WindowSegment { node: 7, registers: true, target: 0x12_3450_0000 };
        assert_eq!(WindowSegment::from_words(segment.words()), Some(segment));
        assert_eq!(WindowSegment::from_words([5, 0]), None);
        let bdf = Bdf::new(3, 31, 7);
        assert_eq!(local_requester(local_entry(Some(bdf))), Some(bdf));
        assert_eq!(remote_requester(remote_entry(Some((255, 31)))), Some((255, 31)));
        assert_eq!((local_requester(0), remote_requester(0)), (None, None));
        let at = CableAddress { node: 63, registers: false, address: 0x3_8000_0000_1234 };
        assert_eq!(CableAddress::from_bits(at.bits()), at);
    }

    #[test]
    fn the_first_32_places_are_devices() {
        for index in 0..=255 {
            assert_eq!(place_of(alias(9, index)), index);
        }
        assert_eq!(alias(9, 5), Bdf::new(9, 5, 0));
    }
}
