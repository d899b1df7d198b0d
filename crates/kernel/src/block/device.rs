//! A block device: its queues, and the requests on their way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockOp, BlockRequest, SECTOR, Segment};
use platform::cpu::{Cpu, Part};
use platform::storage::BlockCounters;
use platform::tags::TagSet;
use units::Time;

use super::BlockParams;
use super::cache::Cache;
use super::split::{Piece, split};
use crate::kernel::Inner;

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
    piece: Piece,
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

/// A block device.
pub struct BlockDevice {
    pub(super) me: Weak<BlockDevice>,
    pub(super) kernel: Weak<Inner>,
    pub(super) name: String,
    pub(super) driver: RefCell<Option<Rc<dyn BlockDriver>>>,
    pub(super) limits: BlockLimits,
    pub(super) params: BlockParams,
    /// Shared with the other devices of the controller.
    tags: Rc<TagSet>,
    queues: Vec<RefCell<HwQueue>>,
    pub(super) cache: Cache,
    /// How many have it open.
    pub(super) openers: Cell<u64>,
    pub(super) counters: Cell<BlockCounters>,
    pub(super) watched: Cell<bool>,
}

impl BlockDevice {
    pub(super) fn new(
        kernel: Weak<Inner>,
        name: String,
        driver: Rc<dyn BlockDriver>,
        params: BlockParams,
    ) -> Rc<Self> {
        let limits = driver.limits();
        let tags = driver.tags();
        let depth = usize::from(tags.depth());
        let queue =
            || RefCell::new(HwQueue { deadlines: vec![None; depth], waiting: VecDeque::new(), asked: false });
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            kernel,
            name,
            driver: RefCell::new(Some(driver)),
            queues: (0..tags.queues()).map(|_| queue()).collect(),
            tags,
            limits,
            params,
            cache: Cache::default(),
            openers: Cell::new(0),
            counters: Cell::default(),
            watched: Cell::new(false),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub const fn limits(&self) -> &BlockLimits {
        &self.limits
    }

    /// The tags of its hardware queues.
    pub fn tags(&self) -> &TagSet {
        &self.tags
    }

    /// The PCI function behind it.
    pub fn function(&self) -> Option<wire::pcie::FunctionAddress> {
        self.driver.borrow().as_ref()?.function()
    }

    /// Gives the controller an administrative command of its own protocol: see [`BlockDriver::admin`].
    ///
    /// # Errors
    /// As there, and [`Error::NoDevice`] if the device has gone.
    pub async fn admin(
        &self,
        cpu: &Cpu,
        command: wire::nvme::Command,
        length: u64,
    ) -> Result<Vec<u8>, Error> {
        let driver = self.driver.borrow().clone().ok_or(Error::NoDevice)?;
        driver.admin(cpu, command, length).await
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut BlockCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The kernel, unless the device is gone.
    pub(super) fn alive(&self) -> Result<(Rc<Inner>, Rc<dyn BlockDriver>), Error> {
        let kernel = self.kernel.upgrade().ok_or(Error::NoDevice)?;
        let driver = self.driver.borrow().clone().ok_or(Error::NoDevice)?;
        Ok((kernel, driver))
    }

    /// The driver takes the device back: who waits for a tag fails when the next request ends, or now if none is.
    pub(super) fn close(&self) {
        self.driver.take();
        let Some(kernel) = self.kernel.upgrade() else { return };
        let me = self.me.clone();
        let params = platform::kernel::TaskParams::named("kblockd");
        kernel.tasks.spawn(
            params,
            Box::new(move |cpu| {
                Box::pin(async move {
                    if let Some(device) = me.upgrade() {
                        device.fail_waiting(&cpu);
                        device.drop_pages(&cpu).await;
                    }
                })
            }),
        );
    }

    fn fail_waiting(&self, cpu: &Cpu) {
        for queue in &self.queues {
            let waiting = std::mem::take(&mut queue.borrow_mut().waiting);
            for bio in waiting {
                self.end(cpu, bio.parents, Err(Error::NoDevice));
            }
        }
    }

    /// The bios of a request. If it is not one that the device takes, it ends at once.
    pub(super) fn prepare(
        &self,
        cpu: &Cpu,
        op: BlockOp,
        offset: u64,
        length: u64,
        memory: &[Segment],
        ended: Ended,
    ) -> Vec<Bio> {
        if let Some(kernel) = self.kernel.upgrade() {
            cpu.work(kernel.cores.costs.block_submit);
        }
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
    fn pieces(&self, op: BlockOp, offset: u64, length: u64, memory: &[Segment]) -> Result<Vec<Piece>, Error> {
        self.alive()?;
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
    pub(super) fn dispatch(&self, cpu: &Cpu, bios: Vec<Bio>) {
        let Some(kernel) = self.kernel.upgrade() else { return };
        let mut merged: Vec<Bio> = Vec::with_capacity(bios.len());
        for bio in bios {
            if let Some(last) = merged.last_mut() {
                cpu.work(kernel.cores.costs.block_merge);
                if last.piece.merge(&self.limits, &bio.piece) {
                    last.parents.extend(bio.parents);
                    self.count(|c| c.merges += 1);
                    continue;
                }
            }
            merged.push(bio);
        }
        let Ok((_, driver)) = self.alive() else {
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
            // The device stays as long as the driver has a request of it.
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
                    let piece = Piece { op, sector, sectors, segments };
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
            let Some(device) = me.upgrade() else { return };
            device.queues[usize::from(number)].borrow_mut().asked = false;
            match device.alive() {
                Ok((_, driver)) => device.run(cpu, &driver, number),
                Err(_) => device.fail_waiting(cpu),
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
        if let Some(kernel) = self.kernel.upgrade() {
            cpu.work(kernel.cores.costs.block_complete);
        }
        if result.is_err() {
            self.count(|c| c.errors += 1);
        }
        for parent in parents {
            parent.piece_ended(cpu, result);
        }
    }

    /// The requests that are overdue at `now`, which get as much time again, and when the next one is.
    pub(super) fn overdue(&self, now: Time) -> (Vec<(u16, u16)>, Option<Time>) {
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
}
