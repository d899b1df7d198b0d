//! The host's driver for functions that are passed through: it claims them and leaves them alone (Linux: `vfio-pci`).

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::{PciBinding, PciDevice, PciDriver, PciMatch};
use wire::pcie::FunctionAddress;

/// Claims functions for guests. It must be added to the host's kernel before the functions' own drivers.
pub struct Vfio {
    me: Weak<Self>,
    claims: Box<dyn Fn(FunctionAddress) -> bool>,
    claimed: RefCell<Vec<PciDevice>>,
    followers: RefCell<Vec<Follower>>,
}

/// Told that a function has come, or that the one at an address goes.
pub type Follower = Box<dyn Fn(Cpu, Change) -> Async<'static, ()>>;

/// What becomes of a function.
#[derive(Clone)]
pub enum Change {
    /// It is the host's driver's from now on.
    Claimed(PciDevice),
    /// It goes.
    Removed(FunctionAddress),
}

impl Vfio {
    /// For the functions of which `claims` says so.
    pub fn new(claims: impl Fn(FunctionAddress) -> bool + 'static) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            claims: Box::new(claims),
            claimed: RefCell::default(),
            followers: RefCell::default(),
        })
    }

    /// Tells what becomes of functions from now on.
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

    /// The functions that it has, in the order in which they were found.
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
        const { &[PciMatch { vendor: None, device: None, class: None }] }
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
