//! Registers of an adapter with a non-transparent bridge (NTB), and what packets on its cables name.
//!
//! An adapter is an endpoint of its host. BAR 0 holds registers, BAR 2 is the window: cut into segments of one size, each
//! of which leads to a place of another host. Two tables of requesters, one for each way, rewrite who asks, so that completions
//! find their way back.
//!
//! No document that could be cited says how registers are laid out on the adapters that are modelled: the layout is our own, its
//! parts are those that all bridges have.

use crate::pcie::Bdf;

/// Bytes of BAR 0.
pub const REGISTER_BYTES: u64 = 0x1_0000;
/// The BAR with the registers.
pub const REGISTER_BAR: u8 = 0;
/// The BAR with the window.
pub const WINDOW_BAR: u8 = 2;

/// The adapter's own number in the cluster.
pub const NODE: u64 = 0x00;
/// How many segments the window has.
pub const SEGMENTS: u64 = 0x04;
/// Bytes of a segment, 64 bits.
pub const SEGMENT_BYTES: u64 = 0x08;
/// Entries of each table of requesters.
pub const REQUESTERS: u64 = 0x10;
/// A bit for each node that requests pass to and from, 64 bits: a cable leads there which is up, and has not been down since software
/// last wrote the bit. What was under way on it is lost, so that what follows is not to arrive by itself.
pub const REACHABLE: u64 = 0x18;

/// Segments: 16 bytes each, see [`WindowSegment`].
pub const SEGMENT_TABLE: u64 = 0x1000;
/// Most segments that there is room for.
pub const MOST_SEGMENTS: u32 = 1024;
/// Requesters of the own host: 4 bytes each, see [`local_entry`].
pub const LOCAL_TABLE: u64 = 0x8000;
/// Requesters of others: 4 bytes each, see [`remote_entry`].
pub const REMOTE_TABLE: u64 = 0x9000;
/// Most requesters that there is room for in a table.
pub const MOST_REQUESTERS: u32 = 256;

/// From here to [`SHARED_END`], other nodes reach the registers, too.
pub const SHARED: u64 = 0xa000;
/// Writing sets bits and interrupts; reading gives those that are set.
pub const DOORBELL: u64 = 0xa000;
/// Writing clears bits.
pub const DOORBELL_CLEAR: u64 = 0xa004;
/// Words that anybody may read and write: 4 bytes each.
pub const SCRATCHPADS: u64 = 0xa100;
/// How many there are.
pub const SCRATCHPAD_COUNT: usize = 16;
/// End of what other nodes reach.
pub const SHARED_END: u64 = 0xb000;

/// Doorbell bit that the adapter sets itself when a cable has gone down or come up.
pub const LINK_CHANGED: u32 = 1 << 31;
/// Where the MSI-X table is. Its one vector is sent when a bit of the doorbell is set.
pub const MSIX_TABLE: u32 = 0xc000;
/// Where its pending bits are.
pub const MSIX_PENDING: u32 = 0xd000;

/// Bit of a segment's control word: it leads somewhere.
const SEGMENT_ON: u64 = 1;
/// Bit of a segment's control word: it leads to the registers of the other adapter.
const SEGMENT_REGISTERS: u64 = 2;
/// Bit of a requester's entry: it is in use.
const ENTRY_ON: u32 = 1 << 31;

/// Where a segment of the window leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowSegment {
    /// The node.
    pub node: u8,
    /// Whether to the registers of its adapter rather than into its host.
    pub registers: bool,
    /// Its first address there; a multiple of the segments' size, or of 0 where it leads to registers.
    pub target: u64,
}

impl WindowSegment {
    /// The two words of its entry.
    pub fn words(self) -> [u64; 2] {
        let registers = if self.registers { SEGMENT_REGISTERS } else { 0 };
        [self.target, SEGMENT_ON | registers | u64::from(self.node) << 16]
    }

    /// What two words of an entry say; `None` if it leads nowhere.
    pub fn from_words([target, control]: [u64; 2]) -> Option<Self> {
        (control & SEGMENT_ON != 0).then_some(Self {
            node: (control >> 16) as u8,
            registers: control & SEGMENT_REGISTERS != 0,
            target,
        })
    }
}

/// An entry for a requester of the own host.
pub fn local_entry(requester: Option<Bdf>) -> u32 {
    requester.map_or(0, |requester| ENTRY_ON | u32::from(requester.bits()))
}

/// The requester of such an entry.
pub fn local_requester(entry: u32) -> Option<Bdf> {
    (entry & ENTRY_ON != 0).then(|| Bdf::from_bits(entry as u16))
}

/// An entry for a requester of another node, which is known by its place in the local table there.
pub fn remote_entry(requester: Option<(u8, u8)>) -> u32 {
    requester.map_or(0, |(node, index)| ENTRY_ON | u32::from(node) << 8 | u32::from(index))
}

/// The node and the place of such an entry.
pub fn remote_requester(entry: u32) -> Option<(u8, u8)> {
    (entry & ENTRY_ON != 0).then_some(((entry >> 8) as u8, entry as u8))
}

/// What a requester of the remote table's place `index` is called in the host of an adapter on `bus`: with 32 entries, each
/// is a device of its own.
pub fn alias(bus: u8, index: u8) -> Bdf {
    Bdf::new_ari(bus, index.rotate_left(3))
}

/// The place that an [`alias`] stands for.
pub fn place_of(alias: Bdf) -> u8 {
    alias.ari_function().rotate_right(3)
}

/// Bits of an address within a node: more than any host has.
const ADDRESS_BITS: u32 = 51;

/// An address on a cable: which node, whether of its adapter's registers, where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CableAddress {
    /// The node.
    pub node: u8,
    /// Whether it is one of its adapter's registers.
    pub registers: bool,
    /// Where.
    pub address: u64,
}

impl CableAddress {
    /// As packets carry it.
    pub const fn bits(self) -> u64 {
        let address = self.address & ((1 << ADDRESS_BITS) - 1);
        (self.node as u64) << (ADDRESS_BITS + 1) | (self.registers as u64) << ADDRESS_BITS | address
    }

    /// From what a packet carries.
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
