//! What all parts of the DMA API use.

use std::cell::RefCell;
use std::rc::Rc;

use platform::costs::linux;
pub use settings::DmaMode;
use units::Duration;

use super::numbers::Numbers;
use super::spent::Spent;
use crate::cpu::Cores;
use crate::log::Log;
use crate::mm::Memory;
use crate::tasks::Tasks;
use wire::vtd::tables::PageTable;

/// Parameters of the DMA API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaParams {
    /// IOMMU mode.
    pub mode: DmaMode,
    /// Whether interrupts are remapped.
    pub remap_interrupts: bool,
    /// Entries of the interrupt remapping table: 2^(this + 1), up to 15 (Linux: `INTR_REMAP_TABLE_ENTRIES`, 65,536).
    pub interrupt_order: u8,
    /// Ranges that a core queues before a lazy flush (Linux: `IOVA_FQ_SIZE`).
    pub flush_entries: usize,
    /// Longest delay of a lazy flush (Linux: `IOVA_FQ_TIMEOUT`).
    pub flush_time: Duration,
    /// Prefer addresses below 4 GiB, as Linux before 6.3 does for all functions. Their TLP headers are shorter.
    pub low_first: bool,
}

impl DmaParams {
    /// Linux's values, in this IOMMU mode.
    pub const fn linux(mode: DmaMode) -> Self {
        Self {
            mode,
            remap_interrupts: !matches!(mode, DmaMode::Off),
            interrupt_order: 15,
            flush_entries: const { linux("dma", "flush_entries") } as usize,
            flush_time: Duration::from_ps(const { linux("dma", "flush_time") }),
            low_first: const { linux("dma", "low_first") } == 1,
        }
    }
}

/// State shared by all parts of the DMA API.
pub(super) struct DmaBase {
    pub cores: Rc<Cores>,
    pub memory: Rc<Memory>,
    pub tasks: Rc<Tasks>,
    pub log: Rc<Log>,
    pub params: DmaParams,
    /// Domain IDs. 0 is reserved (VT-d specification: in caching mode it tags cached entries that are not present).
    pub domains: Numbers,
    /// How long each core has waited for invalidations: for a queue, and for the IOMMU's answers. What interrupts a wait and
    /// waits itself delays the rest of it.
    pub waited: RefCell<Vec<Spent>>,
}

impl DmaBase {
    pub fn free_table(&self, table: &PageTable) {
        let tables = self.cores.ground.edit(|memory| table.tables(memory));
        self.memory.free_tables(tables.unwrap_or_default());
    }
}
