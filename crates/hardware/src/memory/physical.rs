//! Contents of installed memory, stored sparsely.

use super::access::NodeId;
use super::params::MemoryRange;
use thiserror::Error;
use units::{Bytes, HostPhysical};
use wire::vtd::tables::TableMemory;

/// Allocation unit in bytes; allocated on first write.
const CHUNK: u64 = 4 << 10;
const CHUNK_SHIFT: u32 = CHUNK.trailing_zeros();
/// Chunks in a page of the chunk table, which is itself allocated on first write: a host's memory is large, a run
/// writes little of it, and there may be thousands of hosts.
const PAGE: usize = 1 << PAGE_SHIFT;
const PAGE_SHIFT: u32 = 11;

/// An access to an address where no memory is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no memory is installed at {address} (access of {length})")]
pub struct MemoryFault {
    /// First address of the access that is not backed by memory.
    pub address: HostPhysical,
    /// Length of the whole access.
    pub length: Bytes,
}

/// One range of installed DRAM.
#[derive(Clone, Debug)]
struct Range {
    node: NodeId,
    base: u64,
    size: u64,
}

/// Where DRAM is installed. Hosts have few ranges, so a scan is faster than a search.
#[derive(Clone, Debug)]
pub(super) struct MemoryMap(Vec<Range>);

impl MemoryMap {
    pub(super) fn new(ranges: &[(NodeId, MemoryRange)]) -> Self {
        let mut ranges: Vec<Range> =
            ranges.iter().map(|&(node, r)| Range { node, base: r.base.get(), size: r.size.get() }).collect();
        ranges.sort_by_key(|r| r.base);
        Self(ranges)
    }

    /// The node whose DRAM holds `address`; `None` where none is installed.
    #[inline]
    pub(super) fn node_of(&self, address: HostPhysical) -> Option<NodeId> {
        self.locate(address.get()).map(|(range, _)| range.node)
    }

    /// The range that contains `at`, and the offset in it.
    #[inline]
    fn locate(&self, at: u64) -> Option<(&Range, u64)> {
        self.0.iter().find_map(|range| {
            let offset = at.wrapping_sub(range.base);
            (offset < range.size).then_some((range, offset))
        })
    }
}

/// Whether all bytes are 0.
#[inline]
fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|&word| u128::from_ne_bytes(word) == 0) && rest.iter().all(|&byte| byte == 0)
}

/// Contents of one host's DRAM: zero until written, allocated in units of 4 KiB.
#[derive(Debug)]
pub struct PhysicalMemory {
    map: MemoryMap,
    /// By chunk address: its index in `chunks` plus one, or zero if it has never been written.
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    chunks: Vec<Box<[u8]>>,
}

impl PhysicalMemory {
    /// Creates memory installed in `ranges`, each with its node.
    pub fn new(ranges: &[(NodeId, MemoryRange)]) -> Self {
        Self::at(MemoryMap::new(ranges))
    }

    pub(super) fn at(map: MemoryMap) -> Self {
        Self { map, pages: Vec::new(), chunks: Vec::new() }
    }

    /// The node whose DRAM holds `address`; `None` where none is installed.
    #[inline]
    pub fn node_of(&self, address: HostPhysical) -> Option<NodeId> {
        self.map.node_of(address)
    }

    /// The node of the range that holds all `length` bytes from `address`, if one does.
    #[inline]
    pub fn home_of(&self, address: HostPhysical, length: usize) -> Option<NodeId> {
        let holds_all = |r: &&Range| {
            let offset = address.get().wrapping_sub(r.base);
            offset < r.size && length as u64 <= r.size - offset
        };
        self.map.0.iter().find(holds_all).map(|r| r.node)
    }

