//! Namespaces as block devices.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockRequest, SECTOR};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::kernel::Kernel;
use platform::tags::TagSet;
use settings::disk_id;
use wire::nvme::{Command, IdentifyNamespace};
use wire::pcie::FunctionAddress;

use super::admin::Abilities;
use super::controller::Controller;
use super::data::MAX_SEGMENTS;
use super::multipath::Heads;

/// A namespace of a controller.
pub(super) struct Namespace {
    me: Weak<Self>,
    id: u32,
    controller: Weak<Controller>,
    limits: BlockLimits,
    /// Log2 of the block size (bytes).
    shift: u8,
    takes_sgls: bool,
    /// Whether it is a path of a multipath device.
    is_path: bool,
    /// It has been deleted or detached.
    gone: Cell<bool>,
    /// Name of its block device.
    name: RefCell<String>,
}

impl Namespace {
    pub fn new(
        controller: &Rc<Controller>,
        id: u32,
        abilities: &Abilities,
        says: &IdentifyNamespace,
    ) -> Rc<Self> {
        let shift = says.current_format().block_shift;
        let limits = BlockLimits {
            name: format!("nvme{}n{id}", controller.instance()),
            id: Some(disk_id(&abilities.serial, id)),
            sectors: (says.size << shift) / SECTOR,
            block_bytes: 1 << shift,
            max_bytes: abilities.max_bytes,
            max_segments: MAX_SEGMENTS,
            // PRPs describe pages, SGLs doublewords.
            boundary_mask: if abilities.sgl { 3 } else { 4095 },
            write_cache: abilities.write_cache,
            discard: abilities.discard,
            write_zeroes: abilities.write_zeroes,
            timeout: controller.options().io_timeout,
        };
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            id,
            controller: Rc::downgrade(controller),
            limits,
            shift,
            takes_sgls: abilities.sgl,
            is_path: controller.options().multipath && says.shared,
            gone: Cell::new(false),
            name: RefCell::default(),
        })
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its controller, if that still exists.
    pub fn controller(&self) -> Option<Rc<Controller>> {
        self.controller.upgrade()
    }

    /// Makes it available: as a block device, or as a path of one.
    pub fn register(self: &Rc<Self>, kernel: &dyn Kernel, heads: &Heads, abilities: &Abilities) {
        if self.is_path {
            return heads.join(kernel, &abilities.subsystem, self);
        }
        let name = kernel.register_block(Rc::clone(self) as Rc<dyn BlockDriver>);
        *self.name.borrow_mut() = name;
    }

    /// Undoes [`register`](Self::register), as it has been deleted or detached.
    pub fn unregister(self: &Rc<Self>, kernel: &dyn Kernel, heads: &Heads) {
        self.gone.set(true);
        match self.is_path {
            true => heads.leave(kernel, self),
            false => kernel.unregister_block(&self.name.borrow()),
        }
    }

    /// Whether it has been deleted or detached.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// Whether SGLs can describe its data.
    pub fn takes_sgls(&self) -> bool {
        self.takes_sgls
    }

    /// Most bytes of a request.
    pub fn max_bytes(&self) -> u32 {
        self.limits.max_bytes
    }

    /// The queue of this controller that corresponds to a queue of another path.
    pub fn queue_of(&self, queue: u16) -> u16 {
        self.controller.upgrade().map_or(0, |controller| queue % controller.queues().max(1))
    }

    /// First block and number of blocks of a request; `None` if it is not block-aligned or too long.
    pub fn blocks(&self, request: &BlockRequest) -> Option<(u64, u32)> {
        let per_block = (1u64 << self.shift) / SECTOR;
        let whole = request.sector % per_block == 0 && u64::from(request.sectors) % per_block == 0;
        let count = u64::from(request.sectors) / per_block;
        (whole && count > 0).then_some((request.sector / per_block, count as u32))
    }
}

impl BlockDriver for Namespace {
    fn limits(&self) -> BlockLimits {
        self.limits.clone()
    }

    fn tags(&self) -> Rc<TagSet> {
        let controller = self.controller.upgrade();
        controller.map_or_else(|| Rc::new(TagSet::new(1, 1)), |controller| controller.io().tags())
    }

    fn function(&self) -> Option<FunctionAddress> {
        Some(self.controller.upgrade()?.address())
    }

    fn queue_for(&self, cpu: CpuId) -> u16 {
        self.controller.upgrade().map_or(0, |controller| controller.io().queue_for(cpu))
    }

    fn admin<'a>(&'a self, cpu: &'a Cpu, command: Command, length: u64) -> Async<'a, Result<Vec<u8>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Driver);
            let controller = self.controller.upgrade().ok_or(Error::NoDevice)?;
            controller.admin().read_data(cpu, command, length).await
        })
    }

    fn submit(&self, cpu: &Cpu, queue: u16, request: BlockRequest) -> Result<(), BlockRequest> {
        let _part = cpu.book(Part::Driver);
        let (Some(controller), Some(me)) = (self.controller.upgrade(), self.me.upgrade()) else {
            request.end(cpu, Err(Error::NoDevice));
            return Ok(());
        };
        controller.io().submit(cpu, queue, me, request)
    }

    fn commit(&self, cpu: &Cpu, queue: u16) {
        let _part = cpu.book(Part::Driver);
        if let Some(controller) = self.controller.upgrade() {
            controller.io().commit(cpu, queue);
        }
    }

    fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        let Some(controller) = self.controller.upgrade() else { return 0 };
        let _part = cpu.book(Part::Poll);
        controller.io().poll(cpu, queue)
    }

    fn timed_out(self: Rc<Self>, cpu: &Cpu, queue: u16, tag: u16) {
        if let Some(controller) = self.controller.upgrade() {
            controller.overdue(cpu, self.id, queue, tag);
        }
    }
}
