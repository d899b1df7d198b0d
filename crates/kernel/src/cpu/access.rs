//! Loads and stores of a core: which lines, which of them overlap, and when they are done.

use hardware::core::Store;
use hardware::memory::{Agent, CoreOp, LINE, MemorySystem, Source};
use platform::cpu::CpuOps;
use platform::memory::PhysAddr;
use units::{Bytes, HostPhysical, Time};

use super::{Context, Core};
use crate::convert;

/// Misses under way, oldest first; no more than there are fill buffers.
struct Window {
    ready: [Time; 32],
    next: usize,
    size: usize,
}

impl Window {
    fn new(size: u16) -> Self {
        Self { ready: [Time::ZERO; 32], next: 0, size: usize::from(size).clamp(1, 32) }
    }

    /// The earliest time at which another miss can begin.
    fn free_at(&self) -> Time {
        self.ready[self.next]
    }

    fn begin(&mut self, ready: Time) {
        self.ready[self.next] = ready;
        self.next = (self.next + 1) % self.size;
    }

    fn all_done(&self) -> Time {
        self.ready.iter().copied().max().unwrap_or(Time::ZERO)
    }
}

fn lines(at: PhysAddr, length: u64) -> impl Iterator<Item = HostPhysical> {
    let first = at.0 & !(LINE - 1);
    let end = at.0 + length.max(1);
    (first..end).step_by(LINE as usize).map(HostPhysical::new)
}

/// Announces what `core` accesses from the `n`th line of a range up to its `end`, if what was announced is used up.
#[inline]
fn announce(memory: &MemorySystem, core: &Core, n: usize, line: HostPhysical, end: u64) {
    if n.is_multiple_of(MemorySystem::ANNOUNCED) {
        memory.announce(Agent::Core(convert::core(core.id)), line, Bytes::new(end - line.get()));
    }
}

impl Context {
    pub(super) fn read(&self, at: PhysAddr, into: &mut [u8]) {
        let length = into.len() as u64;
        let done = self.cores.with(|host, _, _| {
            if host.memory.bytes().read(convert::physical(at), into).is_err() {
                into.fill(0xff);
            }
            let combining = host.stores_of(convert::core(self.core.get())).combining() as u16;
            let buffers = self.cores.params.fill_buffers.saturating_sub(combining);
            self.touch(&mut host.memory, self.now(), at, length, CoreOp::Load, buffers)
        });
        self.advance_to(done);
    }

    pub(super) fn write(&self, at: PhysAddr, from: &[u8], op: CoreOp) {
        let core = self.cores.get(self.core.get());
        let issue = self.cores.issue;
        let capacity = usize::from(self.cores.params.store_buffer);
        let mut now = self.now();
        self.cores.with(|host, _, _| {
            // A store to where no memory is is lost.
            let _ = host.memory.bytes_mut().write(convert::physical(at), from);
            let mut stores = core.stores.borrow_mut();
            for (n, line) in lines(at, from.len() as u64).enumerate() {
                announce(&host.memory, core, n, line, at.0 + from.len() as u64);
                while stores.len() >= capacity
                    && let Some(oldest) = stores.pop_front()
                {
                    now = now.max(oldest);
                }
                while stores.front().is_some_and(|&done| done <= now) {
                    stores.pop_front();
                }
                // Stores are written in order.
                let access = host.memory.core(now, convert::core(core.id), line, op);
                if access.source != Source::OwnCache {
                    host.line_fill(convert::core(core.id), access.ready);
                }
                let done = access.ready;
                let after = stores.back().copied().unwrap_or(Time::ZERO);
                stores.push_back(done.max(after));
                now += issue;
            }
        });
        self.advance_to(now);
    }

    pub(super) fn copy_lines(&self, to: PhysAddr, from: PhysAddr, length: u64) {
        let mut bytes = vec![0; length as usize];
        self.read(from, &mut bytes);
        self.write(to, &bytes, CoreOp::Store);
    }

    pub(super) fn fetch_ahead(&self, at: PhysAddr, length: u64) {
        let issue = self.cores.issue;
        let mut now = self.now();
        self.cores.with(|host, _, _| {
            for line in lines(at, length) {
                host.memory.core(now, convert::core(self.core.get()), line, CoreOp::Prefetch);
                now += issue;
            }
        });
        self.advance_to(now);
    }

    pub(super) fn flush(&self, at: PhysAddr) {
        self.cycles(self.part(), self.cores.costs.line_flush);
        let now = self.now();
        let core = convert::core(self.core.get());
        let access = self
            .cores
            .with(|host, _, _| host.memory.core(now, core, convert::physical(at), CoreOp::FlushLine));
        if access.source == Source::Unmapped {
            self.cores.evict_device_line(self.core.get(), now, at.0);
            self.cores.store(self.core.get(), now, Store::Flush(at.0));
        }
    }

    /// Accesses all lines of a range, as many at once as fill buffers are free: when the last is there.
    fn touch(
        &self,
        memory: &mut MemorySystem,
        start: Time,
        at: PhysAddr,
        length: u64,
        op: CoreOp,
        buffers: u16,
    ) -> Time {
        let issue = self.cores.issue;
        let core = convert::core(self.core.get());
        if at.offset_in(LINE) + length <= LINE {
            return memory.core(start, core, HostPhysical::new(at.0), op).ready;
        }
        let whose = self.cores.get(self.core.get());
        let mut window = Window::new(buffers);
        let mut now = start;
        let mut last = start;
        for (n, line) in lines(at, length).enumerate() {
            announce(memory, whose, n, line, at.0 + length);
            let begin = now.max(window.free_at());
            let access = memory.core(begin, core, line, op);
            if access.source != Source::OwnCache {
                window.begin(access.ready);
            }
            last = last.max(access.ready);
            now = begin + issue;
        }
        now.max(last).max(window.all_done())
    }
}
