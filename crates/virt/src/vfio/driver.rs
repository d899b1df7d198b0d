//! The host's driver for functions that are passed through: it claims them and leaves them alone (Linux: `vfio-pci`).

use std::cell::RefCell;
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use wire::pcie::FunctionAddress;

/// Claims functions for guests. It must be added to the host's kernel before the functions' own drivers.
pub struct Vfio {
    claims: Box<dyn Fn(FunctionAddress) -> bool>,
    claimed: RefCell<Vec<PciDevice>>,
}

impl Vfio {
    /// For the functions of which `claims` says so.
    pub fn new(claims: impl Fn(FunctionAddress) -> bool + 'static) -> Rc<Self> {
        Rc::new(Self { claims: Box::new(claims), claimed: RefCell::default() })
    }

    /// The functions that it has, in the order in which they were found.
    pub fn claimed(&self) -> Vec<PciDevice> {
        self.claimed.borrow().iter().filter(|device| device.is_present()).cloned().collect()
    }
}

struct Claimed(PciDevice);

impl PciBinding for Claimed {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move { self.0.free_irqs(cpu).await })
    }
}

impl PciDriver for Vfio {
    fn name(&self) -> &'static str {
        "vfio-pci"
    }

    fn ids(&self) -> &[PciMatch] {
        const { &[PciMatch { vendor: None, device: None, class: None }] }
    }

    fn probe<'a>(&'a self, _: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            if !(self.claims)(device.address()) {
                return Err(Error::NoDevice);
            }
            self.claimed.borrow_mut().push(device.clone());
            Ok(Rc::new(Claimed(device)) as Rc<dyn PciBinding>)
        })
    }
}
