//! The host's driver for passed-through functions: it claims them and does nothing else (Linux: `vfio-pci`).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use wire::pcie::FunctionAddress;

/// Claims functions for guests. Has to be registered before the functions' own drivers.
pub struct Vfio {
    me: Weak<Self>,
    claims: Box<dyn Fn(FunctionAddress) -> bool>,
    claimed: RefCell<Vec<PciDevice>>,
    followers: RefCell<Vec<Follower>>,
}

/// Called when a function is claimed or removed.
pub type Follower = Box<dyn Fn(Cpu, Change) -> Async<'static, ()>>;

/// A change of a claimed function.
#[derive(Clone)]
pub enum Change {
    /// It was bound to this driver.
    Claimed(PciDevice),
    /// It is being removed.
    Removed(FunctionAddress),
}

impl Vfio {
    /// A driver for the functions that `claims` selects.
    pub fn new(claims: impl Fn(FunctionAddress) -> bool + 'static) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            claims: Box::new(claims),
            claimed: RefCell::default(),
            followers: RefCell::default(),
        })
    }

    /// Sets the callback for changes.
    pub(crate) fn on_change(&self, told: Follower) {
        self.followers.borrow_mut().push(told);
    }

    async fn tell(&self, cpu: &Cpu, change: Change) {
        let tell = |told: &Follower| told(cpu.clone(), change.clone());
        let all: Vec<_> = self.followers.borrow().iter().map(tell).collect();
        for told in all {
            told.await;
        }
    }

    /// Claimed functions, in probe order.
    pub fn claimed(&self) -> Vec<PciDevice> {
        self.claimed.borrow().iter().filter(|device| device.is_present()).cloned().collect()
    }
}

struct Claimed(PciDevice, Weak<Vfio>);

impl PciBinding for Claimed {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            if let Some(vfio) = self.1.upgrade() {
                let at = self.0.address();
                vfio.claimed.borrow_mut().retain(|claimed| claimed.address() != at);
                vfio.tell(cpu, Change::Removed(at)).await;
            }
            self.0.free_irqs(cpu).await;
        })
    }
}

impl PciDriver for Vfio {
    fn name(&self) -> &'static str {
        "vfio-pci"
    }

    fn ids(&self) -> &[PciMatch] {
        &[PciMatch::ANY]
    }

    fn probe<'a>(&'a self, cpu: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            if !(self.claims)(device.address()) {
                return Err(Error::NoDevice);
            }
            self.claimed.borrow_mut().push(device.clone());
            self.tell(cpu, Change::Claimed(device.clone())).await;
            Ok(Rc::new(Claimed(device, Weak::clone(&self.me))) as Rc<dyn PciBinding>)
        })
    }
}
