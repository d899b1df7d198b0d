//! Memory-mapped registers of a device.

use std::rc::Rc;

use wire::LINE;

use crate::cpu::{Async, Cpu};
use crate::error::Error;
use crate::memory::PhysAddr;

/// Memory type of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemoryType {
    /// UC: each access is a TLP of at most 8 bytes, in order. Drains the write-combining buffers.
    #[default]
    Uncached,
    /// WC: stores are collected in line buffers of the core. A full line leaves at once as one TLP. A partial line
    /// leaves when a barrier, an uncached access or another line's need for a buffer drives it out, in as many TLPs
    /// as its bytes need. Lines leave in any order. Reads are uncached.
    WriteCombining,
    /// WT: reads may hit in a cache; stores go through and combine as with WC.
    WriteThrough,
    /// WB: reads and writes may stay in a cache until the line is flushed. For memory.
    WriteBack,
}

/// An operation of a core on device memory, as hardware sees it. Addresses are host-physical; bytes lie within one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store<'a> {
    /// An uncached store of at most 8 bytes.
    Uncached(u64, &'a [u8]),
    /// Write-combining stores of `width` bytes each.
    Combining {
        /// Address of the first byte.
        address: u64,
        /// Data of the whole access.
        bytes: &'a [u8],
        /// Bytes of one store instruction.
        width: u8,
    },
    /// A direct store of a whole line, which leaves as one TLP.
    Direct(u64, &'a [u8; LINE]),
    /// Evicts the line that contains an address.
    Flush(u64),
    /// Evicts all lines; later stores wait until they are accepted.
    Barrier,
}

/// Implemented by kernels for [`Mmio`].
pub trait MmioOps {
    /// Its length in bytes.
    fn length(&self) -> u64;
    /// Its address, for [`DmaOps::map_resource`](crate::dma::DmaOps::map_resource) of a peer.
    fn address(&self) -> PhysAddr;
    /// Reads while the core waits. All ones if nothing answers.
    fn read<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;
    /// Reads whole lines with streaming loads; the core waits for the last one.
    fn read_stream<'a>(&'a self, cpu: &'a Cpu, offset: u64, into: &'a mut [u8]) -> Async<'a, ()>;
    /// Posted write with stores of at most 8 bytes.
    fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]);
    /// Posted write with non-temporal stores of 16 bytes.
    fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]);
    /// Posted write of an aligned line as one TLP.
    fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; LINE]);
}

/// A driver's mapping of a BAR or a part of it.
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

    /// Start address, for [`DmaOps::map_resource`](crate::dma::DmaOps::map_resource) of a peer.
    pub fn address(&self) -> PhysAddr {
        self.0.address()
    }

    /// Reads bytes while the core waits.
    pub async fn read(&self, cpu: &Cpu, offset: u64, into: &mut [u8]) {
        self.0.read(cpu, offset, into).await;
    }

    /// Reads bytes with streaming loads (`movntdqa`); the core waits for the last one. On write-combining mappings,
    /// each load fetches a line of 64 bytes, as many in parallel as the core has fill buffers. On others these are
    /// ordinary loads.
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

    /// Posted write by 8-byte stores. The mapping's [`MemoryType`] determines the TLPs.
    pub fn write(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.0.write(cpu, offset, from);
    }

    /// Posted write of a 32-bit register.
    pub fn write_u32(&self, cpu: &Cpu, offset: u64, value: u32) {
        self.write(cpu, offset, &value.to_le_bytes());
    }

    /// Posted write of a 64-bit register.
    pub fn write_u64(&self, cpu: &Cpu, offset: u64, value: u64) {
        self.write(cpu, offset, &value.to_le_bytes());
    }

    /// Posted write by non-temporal stores of 16 bytes (`movntdq`). On write-combining mappings they fill a buffer in
    /// fewer cycles; on uncached ones they are ordinary stores.
    pub fn stream(&self, cpu: &Cpu, offset: u64, from: &[u8]) {
        self.0.stream(cpu, offset, from);
    }

    /// Posted write of a line as exactly one TLP (`movdir64b`). `offset` must be a multiple of 64. Not ordered with
    /// other stores without a barrier.
    pub fn write_direct(&self, cpu: &Cpu, offset: u64, line: &[u8; LINE]) {
        self.0.write_direct(cpu, offset, line);
    }

    /// Reads a 32-bit register until `done` returns true; [`Error::NoDevice`] if it reads all ones.
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
