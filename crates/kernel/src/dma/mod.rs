//! The DMA API: which memory a function can access, and at which addresses.
//!
//! Without an IOMMU a function uses physical addresses. With one it has a domain, of its own or shared with its
//! group, with real page tables in simulated memory. In strict mode, `unmap` invalidates a range before it returns.
//! In lazy mode, many ranges are invalidated together a little later.

mod domain;
mod function;
mod group;
mod iova;
mod numbers;
mod owned;
mod remapping;
mod unit;

use std::rc::Rc;

use platform::costs::linux;
use platform::cpu::Cpu;
pub use settings::DmaMode;
use units::Duration;

pub(crate) use function::{BarOwners, FunctionDma};
pub(crate) use group::Member;
pub use owned::{Iommu, IommuDomain};
pub(crate) use remapping::{MessageSource, Remapping};

use crate::base::Base;
use crate::cpu::Cores;
use crate::ground::formats::PageTable;
use crate::log::Log;
use crate::mm::Memory;
use crate::tasks::Tasks;
use group::Groups;
use numbers::Numbers;
use unit::Units;

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
struct DmaBase {
    cores: Rc<Cores>,
    memory: Rc<Memory>,
    tasks: Rc<Tasks>,
    log: Rc<Log>,
    params: DmaParams,
    /// Domain IDs. 0 is reserved (VT-d specification: in caching mode it tags cached entries that are not present).
    domains: Numbers,
}

impl DmaBase {
    fn free_table(&self, table: &PageTable) {
        let tables = self.cores.ground.edit(|memory| table.tables(memory));
        self.memory.free_tables(tables.unwrap_or_default());
    }
}

/// The DMA API of a kernel: IOMMUs and IOMMU groups.
pub(crate) struct Dma {
    base: Rc<DmaBase>,
    units: Rc<Units>,
    groups: Groups,
    pub remapping: Remapping,
}

impl Dma {
    pub fn new(params: DmaParams, base: Base) -> Self {
        let Base { cores, log, memory, tasks } = base;
        let domains = Numbers::new(1..=u16::MAX);
        let base = Rc::new(DmaBase { cores, memory, tasks, log, params, domains });
        let units = Rc::<Units>::default();
        let (groups, remapping) = (Groups::new(Rc::clone(&base)), Remapping::new(Rc::clone(&units)));
        Self { base, units, groups, remapping }
    }

    /// Whether DMA goes through an IOMMU.
    pub fn is_on(&self) -> bool {
        self.base.params.mode != DmaMode::Off
    }

    /// Builds the tables of all IOMMUs and enables them.
    pub fn start_iommus(&self, cpu: &Cpu) {
        self.units.start(cpu, &self.base);
    }
}
