//! Open files of block devices.

use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::{Async, Booking, Cpu, Part};
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::storage::{BlockCounters, BlockFile, CachedRange, IoCompletions, IoDone, IoRequest};

use super::BlockDevice;
use super::cache::{Heard, HeldPages, touched};
use crate::mm::Pin;

/// A block device opened by a program.
pub struct OpenFile {
    device: Rc<BlockDevice>,
    /// Write errors already reported through this file.
    heard: Heard,
}

impl OpenFile {
    pub(super) fn new(device: Rc<BlockDevice>) -> Rc<Self> {
        let heard = device.cache.opened();
        device.openers.set(device.openers.get() + 1);
        Rc::new(Self { device, heard })
    }

    /// Accounts a system call.
    fn system_call(&self, cpu: &Cpu) -> Booking {
        let part = cpu.book(Part::Block);
        cpu.work(self.device.base.costs().syscall);
        part
    }
}

/// The last close starts write-back of dirty pages (Linux: `sync_blockdev`, for which close(2) waits; here a kernel
/// task does it). There is no flush, so data may still be in the device's own cache.
impl Drop for OpenFile {
    fn drop(&mut self) {
        let others = self.device.openers.get() - 1;
        self.device.openers.set(others);
        let is_gone = self.device.requests.driver().is_err();
        if is_gone || others > 0 || self.device.cache.dirty_pages() == 0 {
            return;
        }
        let cache = Rc::clone(&self.device.cache);
        self.device.base.tasks.spawn(
            TaskParams::named("kworker/close"),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Block);
                    // The next sync reports errors.
                    let _ = cache.write_back(&cpu, 0..u64::MAX).await;
                })
            }),
        );
    }
}

/// Starts direct requests, whose memory is pinned.
fn start(device: &BlockDevice, cpu: &Cpu, requests: Vec<(IoRequest, Pin)>, completions: &Rc<IoCompletions>) {
    let mut bios = Vec::new();
    for (request, pin) in requests {
        let (completions, token) = (Rc::clone(completions), request.token);
        let changed = !matches!(request.op, BlockOp::Read | BlockOp::Flush);
        let IoRequest { op, offset, length, memory, .. } = request;
        if changed {
            device.cache.invalidate(cpu, offset, length);
        }
        let (cache, pins) = (Rc::downgrade(&device.cache), Rc::clone(&device.pins));
        let ended = Box::new(move |cpu: &Cpu, result| {
            // Invalidate again, as Linux does: pages read meanwhile may hold old data.
            if let Some(cache) = cache.upgrade().filter(|_| changed) {
                cache.invalidate(cpu, offset, length);
            }
            pins.unpin(pin);
            completions.push(IoDone { token, result });
        });
        bios.extend(device.requests.prepare(cpu, op, offset, length, &memory, ended));
    }
    if !bios.is_empty() {
        device.requests.dispatch(cpu, bios);
    }
}

impl BlockFile for OpenFile {
    fn name(&self) -> String {
        self.device.name().to_owned()
    }

    fn bytes(&self) -> u64 {
        self.device.limits().sectors * SECTOR
    }

    fn block_bytes(&self) -> u32 {
        self.device.limits().block_bytes
    }

    fn counters(&self) -> BlockCounters {
        self.device.counters()
    }

    fn submit(&self, cpu: &Cpu, requests: Vec<IoRequest>, completions: &Rc<IoCompletions>) {
        let _part = self.system_call(cpu);
        // Pin the programs' memory until the device has read or written it.
        let held = requests.into_iter().map(|request| {
            let pin = self.device.pins.pin(&request.memory);
            (request, pin)
        });
        let dirty =
            |(request, _): &(IoRequest, Pin)| self.device.cache.is_dirty(request.offset, request.length);
        let (wait, go): (Vec<_>, Vec<_>) = held.partition(dirty);
        start(&self.device, cpu, go, completions);
        if wait.is_empty() {
            return;
        }
        // Direct requests must see data written through the cache.
        let (device, completions) = (Rc::clone(&self.device), Rc::clone(completions));
        self.device.base.tasks.spawn(
            TaskParams::named("kworker/direct").on(cpu.id()),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Block);
                    let mut ready = Vec::new();
                    for (request, pin) in wait {
                        match device.cache.write_back(&cpu, touched(request.offset, request.length)).await {
                            Ok(()) => ready.push((request, pin)),
                            // Write-back failed, so the device does not hold what the program wrote.
                            Err(error) => {
                                device.pins.unpin(pin);
                                completions.push(IoDone { token: request.token, result: Err(error) });
                            }
                        }
                    }
                    start(&device, &cpu, ready, &completions);
                })
            }),
        );
    }

    fn poll(&self, cpu: &Cpu) -> usize {
        let _part = cpu.book(Part::Poll);
        cpu.work(self.device.base.costs().syscall);
        match self.device.requests.driver() {
            Ok(driver) => driver.poll(cpu, driver.queue_for(cpu.id())),
            Err(_) => 0,
        }
    }

    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a [Segment]) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.device.cache.read_cached(cpu, offset, into).await
        })
    }

    fn write<'a>(&'a self, cpu: &'a Cpu, offset: u64, from: &'a [Segment]) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.device.cache.write_cached(cpu, offset, from).await
        })
    }

    fn sync<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.device.cache.sync_all(cpu, &self.heard).await
        })
    }

    fn cached<'a>(
        &'a self,
        cpu: &'a Cpu,
        offset: u64,
        length: u64,
        policy: Policy,
    ) -> Async<'a, Result<CachedRange, Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            let (segments, pages) = self.device.cache.cached_range(cpu, offset, length, policy).await?;
            Ok(CachedRange { segments, hold: Rc::new(HeldPages::new(&self.device.cache, pages)) })
        })
    }

    fn drop_cache<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.device.cache.sync_all(cpu, &self.heard).await?;
            self.device.cache.drop_unused(cpu);
            Ok(())
        })
    }
}
