//! The driver that claims functions to lend, as vfio-pci does, so that no other driver binds.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::pci::{ChannelState, PciBinding, PciDevice, PciDriver, PciMatch, Recovery};
use wire::pcie::{Bdf, FunctionAddress};

use super::Lender;
use crate::host::LocalHost;

/// Name of the driver that claims lent functions.
pub(crate) const LENDER: &str = "lender";

/// Selects the functions to lend.
pub type Offers = Rc<dyn Fn(FunctionAddress) -> bool>;

/// Claims functions for lending.
pub struct LenderDriver {
    offers: Offers,
    lender: Rc<Lender>,
    /// This host, once its service has started.
    host: Rc<RefCell<Weak<LocalHost>>>,
}

impl LenderDriver {
    pub(crate) fn new(offers: Offers, lender: Rc<Lender>, host: Rc<RefCell<Weak<LocalHost>>>) -> Self {
        Self { offers, lender, host }
    }
}

impl PciDriver for LenderDriver {
    fn name(&self) -> &'static str {
        LENDER
    }

    fn ids(&self) -> &[PciMatch] {
        &[PciMatch::ANY]
    }

    fn probe<'a>(&'a self, _: &'a Cpu, device: PciDevice) -> Async<'a, Result<Rc<dyn PciBinding>, Error>> {
        Box::pin(async move {
            let at = device.address();
            // Borrowed functions are not lent on.
            if at.segment != FunctionAddress::default().segment || !(self.offers)(at) {
                return Err(Error::NotSupported);
            }
            self.lender.hold(device);
            let (lender, host) = (Rc::clone(&self.lender), Rc::clone(&self.host));
            Ok(Rc::new(Hold { function: at.bdf, lender, host }) as Rc<dyn PciBinding>)
        })
    }
}

struct Hold {
    function: Bdf,
    lender: Rc<Lender>,
    host: Rc<RefCell<Weak<LocalHost>>>,
}

impl PciBinding for Hold {
    fn remove<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, ()> {
        Box::pin(async move {
            let host = self.host.borrow().upgrade();
            if let Some(host) = host {
                self.lender.revoke(cpu, &host, self.function).await;
            }
            self.lender.let_go(self.function);
        })
    }

    fn error_detected(&self, _: &Cpu, state: ChannelState) -> Recovery {
        // The borrower's driver notices by what it reads.
        if state == ChannelState::Normal { Recovery::CanRecover } else { Recovery::Disconnect }
    }
}
