//! What software costs: cycles, and memory traffic through the caches of the core that it runs on.
//!
//! A program owns a [`Cpu`] and runs ahead of the simulation by what it has computed since it last
//! [synchronised](Cpu::sync): [`work`](Cpu::work), loads and stores only add to its local clock and cost no
//! event. Bytes are read and written at once. Who looks at something that a device or another core may have
//! changed meanwhile synchronises first; every wait does so by itself. A loop over packets or requests should
//! synchronise once a turn: what it does far ahead of the clock would otherwise seem to others to have been done
//! early, and theirs late.
//!
//! Stores to devices too are free to wait: those that find no room in the core's buffers, because the link or the
//! device does not take them, let the program stand still at its next [`sync`](Cpu::sync).

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;

use units::{Cycles, Duration, Time};

use crate::memory::{PhysAddr, Policy};

/// A future that a driver or the kernel hands out at a coarse boundary.
pub type Async<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A core of the machine, counted from zero: those of node 0 first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuId(pub u16);

/// A NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Node(pub u8);

/// On whose account time is booked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Part {
    /// The program itself.
    #[default]
    User,
    /// System calls and what has no name of its own.
    Kernel,
    /// Hard interrupts.
    Irq,
    /// Deferred interrupt work.
    Softirq,
    /// Choosing and switching tasks.
    Scheduler,
    /// The network stack.
    Net,
    /// The block layer.
    Block,
    /// Device drivers.
    Driver,
    /// Mapping and unmapping for DMA.
    Dma,
    /// Allocating memory.
    Memory,
    /// Copying between user and kernel.
    Copy,
    /// Virtual machines' exits.
    Virt,
    /// Looking again and again whether something has come.
    Poll,
}

impl Part {
    /// All parts, in the order of their numbers.
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

/// What stands between accesses of a core. Each empties the core's write-combining buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Barrier {
    /// `sfence`: later stores wait until earlier ones are accepted.
    Stores,
    /// `mfence`: later loads and stores wait.
    All,
    /// A locked instruction, as every lock begins with: as [`All`](Self::All), part of an access.
    Locked,
    /// A serialising instruction, or an interrupt.
    Serialising,
}

/// A moment of a core as an ordinary store tells others of it: the release of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Published {
    /// When the core made the store.
    pub at: Time,
    /// The core that made the store.
    pub core: CpuId,
    /// How many stores to devices it had made, as its kernel counts.
    pub stores: u64,
}

/// Bytes that a long copy touches before it lets the simulation catch up: a page, about a microsecond from DRAM.
pub const STRETCH: usize = 4096;

/// A loop over arrays: each line of one is made of the same lines of others.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    /// What it stores to, if it does.
    pub to: Option<PhysAddr>,
    /// What it loads.
    pub from: &'a [PhysAddr],
    /// Bytes of each.
    pub length: u64,
    /// Whether it stores past the caches.
    pub streaming: bool,
}

