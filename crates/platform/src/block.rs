//! Block devices: the interface between block layer and drivers.

use std::rc::Rc;

use units::Duration;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::PhysAddr;
use crate::tags::TagSet;

/// Bytes of a sector, the unit of positions on a block device, whatever its logical block size.
pub const SECTOR: u64 = 512;

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BlockOp {
    /// Reads from the device.
    Read,
    /// Writes to the device; with `fua`, durable on completion.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Makes all writes completed before it durable.
    Flush,
    /// Discards the contents (trim).
    Discard,
    /// Fills with zeros.
    WriteZeroes,
}

/// A contiguous piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Start address.
    pub at: PhysAddr,
    /// Bytes.
    pub length: u32,
}

/// Called when a request ends, on the core and in the context of its completion.
pub type BlockDone = Box<dyn FnOnce(&Cpu, Result<(), Error>)>;

/// A request to a block device.
pub struct BlockRequest {
    /// Operation.
    pub op: BlockOp,
    /// Position, in sectors of [`SECTOR`] bytes.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u32,
    /// Memory of the data, in order.
    pub segments: Vec<Segment>,
    /// Tag from its [`TagSet`], unique among requests in flight.
    pub tag: u16,
    /// Completion callback, called once.
    pub done: BlockDone,
}

impl BlockRequest {
    /// Completes the request. The driver calls this once.
    pub fn end(self, cpu: &Cpu, result: Result<(), Error>) {
        (self.done)(cpu, result);
    }
}

/// Capabilities and limits of a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockLimits {
    /// Preferred name; the kernel chooses another if it is in use.
    pub name: String,
    /// Name below `/dev/disk/by-id`, which does not depend on when the device was found; `None` without a serial number.
    pub id: Option<String>,
    /// Size in sectors.
    pub sectors: u64,
    /// Bytes of a logical block, the unit of reads and writes.
    pub block_bytes: u32,
    /// Most bytes per request.
    pub max_bytes: u32,
    /// Most segments per request.
    pub max_segments: u16,
    /// Only the first segment may start, and only the last may end, off a multiple of this plus one.
    pub boundary_mask: u64,
    /// Whether it has a volatile write cache, which needs flushes.
    pub write_cache: bool,
    /// Whether it supports discard.
    pub discard: bool,
    /// Whether it supports filling with zeros.
    pub write_zeroes: bool,
    /// Time after which [`timed_out`](BlockDriver::timed_out) is called for a request.
    pub timeout: Duration,
}

/// A block device of a driver.
pub trait BlockDriver {
    /// Capabilities and limits.
    fn limits(&self) -> BlockLimits;

    /// Tags of its hardware queues, shared by all devices of a controller.
    fn tags(&self) -> Rc<TagSet>;

    /// PCI function of the device.
    fn function(&self) -> Option<wire::pcie::FunctionAddress> {
        None
    }

    /// The hardware queue of a core.
    fn queue_for(&self, cpu: crate::cpu::CpuId) -> u16;

    /// Queues a request. The device need not see it before [`commit`](Self::commit).
    ///
    /// # Errors
    /// Returns the request if the queue is full. Other failures [end](BlockRequest::end) it.
    fn submit(&self, cpu: &Cpu, queue: u16, request: BlockRequest) -> Result<(), BlockRequest>;

    /// Rings the doorbell.
    fn commit(&self, cpu: &Cpu, queue: u16);

    /// Polls for completions. Returns how many there were.
    fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        let _ = (cpu, queue);
        0
    }

    /// Sends an admin command in the controller's own protocol and returns `length` bytes of its answer (Linux:
    /// `NVME_IOCTL_ADMIN_CMD`).
    ///
    /// # Errors
    /// [`Error::NotSupported`] if there is no such protocol, or an error for the command's status.
    fn admin<'a>(
        &'a self,
        cpu: &'a Cpu,
        command: wire::nvme::Command,
        length: u64,
    ) -> Async<'a, Result<Vec<u8>, Error>> {
        let _ = (cpu, command, length);
        Box::pin(async { Err(Error::NotSupported) })
    }

    /// A request has timed out: ends it, by abort or reset.
    fn timed_out(self: Rc<Self>, cpu: &Cpu, queue: u16, tag: u16);
}
