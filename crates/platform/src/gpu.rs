//! GPUs as programs use them: a file of the driver, and channels filled by the program itself.
//!
//! The kernel provides memory, windows and channels. Work goes into a channel's ring and is announced by its
//! doorbell, without the kernel; [`wire::gpu`] has the formats.

use std::rc::Rc;

use wire::gpu::{Fault, Place};

use crate::cpu::Cpu;
use crate::error::Error;
use crate::memory::PhysAddr;
use crate::mmio::Mmio;

/// Properties of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuInfo {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that cores and peers can access.
    pub aperture: u64,
    /// Number of parallel copies.
    pub copy_engines: u8,
}

/// GPU memory allocated by a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuMemory {
    /// Location for the context's channels.
    pub place: Place,
    /// Its size in bytes.
    pub bytes: u64,
    /// Address for cores and peers, if within the aperture.
    pub shown: Option<PhysAddr>,
}

/// A program's channel.
#[derive(Clone)]
pub struct GpuChannel {
    /// Number of the channel on its GPU, which its doorbell follows from.
    pub number: u16,
    /// Its ring of [`wire::gpu::Entry`]s.
    pub ring: PhysAddr,
    /// Entries of the ring, a power of two.
    pub entries: u32,
    /// Buffer for the commands of each entry, one after the other.
    pub commands: PhysAddr,
    /// The same buffer for the GPU.
    pub commands_at: Place,
    /// Commands that fit in each entry's buffer.
    pub entry_commands: u32,
    /// Memory of a semaphore.
    pub semaphore: PhysAddr,
    /// The same semaphore for the GPU.
    pub semaphore_at: Place,
    /// Doorbell: takes the number of entries written so far (32 bits).
    pub doorbell: Mmio,
}

/// A GPU offered by a driver.
pub trait GpuFile {
    /// Properties.
    fn info(&self) -> GpuInfo;

    /// Opens a context, whose resources other contexts cannot access.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many, [`Error::NoDevice`] if it is gone.
    fn open(&self, cpu: &Cpu) -> Result<Rc<dyn GpuContext>, Error>;
}

/// A context of a GPU. Dropping it does not close it.
pub trait GpuContext {
    /// Properties of the GPU.
    fn info(&self) -> GpuInfo;

    /// Allocates memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is no such contiguous range, [`Error::NoSpace`] if no window is free.
    fn take(&self, cpu: &Cpu, bytes: u64) -> Result<GpuMemory, Error>;

    /// Frees memory; no running work may use it.
    fn give(&self, cpu: &Cpu, memory: GpuMemory);

    /// Maps host memory into the context.
    ///
    /// # Errors
    /// As [`DmaOps::map`](crate::dma::DmaOps::map); [`Error::NoSpace`] if no window is free.
    fn map_host(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error>;

    /// Maps another GPU's memory, at the address where it is [visible](GpuMemory::shown).
    ///
    /// # Errors
    /// As [`DmaOps::map_resource`](crate::dma::DmaOps::map_resource); [`Error::NoSpace`] if no window is free.
    fn map_peer(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error>;

    /// Undoes [`map_host`](Self::map_host) or [`map_peer`](Self::map_peer).
    fn unmap(&self, cpu: &Cpu, place: Place);

    /// Opens a channel to an engine: 0 computes, the others copy.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many, [`Error::Invalid`] if there is no such engine, [`Error::NoMemory`].
    fn channel(&self, cpu: &Cpu, engine: u8) -> Result<GpuChannel, Error>;

    /// Why a channel has stopped, if it has.
    fn fault(&self, cpu: &Cpu, channel: u16) -> Option<Fault>;

    /// Whether the GPU is present.
    fn is_present(&self) -> bool;

    /// Frees all resources.
    fn close(&self, cpu: &Cpu);
}
