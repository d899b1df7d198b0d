//! The PCI core: enumeration, resources, drivers.
//!
//! Each part has state of its own and uses only parts further up in this table.
//!
//! | file | subject |
//! |---|---|
//! | `backend`, `mmio` | access to functions: configuration space, BARs |
//! | `resources` | allocation and layout of address space |
//! | `addresses`, `capabilities` | BARs, windows and capabilities of a function |
//! | `resize` | BARs that can be resized |
//! | `function` | a function and its registers, which all parts read; its comments say who writes what |
//! | `probe` | reads what a function is |
//! | `topology` | all functions: hierarchies, IOMMU groups |
//! | `settings` | TLP sizes, tags and isolation of a hierarchy |
//! | `interrupts` | MSI-X, MSI and legacy interrupts |
//! | `iov` | virtual functions |
//! | `space` | address space of functions, and room for hot-plug |
//! | `enumerate` | finds and configures functions |
//! | `drivers` | binding and unbinding |
//! | `recovery` | resets, and recovery from errors |
//! | `aer` | error reports |
//! | `containment` | ports that took their link down after an error |
//! | `hotplug` | ports, and functions that come and go |
//! | `device`, `tree` | the interfaces for drivers and for inspection |

mod addresses;
mod aer;
mod backend;
mod base;
mod capabilities;
mod containment;
mod device;
mod drivers;
mod enumerate;
mod function;
mod hotplug;
mod interrupts;
mod iov;
mod mmio;
mod probe;
mod recovery;
mod resize;
mod resources;
mod settings;
mod space;
mod topology;
mod tree;

use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Cpu, CpuId};
use platform::dma::DmaOps;
use platform::irq::Irq;
use platform::kernel::Kernel;
use platform::pci::PciDevice;
use wire::pcie::FunctionAddress;

pub use backend::{Backend, Message};
use base::PciBase;
pub use base::PciParams;
pub use function::ErrorCounters;
pub(crate) use function::Function;
pub use tree::{FunctionInfo, TreeText};

use crate::base::Base;
use crate::dma::Dma;
use crate::ground::Inventory;
use crate::irq::Irqs;
use aer::Errors;
use containment::Containment;
use device::DriverFunction;
use drivers::Drivers;
use enumerate::Enumerator;
use function::ErrorTally;
use hotplug::Ports;
use interrupts::Interrupts;
use iov::VirtualFunctions;
use recovery::Recovery;
use settings::Settings;
use space::AddressSpace;
use topology::Topology;

/// All functions and drivers of a kernel.
pub(crate) struct Pci {
    base: PciBase,
    /// The kernel interface for drivers.
    face: Weak<dyn Kernel>,
    pub topology: Rc<Topology>,
    pub interrupts: Rc<Interrupts>,
    iov: Rc<VirtualFunctions>,
    pub drivers: Rc<Drivers>,
    recovery: Rc<Recovery>,
    ports: Rc<Ports>,
}

impl Pci {
    pub fn new(
        params: PciParams,
        inventory: &Inventory,
        kernel: Base,
        irqs: Rc<Irqs>,
        dma: Rc<Dma>,
        face: Weak<dyn Kernel>,
    ) -> Rc<Self> {
        let base = PciBase { params, cores: kernel.cores, log: kernel.log, irqs, dma };
        let topology = Topology::new(Rc::clone(&base.dma));
        let dma = Rc::clone(&base.dma);
        let (max_read_request, containment) = (params.max_read_request, params.containment);
        let settings = Rc::new(Settings { max_read_request, containment, dma });
        let interrupts = Rc::new(Interrupts::new(base.clone(), Rc::clone(&topology)));
        let iov = Rc::new(VirtualFunctions::new(base.clone(), Rc::clone(&topology)));
        let free = resources::apertures(inventory, params.high_space);
        let space = AddressSpace::new(base.clone(), Rc::clone(&topology), Rc::clone(&iov), free);
        let space = Rc::new(space);
        let enumerator = Enumerator {
            base: base.clone(),
            topology: Rc::clone(&topology),
            settings: Rc::clone(&settings),
            iov: Rc::clone(&iov),
            space: Rc::clone(&space),
        };
        Rc::new_cyclic(|me: &Weak<Self>| {
            let pci = Weak::clone(me);
            let device = move |function: &Rc<Function>| {
                let (function, pci) = (Rc::clone(function), Weak::clone(&pci));
                PciDevice::new(Rc::new(DriverFunction { function, pci }))
            };
            let drivers = Rc::new(Drivers::new(
                base.clone(),
                Rc::clone(&topology),
                Rc::clone(&interrupts),
                Rc::clone(&iov),
                Box::new(device),
            ));
            let tally = Rc::<ErrorTally>::default();
            let recovery = Rc::new(Recovery {
                base: base.clone(),
                topology: Rc::clone(&topology),
                settings,
                interrupts: Rc::clone(&interrupts),
                iov: Rc::clone(&iov),
                drivers: Rc::clone(&drivers),
                tally: Rc::clone(&tally),
            });
            let errors = Errors {
                base: base.clone(),
                topology: Rc::clone(&topology),
                recovery: Rc::clone(&recovery),
                tally: Rc::clone(&tally),
            };
            let containment = Containment {
                base: base.clone(),
                topology: Rc::clone(&topology),
                recovery: Rc::clone(&recovery),
                tally,
            };
            let ports = Rc::new_cyclic(|me| Ports {
                me: Weak::clone(me),
                base: base.clone(),
                topology: Rc::clone(&topology),
                interrupts: Rc::clone(&interrupts),
                errors,
                containment,
                enumerator,
                space,
                drivers: Rc::clone(&drivers),
            });
            Self { base, face, topology, interrupts, iov, drivers, recovery, ports }
        })
    }

