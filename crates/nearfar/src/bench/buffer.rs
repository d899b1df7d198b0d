//! The host's buffer: physical addresses of its chunks, and the bus addresses that the card uses.

use std::ops::Range;

use hardware::Fabric;
use hardware::iommu::FixedDomains;
use hardware::memory::{MemoryRange, NodeId};
use hardware::root::HostId;
use units::{Bytes, HostPhysical, Iova};
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};
use wire::pcie::Bdf;
use wire::vtd::PageSize;
use wire::vtd::tables::TableError;

/// The buffer of one run.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Physical addresses of the chunks.
    pub chunks: [HostPhysical; CHUNKS],
    /// Bus addresses of the chunks.
    pub addresses: [Iova; CHUNKS],
    /// Physical range of the page tables, if there are any.
    pub tables: Range<u64>,
}

/// Bytes of the whole buffer.
const LENGTH: u64 = CHUNK_BYTES * CHUNKS as u64;
/// Least contiguous memory that holds the buffer beside page tables and other data of a run.
pub const LEAST_MEMORY: Bytes = Bytes::new((LENGTH + FRAMES_FROM).next_multiple_of(LENGTH) * 2);
/// First I/O virtual address of the buffer. Linux allocates below 4 GiB from the top down.
pub const FIRST_IOVA: Iova = Iova::new(0xfa00_0000);

impl Buffer {
    /// Places a buffer in the second half of the last of `ranges` with enough room, where a machine that has been
    /// running for a while has free chunks. `None` if none has room.
    pub fn place(ranges: &[MemoryRange]) -> Option<Self> {
        let range = ranges.iter().rfind(|range| range.size >= LEAST_MEMORY)?;
        let place = range.base.get() + range.size.get() / 8 * 5 - LENGTH;
        let first = HostPhysical::new(place).align_down(CHUNK_BYTES);
        let chunks = std::array::from_fn(|index| first + index as u64 * CHUNK_BYTES);
        Some(Self::of(chunks))
    }

    /// The buffer that follows this one.
    pub fn behind(&self) -> Self {
        Self::of(self.chunks.map(|chunk| chunk + LENGTH))
    }

    /// A buffer whose bus addresses equal its physical addresses.
    fn of(chunks: [HostPhysical; CHUNKS]) -> Self {
        Self { chunks, addresses: chunks.map(|chunk| Iova::new(chunk.get())), tables: 0..0 }
    }

    /// The physical address of an offset in the buffer.
    pub fn at(&self, offset: u64) -> HostPhysical {
        self.chunks[(offset / CHUNK_BYTES) as usize % CHUNKS] + offset % CHUNK_BYTES
    }
}

/// Maps the buffer of each card, starting with `first`, in a domain of its own, and turns on the IOMMU of `node`, if
/// there is one.
///
/// # Errors
/// If memory has no room for the page tables.
pub fn map(
    fabric: &mut Fabric,
    host: HostId,
    node: NodeId,
    ranges: &[MemoryRange],
    first: Iova,
    cards: &mut [(Bdf, &mut Buffer)],
    largest: PageSize,
) -> Result<(), TableError> {
    let host = fabric.host_mut(host);
    let Some(iommu) = host.iommus.get_mut(node.index()) else { return Ok(()) };
    let memory = host.memory.bytes_mut();
    let start = ranges[0].base + FRAMES_FROM;
    let mut domains = FixedDomains::new(memory, start, iommu.features())?;
    for (card, buffer) in cards {
        buffer.addresses = std::array::from_fn(|index| first + index as u64 * CHUNK_BYTES);
        let chunks = std::iter::zip(buffer.addresses, buffer.chunks);
        let ranges = chunks.map(|(iova, chunk)| (iova, chunk, Bytes::new(CHUNK_BYTES)));
        domains.add(memory, iommu.features(), &[*card], ranges, largest)?;
        buffer.tables = start.get()..domains.end().get();
    }
    domains.enable(iommu);
    Ok(())
}

/// Start of the page tables in a node's memory, clear of all other data of a run.
const FRAMES_FROM: u64 = 64 << 20;