/// The core as a kernel implements it for [`Cpu`].
pub trait CpuOps {
    /// The core that the program is on now; it may be another after a wait.
    fn id(&self) -> CpuId;
    /// The node of that core.
    fn node(&self) -> Node;
    /// Where the task's memory comes from, if it was told; not [`Policy::Task`].
    fn policy(&self) -> Policy;
    /// The program's clock: the simulation's, plus what it has computed since it last synchronised.
    fn now(&self) -> Time;
    /// Computes for so many cycles of the core's clock.
    fn work(&self, cycles: Cycles);
    /// Waits without giving the core away, as for an access that the core cannot overlap.
    fn stall(&self, time: Duration);
    /// Loads bytes through the caches.
    fn load(&self, at: PhysAddr, into: &mut [u8]);
    /// Stores bytes through the caches.
    fn store(&self, at: PhysAddr, from: &[u8]);
    /// Stores past the caches, with non-temporal stores.
    fn stream(&self, at: PhysAddr, from: &[u8]);
    /// Copies through the caches.
    fn copy(&self, to: PhysAddr, from: PhysAddr, length: u64);
    /// Runs a loop over arrays, `line` cycles a line at least. `compute` gets all that is loaded, one array behind the other, and
    /// leaves what is stored at its beginning.
    fn sweep(&self, arrays: Sweep<'_>, line: Cycles, compute: &mut dyn FnMut(&mut [u8]));
    /// Loads a few bytes from each of many places that depend on nothing loaded here, `each` cycles apart at least.
    fn gather(&self, places: &[PhysAddr], each: Cycles, into: &mut [u8]);
    /// Fetches lines into the caches without waiting for them.
    fn prefetch(&self, at: PhysAddr, length: u64);
    /// Orders stores, those to devices too: later ones wait until earlier ones are accepted.
    fn barrier(&self, kind: Barrier);
    /// Resolves when all stores to devices so far have been accepted.
    fn stores_accepted(&self) -> Async<'_, ()>;
    /// The moment as others will see it.
    fn publish(&self) -> Published;
    /// Waits until what another core published is seen, and its uncached stores and fences before it have been accepted.
    fn observe(&self, what: &Published);
    /// Evicts a line: from the caches, or from the write-combining buffer that holds it.
    fn flush_line(&self, at: PhysAddr);
    /// Books time on `part` from now on; returns what it was.
    fn book(&self, part: Part) -> Part;
    /// Keeps the core, or no longer, while the program waits: for an answer that the core itself needs.
    fn hold(&self, on: bool);
    /// Lets the simulation catch up with the program's clock.
    fn poll_sync(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Gives the core away until `deadline`.
    fn sleep_until(&self, deadline: Time) -> Async<'static, ()>;
}

/// A program's hold on the core that runs it.
#[derive(Clone)]
pub struct Cpu(Rc<dyn CpuOps>);

impl Cpu {
    /// For kernels.
    pub fn new(ops: Rc<dyn CpuOps>) -> Self {
        Self(ops)
    }

    /// The core that the program is on now; it may be another after a wait.
    pub fn id(&self) -> CpuId {
        self.0.id()
    }

    /// The node of that core.
    pub fn node(&self) -> Node {
        self.0.node()
    }

    /// Where the task's memory comes from: what it began with, [`Policy::Local`] if nothing.
    pub fn policy(&self) -> Policy {
        self.0.policy()
    }

    /// The program's clock.
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Computes for so many cycles.
    #[inline]
    pub fn work(&self, cycles: u64) {
        self.0.work(Cycles::new(cycles));
    }

    /// Computes for so many cycles and lets the simulation catch up.
    pub async fn cycles(&self, cycles: u64) {
        self.work(cycles);
        self.sync().await;
    }

    /// Waits without giving the core away.
    pub fn stall(&self, time: Duration) {
        self.0.stall(time);
    }

    /// Loads bytes through the caches. Where no memory is, ones are read.
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

    /// Stores bytes through the caches. Where no memory is, nothing happens.
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

    /// Stores past the caches, with non-temporal stores.
    pub fn stream(&self, at: PhysAddr, from: &[u8]) {
        self.0.stream(at, from);
    }

    /// Copies through the caches.
    pub fn copy(&self, to: PhysAddr, from: PhysAddr, length: u64) {
        self.0.copy(to, from, length);
    }

    /// Runs a loop over arrays, `line` cycles a line at least; what follows waits for none of its loads. `compute` gets all that is
    /// loaded, one array behind the other, and leaves what is stored at its beginning.
    pub fn sweep(&self, arrays: Sweep<'_>, line: u64, mut compute: impl FnMut(&mut [u8])) {
        self.0.sweep(arrays, Cycles::new(line), &mut compute);
    }

    /// Loads as many bytes from each of many places as there is room for in `into`, side by side, `each` cycles apart at least. No
    /// address comes from what is loaded here, so that as many are under way as the core has buffers; what follows waits for none.
    /// A piece lies within a line.
    pub fn gather(&self, places: &[PhysAddr], each: u64, into: &mut [u8]) {
        self.0.gather(places, Cycles::new(each), into);
    }

    /// As [`load`](Self::load) of what may be long: in stretches of 4 KiB, so that other cores' accesses to the same memory come
    /// between and not behind all of it.
    pub async fn load_long(&self, at: PhysAddr, into: &mut [u8]) {
        for (done, part) in (0..).step_by(STRETCH).zip(into.chunks_mut(STRETCH)) {
            self.between(done).await;
            self.load(at + done, part);
        }
    }

    /// As [`store`](Self::store), in stretches as [`load_long`](Self::load_long).
    pub async fn store_long(&self, at: PhysAddr, from: &[u8]) {
        for (done, part) in (0..).step_by(STRETCH).zip(from.chunks(STRETCH)) {
            self.between(done).await;
            self.store(at + done, part);
        }
    }

    /// Lets the simulation catch up, but not before the first stretch.
    async fn between(&self, done: u64) {
        if done > 0 {
            self.sync().await;
        }
    }

    /// Fetches lines into the caches without waiting for them.
    pub fn prefetch(&self, at: PhysAddr, length: u64) {
        self.0.prefetch(at, length);
    }

    /// `sfence`: later stores are seen after earlier ones. Write-combining buffers empty. Costs about 100 cycles
    /// and waits for nothing by itself.
    pub fn sfence(&self) {
        self.0.barrier(Barrier::Stores);
    }

    /// Orders stores as a kind of instruction does, without waiting: later stores wait.
    pub fn barrier(&self, kind: Barrier) {
        self.0.barrier(kind);
    }

    /// `mfence`: waits until the root complex has accepted all stores.
    pub async fn mfence(&self) {
        self.0.barrier(Barrier::All);
        self.0.stores_accepted().await;
    }

    /// What a locked instruction adds to its access: as [`mfence`](Self::mfence), at its own cost.
    pub async fn locked(&self) {
        self.0.barrier(Barrier::Locked);
        self.0.stores_accepted().await;
    }

    /// Tells other cores by an ordinary store, as who lets go of a lock does: those who [`observe`](Self::observe) it see it after
    /// this core's uncached stores and fences so far (x86 keeps stores in order), but not after combining stores.
    pub fn publish(&self) -> Published {
        self.0.publish()
    }

    /// Waits for what a core published: on its own core no longer than its clock says, on another until that one's uncached
    /// stores before it have been accepted.
    pub fn observe(&self, what: &Published) {
        self.0.observe(what);
    }

    /// `clflush` of every line of a range: out of the caches, or out of the write-combining buffer that collects it.
    pub fn clflush(&self, at: PhysAddr, length: u64) {
        const LINE: u64 = 64;
        for line in (at.align_down(LINE).0..at.0 + length).step_by(LINE as usize) {
            self.0.flush_line(PhysAddr(line));
        }
    }

    /// Books time on `part` until the guard is dropped.
    pub fn book(&self, part: Part) -> Booking {
        Booking { before: self.0.book(part), cpu: self.clone() }
    }

    /// Lets the simulation catch up with the program's clock.
    pub fn sync(&self) -> Sync<'_> {
        Sync(self)
    }

    /// Waits for `answer` with the core standing still, as for a load from a device.
    pub async fn stall_on<T>(&self, answer: impl Future<Output = T>) -> T {
        self.sync().await;
        self.0.hold(true);
        let result = answer.await;
        self.0.hold(false);
        result
    }

    /// Gives the core away for `time`.
    pub async fn sleep(&self, time: Duration) {
        self.0.sleep_until(self.now() + time).await;
    }

    /// Gives the core away until `deadline`.
    pub async fn sleep_until(&self, deadline: Time) {
        self.0.sleep_until(deadline).await;
    }
}

/// Books time on a [`Part`] as long as it lives.
#[must_use = "time is booked on the part as long as this lives"]
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
