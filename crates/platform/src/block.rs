//! Block devices: what a driver offers and what it is asked.

use std::rc::Rc;

use units::Duration;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::PhysAddr;
use crate::tags::TagSet;

/// Bytes of a sector, the unit of places on a block device whatever its logical block.
pub const SECTOR: u64 = 512;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockOp {
    /// Device to memory.
    Read,
    /// Memory to device. With `fua` it is durable when it completes.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// What completed before is durable when this completes.
    Flush,
    /// The content is not needed any more.
    Discard,
    /// Fill with zeros.
    WriteZeroes,
}

/// A piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it begins.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u32,
}

/// What happens when a request ends: on the core, and in the context, that it ended in.
pub type BlockDone = Box<dyn FnOnce(&Cpu, Result<(), Error>)>;

/// A request to a block device.
pub struct BlockRequest {
    /// What to do.
    pub op: BlockOp,
    /// Where, in units of [`SECTOR`].
    pub sector: u64,
    /// How many sectors.
    pub sectors: u32,
    /// The data's memory, in order.
    pub segments: Vec<Segment>,
    /// The driver's number for it between submission and completion, from its [`TagSet`].
    pub tag: u16,
    /// Called once.
    pub done: BlockDone,
}

impl BlockRequest {
    /// Tells whoever asked; to be called once, by the driver.
    pub fn end(self, cpu: &Cpu, result: Result<(), Error>) {
        (self.done)(cpu, result);
    }
}

/// What a block device can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// The name that it wants; it gets another if that is taken.
    pub name: String,
    /// Sectors that it has.
    pub sectors: u64,
    /// Bytes of a logical block: the smallest that can be read or written.
    pub block_bytes: u32,
    /// Most bytes in a request.
    pub max_bytes: u32,
    /// Most segments in a request.
    pub max_segments: u16,
    /// No segment but the first begins, and none but the last ends, off a multiple of this plus one.
    pub boundary_mask: u64,
    /// It has a volatile write cache, so that flushes are needed.
    pub write_cache: bool,
    /// It understands discards.
    pub discard: bool,
    /// It can fill with zeros.
    pub write_zeroes: bool,
    /// How long a request may take before [`timed_out`](BlockDriver::timed_out) is called.
    pub timeout: Duration,
}

/// A driver's block device.
pub trait BlockDriver {
    /// What it can do.
    fn limits(&self) -> BlockLimits;

    /// The tags of its hardware queues: the same set for all devices of a controller.
    fn tags(&self) -> Rc<TagSet>;

    /// The PCI function behind it.
    fn function(&self) -> Option<wire::pcie::FunctionAddress> {
        None
    }

    /// The hardware queue for a core.
    fn queue_for(&self, cpu: crate::cpu::CpuId) -> u16;

    /// Takes a request on. Nothing need reach the device before [`commit`](Self::commit).
    ///
    /// # Errors
    /// Gives the request back if the queue is full; [`requests`](BlockRequest::end) that fail are ended.
    fn submit(&self, cpu: &Cpu, queue: u16, request: BlockRequest) -> Result<(), BlockRequest>;

    /// Rings the doorbell.
    fn commit(&self, cpu: &Cpu, queue: u16);

    /// Looks for completions without an interrupt; says how many there were.
    fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        let _ = (cpu, queue);
        0
    }

    /// Gives the controller an administrative command of its own protocol and reads the `length` bytes that it answers (Linux:
    /// `NVME_IOCTL_ADMIN_CMD`).
    ///
    /// # Errors
    /// [`Error::NotSupported`] where there is no such protocol, and what the command's status means.
    fn admin<'a>(
        &'a self,
        cpu: &'a Cpu,
        command: wire::nvme::Command,
        length: u64,
    ) -> Async<'a, Result<Vec<u8>, Error>> {
        let _ = (cpu, command, length);
        Box::pin(async { Err(Error::NotSupported) })
    }

    /// Somebody has waited too long for a request: gets it ended, by aborts or resets.
    fn timed_out(self: Rc<Self>, cpu: &Cpu, queue: u16, tag: u16);
}
