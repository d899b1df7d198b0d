//! Block requests as commands of the I/O queues.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use platform::Error;
use platform::block::{BlockOp, BlockRequest, SECTOR};
use platform::cpu::{Cpu, CpuId, Part};
use platform::tags::TagSet;
use wire::nvme::io::{Blocks, DatasetRange};
use wire::nvme::{Command, CompletionEntry, DataPointer, IoCommand};

use super::admin::{Admin, error_of};
use super::data::Mapped;
use super::means::Means;
use super::memory_buffer::MemoryBuffer;
use super::namespace::Namespace;
use super::queue::Queue;

/// A block request in flight.
struct InFlight {
    namespace: Rc<Namespace>,
    request: BlockRequest,
    mapped: Mapped,
    /// Earlier attempts.
    tries: u8,
    /// An abort has been sent.
    aborted: bool,
}

/// A request that waits until the controller is back.
struct Parked {
    namespace: Rc<Namespace>,
    request: BlockRequest,
    tries: u8,
}

/// An I/O queue pair and the requests that wait for it.
struct IoQueue {
    queue: Queue<Box<InFlight>>,
    parked: RefCell<VecDeque<Parked>>,
}

/// The I/O queue pairs of a controller.
pub(super) struct IoQueues {
    means: Rc<Means>,
    queues: RefCell<Vec<Rc<IoQueue>>>,
    /// Tags for the slots of all queues, shared by all namespaces.
    tags: OnceCell<Rc<TagSet>>,
}

impl IoQueues {
    pub fn new(means: Rc<Means>) -> Self {
        Self { means, queues: RefCell::default(), tags: OnceCell::new() }
    }

    /// Allocates `count` queue pairs.
    pub fn allocate(&self, cpu: &Cpu, count: u16, buffer: Option<&MemoryBuffer>) -> Result<(), Error> {
        let Means { dma, registers, options, .. } = &*self.means;
        let entries = options.queue_entries.min(registers.max_entries());
        let stride = registers.capabilities.doorbell_stride;
        for id in 1..=count {
            let place = buffer.and_then(|buffer| buffer.allocate(&self.means, entries));
            let queue = Queue::new(cpu, &**dma, id, entries.max(2), stride, place)?;
            self.queues.borrow_mut().push(Rc::new(IoQueue { queue, parked: RefCell::default() }));
        }
        Ok(())
    }

    /// Creates all queue pairs in the controller, each with its interrupt vector.
    pub async fn create(&self, cpu: &Cpu, admin: &Admin, vector: impl Fn(u16) -> u16) -> Result<(), Error> {
        for io in self.all() {
            io.queue.rewind(cpu);
            admin.create_queue(cpu, &io.queue, vector(io.queue.id())).await?;
            io.queue.live.set(true);
        }
        Ok(())
    }

    fn all(&self) -> Vec<Rc<IoQueue>> {
        self.queues.borrow().clone()
    }

    fn get(&self, queue: u16) -> Option<Rc<IoQueue>> {
        self.queues.borrow().get(usize::from(queue)).cloned()
    }

    /// Number of queue pairs.
    pub fn count(&self) -> u16 {
        self.queues.borrow().len() as u16
    }

    /// Tag set with one tag for each slot of each queue.
    pub fn tags(&self) -> Rc<TagSet> {
        let made = || {
            let depth = self.queues.borrow().first().map_or(1, |io| io.queue.depth());
            Rc::new(TagSet::new(self.count(), depth))
        };
        Rc::clone(self.tags.get_or_init(made))
    }

    /// Whether submission queues are in the controller memory buffer.
    pub fn uses_memory_buffer(&self) -> bool {
        self.queues.borrow().iter().any(|io| io.queue.is_in_buffer())
    }

    /// The queue of a core.
    pub fn queue_for(&self, cpu: CpuId) -> u16 {
        let count = u32::from(self.count()).max(1);
        (u32::from(cpu.0) * count / u32::from(self.means.kernel.cpus())) as u16
    }

    /// Stops accepting commands; requests wait.
    pub fn freeze(&self) {
        self.queues.borrow().iter().for_each(|io| io.queue.live.set(false));
    }

    /// Whether there are requests in flight.
    pub fn is_busy(&self) -> bool {
        self.queues.borrow().iter().any(|io| io.queue.in_flight() > 0)
    }

