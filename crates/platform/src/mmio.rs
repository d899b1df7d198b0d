//! A device's registers, mapped.

use std::rc::Rc;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::PhysAddr;

/// How a mapping is cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemoryType {
    /// UC: every access is a TLP of its own, in order.
    #[default]
    Uncached,
    /// WC: stores are collected into lines and leave in any order; a fence flushes.
    WriteCombining,
    /// WT: reads may come from a cache, stores go through.
    WriteThrough,
    /// WB: for memory.
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
    /// Writes, posted: it is under way when this returns.
    fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]);
    /// Flushes what write combining has collected.
    fn fence(&self, cpu: &Cpu);
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

    /// Writes bytes, posted. Uncached, in TLPs of at most 8 bytes; write-combining, of up to 64.
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

    /// Flushes what write combining has collected.
    pub fn fence(&self, cpu: &Cpu) {
        self.0.fence(cpu);
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
