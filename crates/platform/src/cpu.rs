//! The CPU as software uses it: cycles, and memory accesses through the caches of its core.
//!
//! A program owns a [`Cpu`] and runs ahead of the simulation by what it has computed since it last
//! [synchronised](Cpu::sync). [`work`](Cpu::work), loads and stores only advance its local clock and need no event;
//! bytes are read and written at once. Before reading something that a device or another core may have changed, a
//! program has to synchronise; every wait does so by itself. A loop over packets or requests should synchronise once
//! per iteration. Otherwise others see its later actions too early, and it sees theirs too late.
//!
//! Stores to devices do not block either. If the core's buffers are full because the link or the device does not
//! accept stores, the program stalls at its next [`sync`](Cpu::sync).

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;

use units::{Cycles, Duration, Time};

use crate::memory::{PhysAddr, Policy};

/// A boxed future, used for calls that are not performance-critical.
pub type Async<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A core, numbered from zero; those of node 0 first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(pub u16);

/// A NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Node(pub u8);

/// Part of the software that time is accounted to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Part {
    /// The program itself.
    #[default]
    User,
    /// System calls, and kernel code without a part of its own.
    Kernel,
    /// Interrupt handlers.
    Irq,
    /// Deferred interrupt work.
    Softirq,
    /// Choice of the next task, and the switch to it.
    Scheduler,
    /// The network stack.
    Net,
    /// The block layer.
    Block,
    /// Device drivers.
    Driver,
    /// DMA mapping and unmapping.
    Dma,
    /// Memory allocation.
    Memory,
    /// Copies between user and kernel memory.
    Copy,
    /// Exits of virtual machines.
    Virt,
    /// Busy polling without result.
    Poll,
}

impl Part {
    /// All parts in numerical order.
    pub const ALL: [Self; 13] = [
        Self::User,
        Self::Kernel,
        Self::Irq,
        Self::Softirq,
        Self::Scheduler,
        Self::Net,
        Self::Block,
        Self::Driver,
        Self::Dma,
        Self::Memory,
        Self::Copy,
        Self::Virt,
        Self::Poll,
    ];
}

/// Barriers between a core's accesses. Each drains the core's write-combining buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Barrier {
    /// `sfence`: later stores wait until earlier ones are accepted.
    Stores,
    /// `mfence`: later loads and stores wait.
    All,
    /// A locked instruction, as at the start of a lock: like [`All`](Self::All), and part of an access.
    Locked,
    /// A serialising instruction, or an interrupt.
    Serialising,
}

/// A point in a core's execution that an ordinary store makes visible to others, such as the release of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// Time of the store.
    pub at: Time,
    /// The core that stored.
    pub core: CpuId,
    /// The core's position in its sequence of device stores.
    pub stores: StoreMark,
}

/// A position in a core's program order: behind those of its first `number` device stores that are not for later than `until`.
/// An interrupt handler's position is before what the task that it interrupted has computed ahead of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreMark {
    /// Stores, flushes and barriers so far.
    pub number: u64,
    /// Time of the position.
    pub until: Time,
}

/// Bytes that a long copy handles between syncs: a page, about a microsecond from DRAM.
pub const STRETCH: usize = 4096;

/// A loop over arrays that computes each line of one array from the same lines of others.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// The array to store to, if any.
    pub to: Option<PhysAddr>,
    /// The arrays to load.
    pub from: &'a [PhysAddr],
    /// Bytes of each array.
    pub length: u64,
    /// Whether its stores bypass the caches.
    pub streaming: bool,
}

