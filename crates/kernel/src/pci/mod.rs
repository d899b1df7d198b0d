//! The PCI core: finding functions, giving them resources, binding them to drivers.

mod aer;
mod backend;
mod bind;
mod enumerate;
mod function;
mod hotplug;
mod iov;
mod mmio;
mod msix;
mod recovery;
mod resources;
mod tree;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use platform::cpu::Cpu;
use platform::pci::PciDriver;
use wire::pcie::{Bdf, FunctionAddress};

pub use aer::ErrorCounters;
pub use backend::{Backend, Message};
pub(crate) use function::Function;
pub use tree::{FunctionInfo, TreeText};

use crate::ground::Inventory;
use crate::kernel::Inner;
use resources::Aperture;

/// How the PCI core sets functions up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciParams {
    /// Largest read request that functions may make, in bytes (`pci=pcie_bus_perf` and firmware set 512 to 4096).
    pub max_read_request: u32,
    /// Bus numbers kept free behind a hot-plug slot (Linux: `pci=hpbussize`).
    pub spare_buses: u8,
    /// Address space kept free behind a hot-plug slot, below 4 GiB, in bytes (Linux: `pci=hpmmiosize`, 2 MiB).
    pub spare_memory: u64,
    /// The same above 4 GiB (Linux: `pci=hpmmioprefsize`, 2 MiB).
    pub spare_prefetchable: u64,
}

impl Default for PciParams {
    fn default() -> Self {
        Self { max_read_request: 512, spare_buses: 2, spare_memory: 2 << 20, spare_prefetchable: 64 << 20 }
    }
}

/// All functions and drivers of a kernel.
pub(crate) struct Pci {
    pub params: PciParams,
    /// By segment and address: those of the own fabric are in [`OWN_SEGMENT`].
    pub functions: RefCell<BTreeMap<FunctionAddress, Rc<Function>>>,
    pub drivers: RefCell<Vec<Rc<dyn PciDriver>>>,
    /// Free address space below and above 4 GiB.
    apertures: RefCell<[Aperture; 2]>,
    errors: Cell<ErrorCounters>,
}

impl Pci {
    pub fn new(params: PciParams, inventory: &Inventory) -> Self {
        Self {
            params,
            functions: RefCell::default(),
            drivers: RefCell::default(),
            apertures: RefCell::new(resources::apertures(inventory)),
            errors: Cell::default(),
        }
    }

    /// Errors that were reported.
    pub fn errors(&self) -> ErrorCounters {
        self.errors.get()
    }

    /// The function at an address.
    pub fn function(&self, at: FunctionAddress) -> Option<Rc<Function>> {
        self.functions.borrow().get(&at).cloned()
    }

    /// Adds a function under its address.
    pub fn add(&self, function: &Rc<Function>) {
        self.functions.borrow_mut().insert(function.at(), Rc::clone(function));
    }

    /// Takes one out, and with it its way.
    pub fn remove(&self, function: &Function) {
        self.functions.borrow_mut().remove(&function.at());
        function.backend.close();
    }

    /// All functions, by address.
    pub fn all(&self) -> Vec<Rc<Function>> {
        self.functions.borrow().values().cloned().collect()
    }

    /// A root port and all below it.
    pub fn hierarchy(&self, root: &Function) -> Vec<Rc<Function>> {
        self.all().into_iter().filter(|f| f.segment == root.segment && f.root == root.bdf).collect()
    }
}

impl Inner {
    /// Reads a doubleword of the own fabric's configuration space; all ones if nothing answers.
    async fn config_read(&self, cpu: &Cpu, target: Bdf, register: u16) -> u32 {
        cpu.work(self.cores.costs.mmio_write);
        cpu.sync().await;
        let answer = self.cores.ground.config_read(cpu.id(), target, register & !3);
        let data = cpu.stall_on(answer).await.unwrap_or_default();
        data.first_chunk().map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Writes the bytes of a doubleword that `enables` names.
    async fn config_write(&self, cpu: &Cpu, target: Bdf, register: u16, value: u32, enables: u8) {
        cpu.work(self.cores.costs.mmio_write);
        cpu.sync().await;
        let answer = self.cores.ground.config_write(cpu.id(), target, register & !3, value, enables);
        // Configuration writes are not posted: the core waits until they have been done.
        let _ = cpu.stall_on(answer).await;
    }
}
