//! A device's registers, mapped.

use std::rc::Rc;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::PhysAddr;

/// How a mapping is cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemoryType {
    /// UC: every access is a TLP of its own of at most 8 bytes, in order. One flushes what write combining holds.
    #[default]
    Uncached,
    /// WC: stores are collected in the core's buffers, a line in each. A full line leaves at once as one TLP, a part
    /// of one when a barrier, an uncached access or another line's need of the buffer drives it out, in as many
    /// TLPs as its bytes need. Lines leave in any order. Reads are uncached.
    WriteCombining,
    /// WT: reads may come from a cache, stores go through and combine as with WC.
    WriteThrough,
    /// WB: reads and writes may stay in a cache until the line is flushed; for memory.
    WriteBack,
}

/// A mapping as a kernel implements it for [`Mmio`].
pub trait MmioOps {
    /// Its length in bytes.
    fn length(&self) -> u64;
    /// Where it is, for [`DmaOps::map_resource`](crate::dma::DmaOps::map_resource) by a peer.
    fn address(&self) -> PhysAddr;
    /// Reads; the core waits for the answer. All ones if nothing answers.
    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;
    /// Reads with streaming loads of whole lines; the core waits for the last.
    fn read_stream<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;
    /// Writes, posted, with stores of at most 8 bytes.
    fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]);
    /// Writes, posted, with non-temporal stores of 16 bytes.
    fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]);
    /// Writes an aligned line, posted, as one TLP.
    fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; 64]);
}

/// A driver's mapping of (part of) a BAR.
#[derive(Clone)]
pub struct Mmio(Rc<dyn MmioOps>);

impl Mmio {
    /// For kernels.
    pub fn new(ops: Rc<dyn MmioOps>) -> Self {
        Self(ops)
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.0.length()
    }

    /// Where it is.
    pub fn address(&self) -> PhysAddr {
        self.0.address()
    }

    /// Reads bytes; the core waits.
    pub async fn read(&self, cpu: &Cpu, offset: u64, into: &mut [u8]) {
        self.0.read(cpu, offset, into).await;
    }

    /// Reads bytes with streaming loads (`movntdqa`); the core waits for the last. From a write-combining mapping they
    /// fetch a line of 64 bytes each, as many at once as the core has fill buffers; from others they are plain loads.
    pub async fn read_stream(&self, cpu: &Cpu, offset: u64, into: &mut [u8]) {
        self.0.read_stream(cpu, offset, into).await;
    }

    /// Reads a 32-bit register.
    pub async fn read_u32(&self, cpu: &Cpu, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(cpu, offset, &mut bytes).await;
        u32::from_le_bytes(bytes)
    }

    /// Reads a 64-bit register.
    pub async fn read_u64(&self, cpu: &Cpu, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(cpu, offset, &mut bytes).await;
        u64::from_le_bytes(bytes)
    }

    /// Writes bytes, posted, as a loop of 8-byte stores does. What becomes of them is up to the mapping's
    /// [`MemoryType`].
    pub fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.0.write(cpu, offset, from);
    }

    /// Writes a 32-bit register, posted.
    pub fn write_u32(&self, cpu: &Cpu, offset: u64, value: u32) {
        self.write(cpu, offset, &value.to_le_bytes());
    }

    /// Writes a 64-bit register, posted.
    pub fn write_u64(&self, cpu: &Cpu, offset: u64, value: u64) {
        self.write(cpu, offset, &value.to_le_bytes());
    }

    /// Writes bytes, posted, with non-temporal stores of 16 bytes (`movntdq`). To a write-combining mapping they
    /// fill a buffer in fewer cycles; to an uncached one they are plain stores.
    pub fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.0.stream(cpu, offset, from);
    }

    /// Writes a line, posted, as exactly one TLP (`movdir64b`). `offset` is a multiple of 64. Not ordered with
    /// other stores without a barrier.
    pub fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; 64]) {
        self.0.write_direct(cpu, offset, line);
    }

    /// Reads a 32-bit register until `done`; [`Error::NoDevice`] when it reads all ones.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `limit`.
    pub async fn poll_u32(
        &self,
        cpu: &Cpu,
        offset: u64,
        interval: units::Duration,
        limit: units::Duration,
        mut done: impl FnMut(u32) -> bool,
    ) -> Result<u32, Error> {
        let deadline = cpu.now() + limit;
        loop {
            let value = self.read_u32(cpu, offset).await;
            if value == u32::MAX {
                return Err(Error::NoDevice);
            }
            if done(value) {
                return Ok(value);
            }
            if cpu.now() >= deadline {
                return Err(Error::TimedOut);
            }
            cpu.sleep(interval).await;
        }
    }
}
