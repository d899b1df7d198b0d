//! The DMA API: which memory a function can access, and at which addresses.
//!
//! Without an IOMMU a function uses physical addresses. With one it has a domain, of its own or shared with its
//! group, with real page tables in simulated memory. In strict mode, `unmap` invalidates a range before it returns.
//! In lazy mode, many ranges are invalidated together a little later.

mod base;
mod domain;
mod function;
mod group;
mod iova;
mod numbers;
mod owned;
mod remapping;
mod spent;
mod unit;

use std::cell::RefCell;
use std::rc::Rc;

use platform::cpu::{Cpu, CpuId};
use units::Duration;

use base::DmaBase;
pub use base::{DmaMode, DmaParams};
pub(crate) use function::{BarOwners, FunctionDma};
pub(crate) use group::Member;
pub use owned::{Iommu, IommuDomain};
pub(crate) use remapping::{MessageSource, Remapping};

use crate::base::Base;
use group::Groups;
use numbers::Numbers;
use unit::Units;

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
        let base =
            Rc::new(DmaBase { cores, memory, tasks, log, params, domains, waited: RefCell::default() });
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

    /// How long cores have held the invalidation queue of each IOMMU.
    pub fn queues_held(&self) -> Vec<Duration> {
        self.units.queues_held()
    }

    /// How long a core has waited for invalidations.
    pub fn waited(&self, core: CpuId) -> Duration {
        let waited = self.base.waited.borrow();
        waited.get(usize::from(core.0)).map(|spent| spent.until(self.base.cores.now())).unwrap_or_default()
    }
}
