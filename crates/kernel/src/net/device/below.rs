//! What is below a device: its driver and link, with the counters.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use platform::net::{DeviceStatistics, NetCounters, NetDriver, TxStatistics};

use crate::base::Base;

/// Driver and link of a device.
pub(super) struct Below {
    pub base: Base,
    pub name: String,
    /// `None` if the device is gone.
    pub driver: RefCell<Option<Rc<dyn NetDriver>>>,
    /// The device is open.
    pub up: Cell<bool>,
    /// The link is up.
    pub carrier: Cell<bool>,
    counters: Cell<NetCounters>,
    /// What the driver had counted when it was removed.
    pub last: RefCell<(TxStatistics, DeviceStatistics)>,
}

impl Below {
    pub fn new(base: Base, name: String, driver: Rc<dyn NetDriver>) -> Self {
        Self {
            base,
            name,
            driver: RefCell::new(Some(driver)),
            up: Cell::new(false),
            carrier: Cell::new(false),
            counters: Cell::default(),
            last: RefCell::default(),
        }
    }

    pub fn driver(&self) -> Option<Rc<dyn NetDriver>> {
        self.driver.borrow().clone()
    }

    pub fn can_send(&self) -> bool {
        self.up.get() && self.carrier.get()
    }

    pub fn counters(&self) -> NetCounters {
        self.counters.get()
    }

    pub fn count(&self, change: impl FnOnce(&mut NetCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}
