//! Requests of a block device on their way to the driver: queues, tags, timeouts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use engine::WaitTime;
use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockOp, BlockRequest, SECTOR, Segment};
use platform::cpu::{Cpu, Part};
use platform::kernel::TaskParams;
use platform::storage::BlockCounters;
use platform::tags::TagSet;
use units::{Duration, Time};

use super::split::{SplitRequest, split};
use crate::base::Base;

/// Called once, when all parts of a request have ended.
pub(super) type Ended = Box<dyn FnOnce(&Cpu, Result<(), Error>)>;

/// A request of a program or of the page cache. Its parts may end in any order.
pub(super) struct Parent {
    left: Cell<usize>,
    result: Cell<Result<(), Error>>,
    ended: RefCell<Option<Ended>>,
}

impl Parent {
    fn new(pieces: usize, ended: Ended) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(pieces), result: Cell::new(Ok(())), ended: RefCell::new(Some(ended)) })
    }

    fn piece_ended(&self, cpu: &Cpu, result: Result<(), Error>) {
        self.result.set(self.result.get().and(result));
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(ended) = self.ended.take()
        {
            ended(cpu, self.result.get());
        }
    }
}

/// One request to the driver, and the requests that it serves.
pub(super) struct Bio {
    piece: SplitRequest,
    parents: Vec<Rc<Parent>>,
}

/// The block layer's view of a hardware queue.
struct HwQueue {
    /// Deadline of this device's request, by tag.
    deadlines: Vec<Option<Time>>,
    /// Requests without a tag, or refused by the driver.
    waiting: VecDeque<Bio>,
    /// Whether it is registered to be woken when a tag is free.
    asked: bool,
    /// How long requests have waited.
    waited: WaitTime,
}

impl HwQueue {
    fn new(depth: usize) -> Self {
        Self {
            deadlines: vec![None; depth],
            waiting: VecDeque::new(),
            asked: false,
            waited: WaitTime::default(),
        }
    }

    /// Notes whether requests wait from `now` on.
    fn note_waiting(&mut self, now: Time) {
        if self.waiting.is_empty() { self.waited.end(now) } else { self.waited.begin(now) }
    }
}

/// All requests of a device.
pub(super) struct Requests {
    me: Weak<Self>,
    base: Base,
    driver: RefCell<Option<Rc<dyn BlockDriver>>>,
    limits: BlockLimits,
    /// Shared with the controller's other devices.
    tags: Rc<TagSet>,
    queues: Vec<RefCell<HwQueue>>,
    counters: Cell<BlockCounters>,
    /// Time until a request is overdue; zero for ever.
    timeout: Cell<Duration>,
    /// When the timeout task looks next, if it runs.
    looks_at: Cell<Option<Time>>,
}

