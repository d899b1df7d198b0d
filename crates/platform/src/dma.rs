//! Memory that a device may reach.

use units::Iova;

use crate::cpu::{Cpu, Node};
use crate::error::Error;
use crate::memory::PhysAddr;

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// The device reads.
    ToDevice,
    /// The device writes.
    FromDevice,
    /// Both.
    Bidirectional,
}

/// Memory that the core and the device share all the time: rings, status blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coherent {
    /// Where the core finds it.
    pub cpu: PhysAddr,
    /// Where the device finds it.
    pub bus: Iova,
    /// Bytes.
    pub length: u64,
}

/// Counts of a device's DMA API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaCounters {
    /// Streaming mappings made.
    pub maps: u64,
    /// Streaming mappings ended.
    pub unmaps: u64,
    /// Coherent allocations made.
    pub allocations: u64,
    /// Coherent allocations given back.
    pub frees: u64,
    /// Mappings and unmappings that were refused.
    pub errors: u64,
}

impl DmaCounters {
    /// Mappings and allocations that have not been ended.
    pub const fn live(&self) -> u64 {
        self.maps + self.allocations - self.unmaps - self.frees
    }
}

/// The DMA API of one function.
pub trait DmaOps {
    /// The device reaches addresses of so many bits, 32 until said otherwise.
    ///
    /// # Errors
    /// If the kernel cannot give it such addresses.
    fn set_mask(&self, bits: u8) -> Result<(), Error>;

    /// Memory for core and device, zeroed, on `node` or else the device's node.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn alloc_coherent(&self, cpu: &Cpu, length: u64, node: Option<Node>) -> Result<Coherent, Error>;

    /// Gives coherent memory back.
    fn free_coherent(&self, cpu: &Cpu, memory: Coherent);

    /// Lets the device reach `length` bytes of memory until [unmapped](Self::unmap).
    ///
    /// # Errors
    /// If there is no address, or the memory is none.
    fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error>;

    /// Ends a mapping. When it returns, the device cannot reach the memory any more (strict), or soon (lazy).
    fn unmap(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction);

    /// The core is going to look at what the device wrote into a mapping that goes on.
    fn sync_for_cpu(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let _ = (cpu, at, length, direction);
    }

    /// The device is going to look at what the core wrote into a mapping that goes on.
    fn sync_for_device(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let _ = (cpu, at, length, direction);
    }

    /// Lets the device reach another device's BAR until [unmapped](Self::unmap_resource).
    ///
    /// # Errors
    /// If there is no address, or no way between the two.
    fn map_resource(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction)
    -> Result<Iova, Error>;

    /// Ends a mapping of a BAR.
    fn unmap_resource(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction);

    /// What was mapped and unmapped so far.
    fn counters(&self) -> DmaCounters;
}
