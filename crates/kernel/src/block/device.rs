//! A block device: its requests, its page cache and its openers.

use std::cell::Cell;
use std::rc::Rc;

use platform::Error;
use platform::block::{BlockDriver, BlockLimits};
use platform::cpu::Cpu;
use platform::kernel::TaskParams;
use platform::storage::{BlockCounters, BlockFile};
use platform::tags::TagSet;
use settings::BY_ID;
use units::{Duration, Time};

use super::BlockParams;
use super::cache::Cache;
use super::file::OpenFile;
use super::requests::Requests;
use crate::base::Base;
use crate::mm::Pins;

/// A disk as programs see it: requests to its driver, and the page cache above.
pub struct BlockDevice {
    name: String,
    pub(super) base: Base,
    pub(super) pins: Rc<Pins>,
    pub(super) requests: Rc<Requests>,
    pub(super) cache: Rc<Cache>,
    /// Number of open files.
    pub(super) openers: Cell<u64>,
}

impl BlockDevice {
    /// Request and cache counters.
    pub fn counters(&self) -> BlockCounters {
        let (dirty_pages, cached_pages) = (self.cache.dirty_pages(), self.cache.cached_pages());
        BlockCounters { dirty_pages, cached_pages, ..self.requests.counters() }
    }

    /// How long requests have waited at each hardware queue, as all its entries were in use, up to `now`.
    pub fn queues_full(&self, now: Time) -> Vec<Duration> {
        self.requests.queues_full(now)
    }

    pub(super) fn new(
        (base, pins): (&Base, &Rc<Pins>),
        name: String,
        driver: Rc<dyn BlockDriver>,
        params: BlockParams,
    ) -> Rc<Self> {
        let requests = Requests::new(base.clone(), driver);
        let cache = Cache::new(base.clone(), Rc::clone(&requests), params);
        Rc::new(Self {
            name,
            base: base.clone(),
            pins: Rc::clone(pins),
            requests,
            cache,
            openers: Cell::new(0),
        })
    }

    /// Name as in `/dev`, such as `nvme0n1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name that it has whenever it is found, below [`BY_ID`]; its own if it has none.
    pub fn lasting_name(&self) -> String {
        self.limits().id.as_ref().map_or_else(|| self.name.clone(), |id| format!("{BY_ID}{id}"))
    }

    /// Limits set by the driver: size, blocks, queues, largest request.
    pub fn limits(&self) -> &BlockLimits {
        self.requests.limits()
    }

    /// Changes the timeout of requests that start from now on (Linux: `queue/io_timeout`).
    pub fn set_timeout(&self, timeout: Duration) {
        self.requests.set_timeout(timeout);
    }

    /// Tags of its hardware queues.
    pub fn tags(&self) -> &TagSet {
        self.requests.tags()
    }

    /// PCI function of the controller.
    pub fn function(&self) -> Option<wire::pcie::FunctionAddress> {
        self.requests.driver().ok()?.function()
    }

    /// Sends an admin command in the controller's own protocol: see [`BlockDriver::admin`].
    ///
    /// # Errors
    /// As of [`BlockDriver::admin`], and [`Error::NoDevice`] if the device is gone.
    pub async fn admin(
        &self,
        cpu: &Cpu,
        command: wire::nvme::Command,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        self.requests.driver()?.admin(cpu, command, length).await
    }

    /// Whether nobody has it open, but write-back is still in progress.
    pub fn is_closing(&self) -> bool {
        self.openers.get() == 0 && self.cache.has_unwritten()
    }

    /// The driver removes the device. Requests that wait for a tag fail once the next request ends, or now if none is
    /// in flight.
    pub(super) fn close(&self) {
        self.requests.forget_driver();
        let (requests, cache) = (Rc::clone(&self.requests), Rc::downgrade(&self.cache));
        self.base.tasks.spawn(
            TaskParams::named("kblockd"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    requests.fail_waiting(&cpu);
                    if let Some(cache) = cache.upgrade() {
                        cache.drop_pages(&cpu).await;
                    }
                })
            }),
        );
    }

    /// Opens the device for a program.
    pub fn open(self: &Rc<Self>) -> Rc<dyn BlockFile> {
        OpenFile::new(Rc::clone(self))
    }
}
