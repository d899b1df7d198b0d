//! The block layer: the path of requests from programs to drivers, and the page cache.
//!
//! ```text
//! program ─▶ BlockFile::submit ─▶ split ─▶ plug: merge ─▶ tag ─▶ BlockDriver      (a queue for every core)
//!         ─▶ read, write ─▶ page cache ─▶ missing or dirty pages ─▶ the same way
//! driver's interrupt ─▶ tag back ─▶ every request that was merged ─▶ program, or who waits for a page
//! ```

mod cache;
mod device;
mod file;
mod requests;
mod split;

use std::cell::RefCell;
use std::rc::Rc;

use platform::block::BlockDriver;
use platform::costs::linux;
use settings::is_disk;
use units::Bytes;

pub use device::BlockDevice;

use crate::base::Base;
use crate::mm::Pins;

/// Parameters of the block layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockParams {
    /// Read-ahead of sequential reads (Linux: `read_ahead_kb`, 128).
    pub read_ahead: Bytes,
    /// Dirty pages of a device at which writers wait for write-back (Linux: `vm.dirty_bytes`, by default a fifth of
    /// memory, which is more than simulations write).
    pub dirty_limit: Bytes,
    /// Size limit of a device's page cache (assumed: Linux uses all free memory, which is more than simulations
    /// read).
    pub cache_limit: Bytes,
}

impl Default for BlockParams {
    fn default() -> Self {
        Self {
            read_ahead: Bytes::new(const { linux("block", "read_ahead") }),
            dirty_limit: Bytes::new(const { linux("block", "dirty_limit") }),
            cache_limit: Bytes::new(const { linux("block", "cache_limit") }),
        }
    }
}

/// All block devices of a kernel.
pub struct Block {
    base: Base,
    /// Memory pinned by requests.
    pins: Rc<Pins>,
    params: BlockParams,
    devices: RefCell<Vec<Rc<BlockDevice>>>,
}

impl Block {
    pub(crate) fn new(base: Base, pins: Rc<Pins>, params: BlockParams) -> Self {
        Self { base, pins, params, devices: RefCell::default() }
    }

    /// Devices in order of registration.
    pub fn devices(&self) -> Vec<Rc<BlockDevice>> {
        self.devices.borrow().clone()
    }

    /// Finds a device by name or by its name below `disk/by-id`, with or without `/dev/`.
    pub fn device(&self, name: &str) -> Option<Rc<BlockDevice>> {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        let is_it = |device: &&Rc<BlockDevice>| is_disk(name, device.name(), device.limits().id.as_deref());
        self.devices.borrow().iter().find(is_it).cloned()
    }

    /// Registers a device.
    pub(crate) fn add(&self, driver: Rc<dyn BlockDriver>) -> String {
        let wanted = driver.limits().name;
        let taken = |name: &str| self.devices.borrow().iter().any(|device| device.name() == name);
        let name = match taken(&wanted) {
            false => wanted,
            true => (1..).map(|n| format!("{wanted}-{n}")).find(|name| !taken(name)).unwrap_or(wanted),
        };
        let device = BlockDevice::new((&self.base, &self.pins), name.clone(), driver, self.params);
        self.devices.borrow_mut().push(device);
        name
    }

    /// Removes a device.
    pub(crate) fn remove(&self, name: &str) {
        let gone = self.device(name);
        self.devices.borrow_mut().retain(|device| device.name() != name);
        if let Some(device) = gone {
            device.close();
        }
    }

    /// Drops all devices.
    pub(crate) fn clear(&self) {
        self.devices.take().iter().for_each(|device| device.close());
    }
}
