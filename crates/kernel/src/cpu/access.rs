//! Loads and stores of a core: which lines, which of them overlap, and when they are done.

use engine::Scheduler;
use hardware::Event;
use hardware::core::{FillBuffers, Store};
use hardware::memory::{Agent, CoreId, CoreOp, LINE, MemorySystem, Source};
use hardware::root::Host;
use platform::cpu::CpuOps;
use platform::memory::PhysAddr;
use units::{Bytes, Duration, HostPhysical, Time};

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

/// A core's accesses to lines from one moment on, as many at once as its buffers allow.
struct Accesses<'a> {
    host: &'a mut Host,
    scheduler: &'a mut Scheduler<Event>,
    core: &'a Core,
    id: CoreId,
    /// What an access takes that the core's own caches answer at once: it needs no buffer.
    own: Duration,
    /// From one access to the next.
    issue: Duration,
    /// Stores that retire before they are written.
    store_buffer: usize,
    /// The buffers for lines that are missed, once there is one.
    misses: Option<FillBuffers>,
    now: Time,
    /// When the last line that is loaded is there.
    loaded: Time,
}

impl Accesses<'_> {
    /// Loads a line as soon as a buffer is free.
    #[inline]
    fn load(&mut self, line: HostPhysical) {
        let begin = self.misses.as_ref().map_or(self.now, |buffers| self.now.max(buffers.free_at()));
        let access = self.host.memory.core(begin, self.id, line, CoreOp::Load);
        let mut ready = access.ready;
        if access.source != Source::OwnCache || ready > begin + self.own {
            fetch(&mut self.misses, self.host, self.scheduler, self.id, begin, &mut ready);
        }
        self.loaded = self.loaded.max(ready);
        self.now = begin;
    }

    /// Stores a line whose data are there at `data`, into the store buffer, which writes in order; the next access is one
    /// step later.
    #[inline]
    fn store(&mut self, line: HostPhysical, op: CoreOp, data: Time) {
        let mut stores = self.core.stores.borrow_mut();
        while stores.len() >= self.store_buffer
            && let Some(oldest) = stores.pop_front()
        {
            self.now = self.now.max(oldest);
        }
        while stores.front().is_some_and(|&done| done <= self.now) {
            stores.pop_front();
        }
        let begin = self.misses.as_ref().map_or(self.now, |buffers| self.now.max(buffers.free_at()));
        let access = self.host.memory.core(begin, self.id, line, op);
        let mut done = access.ready;
        if access.source != Source::OwnCache || done > begin + self.own {
            let begin = fetch(&mut self.misses, self.host, self.scheduler, self.id, begin, &mut done);
            self.host.line_fill(self.id, begin, done);
        }
        let after = stores.back().copied().unwrap_or(Time::ZERO);
        stores.push_back(done.max(data).max(after));
        self.now += self.issue;
    }

    /// Lets lines that combine know which buffers the loads have taken: the core waits for its loads, but such a line may
    /// want a buffer meanwhile.
    fn note_fills(&mut self) {
        for (begin, ready) in self.misses.iter().flat_map(FillBuffers::fetched) {
            self.host.line_fill(self.id, begin, ready);
        }
    }
}

impl Context {
    /// Runs a core's accesses to lines, from now on.
    fn access<R>(&self, run: impl FnOnce(&mut Accesses<'_>) -> R) -> R {
        let core = self.cores.get(self.core.get());
        let (own, issue) = (self.cores.own_hit, self.cores.issue);
        let (now, store_buffer) = (self.now(), usize::from(self.cores.params.store_buffer));
        self.cores.with(|host, _, scheduler| {
            host.memory.pass(scheduler.now());
            let id = convert::core(core.id);
            let misses = None;
            let loaded = now;
            run(&mut Accesses { host, scheduler, core, id, own, issue, store_buffer, misses, now, loaded })
        })
    }

    pub(super) fn read(&self, at: PhysAddr, into: &mut [u8]) {
        let length = into.len() as u64;
        let is_one = at.offset_in(LINE) + length <= LINE;
        let done = self.access(|accesses| {
            if accesses.host.memory.bytes().read(convert::physical(at), into).is_err() {
                into.fill(0xff);
            }
            for (n, line) in lines(at, length).enumerate() {
                if !is_one {
                    announce(&accesses.host.memory, accesses.core, n, line, at.0 + length);
                }
                accesses.load(line);
                accesses.now += accesses.issue;
            }
            accesses.note_fills();
            if is_one { accesses.loaded } else { accesses.now.max(accesses.loaded) }
        });
        self.advance_to(done);
    }

    pub(super) fn write(&self, at: PhysAddr, from: &[u8], op: CoreOp) {
        let done = self.access(|accesses| {
            // A store to where no memory is is lost.
            let _ = accesses.host.memory.bytes_mut().write(convert::physical(at), from);
            for (n, line) in lines(at, from.len() as u64).enumerate() {
                announce(&accesses.host.memory, accesses.core, n, line, at.0 + from.len() as u64);
                accesses.store(line, op, Time::ZERO);
            }
            accesses.now
        });
        self.advance_to(done);
    }

    /// Copies as `rep movsb` and the C library's loops do: a line is stored while the next ones are being loaded.
    pub(super) fn copy_lines(&self, to: PhysAddr, from: PhysAddr, length: u64) {
        let mut bytes = vec![0; length as usize];
        let step = self.cores.time_for(self.cores.costs.copy_line);
        let done = self.access(|accesses| {
            accesses.issue = accesses.issue.max(step);
            if accesses.host.memory.bytes().read(convert::physical(from), &mut bytes).is_err() {
                bytes.fill(0xff);
            }
            let _ = accesses.host.memory.bytes_mut().write(convert::physical(to), &bytes);
            let mut sources = lines(from, length);
            let ahead = from.offset_in(LINE) + LINE - to.offset_in(LINE);
            for (n, line) in lines(to, length).enumerate() {
                // A line to store takes its bytes from one or two others.
                let wanted = if n == 0 && ahead > LINE { 2 } else { 1 };
                for source in sources.by_ref().take(wanted) {
                    accesses.load(source);
                }
                accesses.store(line, CoreOp::Store, accesses.loaded);
            }
            sources.for_each(|source| accesses.load(source));
            accesses.now.max(accesses.loaded)
        });
        self.advance_to(done);
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