    /// Submits a request, or lets it wait until the controller is back. Returns it if the queue is full.
    pub fn submit(
        &self,
        cpu: &Cpu,
        queue: u16,
        namespace: Rc<Namespace>,
        request: BlockRequest,
    ) -> Result<(), BlockRequest> {
        let Some(io) = self.get(queue) else {
            request.end(cpu, Err(Error::Invalid));
            return Ok(());
        };
        if io.queue.is_lost() {
            request.end(cpu, Err(Error::NoDevice));
            return Ok(());
        }
        let parked = Parked { namespace, request, tries: 0 };
        if !io.queue.live.get() {
            io.parked.borrow_mut().push_back(parked);
            return Ok(());
        }
        self.start(cpu, &io, parked).map_err(|parked| parked.request)
    }

    /// Announces submitted requests to the controller.
    pub fn commit(&self, cpu: &Cpu, queue: u16) {
        if let Some(io) = self.get(queue).filter(|io| io.queue.live.get()) {
            io.queue.ring(cpu, &self.means.registers.mmio);
        }
    }

    /// Handles all completions in a queue, and returns how many there were. An empty look is accounted to the caller.
    pub fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        self.get(queue).map_or(0, |io| self.look(cpu, &io))
    }

    /// Handles an interrupt: the completions of one queue pair, or of all.
    pub fn interrupt(&self, cpu: &Cpu, id: Option<u16>) -> usize {
        let _part = cpu.book(Part::Driver);
        let all = self.all();
        let meant = all.iter().filter(|io| id.is_none_or(|id| id == io.queue.id()));
        meant.map(|io| self.look(cpu, io)).sum()
    }

    /// Identifier of a queue, if a request is in flight there.
    pub fn in_flight(&self, namespace: u32, queue: u16, tag: u16) -> Option<u16> {
        let io = self.get(queue)?;
        let found = io.queue.find(|io| is_meant(io, namespace, tag).then_some(()));
        found.map(|_| io.queue.id())
    }

    /// Marks the command of a request as aborted. Returns its ID, and whether it was marked before.
    pub fn abort(&self, namespace: u32, queue: u16, tag: u16) -> Option<(u16, bool)> {
        self.get(queue)?
            .queue
            .find(|io| is_meant(io, namespace, tag).then(|| std::mem::replace(&mut io.aborted, true)))
    }

    /// Takes back all commands, which the controller must have dropped; their requests wait for [`resume`].
    ///
    /// [`resume`]: Self::resume
    pub fn take_back(&self, cpu: &Cpu) {
        for io in self.all() {
            for InFlight { namespace, request, mapped, tries, aborted } in
                io.queue.take_all().into_iter().map(|io| *io)
            {
                mapped.unmap(cpu, &*self.means.dma);
                if tries < self.means.options.retries {
                    self.means.count(|c| c.retries += 1);
                    io.parked.borrow_mut().push_back(Parked { namespace, request, tries: tries + 1 });
                } else {
                    // Not retried forever, as it may have hung the controller.
                    self.fail(cpu, request, if aborted { Error::TimedOut } else { Error::Io });
                }
            }
        }
    }

    /// The controller is gone: fails all requests.
    pub fn lose(&self, cpu: &Cpu, error: Error) {
        self.queues.borrow().iter().for_each(|io| io.queue.lose());
        for io in self.all() {
            for InFlight { request, mapped, .. } in io.queue.take_all().into_iter().map(|io| *io) {
                mapped.unmap(cpu, &*self.means.dma);
                self.fail(cpu, request, error);
            }
            for parked in io.parked.take() {
                self.fail(cpu, parked.request, error);
            }
        }
    }

    /// Submits the requests that wait.
    pub fn resume(&self, cpu: &Cpu) {
        self.all().iter().for_each(|io| self.unpark(cpu, io));
    }

    /// Frees the queues' memory.
    pub fn free(&self, cpu: &Cpu) {
        self.queues.borrow().iter().for_each(|io| io.queue.free_memory(cpu, &*self.means.dma));
    }

    fn unpark(&self, cpu: &Cpu, io: &IoQueue) {
        loop {
            let next = io.parked.borrow_mut().pop_front();
            let Some(parked) = next else { break };
            if let Err(parked) = self.start(cpu, io, parked) {
                io.parked.borrow_mut().push_front(parked);
                break;
            }
        }
        io.queue.ring(cpu, &self.means.registers.mmio);
    }

    /// Queues a request. The controller does not see it until the doorbell rings.
    fn start(&self, cpu: &Cpu, io: &IoQueue, parked: Parked) -> Result<(), Parked> {
        let Some(slot) = io.queue.take_slot() else { return Err(parked) };
        let costs = &self.means.options.costs;
        cpu.work(costs.submit + costs.segment * parked.request.segments.len() as u64);
        let Parked { namespace, request, tries } = parked;
        match self.build(cpu, &io.queue, slot, &namespace, &request) {
            Ok((command, mapped)) => {
                let work = InFlight { namespace, request, mapped, tries, aborted: false };
                io.queue.push(cpu, slot, command, Box::new(work));
            }
            Err(error) => {
                io.queue.give_slot(slot);
                self.fail(cpu, request, error);
            }
        }
        Ok(())
    }

    /// Builds the command for a request and maps its data.
    fn build(
        &self,
        cpu: &Cpu,
        queue: &Queue<Box<InFlight>>,
        slot: u16,
        namespace: &Namespace,
        request: &BlockRequest,
    ) -> Result<(Command, Mapped), Error> {
        let dma = &*self.means.dma;
        let id = namespace.id();
        if namespace.is_gone() {
            return Err(Error::NoDevice);
        }
        if request.op == BlockOp::Flush {
            return Ok((IoCommand::Flush.command(0, id), Mapped::nothing()));
        }
        let (start, count) = namespace.blocks(request).ok_or(Error::Invalid)?;
        let list = || queue.list(cpu, dma, slot);
        if request.op == BlockOp::Discard {
            let list = list()?;
            cpu.store(list.cpu, &DatasetRange { attributes: 0, length: count, start }.emit());
            let pointer = DataPointer::Prp { first: list.bus.get(), second: 0 };
            let command = IoCommand::DatasetManagement { ranges: 0, deallocate: true };
            return Ok((command.command(0, id).with_data(pointer), Mapped::nothing()));
        }
        if count > 1 << 16 {
            return Err(Error::Invalid);
        }
        let blocks = Blocks::new(start, count);
        let command = match request.op {
            BlockOp::Read => IoCommand::Read(blocks),
            BlockOp::Write { fua } => IoCommand::Write(Blocks { force_unit_access: fua, ..blocks }),
            _ => {
                let command = IoCommand::WriteZeroes { blocks, deallocate: false };
                return Ok((command.command(0, id), Mapped::nothing()));
            }
        };
        let bytes: u64 = request.segments.iter().map(|segment| u64::from(segment.length)).sum();
        if bytes != u64::from(request.sectors) * SECTOR || bytes > u64::from(namespace.max_bytes()) {
            return Err(Error::Invalid);
        }
        let mapped = Mapped::new(cpu, dma, request)?;
        let sgl = namespace.takes_sgls().then(|| self.means.sgl_threshold.get());
        match mapped.pointer(cpu, sgl, list) {
            Ok(pointer) => Ok((command.command(0, id).with_data(pointer), mapped)),
            Err(error) => {
                mapped.unmap(cpu, dma);
                Err(error)
            }
        }
    }

    fn look(&self, cpu: &Cpu, io: &IoQueue) -> usize {
        let reaped = self.means.reap(cpu, &io.queue);
        let found = reaped.found();
        let _part = cpu.book(Part::Driver);
        for (entry, work) in reaped.ended {
            cpu.work(self.means.options.costs.complete);
            self.ended(cpu, io, entry, *work);
        }
        if io.queue.live.get() && !io.parked.borrow().is_empty() {
            self.unpark(cpu, io);
        }
        found
    }

    fn ended(&self, cpu: &Cpu, io: &IoQueue, entry: CompletionEntry, work: InFlight) {
        let InFlight { namespace, request, mapped, tries, .. } = work;
        mapped.unmap(cpu, &*self.means.dma);
        if entry.status.is_success() {
            return request.end(cpu, Ok(()));
        }
        if entry.status.do_not_retry || tries >= self.means.options.retries || !io.queue.live.get() {
            return self.fail(cpu, request, error_of(entry.status));
        }
        self.means.count(|c| c.retries += 1);
        match self.start(cpu, io, Parked { namespace, request, tries: tries + 1 }) {
            Ok(()) => io.queue.ring(cpu, &self.means.registers.mmio),
            Err(parked) => io.parked.borrow_mut().push_back(parked),
        }
    }

    fn fail(&self, cpu: &Cpu, request: BlockRequest, error: Error) {
        self.means.count(|c| c.errors += 1);
        request.end(cpu, Err(error));
    }
}

fn is_meant(io: &InFlight, namespace: u32, tag: u16) -> bool {
    io.namespace.id() == namespace && io.request.tag == tag
}