/// Implemented by kernels for [`Cpu`].
pub trait CpuOps {
    /// The current core, which may change in a wait.
    fn id(&self) -> CpuId;
    /// Node of the current core.
    fn node(&self) -> Node;
    /// NUMA memory policy of the task; never [`Policy::Task`].
    fn policy(&self) -> Policy;
    /// The program's clock: simulated time plus what it has computed since the last sync.
    fn now(&self) -> Time;
    /// Computes for `cycles` of the core's clock.
    fn work(&self, cycles: Cycles);
    /// Stalls the core, as for an access that cannot overlap.
    fn stall(&self, time: Duration);
    /// Loads bytes through the caches.
    fn load(&self, at: PhysAddr, into: &mut [u8]);
    /// Stores bytes through the caches.
    fn store(&self, at: PhysAddr, from: &[u8]);
    /// Stores within a line, and waits until that is the core's own.
    fn exchange(&self, at: PhysAddr, from: &[u8]);
    /// Stores with non-temporal stores, bypassing the caches.
    fn stream(&self, at: PhysAddr, from: &[u8]);
    /// Copies through the caches.
    fn copy(&self, to: PhysAddr, from: PhysAddr, length: u64);
    /// Runs a loop over arrays that takes at least `line` cycles per line. `compute` gets all loaded data, one array
    /// after the other, and leaves the data to store at the start.
    fn sweep(&self, arrays: Sweep<'_>, line: Cycles, compute: &mut dyn FnMut(&mut [u8]));
    /// Loads a few bytes from each of many independent addresses, at least `each` cycles apart.
    fn gather(&self, places: &[PhysAddr], each: Cycles, into: &mut [u8]);
    /// Prefetches lines without waiting.
    fn prefetch(&self, at: PhysAddr, length: u64);
    /// Orders stores, including those to devices: later ones wait until earlier ones are accepted.
    fn barrier(&self, kind: Barrier);
    /// Resolves when all stores to devices so far have been accepted.
    fn stores_accepted(&self) -> Async<'_, ()>;
    /// The current point in execution, as visible to others.
    fn publish(&self) -> Published;
    /// Waits until what another core published is visible, and its earlier uncached stores and fences have been
    /// accepted.
    fn observe(&self, what: &Published);
    /// Evicts a line from the caches, or from the write-combining buffer that holds it.
    fn flush_line(&self, at: PhysAddr);
    /// Accounts time to `part` from now on. Returns the previous part.
    fn book(&self, part: Part) -> Part;
    /// [`Cpu::set_prefetchers`].
    fn set_prefetchers(&self, on: bool);
    /// [`Cpu::rebook`].
    fn rebook(&self, from: Part, to: Part);
    /// Sets whether the program keeps the core while it waits, as for an answer that the core itself needs.
    fn hold(&self, on: bool);
    /// Lets the simulation catch up with the program's clock.
    fn poll_sync(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Gives up the core until `deadline`.
    fn sleep_until(&self, deadline: Time) -> Async<'static, ()>;
}

/// A program's handle for the core that it runs on.
#[derive(Clone)]
pub struct Cpu(Rc<dyn CpuOps>);

impl Cpu {
    /// For kernels.
    pub fn new(ops: Rc<dyn CpuOps>) -> Self {
        Self(ops)
    }

    /// The current core, which may change in a wait.
    pub fn id(&self) -> CpuId {
        self.0.id()
    }

    /// Node of the current core.
    pub fn node(&self) -> Node {
        self.0.node()
    }

    /// NUMA memory policy of the task; [`Policy::Local`] by default.
    pub fn policy(&self) -> Policy {
        self.0.policy()
    }

    /// The program's clock.
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Computes for `cycles`.
    #[inline]
    pub fn work(&self, cycles: u64) {
        self.0.work(Cycles::new(cycles));
    }

    /// Computes for `cycles` and lets the simulation catch up.
    pub async fn cycles(&self, cycles: u64) {
        self.work(cycles);
        self.sync().await;
    }

    /// Stalls without giving up the core.
    pub fn stall(&self, time: Duration) {
        self.0.stall(time);
    }

    /// Loads bytes through the caches. Addresses without memory read as ones.
    #[inline]
    pub fn load(&self, at: PhysAddr, into: &mut [u8]) {
        self.0.load(at, into);
    }

    /// Loads a little-endian word.
    pub fn load_u32(&self, at: PhysAddr) -> u32 {
        let mut bytes = [0; 4];
        self.load(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Loads a little-endian word.
    pub fn load_u64(&self, at: PhysAddr) -> u64 {
        let mut bytes = [0; 8];
        self.load(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Stores bytes through the caches. Stores to addresses without memory are lost.
    #[inline]
    pub fn store(&self, at: PhysAddr, from: &[u8]) {
        self.0.store(at, from);
    }

    /// Stores a little-endian word.
    pub fn store_u32(&self, at: PhysAddr, value: u32) {
        self.store(at, &value.to_le_bytes());
    }

    /// Stores a little-endian word.
    pub fn store_u64(&self, at: PhysAddr, value: u64) {
        self.store(at, &value.to_le_bytes());
    }

    /// The store of a locked instruction: waits until the word's line is this core's own. [`locked`](Self::locked) is what else such an
    /// instruction costs.
    pub fn exchange_u64(&self, at: PhysAddr, value: u64) {
        self.0.exchange(at, &value.to_le_bytes());
    }

    /// Stores with non-temporal stores, bypassing the caches.
    pub fn stream(&self, at: PhysAddr, from: &[u8]) {
        self.0.stream(at, from);
    }

    /// Copies through the caches.
    pub fn copy(&self, to: PhysAddr, from: PhysAddr, length: u64) {
        self.0.copy(to, from, length);
    }

    /// Runs a loop over arrays that takes at least `line` cycles per line. Later instructions do not wait for its
    /// loads. `compute` gets all loaded data, one array after the other, and leaves the data to store at the start.
    pub fn sweep(&self, arrays: Sweep<'_>, line: u64, mut compute: impl FnMut(&mut [u8])) {
        self.0.sweep(arrays, Cycles::new(line), &mut compute);
    }

    /// Loads `into.len() / places.len()` bytes from each of many addresses, at least `each` cycles apart. The
    /// addresses do not depend on the loaded data, so as many loads overlap as the core has buffers, and later
    /// instructions do not wait. A piece may not cross a line.
    pub fn gather(&self, places: &[PhysAddr], each: u64, into: &mut [u8]) {
        self.0.gather(places, Cycles::new(each), into);
    }

    /// Like [`load`](Self::load), for long ranges: syncs every 4 KiB, so that accesses of other cores interleave.
    pub async fn load_long(&self, at: PhysAddr, into: &mut [u8]) {
        for (done, part) in (0..).step_by(STRETCH).zip(into.chunks_mut(STRETCH)) {
            self.between(done).await;
            self.load(at + done, part);
        }
    }

    /// Like [`store`](Self::store), with syncs as in [`load_long`](Self::load_long).
    pub async fn store_long(&self, at: PhysAddr, from: &[u8]) {
        for (done, part) in (0..).step_by(STRETCH).zip(from.chunks(STRETCH)) {
            self.between(done).await;
            self.store(at + done, part);
        }
    }

    /// Lets the simulation catch up, except before the first stretch.
    async fn between(&self, done: u64) {
        if done > 0 {
            self.sync().await;
        }
    }

    /// Prefetches lines without waiting.
    pub fn prefetch(&self, at: PhysAddr, length: u64) {
        self.0.prefetch(at, length);
    }

    /// Switches the prefetchers of this core on or off, as root can (MSR 0x1a4 of Intel's cores). A guest cannot.
    pub fn set_prefetchers(&self, on: bool) {
        self.0.set_prefetchers(on);
    }

    /// `sfence`: makes later stores visible after earlier ones, and drains the write-combining buffers. Costs about
    /// 100 cycles and does not wait.
    pub fn sfence(&self) {
        self.0.barrier(Barrier::Stores);
    }

    /// Executes a barrier without waiting: later stores wait.
    pub fn barrier(&self, kind: Barrier) {
        self.0.barrier(kind);
    }

    /// `mfence`: waits until the root complex has accepted all stores.
    pub async fn mfence(&self) {
        self.0.barrier(Barrier::All);
        self.0.stores_accepted().await;
    }

    /// The lock prefix of an instruction: like [`mfence`](Self::mfence), with a cost of its own.
    pub async fn locked(&self) {
        self.0.barrier(Barrier::Locked);
        self.0.stores_accepted().await;
    }

    /// Makes this point visible to other cores by an ordinary store, like the release of a lock. Cores that
    /// [`observe`](Self::observe) it also see this core's earlier uncached stores and fences (x86 keeps stores in
    /// order), but not its combining stores.
    pub fn publish(&self) -> Published {
        self.0.publish()
    }

    /// Waits for what a core published: on the same core, until its clock; on another core, also until its earlier
    /// uncached stores have been accepted.
    pub fn observe(&self, what: &Published) {
        self.0.observe(what);
    }

    /// `clflush` of every line of a range, out of the caches or write-combining buffers.
    pub fn clflush(&self, at: PhysAddr, length: u64) {
        const LINE: u64 = 64;
        for line in (at.align_down(LINE).0..at.0 + length).step_by(LINE as usize) {
            self.0.flush_line(PhysAddr(line));
        }
    }

    /// Accounts time to `part` until the guard is dropped.
    pub fn book(&self, part: Part) -> Booking {
        Booking { before: self.0.book(part), cpu: self.clone() }
    }

    /// Accounts what the program has computed since it last synchronised to `to` instead of `from`: that a poll was in
    /// vain is known afterwards.
    pub fn rebook(&self, from: Part, to: Part) {
        self.0.rebook(from, to);
    }

    /// Lets the simulation catch up with the program's clock.
    pub fn sync(&self) -> Sync<'_> {
        Sync(self)
    }

    /// Waits for `answer` while the core stalls, as for a load from a device.
    pub async fn stall_on<T>(&self, answer: impl Future<Output = T>) -> T {
        self.sync().await;
        self.0.hold(true);
        let result = answer.await;
        self.0.hold(false);
        result
    }

    /// Gives up the core for `time`.
    pub async fn sleep(&self, time: Duration) {
        self.0.sleep_until(self.now() + time).await;
    }

    /// Gives up the core until `deadline`.
    pub async fn sleep_until(&self, deadline: Time) {
        self.0.sleep_until(deadline).await;
    }
}

/// Accounts time to a [`Part`] until dropped.
#[must_use = "time is accounted to the part until this is dropped"]
pub struct Booking {
    cpu: Cpu,
    before: Part,
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.cpu.0.book(self.before);
    }
}

/// Waits until the simulation has caught up with a program.
#[must_use = "nothing happens unless this is awaited"]
pub struct Sync<'a>(&'a Cpu);

impl Future for Sync<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.0.poll_sync(context)
    }
}
