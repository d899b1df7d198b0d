//! The host's buffer: physical addresses of its chunks, and the bus addresses that the card uses.

use std::ops::Range;

use hardware::Fabric;
use hardware::memory::{MemoryRange, NodeId};
use hardware::root::HostId;
use units::{Bytes, HostPhysical, Iova};
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};
use wire::pcie::Bdf;
use wire::vtd::tables::{ContextTables, FrameAllocator, PageTable, TableError};
use wire::vtd::{ContextEntry, DomainId, PageSize, Permissions, TranslationType};

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
/// Levels of the page tables: 48 address bits.
const LEVELS: u8 = 4;

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
    let mut frames = TableFrames { next: ranges[0].base + FRAMES_FROM };
    let contexts = ContextTables::new(memory, &mut frames)?;
    for (domain, (card, buffer)) in (1..).map(DomainId).zip(cards) {
        let table = PageTable::new(memory, &mut frames, LEVELS, iommu.features())?;
        for (index, chunk) in buffer.chunks.iter().enumerate() {
            let iova = first + index as u64 * CHUNK_BYTES;
            let bytes = Bytes::new(CHUNK_BYTES);
            table.map(memory, &mut frames, iova, *chunk, bytes, Permissions::READ_WRITE, largest)?;
            buffer.addresses[index] = iova;
        }
        let entry = ContextEntry {
            domain,
            translation: TranslationType::Untranslated,
            levels: table.levels(),
            page_table: table.root(),
            fault_processing_disabled: false,
        };
        contexts.set(memory, &mut frames, *card, entry)?;
        buffer.tables = (ranges[0].base + FRAMES_FROM).get()..frames.next.get();
    }
    iommu.set_root_table(contexts.root());
    iommu.set_enabled(true);
    Ok(())
}

/// Start of the page tables in a node's memory, clear of all other data of a run.
const FRAMES_FROM: u64 = 64 << 20;

/// Hands out consecutive frames.
struct TableFrames {
    next: HostPhysical,
}

impl FrameAllocator for TableFrames {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        let frame = self.next;
        self.next = frame.checked_add(4096)?;
        Some(frame)
    }
}
