//! Namespaces as block devices.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockOp, BlockRequest, SECTOR};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::tags::TagSet;
use wire::nvme::io::{Blocks, DatasetRange};
use wire::nvme::{Command, CompletionEntry, DataPointer, IdentifyNamespace, IoCommand};
use wire::pcie::FunctionAddress;

use super::admin::error_of;
use super::controller::{Controller, ControllerState};
use super::data::{MAX_SEGMENTS, Mapped};
use super::queue::{InFlight, Parked, Queue, Work};

pub(super) struct Namespace {
    id: u32,
    controller: Weak<Controller>,
    /// Log2 of the block size (bytes).
    shift: u8,
    sectors: u64,
    /// Whether it is a path of a multipath device.
    is_path: bool,
    /// Name of its block device.
    name: RefCell<String>,
}

impl Namespace {
    fn new(controller: &Controller, id: u32, says: &IdentifyNamespace) -> Self {
        let shift = says.current_format().block_shift;
        Self {
            id,
            controller: controller.me.clone(),
            shift,
            sectors: (says.size << shift) / SECTOR,
            is_path: controller.options.multipath && says.shared,
            name: RefCell::default(),
        }
    }

    /// Namespace ID.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its controller, if that still exists.
    pub fn controller(&self) -> Option<Rc<Controller>> {
        self.controller.upgrade()
    }

    /// The queue of this controller that corresponds to a queue of another path.
    pub fn queue_of(&self, queue: u16) -> u16 {
        self.controller.upgrade().map_or(0, |controller| queue % controller.queues().max(1))
    }

    /// First block and number of blocks of a request; `None` if it is not block-aligned or too long.
    fn blocks(&self, request: &BlockRequest) -> Option<(u64, u32)> {
        let per_block = (1u64 << self.shift) / SECTOR;
        let whole = request.sector % per_block == 0 && u64::from(request.sectors) % per_block == 0;
        let count = u64::from(request.sectors) / per_block;
        (whole && count > 0).then_some((request.sector / per_block, count as u32))
    }
}

impl Controller {
    /// Registers new namespaces and removes those that are gone.
    pub(super) async fn scan(&self, cpu: &Cpu) -> Result<(), Error> {
        let ids = self.namespace_ids(cpu).await?;
        let gone: Vec<_> = {
            let mut known = self.namespaces.borrow_mut();
            let gone: Vec<u32> = known.keys().copied().filter(|id| !ids.contains(id)).collect();
            gone.iter().filter_map(|id| known.remove(id)).collect()
        };
        gone.iter().for_each(|namespace| self.withdraw(namespace));
        for id in ids {
            if self.namespaces.borrow().contains_key(&id) {
                continue;
            }
            let says = self.namespace(cpu, id).await?;
            let format = says.current_format();
            if says.size == 0 || !(9..=12).contains(&format.block_shift) || format.metadata > 0 {
                self.kernel
                    .log(format!("nvme {}: namespace {id} has an unsupported format", self.device.address()));
                continue;
            }
            self.check()?;
            let namespace = Rc::new(Namespace::new(self, id, &says));
            self.namespaces.borrow_mut().insert(id, Rc::clone(&namespace));
            if namespace.is_path {
                self.heads.join(self, &namespace);
                continue;
            }
            let name = self.kernel.register_block(Rc::clone(&namespace) as Rc<dyn BlockDriver>);
            *namespace.name.borrow_mut() = name;
        }
        Ok(())
    }

    /// Removes all block devices.
    pub(super) fn unregister(&self) {
        let all = std::mem::take(&mut *self.namespaces.borrow_mut());
        all.values().for_each(|namespace| self.withdraw(namespace));
    }

    fn withdraw(&self, namespace: &Rc<Namespace>) {
        match namespace.is_path {
            true => self.heads.leave(self, namespace),
            false => self.kernel.unregister_block(&namespace.name.borrow()),
        }
    }

