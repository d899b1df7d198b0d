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
mod unit;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use units::Duration;
use wire::pcie::Bdf;

pub(crate) use function::FunctionDma;
pub(crate) use group::Member;
pub use owned::IommuDomain;

use group::Group;
use numbers::Numbers;
use unit::Unit;

/// How the IOMMU is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DmaMode {
    /// Not at all (`iommu=off`).
    #[default]
    Off,
    /// Every function passes with its addresses as they are (`iommu=pt`).
    PassThrough,
    /// Unmapped memory is out of reach when `unmap` returns (`iommu.strict=1`).
    Strict,
    /// Unmapped memory is out of reach soon (`iommu.strict=0`).
    Lazy,
}

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
            flush_entries: 256,
            flush_time: Duration::from_ms(10),
            low_first: true,
        }
    }
}

/// What the DMA API keeps for a whole kernel.
pub(crate) struct Dma {
    pub params: DmaParams,
    /// One for each IOMMU, by node; empty until started and where they are off.
    pub units: RefCell<Vec<Rc<Unit>>>,
    /// Those that somebody is in, by IOMMU and who stands for them.
    groups: RefCell<BTreeMap<(usize, Bdf), Rc<Group>>>,
    /// Of domains. 0 is nobody's (VT-d specification: in caching mode it tags what is cached of absent entries).
    domains: Numbers,
    pub cores: usize,
}

impl Dma {
    pub fn new(params: DmaParams, cores: usize) -> Self {
        Self {
            params,
            units: RefCell::default(),
            groups: RefCell::default(),
            domains: Numbers::new(1..=u16::MAX),
            cores,
        }
    }
}
