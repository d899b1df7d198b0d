//! Block devices for programs: direct I/O with many requests in parallel, or buffered I/O through the page cache.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::block::{BlockOp, Segment};
use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::Policy;
use crate::sync::WaitQueue;

/// A direct request of a program (`O_DIRECT`, as with io_uring or libaio).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// Operation.
    pub op: BlockOp,
    /// Offset on the device (bytes), a multiple of its block size.
    pub offset: u64,
    /// Length (bytes), a multiple of the block size. Reads and writes have the length of their memory.
    pub length: u64,
    /// The program's memory, in order, aligned to four bytes.
    pub memory: Vec<Segment>,
    /// Chosen by the program, returned with the completion.
    pub token: u64,
}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDone {
    /// The request's token.
    pub token: u64,
    /// Why it failed, if it did.
    pub result: Result<(), Error>,
}

/// A program's completion queue, in order of completion.
#[derive(Default)]
pub struct IoCompletions {
    done: RefCell<VecDeque<IoDone>>,
    waiting: WaitQueue,
}

impl IoCompletions {
    /// An empty queue.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// For kernels: adds a completion.
    pub fn push(&self, done: IoDone) {
        self.done.borrow_mut().push_back(done);
        self.waiting.wake_one();
    }

    /// Takes the next completion.
    pub fn try_next(&self) -> Option<IoDone> {
        self.done.borrow_mut().pop_front()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.done.borrow().is_empty()
    }

    /// Wakes waiters to check their condition again.
    pub fn stir(&self) {
        self.waiting.wake_one();
    }

    /// Waits until `ready`, which is checked after each completion and each [`stir`](Self::stir).
    pub async fn wait_until(&self, ready: impl Fn() -> bool) {
        self.waiting.wait_for(|| ready().then_some(())).await;
    }

    /// Waits for the next completion, giving up the core meanwhile.
    pub async fn next(&self) -> IoDone {
        self.waiting.wait_for(|| self.try_next()).await
    }
}

/// Pinned pages of the page cache, released on drop.
pub struct CachedRange {
    /// The requested bytes, in order.
    pub segments: Vec<Segment>,
    /// Keeps the pages pinned.
    pub hold: Rc<dyn core::any::Any>,
}

/// Counters of a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounters {
    /// Requests passed to the driver.
    pub requests: u64,
    /// Bytes read from the device.
    pub read_bytes: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Requests that were merged with another.
    pub merges: u64,
    /// Parts of split requests, beyond the first.
    pub splits: u64,
    /// Requests that waited for a tag or for room in the driver's queue.
    pub waits: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests in the driver.
    pub in_flight: u64,
    /// Dirty pages of the page cache.
    pub dirty_pages: u64,
    /// Pages of the page cache.
    pub cached_pages: u64,
    /// Pages that could not be written and were lost.
    pub lost_pages: u64,
}

/// A block device opened by a program.
pub trait BlockFile {
    /// Name as in `/dev`, such as `nvme0n1`.
    fn name(&self) -> String;
    /// Its size in bytes.
    fn bytes(&self) -> u64;
    /// Alignment of offsets and lengths: 512 or 4096.
    fn block_bytes(&self) -> u32;
    /// Counters of the device.
    fn counters(&self) -> BlockCounters;

    /// Submits direct requests together: one system call, one doorbell per queue. Each completes exactly once, in
    /// `completions`.
    fn submit(&self, cpu: &Cpu, requests: Vec<IoRequest>, completions: &Rc<IoCompletions>);

    /// Polls for completions. Returns how many there were.
    fn poll(&self, cpu: &Cpu) -> usize;

    /// Reads through the page cache into a program's memory.
    ///
    /// # Errors
    /// If the range exceeds the device, memory runs out, or the device fails.
    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a [Segment]) -> Async<'a, Result<(), Error>>;

    /// Writes from a program's memory into the page cache.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write<'a>(&'a self, cpu: &'a Cpu, offset: u64, from: &'a [Segment]) -> Async<'a, Result<(), Error>>;

    /// Makes all writes durable (`fsync`).
    ///
    /// # Errors
    /// If any write since the last call failed.
    fn sync<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// Pins the page cache pages of a range, for `sendfile`. Missing ones are read into pages allocated by `policy`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn cached<'a>(
        &'a self,
        cpu: &'a Cpu,
        offset: u64,
        length: u64,
        policy: Policy,
    ) -> Async<'a, Result<CachedRange, Error>>;

    /// Writes back dirty pages and drops all unpinned ones (`drop_caches`).
    ///
    /// # Errors
    /// If writing back fails.
    fn drop_cache<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
}
