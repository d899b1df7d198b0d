//! A virtual disk: requests out of its ring, answers into it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

use kernel::Kernel;
use platform::Error;
use platform::block::{BlockOp, SECTOR, Segment};
use platform::cpu::{Async, Cpu, CpuId, Part};
use platform::irq::IrqHandler;
use platform::memory::PhysAddr;
use platform::storage::{IoDone, IoRequest};
use platform::sync::WaitQueue;
use platform::virtio::VirtualDisk;
use wire::virtio::{BlockHeader, Ring};

use super::Storage;
use crate::costs::VhostCosts;
use crate::exits::Exit;
use crate::placement::Client;
use crate::ring::DeviceRing;
use crate::vm::Machine;

/// A request that the drive has.
struct UnderWay {
    /// Where its answer goes.
    answer: PhysAddr,
    /// Bytes that the guest is told were written.
    written: u32,
}

/// A virtual disk, as the hypervisor has it.
pub struct Vdisk {
    machine: Rc<Machine>,
    number: u64,
    /// Its bytes on the drive.
    part: Range<u64>,
    ring: RefCell<Option<Rc<DeviceRing>>>,
    /// By which core and vector the guest is interrupted.
    vector: Cell<Option<(usize, u8)>>,
    /// The context that serves it.
    pub(super) context: Cell<usize>,
    /// It waits to be served by that one.
    pub(super) listed: Cell<bool>,
    /// Something was given to the guest that it has not been told of.
    untold: Cell<bool>,
    /// Requests that the drive has, by the chain's number.
    under_way: RefCell<BTreeMap<u16, UnderWay>>,
    /// No request is taken: its memory moves.
    held: Cell<bool>,
    /// Who waits for the drive to have none.
    idle: WaitQueue,
    requests: Cell<u64>,
}

/// The number of the virtual disk of a request.
pub(super) fn number_of(token: u64) -> usize {
    (token >> 16) as usize
}

impl Vdisk {
    pub(super) fn new(machine: Rc<Machine>, number: u64, part: Range<u64>) -> Rc<Self> {
        Rc::new(Self {
            machine,
            number,
            part,
            ring: RefCell::default(),
            vector: Cell::new(None),
            context: Cell::new(0),
            listed: Cell::new(false),
            untold: Cell::new(false),
            under_way: RefCell::default(),
            held: Cell::new(false),
            idle: WaitQueue::new(),
            requests: Cell::new(0),
        })
    }

    fn ring(&self) -> Option<Rc<DeviceRing>> {
        self.ring.borrow().clone()
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.get()
    }

    pub(super) fn release(&self) {
        self.held.set(false);
    }

    /// Takes the guest's next request; `Some(None)` if it was answered at once, as it made no sense.
    pub(super) fn next(&self, cpu: &Cpu) -> Option<Option<IoRequest>> {
        let ring = self.ring()?;
        let memory = &self.machine.memory;
        let (first, total) = ring.take(memory, cpu)?;
        self.requests.set(self.requests.get() + 1);
        let mut header = [0; BlockHeader::LEN];
        ring.each(0, BlockHeader::LEN as u32, |offset, piece| {
            cpu.load(piece.at, &mut header[offset as usize..(offset + piece.length) as usize]);
        });
        let Some(length) = total.checked_sub(BlockHeader::LEN as u32 + 1) else {
            ring.give(memory, cpu, first, 0);
            self.untold.set(true);
            return Some(None);
        };
        let mut answer = None;
        ring.each(total - 1, 1, |_, piece| answer = Some(piece.at));
        let answer = answer?;
        let header = BlockHeader::parse(&header);
        let op = match header.kind {
            BlockHeader::READ => Ok(BlockOp::Read),
            BlockHeader::WRITE => Ok(BlockOp::Write { fua: true }),
            _ => Err(BlockHeader::UNSUPPORTED),
        };
        let at = header.sector.checked_mul(SECTOR).and_then(|at| at.checked_add(self.part.start));
        let at = at.filter(|at| at.checked_add(length.into()).is_some_and(|end| end <= self.part.end));
        let (op, offset) = match (op, at) {
            (Ok(op), Some(at)) => (op, at),
            (Err(refused), _) => return Some(self.refuse(cpu, &ring, first, answer, refused)),
            (_, None) => return Some(self.refuse(cpu, &ring, first, answer, BlockHeader::FAILED)),
        };
        let mut pieces = Vec::new();
        ring.each(BlockHeader::LEN as u32, length, |_, piece| {
            pieces.push(Segment { at: piece.at, length: piece.length });
        });
        let written = if op == BlockOp::Read { length + 1 } else { 1 };
        self.under_way.borrow_mut().insert(first, UnderWay { answer, written });
        let token = self.number << 16 | u64::from(first);
        Some(Some(IoRequest { op, offset, length: length.into(), memory: pieces, token }))
    }