    /// Addresses at which DRAM is installed.
    pub fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        self.map.0.iter().map(|range| range.base..range.base + range.size)
    }

    /// What has been written, in units of 4 KiB with their addresses; zeros elsewhere.
    pub fn written(&self) -> impl Iterator<Item = (HostPhysical, &[u8])> + '_ {
        let chunks = self.pages.iter().zip(0u64..).filter_map(|(page, n)| Some((page.as_deref()?, n)));
        let numbers = chunks.flat_map(|(page, n)| page.iter().zip(n << PAGE_SHIFT..));
        let written = numbers.filter(|(chunk, _)| **chunk > 0);
        written.map(|(chunk, n)| (HostPhysical::new(n << CHUNK_SHIFT), &*self.chunks[*chunk as usize - 1]))
    }

    /// DRAM installed in the whole host.
    pub fn installed(&self) -> Bytes {
        Bytes::new(self.map.0.iter().map(|r| r.size).sum())
    }

    /// Memory of the machine running the simulation that backs this.
    pub fn resident(&self) -> Bytes {
        Bytes::new(self.chunks.len() as u64 * CHUNK)
    }

    /// Fills `into` with the bytes at `address`.
    ///
    /// # Errors
    /// If any byte lies outside installed memory; `into` is then unchanged.
    pub fn read(&self, address: HostPhysical, into: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(address, into.len())?;
        self.read_installed(address, into);
        Ok(())
    }

    /// Like [`read`](Self::read), for bytes known to be [installed](Self::check).
    #[inline]
    pub fn read_installed(&self, address: HostPhysical, into: &mut [u8]) {
        let mut at = address.get();
        let mut rest = into;
        while !rest.is_empty() {
            let (start, take) = piece(at, rest.len());
            let (now, later) = rest.split_at_mut(take);
            match self.chunk(at) {
                None => now.fill(0),
                Some(chunk) => now.copy_from_slice(&chunk[start..start + take]),
            }
            rest = later;
            at += take as u64;
        }
    }

    /// Writes `from` to `address`.
    ///
    /// # Errors
    /// If any byte lies outside installed memory; nothing is then written.
    pub fn write(&mut self, address: HostPhysical, from: &[u8]) -> Result<(), MemoryFault> {
        self.check(address, from.len())?;
        let mut at = address.get();
        let mut rest = from;
        while !rest.is_empty() {
            let (start, take) = piece(at, rest.len());
            let (now, later) = rest.split_at(take);
            match self.existing_mut(at) {
                Some(chunk) => chunk[start..start + take].copy_from_slice(now),
                // Kernels clear tables of megabytes of which a run uses a few entries.
                None if is_zero(now) => {}
                None => self.chunk_mut(at)[start..start + take].copy_from_slice(now),
            }
            rest = later;
            at += take as u64;
        }
        Ok(())
    }

    /// The little-endian 64-bit word at `address`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_u64(&self, address: HostPhysical) -> Result<u64, MemoryFault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The little-endian 32-bit word at `address`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_u32(&self, address: HostPhysical) -> Result<u32, MemoryFault> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a little-endian 64-bit word.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_u64(&mut self, address: HostPhysical, value: u64) -> Result<(), MemoryFault> {
        self.write(address, &value.to_le_bytes())
    }

    /// Writes a little-endian 32-bit word.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_u32(&mut self, address: HostPhysical, value: u32) -> Result<(), MemoryFault> {
        self.write(address, &value.to_le_bytes())
    }

    /// Checks that all `length` bytes from `address` are installed.
    ///
    /// # Errors
    /// Names the first address that is not installed.
    #[inline]
    pub fn check(&self, address: HostPhysical, length: usize) -> Result<(), MemoryFault> {
        if self.home_of(address, length).is_some() { Ok(()) } else { self.check_pieces(address, length) }
    }

    /// Like [`check`](Self::check), for an access that no single range contains.
    #[cold]
    fn check_pieces(&self, address: HostPhysical, length: usize) -> Result<(), MemoryFault> {
        let mut at = address.get();
        let mut rest = length as u64;
        while rest > 0 {
            let fault = MemoryFault { address: HostPhysical::new(at), length: Bytes::new(length as u64) };
            let (range, offset) = self.map.locate(at).ok_or(fault)?;
            let take = rest.min(range.size - offset);
            rest -= take;
            at = at.wrapping_add(take);
        }
        Ok(())
    }

    /// The chunk that contains `at`, if it has been written.
    #[inline]
    fn chunk(&self, at: u64) -> Option<&[u8]> {
        let page = self.pages.get((at >> (CHUNK_SHIFT + PAGE_SHIFT)) as usize)?.as_ref()?;
        let slot = page[(at >> CHUNK_SHIFT) as usize % PAGE];
        Some(&self.chunks[(slot as usize).checked_sub(1)?])
    }

    /// The same, mutably.
    #[inline]
    fn existing_mut(&mut self, at: u64) -> Option<&mut [u8]> {
        let page = self.pages.get((at >> (CHUNK_SHIFT + PAGE_SHIFT)) as usize)?.as_ref()?;
        let slot = page[(at >> CHUNK_SHIFT) as usize % PAGE];
        Some(&mut self.chunks[(slot as usize).checked_sub(1)?])
    }

    /// The chunk that contains `at`, allocated if needed.
    #[cold]
    fn chunk_mut(&mut self, at: u64) -> &mut [u8] {
        let page = (at >> (CHUNK_SHIFT + PAGE_SHIFT)) as usize;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]));
        let slot = &mut page[(at >> CHUNK_SHIFT) as usize % PAGE];
        if *slot == 0 {
            self.chunks.push(vec![0; CHUNK as usize].into_boxed_slice());
            *slot = u32::try_from(self.chunks.len()).expect("fewer than 2^32 chunks fit into any machine");
        }
        &mut self.chunks[*slot as usize - 1]
    }
}

