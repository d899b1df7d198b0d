//! Makes functions available to user-space drivers, as vfio-pci does. A program opens the function as a file.
//!
//! The program then has the registers and its DMA memory mapped, and needs no further kernel calls.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::kernel::Kernel;
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};

/// A driver for functions that match one of the IDs.
pub struct VfioDriver(Vec<PciMatch>);

impl VfioDriver {
    /// A driver for these functions.
    pub fn new(ids: Vec<PciMatch>) -> Self {
        Self(ids)
    }

    /// A driver for NVMe controllers.
    pub fn nvme() -> Self {
        Self::new(vec![PciMatch::class(wire::nvme::CLASS)])
    }
}

struct VfioBinding {
    kernel: Rc<dyn Kernel>,
    name: String,
}

impl PciDriver for VfioDriver {
    fn name(&self) -> &'static str {
        "vfio-pci"
    }

    fn ids(&self) -> &[PciMatch] {
        &self.0
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            device.set_master(cpu, true).await;
            device.dma().set_mask(64)?;
            let kernel = device.kernel();
            let name = kernel.register_file("vfio", Rc::new(device));
            Ok(Rc::new(VfioBinding { kernel, name }) as Rc<dyn PciBinding>)
        })
    }
}

impl PciBinding for VfioBinding {
    fn remove<'a>(&'a self, _: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move { self.kernel.unregister_file(&self.name) })
    }
}
