//! The requests of a block device on their way to its driver: queues, tags, time limits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockOp, BlockRequest, SECTOR, Segment};
use platform::cpu::{Cpu, Part};
use platform::kernel::TaskParams;
use platform::storage::BlockCounters;
use platform::tags::TagSet;
use units::Time;

use super::split::{SplitRequest, split};
use crate::base::Base;

/// Called once, when all pieces of a request have ended.
pub(super) type Ended = Box<dyn FnOnce(&Cpu, Result<(), Error>)>;

/// A request of a program or of the page cache, whose pieces may end in any order.
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

/// What goes to the driver as one request, and whose parts it consists of.
pub(super) struct Bio {
    piece: SplitRequest,
    parents: Vec<Rc<Parent>>,
}

/// A hardware queue as the block layer sees it.
struct HwQueue {
    /// By tag: when this device's request there is overdue.
    deadlines: Vec<Option<Time>>,
    /// Bios without a tag, or refused by the driver.
    waiting: VecDeque<Bio>,
    /// It is among those who wait for a tag.
    asked: bool,
}

/// All requests of a device.
pub(super) struct Requests {
    me: Weak<Self>,
    base: Base,
    driver: RefCell<Option<Rc<dyn BlockDriver>>>,
    limits: BlockLimits,
    /// Shared with the other devices of the controller.
    tags: Rc<TagSet>,
    queues: Vec<RefCell<HwQueue>>,
    counters: Cell<BlockCounters>,
    /// A task looks whether requests take too long.
    watched: Cell<bool>,
}

impl Requests {
    pub fn new(base: Base, driver: Rc<dyn BlockDriver>) -> Rc<Self> {
        let limits = driver.limits();
        let tags = driver.tags();
        let depth = usize::from(tags.depth());
        let queue =
            || RefCell::new(HwQueue { deadlines: vec![None; depth], waiting: VecDeque::new(), asked: false });
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            base,
            driver: RefCell::new(Some(driver)),
            queues: (0..tags.queues()).map(|_| queue()).collect(),
            tags,
            limits,
            counters: Cell::default(),
            watched: Cell::new(false),
        })
    }

    pub fn limits(&self) -> &BlockLimits {
        &self.limits
    }

    pub fn tags(&self) -> &TagSet {
        &self.tags
    }

    /// What has happened, but for what the cache holds.
    pub fn counters(&self) -> BlockCounters {
        self.counters.get()
    }

    pub fn count(&self, change: impl FnOnce(&mut BlockCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The driver, unless the device is gone.
    pub fn driver(&self) -> Result<Rc<dyn BlockDriver>, Error> {
        self.driver.borrow().clone().ok_or(Error::NoDevice)
    }

    /// The driver takes the device back.
    pub fn forget_driver(&self) {
        self.driver.take();
    }

    /// Nobody runs any more what waits: it fails.
    pub fn fail_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            let waiting = std::mem::take(&mut queue.borrow_mut().waiting);
            for bio in waiting {
                self.end(cpu, bio.parents, Err(Error::NoDevice));
            }
        }
    }

    /// The bios of a request. If it is not one that the device takes, it ends at once.
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

    /// A request's pieces; none if there is nothing to do.
    fn pieces(
        &self,
        op: BlockOp,
        offset: u64,
        length: u64,
        memory: &[Segment],
    ) -> Result<Vec<SplitRequest>, Error> {
        self.driver()?;
        let op = match op {
            // Without a volatile cache what has been written is durable.
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

    /// Gives bios to the driver, those that go on where the last one ended as one with it.
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

    /// Gives the driver what waits, as far as there are tags and room.
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
                queue.deadlines[usize::from(tag)] = Some(cpu.now() + self.limits.timeout);
                (bio, tag)
            };
            let Bio { piece, parents } = bio;
            // All of them stay as long as the driver has one.
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
        let left = place.borrow().waiting.len() as u64;
        self.count(|c| c.waits += left);
        if left > 0 {
            self.ask(number);
        }
        if given {
            driver.commit(cpu, number);
            // Whoever let it run: a request, or a tag that another device gave back.
            self.watch(cpu);
        }
    }

    /// Sees to it that what waits is run when a request of the queue ends, this device's or another's.
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

    /// A request has ended, on the core and in the context of the driver's completion.
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

    /// The requests that are overdue at `now`, which get as much time again, and when the next one is.
    fn overdue(&self, now: Time) -> (Vec<(u16, u16)>, Option<Time>) {
        let (mut late, mut next) = (Vec::new(), None);
        for (number, queue) in (0u16..).zip(&self.queues) {
            for (tag, slot) in (0u16..).zip(queue.borrow_mut().deadlines.iter_mut()) {
                let Some(deadline) = slot else { continue };
                if *deadline <= now {
                    late.push((number, tag));
                    *deadline = now + self.limits.timeout;
                }
                next = Some(next.map_or(*deadline, |next: Time| next.min(*deadline)));
            }
        }
        (late, next)
    }

    /// Sees to it that somebody looks after the requests as long as there are any.
    fn watch(&self, cpu: &Cpu) {
        if self.limits.timeout.is_zero() || self.watched.replace(true) {
            return;
        }
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
                        // Without a driver its end of the requests is under way.
                        if let Ok(driver) = requests.driver() {
                            for (queue, tag) in late {
                                Rc::clone(&driver).timed_out(&cpu, queue, tag);
                            }
                        }
                        let Some(next) = next else {
                            requests.watched.set(false);
                            return;
                        };
                        drop(requests);
                        cpu.sleep_until(next).await;
                    }
                })
            }),
        );
    }
}
