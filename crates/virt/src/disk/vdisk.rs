//! A virtual disk: requests and completions of its ring.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

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
use crate::machine::Machine;
use crate::placement::Client;
use crate::ring::DeviceRing;

/// A request in flight on the drive.
struct UnderWay {
    /// Address of the status byte in guest memory.
    answer: PhysAddr,
    /// Bytes to report as written to guest memory.
    written: u32,
    /// Guest memory that the drive accesses.
    reached: Vec<PhysAddr>,
}

/// Counters of a virtual disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VdiskCounters {
    /// Requests taken.
    pub requests: u64,
    /// Requests refused: unknown, or beyond the end of the disk.
    pub refused: u64,
    /// Malformed ring entries.
    pub malformed: u64,
}

/// The hypervisor's side of a virtual disk.
pub struct Vdisk {
    machine: Rc<Machine>,
    number: u64,
    /// Its byte range on the drive.
    part: Range<u64>,
    ring: RefCell<Option<Rc<DeviceRing>>>,
    /// Core and vector of the guest's interrupt.
    vector: Cell<Option<(usize, u8)>>,
    /// The I/O thread that serves it.
    pub(super) context: Cell<usize>,
    /// Whether it is queued for that thread.
    pub(super) listed: Cell<bool>,
    /// Whether there are completions that the guest was not notified of.
    untold: Cell<bool>,
    /// Requests in flight on the drive, by chain number.
    under_way: RefCell<BTreeMap<u16, UnderWay>>,
    /// Whether requests are held back because the memory is being moved.
    held: Cell<bool>,
    /// Woken when no request is in flight.
    idle: WaitQueue,
    requests: Cell<u64>,
    refused: Cell<u64>,
    malformed: Rc<Cell<u64>>,
}

/// Number of the virtual disk in a request's token.
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
            refused: Cell::new(0),
            malformed: Rc::default(),
        })
    }

    /// What it has counted so far.
    pub fn counters(&self) -> VdiskCounters {
        VdiskCounters {
            requests: self.requests.get(),
            refused: self.refused.get(),
            malformed: self.malformed.get(),
        }
    }

    fn count_malformed(&self) {
        self.malformed.set(self.malformed.get() + 1);
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

    /// Takes the guest's next request; `Some(None)` if it was malformed and has been answered.
    pub(super) fn next(&self, cpu: &Cpu) -> Option<Option<IoRequest>> {
        let ring = self.ring()?;
        let memory = &self.machine.memory;
        let chain = ring.take(memory, cpu)?;
        self.requests.set(self.requests.get() + 1);
        let (first, header_bytes) = (chain.first, BlockHeader::LEN as u32);
        let (Some(to_write), Some(to_read)) =
            (chain.readable.checked_sub(header_bytes), chain.writable.checked_sub(1))
        else {
            self.count_malformed();
            return Some(self.give_back(cpu, &ring, first, 0));
        };
        if self.under_way.borrow().contains_key(&first) {
            // The chain is in flight already, and goes back to the guest when that request completes.
            self.count_malformed();
            return Some(None);
        }
        let mut header = [0; BlockHeader::LEN];
        ring.each(0, header_bytes, |offset, piece| {
            cpu.load(piece.at, &mut header[offset as usize..(offset + piece.length) as usize]);
        });
        let mut answer = None;
        ring.each(chain.readable + to_read, 1, |_, piece| answer = Some(piece));
        let answer = answer?;
        let header = BlockHeader::parse(&header);
        let asked = match header.kind {
            BlockHeader::READ => Ok((BlockOp::Read, to_read)),
            BlockHeader::WRITE => Ok((BlockOp::Write { fua: true }, to_write)),
            _ => Err(BlockHeader::UNSUPPORTED),
        };
        let fits = |length: u32| {
            let at = header.sector.checked_mul(SECTOR)?.checked_add(self.part.start)?;
            (length > 0 && at.checked_add(length.into())? <= self.part.end).then_some(at)
        };
        let asked = asked.and_then(|(op, length)| Ok((op, length, fits(length).ok_or(BlockHeader::FAILED)?)));
        let (op, length, offset) = match asked {
            Ok(asked) => asked,
            Err(why) => {
                self.refused.set(self.refused.get() + 1);
                cpu.store(answer.at, &[why]);
                return Some(self.give_back(cpu, &ring, first, 1));
            }
        };
        let (mut pieces, mut reached) = (Vec::new(), vec![answer.guest]);
        ring.each(header_bytes, length, |_, piece| {
            pieces.push(Segment { at: piece.at, length: piece.length });
            reached.push(piece.guest);
        });
        memory.hold(reached.iter().copied());
        let written = if op == BlockOp::Read { length + 1 } else { 1 };
        self.under_way.borrow_mut().insert(first, UnderWay { answer: answer.at, written, reached });
        let token = self.number << 16 | u64::from(first);
        Some(Some(IoRequest { op, offset, length: length.into(), memory: pieces, token }))
    }

    /// Returns a chain that needs no request to the drive.
    fn give_back(&self, cpu: &Cpu, ring: &DeviceRing, first: u16, written: u32) -> Option<IoRequest> {
        ring.give(&self.machine.memory, cpu, first, written);
        self.untold.set(true);
        None
    }

    /// Completes a request.
    pub(super) fn answer(&self, cpu: &Cpu, done: IoDone) {
        let first = done.token as u16;
        let Some(own) = self.under_way.borrow_mut().remove(&first) else { return };
        self.machine.memory.let_go(own.reached.into_iter());
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

    /// Turns notifications by the guest on or off.
    pub(super) fn set_notify(&self, cpu: &Cpu, on: bool) {
        if let Some(ring) = self.ring() {
            ring.set_notify(&self.machine.memory, cpu, on);
        }
    }

    /// Publishes completions, and interrupts the guest if it asked for that.
    pub(super) fn tell(&self, cpu: &Cpu, costs: &VhostCosts) {
        let Some(ring) = self.ring().filter(|_| self.untold.replace(false)) else { return };
        let wants = ring.publish(&self.machine.memory, cpu);
        if let Some((core, vector)) = self.vector.get().filter(|_| wants) {
            cpu.work(costs.interrupt);
            self.machine.inject(cpu, core, vector);
        }
    }

    /// Stops taking requests, and waits until the drive has none in flight and so does not access the guest's memory.
    async fn hold(&self) {
        self.held.set(true);
        self.idle.wait_for(|| self.under_way.borrow().is_empty().then_some(())).await;
    }

    /// The guest is gone.
    pub(super) async fn stop(&self) {
        self.ring.borrow_mut().take();
        self.hold().await;
    }
}

/// A virtual disk and its drive.
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

    /// Requests in flight complete on the old thread.
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

/// A guest's interface to its virtual disk.
pub(super) struct GuestDisk {
    pub vdisk: Rc<Vdisk>,
    pub storage: Weak<Storage>,
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
            let ring = DeviceRing::new(&self.vdisk.machine.memory, ring, Rc::clone(&self.vdisk.malformed))
                .ok_or(Error::Invalid)?;
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
        let kernel = self.vdisk.machine.guest().ok_or(Error::NoDevice)?;
        let CpuId(core) = cpu.id();
        let vector = kernel.add_interrupt(cpu.id(), "virtio-blk", handler)?;
        self.vdisk.vector.set(Some((core.into(), vector)));
        Ok(())
    }
}
