//! A core's loads and stores: the lines they touch, how they overlap, and when they are done.

use std::cell::RefCell;

use hardware::core::FillBuffers;
use hardware::memory::{Agent, CoreId, CoreOp, LINE, MemorySystem, Source};
use hardware::root::Host;
use hardware::wires::Context;
use platform::cpu::{CpuId, Node, Sweep};
use platform::memory::PhysAddr;
use units::{Bytes, Duration, HostPhysical, Time};

use super::convert;
use super::host::{HostGround, core_id};
use super::store_buffer::StoreBuffer;
use super::{LineWaits, MemoryGround, Swept};

fn lines(at: PhysAddr, length: u64) -> impl Iterator<Item = HostPhysical> {
    let first = at.0 & !(LINE - 1);
    let end = at.0 + length.max(1);
    (first..end).step_by(LINE as usize).map(HostPhysical::new)
}

/// The `n`th line of an array.
fn line_of(array: PhysAddr, n: u64) -> HostPhysical {
    HostPhysical::new((array.0 & !(LINE - 1)) + n * LINE)
}

/// Prefetches the simulator's own cache tags for the lines ahead, if the last batch is used up.
#[inline]
fn announce(memory: &MemorySystem, core: CoreId, n: usize, line: HostPhysical, end: u64) {
    if n.is_multiple_of(MemorySystem::ANNOUNCED) {
        memory.announce(Agent::Core(core), line, Bytes::new(end - line.get()));
    }
}

/// A core's memory accesses from one point in time on, overlapping as far as its buffers allow.
struct Accesses<'a, 'w> {
    host: &'a mut Host,
    cx: &'a mut Context<'w>,
    stores: &'a RefCell<StoreBuffer>,
    id: CoreId,
    /// Latency of a hit in the core's own caches, which needs no fill buffer.
    own: Duration,
    /// Interval between accesses.
    issue: Duration,
    /// Fill buffers for misses, once there was one.
    misses: Option<FillBuffers>,
    now: Time,
    /// When the last load is complete.
    loaded: Time,
    waited: LineWaits,
}

impl Accesses<'_, '_> {
    /// Loads a line as soon as a fill buffer is free.
    #[inline]
    fn load(&mut self, line: HostPhysical) {
        let begin = self.misses.as_ref().map_or(self.now, |buffers| self.now.max(buffers.free_at()));
        let access = self.host.memory.core(begin, self.id, line, CoreOp::Load);
        let mut ready = access.ready;
        if access.source != Source::OwnCache || ready > begin + self.own {
            ready = self.fetch(begin, ready);
        }
        self.loaded = self.loaded.max(ready);
        self.go_on_at(begin);
    }

    /// Goes on once a line or a place for one is there.
    #[inline]
    fn go_on_at(&mut self, when: Time) {
        self.waited.places += when.since(self.now);
        self.now = when;
    }

    /// Counts the wait for the data of all loads, as far as it is longer than one for the core's own caches.
    #[inline]
    fn count_data(&mut self) {
        self.waited.data += self.loaded.since(self.now + self.own);
    }

    /// Stores `bytes` of a line through the store buffer, with data that is ready at `data`. The next access is one
    /// interval later.
    #[inline]
    fn store(&mut self, line: HostPhysical, bytes: u64, op: CoreOp, data: Time) {
        let stores = self.stores;
        let mut stores = stores.borrow_mut();
        let places = stores.places_for(bytes);
        let room = stores.make_room(self.now, places);
        self.go_on_at(room);
        let done = self.own_line(line, op);
        stores.enter(self.now, places, done.max(data));
        self.now += self.issue;
    }

    /// Obtains a line to store in it. Returns when it is there.
    #[inline]
    fn own_line(&mut self, line: HostPhysical, op: CoreOp) -> Time {
        let begin = self.misses.as_ref().map_or(self.now, |buffers| self.now.max(buffers.free_at()));
        let access = self.host.memory.core(begin, self.id, line, op);
        match access.source != Source::OwnCache || access.ready > begin + self.own {
            true => self.fetch(begin, access.ready),
            false => access.ready,
        }
    }