    /// Reported errors.
    pub fn errors(&self) -> ErrorCounters {
        self.ports.errors.tally.get()
    }

    /// Finds and configures all functions, and binds drivers to them.
    pub async fn start(&self, cpu: &Cpu) {
        self.ports.enumerator.enumerate(cpu).await;
        self.ports.start(cpu).await;
        self.drivers.bind_all(cpu).await;
    }

    /// Unbinds a function and offers it to all drivers again (Linux: `unbind`, then `drivers_probe`).
    pub async fn rebind(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let function = self.topology.function(at).ok_or(Error::NoDevice)?;
        self.drivers.unbind(cpu, &function).await;
        self.drivers.bind(cpu, &function).await;
        Ok(())
    }

    /// Adds a function that is not on the host's own fabric.
    pub async fn add_function(
        &self,
        cpu: &Cpu,
        at: FunctionAddress,
        way: Rc<dyn Backend>,
    ) -> Result<(), Error> {
        self.ports.add_function(cpu, at, way).await
    }

    /// Removes an added function. With `gone`, it was removed without notice and is not accessed.
    pub async fn remove_function(&self, cpu: &Cpu, at: FunctionAddress, gone: bool) -> Result<(), Error> {
        self.ports.remove_function(cpu, at, gone).await
    }

    /// Lets the port above a function contain it.
    pub async fn contain(&self, cpu: &Cpu, at: FunctionAddress) -> Result<(), Error> {
        let function = self.topology.function(at).ok_or(Error::NoDevice)?;
        let port = self.topology.above(&function).ok_or(Error::NotSupported)?;
        match self.ports.containment.trigger(cpu, &port).await {
            true => Ok(()),
            false => Err(Error::NotSupported),
        }
    }

    /// Masks or unmasks some of a function's interrupts, or all at once.
    pub async fn mask_irqs(&self, cpu: &Cpu, irqs: &[Irq], masked: bool) -> Result<(), Error> {
        self.interrupts.mask_some(cpu, irqs, masked).await
    }

    /// Moves an interrupt to another core.
    pub async fn move_irq(&self, cpu: &Cpu, irq: Irq, to: CpuId) -> Result<(), Error> {
        self.interrupts.move_to(cpu, irq, to).await
    }

    /// Drops all functions and drivers, which hold references to the kernel.
    pub fn clear(&self) {
        self.drivers.clear_bindings();
        self.iov.clear();
        self.topology.clear();
        self.drivers.clear_drivers();
    }

    /// All functions by address.
    pub fn inspect(&self) -> Vec<FunctionInfo> {
        self.topology.all().iter().map(|function| self.info(function)).collect()
    }

    /// Descriptions of the other functions in a function's IOMMU group.
    pub fn group_of(&self, function: &Function) -> Vec<FunctionInfo> {
        self.topology.group_of(function).iter().map(|function| self.info(function)).collect()
    }

    /// Description of a function.
    pub fn info(&self, function: &Function) -> FunctionInfo {
        let dma = function.dma.borrow();
        FunctionInfo {
            segment: function.segment,
            bdf: function.bdf,
            parent: function.parent,
            physical: function.physical,
            identity: function.identity,
            buses: function
                .is_bridge()
                .then(|| (function.forwards.secondary(), function.forwards.subordinate())),
            windows: function.forwards.windows(),
            bars: function.bars.numbered().collect(),
            node: function.node.0,
            max_payload: function.max_payload.get(),
            driver: self.drivers.name_of(function),
            irqs: self.interrupts.of(function),
            domain: dma.as_ref().and_then(|dma| dma.domain_id()),
            mapped_pages: dma.as_ref().map_or(0, |dma| dma.mapped_pages()),
            dma: dma.as_ref().map(|dma| dma.counters()).unwrap_or_default(),
            present: function.reach.is_present(),
        }
    }
}
