//! The DMA API: which memory a function reaches, and at which addresses.
//!
//! Without an IOMMU a function uses physical addresses. With one it has a domain, of its own or shared with its group, with real
//! page tables in simulated memory: strict, an unmapped range is invalidated before `unmap` returns; lazy, many ranges are
//! invalidated together a little later.

mod domain;
mod function;
mod group;
mod iova;
mod numbers;
mod owned;
mod remapping;
mod unit;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::costs::linux;
use platform::cpu::Node;
pub use settings::DmaMode;
use units::Duration;
use wire::pcie::Bdf;

pub(crate) use function::{BarOwners, FunctionDma};
pub(crate) use group::Member;
pub use owned::IommuDomain;
pub(crate) use remapping::MessageSource;

use crate::base::Base;
use crate::cpu::Cores;
use crate::ground::formats::PageTable;
use crate::log::Log;
use crate::mm::Memory;
use crate::tasks::Tasks;
use group::Group;
use numbers::Numbers;
use unit::Unit;

/// The DMA API's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaParams {
    /// How the IOMMU is used.
    pub mode: DmaMode,
    /// Whether interrupts are remapped.
    pub remap_interrupts: bool,
    /// Entries of an IOMMU's interrupt remapping table: 2^(this + 1), up to 15 (Linux: `INTR_REMAP_TABLE_ENTRIES`, 65,536).
    pub interrupt_order: u8,
    /// Ranges that a core collects before a lazy flush (Linux: `IOVA_FQ_SIZE`).
    pub flush_entries: usize,
    /// Longest wait of a lazy flush (Linux: `IOVA_FQ_TIMEOUT`).
    pub flush_time: Duration,
    /// Addresses below 4 GiB are used first, as Linux does before 6.3 for all functions; their TLPs are shorter.
    pub low_first: bool,
}

impl DmaParams {
    /// Linux's values with the IOMMU used in a certain way.
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

/// What every part of the DMA API stands on.
struct DmaBase {
    cores: Rc<Cores>,
    memory: Rc<Memory>,
    tasks: Rc<Tasks>,
    log: Rc<Log>,
    params: DmaParams,
    /// Of domains. 0 is nobody's (VT-d specification: in caching mode it tags what is cached of absent entries).
    domains: Numbers,
}

impl DmaBase {
    fn free_table(&self, table: &PageTable) {
        let tables = self.cores.ground.edit(|memory| table.tables(memory));
        self.memory.free_tables(tables.unwrap_or_default());
    }
}

/// The DMA API of a whole kernel: IOMMUs, and who shares a domain behind them.
pub(crate) struct Dma {
    base: Rc<DmaBase>,
    /// One for each IOMMU, by node; empty until started and where they are off.
    units: RefCell<Vec<Rc<Unit>>>,
    /// Those that somebody is in, by IOMMU and who stands for them.
    groups: RefCell<BTreeMap<(usize, Bdf), Rc<Group>>>,
}

impl Dma {
    pub fn new(params: DmaParams, base: Base) -> Self {
        let Base { cores, log, memory, tasks } = base;
        let domains = Numbers::new(1..=u16::MAX);
        let base = Rc::new(DmaBase { cores, memory, tasks, log, params, domains });
        Self { base, units: RefCell::default(), groups: RefCell::default() }
    }

    /// Whether requests go through an IOMMU.
    pub fn is_on(&self) -> bool {
        self.base.params.mode != DmaMode::Off
    }

    /// The IOMMU that a function below a port of `node` is behind.
    fn unit_of(&self, node: Node) -> Option<Rc<Unit>> {
        self.units.borrow().get(usize::from(node.0)).cloned()
    }
}
