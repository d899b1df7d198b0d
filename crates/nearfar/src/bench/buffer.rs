//! The host's buffer: where its chunks lie, and how the card addresses them.

use std::ops::Range;

use hardware::Fabric;
use hardware::iommu::tables::{ContextTables, FrameAllocator, PageTable, TableError};
use hardware::iommu::{ContextEntry, DomainId, PageSize, Permissions, TranslationType};
use hardware::memory::{MemoryRange, NodeId};
use hardware::root::HostId;
use units::{Bytes, HostPhysical, Iova};
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};
use wire::pcie::Bdf;

/// The buffer of one run.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Where the chunks lie.
    pub chunks: [HostPhysical; CHUNKS],
    /// How the card addresses them.
    pub addresses: [Iova; CHUNKS],
    /// Where the page tables lie, if there are any.
    pub tables: Range<u64>,
}

/// Bytes of the whole buffer.
const LENGTH: u64 = CHUNK_BYTES * CHUNKS as u64;
/// The least contiguous memory in which it finds place clear of page tables and of what else a run puts there.
pub const LEAST_MEMORY: Bytes = Bytes::new((LENGTH + FRAMES_FROM).next_multiple_of(LENGTH) * 2);
/// First I/O virtual address of the buffer. Linux allocates below 4 GiB from the top down.
pub const FIRST_IOVA: Iova = Iova::new(0xfa00_0000);
/// Levels of the tables: they translate 48 bits.
const LEVELS: u8 = 4;

impl Buffer {
    /// A buffer in the second half of the last of `ranges` that has room for it, where a machine that has run for a
    /// while has free chunks; `None` if none has.
    pub fn place(ranges: &[MemoryRange]) -> Option<Self> {
        let range = ranges.iter().rfind(|range| range.size >= LEAST_MEMORY)?;
        let place = range.base.get() + range.size.get() / 8 * 5 - LENGTH;
        let first = HostPhysical::new(place).align_down(CHUNK_BYTES);
        let chunks = std::array::from_fn(|index| first + index as u64 * CHUNK_BYTES);
        Some(Self::of(chunks))
    }

    /// The buffer behind this one.
    pub fn behind(&self) -> Self {
        Self::of(self.chunks.map(|chunk| chunk + LENGTH))
    }

    /// A buffer that is addressed as it lies in memory.
    fn of(chunks: [HostPhysical; CHUNKS]) -> Self {
        Self { chunks, addresses: chunks.map(|chunk| Iova::new(chunk.get())), tables: 0..0 }
    }

    /// The physical address of an offset in the buffer.
    pub fn at(&self, offset: u64) -> HostPhysical {
        self.chunks[(offset / CHUNK_BYTES) as usize % CHUNKS] + offset % CHUNK_BYTES
    }
}

/// Maps the buffer of each card from `first` on in a domain of its own and switches the IOMMU of `node` on, if there is one.
///
/// # Errors
/// If memory has no room for the tables.
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

/// Where page tables begin in a node's memory: clear of everything else that a run puts there.
const FRAMES_FROM: u64 = 64 << 20;

/// Hands out frames one after the other.
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
