//! The guests' memory, as functions of a host access it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hardware::root::OutsideMemory;
use units::Iova;
use vfio_user::ClientMemory;
use wire::pcie::Bdf;

/// What each function of a host may access.
#[derive(Default)]
pub struct LiveMemory(RefCell<BTreeMap<u16, ClientMemory>>);

impl LiveMemory {
    /// Changes what a function may access.
    pub fn of<R>(&self, function: Bdf, change: impl FnOnce(&mut ClientMemory) -> R) -> R {
        change(self.0.borrow_mut().entry(function.bits()).or_default())
    }

    fn with<R>(&self, function: Bdf, access: impl FnOnce(&ClientMemory) -> R) -> Option<R> {
        self.0.borrow().get(&function.bits()).map(access)
    }
}

impl OutsideMemory for LiveMemory {
    fn place(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<u64> {
        self.with(requester, |memory| {
            let is_allowed = memory.allows(address.get(), length.max(1) as usize, writes);
            memory.place(address.get()).filter(|_| is_allowed)
        })?
    }

    fn read(&self, requester: Bdf, address: Iova, into: &mut [u8]) {
        // Like a bus on which nothing answers, if the range was unmapped or its file cut short meanwhile.
        if self.with(requester, |memory| memory.read(address.get(), into)) != Some(true) {
            into.fill(0xff);
        }
    }

    fn write(&self, requester: Bdf, address: Iova, from: &[u8]) {
        self.with(requester, |memory| memory.write(address.get(), from));
    }
}