    /// Queues a request. The controller does not see it until the doorbell rings.
    pub(super) fn start(&self, cpu: &Cpu, queue: &Queue, io: Parked) -> Result<(), Parked> {
        let Some(slot) = queue.take_slot() else { return Err(io) };
        cpu.work(self.options.costs.submit + self.options.costs.segment * io.request.segments.len() as u64);
        match self.build(cpu, queue, slot, &io) {
            Ok((command, mapped)) => {
                let Parked { namespace, request, tries } = io;
                let io = InFlight { namespace, request, mapped, tries, aborted: false };
                queue.push(cpu, slot, command, Work::Block(Box::new(io)));
            }
            Err(error) => {
                queue.give_slot(slot);
                self.count(|c| c.errors += 1);
                io.request.end(cpu, Err(error));
            }
        }
        Ok(())
    }

    /// Builds the command for a request and maps its data.
    fn build(&self, cpu: &Cpu, queue: &Queue, slot: u16, io: &Parked) -> Result<(Command, Mapped), Error> {
        let request = &io.request;
        let namespace = self.namespaces.borrow().get(&io.namespace).cloned().ok_or(Error::NoDevice)?;
        if request.op == BlockOp::Flush {
            return Ok((IoCommand::Flush.command(0, io.namespace), Mapped::nothing()));
        }
        let (start, count) = namespace.blocks(request).ok_or(Error::Invalid)?;
        let list = || queue.list(cpu, &*self.dma, slot);
        if request.op == BlockOp::Discard {
            let list = list()?;
            cpu.store(list.cpu, &DatasetRange { attributes: 0, length: count, start }.emit());
            let pointer = DataPointer::Prp { first: list.bus.get(), second: 0 };
            let command = IoCommand::DatasetManagement { ranges: 0, deallocate: true };
            return Ok((command.command(0, io.namespace).with_data(pointer), Mapped::nothing()));
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
                return Ok((command.command(0, io.namespace), Mapped::nothing()));
            }
        };
        let bytes: u64 = request.segments.iter().map(|segment| u64::from(segment.length)).sum();
        if bytes != u64::from(request.sectors) * SECTOR
            || bytes > u64::from(self.abilities.borrow().max_bytes)
        {
            return Err(Error::Invalid);
        }
        let mapped = Mapped::new(cpu, &*self.dma, request)?;
        let sgl = self.abilities.borrow().sgl.then_some(self.options.sgl_threshold);
        match mapped.pointer(cpu, sgl, list) {
            Ok(pointer) => Ok((command.command(0, io.namespace).with_data(pointer), mapped)),
            Err(error) => {
                mapped.unmap(cpu, &*self.dma);
                Err(error)
            }
        }
    }

    /// Handles all completions in a queue, and returns how many there were.
    pub(super) fn reap(&self, cpu: &Cpu, queue: &Queue) -> usize {
        let _part = cpu.book(Part::Driver);
        self.look(cpu, queue)
    }

    /// Like [`reap`](Self::reap), but an empty look is accounted to the caller.
    fn look(&self, cpu: &Cpu, queue: &Queue) -> usize {
        // A dead controller's commands have been taken back, and its rings may be gone.
        if self.state.get() == ControllerState::Dead {
            return 0;
        }
        cpu.work(self.options.costs.look);
        let reaped = queue.reap(cpu, &self.registers);
        let found = reaped.ended.len() + reaped.unknown as usize;
        let _part = cpu.book(Part::Driver);
        self.count(|c| {
            c.completions += reaped.ended.len() as u64;
            c.unknown_completions += reaped.unknown;
            c.wrong_heads += reaped.wrong_heads;
        });
        for (entry, work) in reaped.ended {
            cpu.work(self.options.costs.complete);
            match work {
                Work::Admin(waiting) => waiting.complete(Ok(entry)),
                Work::Event => self.event(cpu, entry),
                Work::Block(io) => self.ended(cpu, queue, entry, *io),
            }
        }
        if queue.live.get() && !queue.parked.borrow().is_empty() {
            self.unpark(cpu, queue);
        }
        found
    }

    fn ended(&self, cpu: &Cpu, queue: &Queue, entry: CompletionEntry, io: InFlight) {
        let InFlight { namespace, request, mapped, tries, .. } = io;
        mapped.unmap(cpu, &*self.dma);
        if entry.status.is_success() {
            return request.end(cpu, Ok(()));
        }
        if !entry.status.do_not_retry
            && tries < self.options.retries
            && self.state.get() == ControllerState::Live
        {
            self.count(|c| c.retries += 1);
            match self.start(cpu, queue, Parked { namespace, request, tries: tries + 1 }) {
                Ok(()) => queue.ring(cpu, &self.registers),
                Err(io) => queue.parked.borrow_mut().push_back(io),
            }
            return;
        }
        self.count(|c| c.errors += 1);
        request.end(cpu, Err(error_of(entry.status)));
    }
}

