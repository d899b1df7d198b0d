//! The PCI core: enumeration, resources, drivers.

mod aer;
mod backend;
mod bind;
mod enumerate;
mod function;
mod hotplug;
mod intx;
mod iov;
mod mmio;
mod msix;
mod recovery;
mod resources;
mod tree;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use platform::costs::linux;
use platform::kernel::Kernel;
use platform::memory::PhysAddr;
use platform::pci::{PciDriver, PciOps};
use wire::pcie::FunctionAddress;

pub use aer::ErrorCounters;
pub use backend::{Backend, Message};
pub(crate) use function::Function;
pub use tree::{FunctionInfo, TreeText};

use crate::base::Base;
use crate::cpu::Cores;
use crate::dma::{BarOwners, Dma};
use crate::ground::Inventory;
use crate::irq::Irqs;
use crate::log::Log;
use resources::Aperture;

/// Parameters of the PCI core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciParams {
    /// Max read request size to set (bytes; `pci=pcie_bus_perf` and firmware use 512 to 4096).
    pub max_read_request: u32,
    /// Bus numbers kept free behind a hot-plug slot (Linux: `pci=hpbussize`).
    pub spare_buses: u8,
    /// Address space kept free behind a hot-plug slot below 4 GiB (bytes; Linux: `pci=hpmmiosize`, 2 MiB).
    pub spare_memory: u64,
    /// The same above 4 GiB (Linux: `pci=hpmmioprefsize`, 2 MiB).
    pub spare_prefetchable: u64,
}

impl Default for PciParams {
    fn default() -> Self {
        Self {
            max_read_request: const { linux("", "max_read_request") } as u32,
            spare_buses: const { linux("pci", "hpbussize") } as u8,
            spare_memory: const { linux("pci", "hpmmiosize") },
            spare_prefetchable: const { linux("pci", "hpmmioprefsize") },
        }
    }
}

/// All functions and drivers of a kernel.
pub(crate) struct Pci {
    params: PciParams,
    cores: Rc<Cores>,
    log: Rc<Log>,
    irqs: Rc<Irqs>,
    dma: Rc<Dma>,
    /// The kernel interface for drivers.
    face: Weak<dyn Kernel>,
    /// By address. Those of the own fabric are in [`OWN_SEGMENT`](backend::OWN_SEGMENT).
    functions: RefCell<BTreeMap<FunctionAddress, Rc<Function>>>,
    drivers: RefCell<Vec<Rc<dyn PciDriver>>>,
    /// Free address space below and above 4 GiB.
    apertures: RefCell<[Aperture; 2]>,
    errors: Cell<ErrorCounters>,
}

impl Pci {
    pub fn new(
        params: PciParams,
        inventory: &Inventory,
        base: Base,
        irqs: Rc<Irqs>,
        dma: Rc<Dma>,
        face: Weak<dyn Kernel>,
    ) -> Self {
        Self {
            params,
            cores: base.cores,
            log: base.log,
            irqs,
            dma,
            face,
            functions: RefCell::default(),
            drivers: RefCell::default(),
            apertures: RefCell::new(resources::apertures(inventory)),
            errors: Cell::default(),
        }
    }

    /// Reported errors.
    pub fn errors(&self) -> ErrorCounters {
        self.errors.get()
    }

    /// The function at an address.
    pub fn function(&self, at: FunctionAddress) -> Option<Rc<Function>> {
        self.functions.borrow().get(&at).cloned()
    }

    /// Adds a driver for functions bound from now on.
    pub fn add_driver(&self, driver: Rc<dyn PciDriver>) {
        self.drivers.borrow_mut().push(driver);
    }

    /// Drops all functions and drivers, which hold references to the kernel.
    pub fn clear(&self) {
        for function in self.all() {
            function.driver.borrow_mut().take();
        }
        self.functions.borrow_mut().clear();
        self.drivers.borrow_mut().clear();
    }

    /// Whether any function can access a byte of a range of memory.
    pub fn reach(&self, at: PhysAddr, length: u64) -> bool {
        self.all().iter().any(|function| {
            let dma = function.dma.borrow().clone();
            dma.is_some_and(|dma| dma.reaches(at, length))
        })
    }

    /// Adds a function.
    fn add(&self, function: &Rc<Function>) {
        self.functions.borrow_mut().insert(function.at(), Rc::clone(function));
    }

    /// Removes a function and closes its backend.
    fn remove(&self, function: &Function) {
        self.functions.borrow_mut().remove(&function.at());
        function.backend.close();
    }

    /// All functions by address.
    pub fn all(&self) -> Vec<Rc<Function>> {
        self.functions.borrow().values().cloned().collect()
    }

    /// A root port and everything below it.
    fn hierarchy(&self, root: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.segment == root.segment && f.root == root.bdf).collect()
    }
}

impl BarOwners for Pci {
    fn owner_of(&self, at: PhysAddr, length: u64) -> Option<FunctionAddress> {
        let end = at.0.checked_add(length)?;
        let functions = self.functions.borrow();
        let all = functions.values().filter(|function| function.present.get() && !function.is_bridge());
        let bars = all.flat_map(|function| {
            let here = |bar| function.backend.map_bar(bar, function.bar(bar)?).ok();
            (0..6).filter_map(here).map(|range| (range, function.at())).collect::<Vec<_>>()
        });
        // The BAR of a borrowed function lies inside the BAR of the NTB adapter: choose the innermost.
        let holding = bars.filter(|(range, _)| range.start <= at && end - range.start.0 <= range.length);
        holding.min_by_key(|(range, _)| range.length).map(|(_, owner)| owner)
    }
}