impl Requests {
    pub fn new(base: Base, driver: Rc<dyn BlockDriver>) -> Rc<Self> {
        let limits = driver.limits();
        let tags = driver.tags();
        let depth = usize::from(tags.depth());
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            base,
            driver: RefCell::new(Some(driver)),
            queues: (0..tags.queues()).map(|_| RefCell::new(HwQueue::new(depth))).collect(),
            tags,
            timeout: Cell::new(limits.timeout),
            limits,
            counters: Cell::default(),
            looks_at: Cell::new(None),
        })
    }

    pub fn limits(&self) -> &BlockLimits {
        &self.limits
    }

    /// Changes the time until a request is overdue, for requests that start from now on.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    pub fn tags(&self) -> &TagSet {
        &self.tags
    }

    /// Counters, except for the cache's size.
    pub fn counters(&self) -> BlockCounters {
        self.counters.get()
    }

    /// How long requests have waited at each hardware queue, as all its entries were in use, up to `now`.
    pub fn queues_full(&self, now: Time) -> Vec<Duration> {
        self.queues.iter().map(|queue| queue.borrow().waited.until(now)).collect()
    }

    pub fn count(&self, change: impl FnOnce(&mut BlockCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The driver; fails if the device is gone.
    pub fn driver(&self) -> Result<Rc<dyn BlockDriver>, Error> {
        self.driver.borrow().clone().ok_or(Error::NoDevice)
    }

    /// Drops the driver when it removes the device.
    pub fn forget_driver(&self) {
        self.driver.take();
    }

    /// Fails all waiting requests, which nobody would start any more.
    pub fn fail_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            let waiting = std::mem::take(&mut queue.borrow_mut().waiting);
            queue.borrow_mut().note_waiting(cpu.now());
            for bio in waiting {
                self.end(cpu, bio.parents, Err(Error::NoDevice));
            }
        }
    }

    /// Splits a request. One that the device cannot take ends at once.
    pub fn prepare(
        &self,
        cpu: &Cpu,
        op: BlockOp,
        offset: u64,
        length: u64,
        memory: &[Segment],
        ended: Ended,
    ) -> Vec<Bio> {
        cpu.work(self.base.costs().block_submit);
        let pieces = match self.pieces(op, offset, length, memory) {
            Ok(pieces) if !pieces.is_empty() => pieces,
            nothing => {
                if nothing.is_err() {
                    self.count(|c| c.errors += 1);
                }
                ended(cpu, nothing.map(|_| ()));
                return Vec::new();
            }
        };
        self.count(|c| {
            c.splits += pieces.len() as u64 - 1;
            match op {
                BlockOp::Read => c.read_bytes += length,
                BlockOp::Write { .. } => c.written_bytes += length,
                _ => {}
            }
        });
        let parent = Parent::new(pieces.len(), ended);
        pieces.into_iter().map(|piece| Bio { piece, parents: vec![Rc::clone(&parent)] }).collect()
    }

    /// The parts of a request; none if there is nothing to do.
    fn pieces(
        &self,
        op: BlockOp,
        offset: u64,
        length: u64,
        memory: &[Segment],
    ) -> Result<Vec<SplitRequest>, Error> {
        self.driver()?;
        let op = match op {
            // Without a volatile cache, all written data is durable already.
            BlockOp::Flush if !self.limits.write_cache => return Ok(Vec::new()),
            BlockOp::Write { .. } if !self.limits.write_cache => BlockOp::Write { fua: false },
            BlockOp::Discard if !self.limits.discard => return Err(Error::NotSupported),
            BlockOp::WriteZeroes if !self.limits.write_zeroes => return Err(Error::NotSupported),
            op => op,
        };
        let block = u64::from(self.limits.block_bytes);
        if op != BlockOp::Flush {
            let end = offset.checked_add(length).ok_or(Error::Invalid)?;
            if offset % block != 0 || length % block != 0 || length == 0 {
                return Err(Error::Invalid);
            }
            if end > self.limits.sectors * SECTOR {
                return Err(Error::NoSpace);
            }
        }
        let memory = if matches!(op, BlockOp::Read | BlockOp::Write { .. }) {
            let bytes: u64 = memory.iter().map(|segment| u64::from(segment.length)).sum();
            let aligned = memory.iter().all(|s| (s.at.0 | u64::from(s.length)) & 3 == 0 && s.length > 0);
            if bytes != length || !aligned {
                return Err(Error::Invalid);
            }
            memory
        } else {
            &[]
        };
        split(&self.limits, op, offset / SECTOR, length / SECTOR, memory).ok_or(Error::Invalid)
    }

    /// Submits requests, merging adjacent ones.
    pub fn dispatch(&self, cpu: &Cpu, bios: Vec<Bio>) {
        let mut merged: Vec<Bio> = Vec::with_capacity(bios.len());
        for bio in bios {
            if let Some(last) = merged.last_mut() {
                cpu.work(self.base.costs().block_merge);
                if last.piece.merge(&self.limits, &bio.piece) {
                    last.parents.extend(bio.parents);
                    self.count(|c| c.merges += 1);
                    continue;
                }
            }
            merged.push(bio);
        }
        let Ok(driver) = self.driver() else {
            merged.into_iter().for_each(|bio| self.end(cpu, bio.parents, Err(Error::NoDevice)));
            return;
        };
        let queue = driver.queue_for(cpu.id()) % self.queues.len() as u16;
        {
            let mut queue = self.queues[usize::from(queue)].borrow_mut();
            queue.waiting.extend(merged);
        }
        self.run(cpu, &driver, queue);
    }

    /// Passes waiting requests to the driver while it has tags and room.
    fn run(&self, cpu: &Cpu, driver: &Rc<dyn BlockDriver>, number: u16) {
        let place = &self.queues[usize::from(number)];
        let Some(me) = self.me.upgrade() else { return };
        let mut given = false;
        loop {
            let (bio, tag) = {
                let mut queue = place.borrow_mut();
                if queue.waiting.is_empty() {
                    break;
                }
                let Some(tag) = self.tags.take(number) else { break };
                let Some(bio) = queue.waiting.pop_front() else { break };
                queue.deadlines[usize::from(tag)] = Some(cpu.now() + self.timeout.get());
                (bio, tag)
            };
            let Bio { piece, parents } = bio;
            // Keep all of them alive until the driver has ended the request.
            let (me, back) = (Rc::clone(&me), Rc::new(RefCell::new(Some(parents))));
            let mine = Rc::clone(&back);
            let request = BlockRequest {
                op: piece.op,
                sector: piece.sector,
                sectors: piece.sectors,
                segments: piece.segments,
                tag,
                done: Box::new(move |cpu, result| {
                    if let Some(parents) = mine.take() {
                        me.completed(cpu, number, tag, parents, result);
                    }
                }),
            };
            self.count(|c| (c.requests, c.in_flight) = (c.requests + 1, c.in_flight + 1));
            match driver.submit(cpu, number, request) {
                Ok(()) => given = true,
                Err(request) => {
                    self.count(|c| (c.requests, c.in_flight) = (c.requests - 1, c.in_flight - 1));
                    let mut queue = place.borrow_mut();
                    queue.deadlines[usize::from(tag)] = None;
                    self.tags.give(number, tag);
                    let BlockRequest { op, sector, sectors, segments, .. } = request;
                    let piece = SplitRequest { op, sector, sectors, segments };
                    let parents = back.take().unwrap_or_default();
                    queue.waiting.push_front(Bio { piece, parents });
                    break;
                }
            }
        }
        place.borrow_mut().note_waiting(cpu.now());
        let left = place.borrow().waiting.len() as u64;
        self.count(|c| c.waits += left);
        if left > 0 {
            self.ask(number);
        }
        if given {
            driver.commit(cpu, number);
            // There may be requests to watch, whether this ran for a new one or for a freed tag.
            self.watch(cpu);
        }
    }

    /// Arranges for waiting requests to run when any request of the queue ends, of this device or another.
    fn ask(&self, number: u16) {
        if std::mem::replace(&mut self.queues[usize::from(number)].borrow_mut().asked, true) {
            return;
        }
        let me = self.me.clone();
        let waiter = move |cpu: &Cpu| {
            let Some(requests) = me.upgrade() else { return };
            requests.queues[usize::from(number)].borrow_mut().asked = false;
            match requests.driver() {
                Ok(driver) => requests.run(cpu, &driver, number),
                Err(_) => requests.fail_waiting(cpu),
            }
        };
        self.tags.wait(number, Box::new(waiter));
    }

    /// A request has ended. Runs on the core and in the context of the driver's completion.
    fn completed(
        &self,
        cpu: &Cpu,
        queue: u16,
        tag: u16,
        parents: Vec<Rc<Parent>>,
        result: Result<(), Error>,
    ) {
        self.count(|c| c.in_flight -= 1);
        self.queues[usize::from(queue)].borrow_mut().deadlines[usize::from(tag)] = None;
        self.tags.give(queue, tag);
        self.end(cpu, parents, result);
        self.tags.wake(cpu, queue);
    }

    fn end(&self, cpu: &Cpu, parents: Vec<Rc<Parent>>, result: Result<(), Error>) {
        let _part = cpu.book(Part::Block);
        cpu.work(self.base.costs().block_complete);
        if result.is_err() {
            self.count(|c| c.errors += 1);
        }
        for parent in parents {
            parent.piece_ended(cpu, result);
        }
    }

    /// Requests overdue at `now`, whose timeout restarts, and the next deadline.
    fn overdue(&self, now: Time) -> (Vec<(u16, u16)>, Option<Time>) {
        let (mut late, mut next) = (Vec::new(), None);
        for (number, queue) in (0u16..).zip(&self.queues) {
            for (tag, slot) in (0u16..).zip(queue.borrow_mut().deadlines.iter_mut()) {
                let Some(deadline) = slot else { continue };
                if *deadline <= now {
                    late.push((number, tag));
                    *deadline = now + self.timeout.get();
                }
                next = Some(next.map_or(*deadline, |next: Time| next.min(*deadline)));
            }
        }
        (late, next)
    }

    /// Starts the timeout task if there are requests, unless one runs that looks in time. Another one then ends.
    fn watch(&self, cpu: &Cpu) {
        let timeout = self.timeout.get();
        if timeout.is_zero() || self.looks_at.get().is_some_and(|at| at <= cpu.now() + timeout) {
            return;
        }
        self.looks_at.set(Some(cpu.now()));
        let me = self.me.clone();
        self.base.tasks.spawn(
            TaskParams::named("kblockd").on(cpu.id()),
            Box::new(move |cpu| {
                Box::pin(async move {
                    let _part = cpu.book(Part::Block);
                    loop {
                        let Some(requests) = me.upgrade() else { return };
                        let (late, next) = requests.overdue(cpu.now());
                        requests.count(|c| c.timeouts += late.len() as u64);
                        // Without a driver, the requests are about to be ended.
                        if let Ok(driver) = requests.driver() {
                            for (queue, tag) in late {
                                Rc::clone(&driver).timed_out(&cpu, queue, tag);
                            }
                        }
                        requests.looks_at.set(next);
                        drop(requests);
                        let Some(next) = next else { return };
                        cpu.sleep_until(next).await;
                        if me.upgrade().is_none_or(|requests| requests.looks_at.get() != Some(next)) {
                            return;
                        }
                    }
                })
            }),
        );
    }
}