impl BlockDriver for Namespace {
    fn limits(&self) -> BlockLimits {
        let controller = self.controller.upgrade();
        let abilities = controller.as_ref().map(|c| c.abilities.borrow().clone()).unwrap_or_default();
        BlockLimits {
            name: format!("nvme{}n{}", controller.as_ref().map_or(0, |c| c.instance), self.id),
            sectors: self.sectors,
            block_bytes: 1 << self.shift,
            max_bytes: abilities.max_bytes,
            max_segments: MAX_SEGMENTS,
            // PRPs describe pages, SGLs doublewords.
            boundary_mask: if abilities.sgl { 3 } else { 4095 },
            write_cache: abilities.write_cache,
            discard: abilities.discard,
            write_zeroes: abilities.write_zeroes,
            timeout: controller.map_or(units::Duration::ZERO, |c| c.options.io_timeout),
        }
    }

    fn tags(&self) -> Rc<TagSet> {
        self.controller.upgrade().map_or_else(|| Rc::new(TagSet::new(1, 1)), |controller| controller.tags())
    }

    fn function(&self) -> Option<FunctionAddress> {
        Some(self.controller.upgrade()?.device.address())
    }

    fn queue_for(&self, cpu: CpuId) -> u16 {
        self.controller.upgrade().map_or(0, |controller| controller.queue_for(cpu))
    }

    fn admin<'a>(&'a self, cpu: &'a Cpu, command: Command, length: u64) -> Async<'a, Result<Vec<u8>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let controller = self.controller.upgrade().ok_or(Error::NoDevice)?;
            controller.read_data(cpu, command, length).await
        })
    }

    fn submit(&self, cpu: &Cpu, queue: u16, request: BlockRequest) -> Result<(), BlockRequest> {
        let _part = cpu.book(Part::Driver);
        let io = Parked { namespace: self.id, request, tries: 0 };
        let Some(controller) = self.controller.upgrade().filter(|c| c.state.get() != ControllerState::Dead)
        else {
            io.request.end(cpu, Err(Error::NoDevice));
            return Ok(());
        };
        let queue = controller.queues.borrow().get(usize::from(queue)).cloned();
        let Some(queue) = queue else {
            io.request.end(cpu, Err(Error::Invalid));
            return Ok(());
        };
        if !queue.live.get() {
            queue.parked.borrow_mut().push_back(io);
            return Ok(());
        }
        controller.start(cpu, &queue, io).map_err(|io| io.request)
    }

    fn commit(&self, cpu: &Cpu, queue: u16) {
        let _part = cpu.book(Part::Driver);
        if let Some(controller) = self.controller.upgrade() {
            let queue = controller.queues.borrow().get(usize::from(queue)).cloned();
            if let Some(queue) = queue.filter(|queue| queue.live.get()) {
                queue.ring(cpu, &controller.registers);
            }
        }
    }

    fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        let Some(controller) = self.controller.upgrade() else { return 0 };
        let queue = controller.queues.borrow().get(usize::from(queue)).cloned();
        let _part = cpu.book(Part::Poll);
        queue.map_or(0, |queue| controller.look(cpu, &queue))
    }

    fn timed_out(self: Rc<Self>, cpu: &Cpu, queue: u16, tag: u16) {
        let Some(controller) = self.controller.upgrade() else { return };
        controller.overdue(cpu, self.id, queue, tag);
    }
}
