//! GPUs as programs use them: by files that their driver offers, and by channels that a program fills itself.
//!
//! The kernel is asked for memory, windows and channels. Work is put into a channel's ring, whose doorbell the program has been
//! given, without it: [`wire::gpu`] says how.

use std::rc::Rc;

use wire::gpu::{Fault, Place};

use crate::cpu::Cpu;
use crate::error::Error;
use crate::memory::PhysAddr;
use crate::mmio::Mmio;

/// What a GPU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuInfo {
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of it that peers and cores can reach.
    pub aperture: u64,
    /// Copies that may be under way at once.
    pub copy_engines: u8,
}

/// Memory of a GPU that a context has been given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GpuMemory {
    /// Where the context's channels find it.
    pub place: Place,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where cores and peers find it, as far as the aperture shows it.
    pub shown: Option<PhysAddr>,
}

/// A channel as a program has it.
#[derive(Clone)]
pub struct GpuChannel {
    /// Its number.
    pub number: u16,
    /// Its ring of [`wire::gpu::Entry`]s.
    pub ring: PhysAddr,
    /// Entries of the ring, a power of two.
    pub entries: u32,
    /// Room for the commands of each entry, one after the other.
    pub commands: PhysAddr,
    /// The same as the GPU finds it.
    pub commands_at: Place,
    /// Commands that there is room for in each entry.
    pub entry_commands: u32,
    /// Room for a semaphore.
    pub semaphore: PhysAddr,
    /// The same as the GPU finds it.
    pub semaphore_at: Place,
    /// Its doorbell: the number of entries that have been put so far, 32 bits.
    pub doorbell: Mmio,
}

/// A GPU that a kernel's driver offers.
pub trait GpuFile {
    /// What it has.
    fn info(&self) -> GpuInfo;

    /// Opens a context: what is given to one, no other reaches.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many, [`Error::NoDevice`] if it has gone.
    fn open(&self, cpu: &Cpu) -> Result<Rc<dyn GpuContext>, Error>;
}

/// A context of a GPU. Dropping it does not close it.
pub trait GpuContext {
    /// What the GPU has.
    fn info(&self) -> GpuInfo;

    /// Takes memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there is not so much in one piece, [`Error::NoSpace`] if there is no window left.
    fn take(&self, cpu: &Cpu, bytes: u64) -> Result<GpuMemory, Error>;

    /// Gives memory back, that only what has ended used.
    fn give(&self, cpu: &Cpu, memory: GpuMemory);

    /// Lets the context reach host memory.
    ///
    /// # Errors
    /// As [`DmaOps::map`](crate::dma::DmaOps::map); [`Error::NoSpace`] if there is no window left.
    fn map_host(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error>;

    /// Lets the context reach another GPU's memory, by where that is [shown](GpuMemory::shown).
    ///
    /// # Errors
    /// As [`DmaOps::map_resource`](crate::dma::DmaOps::map_resource); [`Error::NoSpace`] if there is no window left.
    fn map_peer(&self, cpu: &Cpu, at: PhysAddr, bytes: u64) -> Result<Place, Error>;

    /// Ends what [`map_host`](Self::map_host) or [`map_peer`](Self::map_peer) began.
    fn unmap(&self, cpu: &Cpu, place: Place);

    /// Opens a channel to an engine: 0 computes, others copy.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too many, [`Error::Invalid`] if there is no such engine; no memory.
    fn channel(&self, cpu: &Cpu, engine: u8) -> Result<GpuChannel, Error>;

    /// Why a channel has stopped, if it has.
    fn fault(&self, cpu: &Cpu, channel: u16) -> Option<Fault>;

    /// Whether the GPU has not been removed.
    fn is_present(&self) -> bool;

    /// Gives everything back.
    fn close(&self, cpu: &Cpu);
}
