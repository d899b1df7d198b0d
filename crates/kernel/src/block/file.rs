//! A block device as programs see it.

use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::{Async, Cpu, Node, Part};
use platform::kernel::TaskParams;
use platform::memory::{PageMoves, Policy};
use platform::storage::{BlockCounters, BlockFile, CachedRange, IoCompletions, IoDone, IoRequest};

use super::BlockDevice;
use super::cache::Held;
use crate::mm::Pin;

impl BlockDevice {
    /// Books a system call.
    fn system_call(&self, cpu: &Cpu) -> platform::cpu::Booking {
        let part = cpu.book(Part::Block);
        if let Some(kernel) = self.kernel.upgrade() {
            cpu.work(kernel.cores.costs.syscall);
        }
        part
    }

    fn start(&self, cpu: &Cpu, requests: Vec<(IoRequest, Pin)>, completions: &Rc<IoCompletions>) {
        let mut bios = Vec::new();
        for (request, pin) in requests {
            let (completions, token) = (Rc::clone(completions), request.token);
            let changed = !matches!(request.op, BlockOp::Read | BlockOp::Flush);
            let IoRequest { op, offset, length, memory, .. } = request;
            if changed {
                self.invalidate(cpu, offset, length);
            }
            let me = self.me.clone();
            let ended = Box::new(move |cpu: &Cpu, result| {
                // Again, as Linux does: pages that were read meanwhile may hold what was there before.
                if let Some(device) = me.upgrade() {
                    if changed {
                        device.invalidate(cpu, offset, length);
                    }
                    device.unpin(pin);
                }
                completions.push(IoDone { token, result });
            });
            bios.extend(self.prepare(cpu, op, offset, length, &memory, ended));
        }
        if !bios.is_empty() {
            self.dispatch(cpu, bios);
        }
    }

    fn unpin(&self, pin: Pin) {
        if let Some(kernel) = self.kernel.upgrade() {
            kernel.pins.unpin(pin);
        }
    }
}

impl BlockFile for BlockDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn bytes(&self) -> u64 {
        self.limits.sectors * SECTOR
    }

    fn block_bytes(&self) -> u32 {
        self.limits.block_bytes
    }

    fn counters(&self) -> BlockCounters {
        BlockCounters {
            dirty_pages: self.cache.dirty_pages(),
            cached_pages: self.cache.cached_pages(),
            ..self.counters.get()
        }
    }

    fn submit(&self, cpu: &Cpu, requests: Vec<IoRequest>, completions: &Rc<IoCompletions>) {
        let _part = self.system_call(cpu);
        let Some((kernel, me)) = self.kernel.upgrade().zip(self.me.upgrade()) else { return };
        // The programs' memory stays where it is until the device has read or written it.
        let held = requests.into_iter().map(|request| {
            let pin = kernel.pins.pin(&request.memory);
            (request, pin)
        });
        let dirty = |(request, _): &(IoRequest, Pin)| self.cache.is_dirty(request.offset, request.length);
        let (wait, go): (Vec<_>, Vec<_>) = held.partition(dirty);
        self.start(cpu, go, completions);
        if wait.is_empty() {
            return;
        }
        // Direct requests find on the device what was written through the cache.
        let completions = Rc::clone(completions);
        kernel.spawn_program(
            TaskParams::named("kworker/direct").on(cpu.id()),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Block);
                    me.write_back(&cpu).await;
                    me.start(&cpu, wait, &completions);
                })
            }),
        );
    }

    fn poll(&self, cpu: &Cpu) -> usize {
        let _part = self.system_call(cpu);
        match self.alive() {
            Ok((_, driver)) => driver.poll(cpu, driver.queue_for(cpu.id())),
            Err(_) => 0,
        }
    }

    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a [Segment]) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.read_cached(cpu, offset, into).await
        })
    }

    fn write<'a>(&'a self, cpu: &'a Cpu, offset: u64, from: &'a [Segment]) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.write_cached(cpu, offset, from).await
        })
    }

    fn sync<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.sync_all(cpu).await
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
            let (segments, pages) = self.cached_range(cpu, offset, length, policy).await?;
            Ok(CachedRange { segments, hold: Rc::new(Held::new(self, pages)) })
        })
    }

    fn migrate(&self, cpu: &Cpu, offset: u64, length: u64, to: Node) -> Result<PageMoves, Error> {
        let _part = self.system_call(cpu);
        self.migrate_cached(cpu, offset, length, to)
    }

    fn drop_cache<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = self.system_call(cpu);
            self.sync_all(cpu).await?;
            self.drop_unused(cpu);
            Ok(())
        })
    }
}