    fn refuse(
        &self,
        cpu: &Cpu,
        ring: &DeviceRing,
        first: u16,
        answer: PhysAddr,
        why: u8,
    ) -> Option<IoRequest> {
        cpu.store(answer, &[why]);
        ring.give(&self.machine.memory, cpu, first, 1);
        self.untold.set(true);
        None
    }

    /// A request has ended.
    pub(super) fn answer(&self, cpu: &Cpu, done: IoDone) {
        let first = done.token as u16;
        let Some(own) = self.under_way.borrow_mut().remove(&first) else { return };
        if let Some(ring) = self.ring() {
            let answer = if done.result.is_ok() { BlockHeader::OK } else { BlockHeader::FAILED };
            cpu.store(own.answer, &[answer]);
            ring.give(&self.machine.memory, cpu, first, own.written);
            self.untold.set(true);
        }
        if self.under_way.borrow().is_empty() {
            self.idle.wake_all();
        }
    }

    /// Whether the guest has more requests.
    pub(super) fn has_more(&self, cpu: &Cpu) -> bool {
        self.ring().is_some_and(|ring| ring.has_more(&self.machine.memory, cpu))
    }

    /// Whether the guest is to tell of its requests.
    pub(super) fn set_notify(&self, cpu: &Cpu, on: bool) {
        if let Some(ring) = self.ring() {
            ring.set_notify(&self.machine.memory, cpu, on);
        }
    }

    /// Tells the guest of what was answered, and interrupts it if it wants that.
    pub(super) fn tell(&self, cpu: &Cpu, costs: &VhostCosts) {
        let Some(ring) = self.ring().filter(|_| self.untold.replace(false)) else { return };
        let wants = ring.publish(&self.machine.memory, cpu);
        if let Some((core, vector)) = self.vector.get().filter(|_| wants) {
            cpu.work(costs.interrupt);
            self.machine.inject(cpu, core, vector);
        }
    }

    /// Takes no request any more, and waits until the drive has none: until then it reaches the guest's memory.
    async fn hold(&self) {
        self.held.set(true);
        self.idle.wait_for(|| self.under_way.borrow().is_empty().then_some(())).await;
    }

    /// Its guest has gone.
    pub(super) async fn stop(&self) {
        self.ring.borrow_mut().take();
        self.hold().await;
    }
}

/// A virtual disk and who serves it.
pub struct ServedDisk {
    /// The drive.
    pub storage: Rc<Storage>,
    /// The disk.
    pub vdisk: Rc<Vdisk>,
}

impl Client for ServedDisk {
    fn thread(&self) -> usize {
        self.vdisk.context.get()
    }

    fn passed(&self) -> u64 {
        self.vdisk.requests.get()
    }

    /// Requests that the drive has end where they were begun.
    fn serve_by(&self, _: &Cpu, thread: usize) -> Result<(), Error> {
        if thread >= self.storage.contexts.len() {
            return Err(Error::Invalid);
        }
        self.vdisk.context.set(thread);
        Ok(())
    }

    fn hold(&self) -> Async<'_, ()> {
        Box::pin(self.vdisk.hold())
    }

    fn go_on(&self, cpu: &Cpu) {
        self.storage.release(&self.vdisk, cpu);
    }
}

/// The way of a guest to its virtual disk.
pub(super) struct GuestDisk {
    pub vdisk: Rc<Vdisk>,
    pub storage: Weak<Storage>,
    /// The guest's kernel.
    pub kernel: Weak<Kernel>,
    pub block_bytes: u32,
}

impl VirtualDisk for GuestDisk {
    fn sectors(&self) -> u64 {
        (self.vdisk.part.end - self.vdisk.part.start) / SECTOR
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn start<'a>(&'a self, cpu: &'a Cpu, ring: Ring) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let ring = DeviceRing::new(&self.vdisk.machine.memory, ring).ok_or(Error::Invalid)?;
            let vdisk = Rc::clone(&self.vdisk);
            let done = self.vdisk.machine.call(cpu.id(), Exit::Call, move |cpu| {
                *vdisk.ring.borrow_mut() = Some(Rc::new(ring));
                vdisk.held.set(false);
                vdisk.set_notify(cpu, true);
            });
            cpu.stall_on(done).await.map_err(|_| Error::NoDevice)
        })
    }

    fn notify(&self, cpu: &Cpu) {
        let (vdisk, storage) = (Rc::clone(&self.vdisk), self.storage.clone());
        drop(self.vdisk.machine.call(cpu.id(), Exit::Call, move |cpu| {
            let _part = cpu.book(Part::Virt);
            if let Some(storage) = storage.upgrade() {
                storage.kick(&vdisk, cpu);
            }
        }));
    }

    fn request_irq(&self, cpu: &Cpu, handler: IrqHandler) -> Result<(), Error> {
        let kernel = self.kernel.upgrade().ok_or(Error::NoDevice)?;
        let CpuId(core) = cpu.id();
        let vector = kernel.add_interrupt(cpu.id(), "virtio-blk", handler)?;
        self.vdisk.vector.set(Some((core.into(), vector)));
        Ok(())
    }
}
