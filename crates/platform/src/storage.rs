//! Block devices as programs open them: direct, many requests at once, or buffered by the page cache.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::block::{BlockOp, Segment};
use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::Policy;
use crate::sync::WaitQueue;

/// A direct request of a program (`O_DIRECT`, as io_uring or libaio take it).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// What to do.
    pub op: BlockOp,
    /// Where on the device, in bytes: a multiple of its block.
    pub offset: u64,
    /// How many bytes: a multiple of its block. Reads and writes are as long as their memory.
    pub length: u64,
    /// The program's memory, in order, at multiples of four bytes.
    pub memory: Vec<Segment>,
    /// What the program knows it by.
    pub token: u64,
}

/// A request that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoDone {
    /// What the program knows it by.
    pub token: u64,
    /// How it went.
    pub result: Result<(), Error>,
}

/// Where a program finds what of its requests has ended, in that order.
#[derive(Default)]
pub struct IoCompletions {
    done: RefCell<VecDeque<IoDone>>,
    waiting: WaitQueue,
}

impl IoCompletions {
    /// Nothing has ended.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// For kernels: a request has ended.
    pub fn push(&self, done: IoDone) {
        self.done.borrow_mut().push_back(done);
        self.waiting.wake_one();
    }

    /// The next that has ended.
    pub fn try_next(&self) -> Option<IoDone> {
        self.done.borrow_mut().pop_front()
    }

    /// Whether nothing has ended that has not been taken.
    pub fn is_empty(&self) -> bool {
        self.done.borrow().is_empty()
    }

    /// Lets who waits look again: at something else than what ends.
    pub fn stir(&self) {
        self.waiting.wake_one();
    }

    /// Waits until `ready`, asked again when something has ended and when somebody [stirs](Self::stir).
    pub async fn wait_until(&self, ready: impl Fn() -> bool) {
        self.waiting.wait_for(|| ready().then_some(())).await;
    }

    /// Waits for the next that ends, and gives the core away meanwhile.
    pub async fn next(&self) -> IoDone {
        self.waiting.wait_for(|| self.try_next()).await
    }
}

/// Pages of the page cache that stay where they are as long as this lives.
pub struct CachedRange {
    /// The bytes asked for, in order.
    pub segments: Vec<Segment>,
    /// Lets them go.
    pub hold: Rc<dyn core::any::Any>,
}

/// What has passed through a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounters {
    /// Requests given to the driver.
    pub requests: u64,
    /// Bytes that reads have brought.
    pub read_bytes: u64,
    /// Bytes that writes have taken.
    pub written_bytes: u64,
    /// Requests that another one was merged into.
    pub merges: u64,
    /// Pieces that requests were cut into, beyond the first.
    pub splits: u64,
    /// Requests that had to wait for a tag or a place in the driver's queue.
    pub waits: u64,
    /// Requests that took too long.
    pub timeouts: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests with the driver.
    pub in_flight: u64,
    /// Pages of the page cache that hold what the device does not.
    pub dirty_pages: u64,
    /// Pages of the page cache.
    pub cached_pages: u64,
    /// Pages whose content could not be written, and is lost.
    pub lost_pages: u64,
}

/// A block device that a program has opened.
pub trait BlockFile {
    /// As in `/dev`, such as `nvme0n1`.
    fn name(&self) -> String;
    /// Its size in bytes.
    fn bytes(&self) -> u64;
    /// What offsets and lengths are multiples of, 512 or 4096.
    fn block_bytes(&self) -> u32;
    /// What has passed through the device.
    fn counters(&self) -> BlockCounters;

    /// Submits direct requests together: one system call, one doorbell for each queue. Each ends once, with success
    /// or not, at `completions`.
    fn submit(&self, cpu: &Cpu, requests: Vec<IoRequest>, completions: &Rc<IoCompletions>);

    /// Looks for completions without waiting for interrupts; says how many there were.
    fn poll(&self, cpu: &Cpu) -> usize;

    /// Reads through the page cache into a program's memory.
    ///
    /// # Errors
    /// If the range is beyond the end, there is no memory, or the device fails.
    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a [Segment]) -> Async<'a, Result<(), Error>>;

    /// Writes into the page cache from a program's memory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write<'a>(&'a self, cpu: &'a Cpu, offset: u64, from: &'a [Segment]) -> Async<'a, Result<(), Error>>;

    /// Makes everything that was written durable (`fsync`).
    ///
    /// # Errors
    /// If anything written since the last call could not be made so.
    fn sync<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;

    /// The page-cache pages of a range, read if need be into pages taken by `policy`: for `sendfile`.
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

    /// Writes dirty pages back and drops all that nobody holds (`drop_caches`).
    ///
    /// # Errors
    /// If writing back fails.
    fn drop_cache<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<(), Error>>;
}
