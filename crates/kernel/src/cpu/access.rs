//! Loads and stores of a core: which lines, which of them overlap, and when they are done.

use engine::Scheduler;
use hardware::Event;
use hardware::core::{FillBuffers, Store};
use hardware::memory::{Agent, CoreId, CoreOp, LINE, MemorySystem, Source};
use hardware::root::Host;
use platform::cpu::CpuOps;
use platform::memory::PhysAddr;
use units::{Bytes, HostPhysical, Time};

use super::{Context, Core};
use crate::convert;

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
        let done = self.cores.with(|host, _, scheduler| {
            if host.memory.bytes().read(convert::physical(at), into).is_err() {
                into.fill(0xff);
            }
            self.touch(host, scheduler, self.now(), (at, length))
        });
        self.advance_to(done);
    }

    pub(super) fn write(&self, at: PhysAddr, from: &[u8], op: CoreOp) {
        let core = self.cores.get(self.core.get());
        let issue = self.cores.issue;
        let capacity = usize::from(self.cores.params.store_buffer);
        let mut now = self.now();
        self.cores.with(|host, _, scheduler| {
            // A store to where no memory is is lost.
            let _ = host.memory.bytes_mut().write(convert::physical(at), from);
            let mut stores = core.stores.borrow_mut();
            let id = convert::core(core.id);
            let mut misses: Option<FillBuffers> = None;
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
                let begin = misses.as_ref().map_or(now, |buffers| now.max(buffers.free_at()));
                let access = host.memory.core(begin, id, line, op);
                let mut done = access.ready;
                if access.source != Source::OwnCache {
                    let begin = fetch(&mut misses, host, scheduler, id, begin, &mut done);
                    host.line_fill(id, begin, done);
                }
                // Stores are written in order.
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
        let core = convert::core(self.core.get());
        self.cores.with(|host, _, scheduler| {
            for line in lines(at, length) {
                // The core does not wait for the buffer.
                let from = host.fill_buffers(scheduler, core, now).free_at();
                let access = host.memory.core(from, core, line, CoreOp::Prefetch);
                if access.source != Source::OwnCache {
                    host.line_fill(core, from, access.ready);
                }
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

    /// Loads all lines of a range, as many at once as fill buffers are free: when the last is there.
    fn touch(
        &self,
        host: &mut Host,
        scheduler: &mut Scheduler<Event>,
        start: Time,
        (at, length): (PhysAddr, u64),
    ) -> Time {
        let issue = self.cores.issue;
        let whose = self.cores.get(self.core.get());
        let core = convert::core(whose.id);
        let is_one = at.offset_in(LINE) + length <= LINE;
        // What is in the core's own caches needs no buffer.
        let mut misses: Option<FillBuffers> = None;
        let (mut now, mut last) = (start, start);
        for (n, line) in lines(at, length).enumerate() {
            if !is_one {
                announce(&host.memory, whose, n, line, at.0 + length);
            }
            let begin = misses.as_ref().map_or(now, |buffers| now.max(buffers.free_at()));
            let access = host.memory.core(begin, core, line, CoreOp::Load);
            let mut ready = access.ready;
            if access.source != Source::OwnCache {
                fetch(&mut misses, host, scheduler, core, begin, &mut ready);
            }
            last = last.max(ready);
            now = begin + issue;
        }
        // The core waits for them, but a line that combines may want a buffer meanwhile.
        for (begin, ready) in misses.iter().flat_map(FillBuffers::fetched) {
            host.line_fill(core, begin, ready);
        }
        if is_one { last } else { now.max(last) }
    }
}

/// Lets a line that was looked up at `begin`, and not found, and that is there at `ready`, take a fill buffer; the first one
/// asks which are free, and may have to wait. Returns when it begins.
fn fetch(
    misses: &mut Option<FillBuffers>,
    host: &mut Host,
    scheduler: &mut Scheduler<Event>,
    core: CoreId,
    mut begin: Time,
    ready: &mut Time,
) -> Time {
    let buffers = misses.get_or_insert_with(|| {
        let buffers = host.fill_buffers(scheduler, core, begin);
        let wait = buffers.free_at().since(begin);
        begin += wait;
        *ready += wait;
        buffers
    });
    buffers.fetch(begin, *ready);
    begin
}