    /// Takes a fill buffer for a line that missed at `begin` and arrives at `ready`. The first miss reads which buffers
    /// are free, and may have to wait. Returns when the line arrives.
    fn fetch(&mut self, mut begin: Time, mut ready: Time) -> Time {
        let buffers = self.misses.get_or_insert_with(|| {
            let buffers = self.host.stores.fill_buffers(self.cx, self.id, begin);
            let wait = buffers.free_at().since(begin);
            begin += wait;
            ready += wait;
            buffers
        });
        buffers.fetch(begin, ready);
        ready
    }

    /// Tells the combining buffers which fill buffers are in use, since both share the pool.
    fn note_fills(&mut self) {
        for (begin, ready) in self.misses.iter().flat_map(FillBuffers::fetched) {
            self.host.stores.line_fill(self.id, begin, ready);
        }
    }
}

impl HostGround {
    /// Runs a core's accesses from `now` on.
    #[inline]
    fn access<R>(&self, core: CpuId, now: Time, run: impl FnOnce(&mut Accesses<'_, '_>) -> R) -> R {
        let (own, issue) = (self.own_hit, self.issue);
        let stores = &self.stores[usize::from(core.0)];
        self.with(|host, cx| {
            host.memory.pass(cx.now());
            let id = core_id(core);
            if stores.borrow_mut().begin(now) {
                host.memory.interrupt(id, now);
            }
            let (misses, loaded, waited) = (None, now, LineWaits::default());
            let mut accesses = Accesses { host, cx, stores, id, own, issue, misses, now, loaded, waited };
            let done = run(&mut accesses);
            self.count_wait(core, accesses.waited);
            done
        })
    }

    fn count_wait(&self, core: CpuId, more: LineWaits) {
        let waited = &self.waited[usize::from(core.0)];
        let (mut sums, now) = (waited.get(), self.hw.now());
        for (sum, time) in sums.iter_mut().zip([more.places, more.data]) {
            sum.add(now, time);
        }
        waited.set(sums);
    }

    fn write(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8], op: CoreOp) -> Time {
        self.access(core, now, |accesses| {
            // Stores to addresses without memory are lost.
            let _ = accesses.host.memory.bytes_mut().write(convert::physical(at), from);
            let end = at.0 + from.len() as u64;
            for (n, line) in lines(at, from.len() as u64).enumerate() {
                announce(&accesses.host.memory, accesses.id, n, line, end);
                let bytes = end.min(line.get() + LINE) - at.0.max(line.get());
                accesses.store(line, bytes, op, Time::ZERO);
            }
            accesses.note_fills();
            accesses.now
        })
    }
}

impl MemoryGround for HostGround {
    fn load(&self, core: CpuId, now: Time, at: PhysAddr, into: &mut [u8]) -> Time {
        let length = into.len() as u64;
        let is_one = at.offset_in(LINE) + length <= LINE;
        self.access(core, now, |accesses| {
            if accesses.host.memory.bytes().read(convert::physical(at), into).is_err() {
                into.fill(0xff);
            }
            for (n, line) in lines(at, length).enumerate() {
                if !is_one {
                    announce(&accesses.host.memory, accesses.id, n, line, at.0 + length);
                }
                accesses.load(line);
                accesses.now += accesses.issue;
            }
            accesses.note_fills();
            accesses.count_data();
            if is_one { accesses.loaded } else { accesses.now.max(accesses.loaded) }
        })
    }

    fn store(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.write(core, now, at, from, CoreOp::Store)
    }

    fn exchange(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.access(core, now, |accesses| {
            // Stores to addresses without memory are lost.
            let _ = accesses.host.memory.bytes_mut().write(convert::physical(at), from);
            let done = accesses.own_line(line_of(at, 0), CoreOp::Store);
            accesses.note_fills();
            accesses.waited.data += done.since(accesses.now + accesses.own);
            done
        })
    }

    fn stream(&self, core: CpuId, now: Time, at: PhysAddr, from: &[u8]) -> Time {
        self.write(core, now, at, from, CoreOp::StreamingStore)
    }

