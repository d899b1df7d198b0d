//! The DMA API.

use units::Iova;

use crate::cpu::{Cpu, Node};
use crate::error::Error;
use crate::memory::PhysAddr;

/// Direction of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// The device reads memory.
    ToDevice,
    /// The device writes memory.
    FromDevice,
    /// Both.
    Bidirectional,
}

/// Memory shared permanently by core and device: rings, status blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coherent {
    /// Address for the core.
    pub cpu: PhysAddr,
    /// Address for the device.
    pub bus: Iova,
    /// Bytes.
    pub length: u64,
}

/// Counters of a function's DMA API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaCounters {
    /// Streaming mappings made.
    pub maps: u64,
    /// Streaming mappings removed.
    pub unmaps: u64,
    /// Coherent allocations.
    pub allocations: u64,
    /// Coherent allocations freed.
    pub frees: u64,
    /// Rejected mappings and unmappings.
    pub errors: u64,
}

impl DmaCounters {
    /// Mappings and allocations still in use.
    pub const fn live(&self) -> u64 {
        self.maps + self.allocations - self.unmaps - self.frees
    }
}

/// The DMA API of one function.
pub trait DmaOps {
    /// Sets the number of address bits that the device supports; 32 by default.
    ///
    /// # Errors
    /// If the kernel cannot provide such addresses.
    fn set_mask(&self, bits: u8) -> Result<(), Error>;

    /// Allocates zeroed memory for core and device, by default on the device's node.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    fn alloc_coherent(&self, cpu: &Cpu, length: u64, node: Option<Node>) -> Result<Coherent, Error>;

    /// Frees coherent memory.
    fn free_coherent(&self, cpu: &Cpu, memory: Coherent);

    /// Maps `length` bytes of memory for the device until [unmapped](Self::unmap).
    ///
    /// # Errors
    /// If no address is free, or the range is not memory.
    fn map(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction) -> Result<Iova, Error>;

    /// Unmaps memory. The device loses access at once (strict) or soon after (lazy).
    fn unmap(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction);

    /// The core is about to read what the device wrote to a mapping that stays.
    fn sync_for_cpu(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let _ = (cpu, at, length, direction);
    }

    /// The device is about to read what the core wrote to a mapping that stays.
    fn sync_for_device(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction) {
        let _ = (cpu, at, length, direction);
    }

    /// Maps another device's BAR until [unmapped](Self::unmap_resource).
    ///
    /// # Errors
    /// If no address is free, or the devices have no path to each other.
    fn map_resource(&self, cpu: &Cpu, at: PhysAddr, length: u64, direction: Direction)
    -> Result<Iova, Error>;

    /// Unmaps a BAR.
    fn unmap_resource(&self, cpu: &Cpu, at: Iova, length: u64, direction: Direction);

    /// What drivers have mapped and allocated for the function so far.
    fn counters(&self) -> DmaCounters;
}