impl TableMemory for PhysicalMemory {
    fn read(&self, at: HostPhysical, into: &mut [u8]) -> bool {
        self.read(at, into).is_ok()
    }

    fn write(&mut self, at: HostPhysical, from: &[u8]) -> bool {
        self.write(at, from).is_ok()
    }
}

/// Offset of `at` in its chunk, and how many of the next `left` bytes the chunk contains.
#[inline]
fn piece(at: u64, left: usize) -> (usize, usize) {
    let start = (at & (CHUNK - 1)) as usize;
    (start, left.min(CHUNK as usize - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two_nodes_with_a_hole() -> PhysicalMemory {
        let range = |base, size| MemoryRange { base: HostPhysical::new(base), size: Bytes::new(size) };
        PhysicalMemory::new(&[
            (NodeId(0), range(0, 3 << 16)),
            (NodeId(1), range(8 << 16, 2 << 16)),
            (NodeId(0), range(3 << 16, 1 << 16)),
        ])
    }

    #[test]
    fn a_hole_is_reported_with_its_first_address() {
        let mut memory = two_nodes_with_a_hole();
        let at = HostPhysical::new((4 << 16) - 4);
        let fault = memory.write(at, &[1; 8]).unwrap_err();
        assert_eq!(fault.address, HostPhysical::new(4 << 16));
        assert_eq!(memory.read_u32(at), Ok(0), "a refused write must leave nothing behind");
        assert_eq!(memory.resident(), Bytes::ZERO);
        assert!(memory.read(HostPhysical::new(u64::MAX - 3), &mut [0; 8]).is_err());
        assert_eq!(memory.node_of(HostPhysical::new(9 << 16)), Some(NodeId(1)));
        assert_eq!(memory.node_of(HostPhysical::new(10 << 16)), None);
    }

    #[test]
    fn only_what_was_written_takes_space() {
        let mut memory = two_nodes_with_a_hole();
        memory.write_u64(HostPhysical::new(0xfffc), 0x1122_3344_5566_7788).unwrap();
        assert_eq!(memory.resident(), Bytes::kib(8), "the word straddles two chunks");
        assert_eq!(memory.read_u32(HostPhysical::new(0x10000)), Ok(0x1122_3344));
        memory.write(HostPhysical::new(0x2_0000), &[0; 0x1_0000]).unwrap();
        assert_eq!(memory.resident(), Bytes::kib(8), "zeros are there already");
        memory.write(HostPhysical::new(0x1_0000), &[0; 0x1_0000]).unwrap();
        assert_eq!(memory.read_u32(HostPhysical::new(0x10000)), Ok(0), "and elsewhere they are written");
    }

    proptest! {
        #[test]
        fn reads_return_the_latest_bytes(
            writes in prop::collection::vec((0u64..(4 << 16) - 300, 1usize..300, any::<u8>()), 1..40),
        ) {
            let mut memory = two_nodes_with_a_hole();
            let mut reference = vec![0u8; 4 << 16];
            for (at, length, value) in writes {
                memory.write(HostPhysical::new(at), &vec![value; length]).unwrap();
                reference[at as usize..at as usize + length].fill(value);
            }
            let mut all = vec![0xa5; 4 << 16];
            memory.read(HostPhysical::new(0), &mut all).unwrap();
            prop_assert_eq!(all, reference);
        }
    }
}