    /// A line is stored while the next ones are being loaded.
    fn sweep(&self, core: CpuId, now: Time, arrays: Sweep<'_>, step: Duration) -> Swept {
        let Sweep { to, from, length, streaming } = arrays;
        let op = if streaming { CoreOp::StreamingStore } else { CoreOp::Store };
        self.access(core, now, |accesses| {
            accesses.issue = accesses.issue.max(step);
            let offset = to.or(from.first().copied()).map_or(0, |at| at.offset_in(LINE));
            for n in 0..(offset + length).div_ceil(LINE) {
                for &array in from {
                    // An array that starts at a larger offset within its line spans one more line.
                    let last = n + u64::from(array.offset_in(LINE) > offset);
                    let lines = (array.offset_in(LINE) + length).div_ceil(LINE);
                    let first = if n == 0 { 0 } else { last };
                    (first..lines.min(last + 1)).for_each(|line| accesses.load(line_of(array, line)));
                }
                match to {
                    Some(to) => accesses.store(line_of(to, n), LINE, op, accesses.loaded),
                    None => accesses.now += accesses.issue,
                }
            }
            accesses.note_fills();
            Swept { issued: accesses.now, loaded: accesses.now.max(accesses.loaded) }
        })
    }

    fn complete(&self, core: CpuId, swept: Swept) -> Time {
        let data = swept.loaded.since(swept.issued + self.own_hit);
        self.count_wait(core, LineWaits { data, ..LineWaits::default() });
        swept.loaded
    }

    fn waited(&self, core: CpuId) -> LineWaits {
        let sums = self.waited[usize::from(core.0)].get();
        let [places, data] = sums.map(|sum| sum.until(self.hw.now()));
        LineWaits { places, data }
    }

    fn set_prefetchers(&self, core: CpuId, on: bool) {
        self.with(|host, _| host.memory.set_prefetchers(core_id(core), on));
    }

    fn caches(&self, node: Node) -> u64 {
        self.with(|host, _| {
            let socket = host.memory.params().sockets.get(usize::from(node.0));
            let own = |socket: &hardware::memory::SocketParams| {
                socket.llc.geometry.size.get() + u64::from(socket.cores) * socket.private.l2.size.get()
            };
            socket.map_or(0, own)
        })
    }

    fn gather(&self, core: CpuId, now: Time, places: &[PhysAddr], step: Duration) -> Time {
        self.access(core, now, |accesses| {
            for &place in places {
                accesses.load(line_of(place, 0));
                accesses.now += step;
            }
            accesses.note_fills();
            accesses.now
        })
    }

    fn prefetch(&self, core: CpuId, mut now: Time, at: PhysAddr, length: u64) -> Time {
        let core = core_id(core);
        self.with(|host, cx| {
            for line in lines(at, length) {
                // The core does not wait for the fill buffer.
                let from = host.stores.fill_buffers(cx, core, now).free_at();
                let access = host.memory.core(from, core, line, CoreOp::Prefetch);
                if access.source != Source::OwnCache {
                    host.stores.line_fill(core, from, access.ready);
                }
                now += self.issue;
            }
        });
        now
    }

    fn flush(&self, core: CpuId, now: Time, at: PhysAddr) -> bool {
        let (core, at) = (core_id(core), convert::physical(at));
        let access = self.with(|host, _| host.memory.core(now, core, at, CoreOp::FlushLine));
        access.source != Source::Unmapped
    }

    fn is_memory(&self, at: PhysAddr, length: u64) -> bool {
        self.with(|host, _| host.memory.bytes().check(convert::physical(at), length as usize).is_ok())
    }

    fn peek(&self, at: PhysAddr, into: &mut [u8]) -> bool {
        self.with(|host, _| host.memory.bytes().read(convert::physical(at), into).is_ok())
    }

    fn poke(&self, at: PhysAddr, from: &[u8]) -> bool {
        self.with(|host, _| host.memory.bytes_mut().write(convert::physical(at), from).is_ok())
    }
}
