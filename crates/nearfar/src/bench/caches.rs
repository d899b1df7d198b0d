//! Prepares the cache state that a test asks for.
//!
//! Follows pcie-bench's helper and firmware (section 4.2 of the paper). The helper runs on a chosen socket, thrashes
//! that socket's cache before every test, and warms the window by writing it. The firmware can warm or thrash by
//! writing through its command interface. What earlier tests left in the cache of another socket is modelled in
//! [`super::lingering`].
//!
//! Most of the preparation is the same for many runs of a machine; [`Beginning`] identifies these. It is done once
//! for them ([`caches`]), and each run adds what its own test writes.

use std::hash::{DefaultHasher, Hash, Hasher};

use devices::dma_engine::Addresses;
use engine::Seed;
use hardware::memory::{Agent, CacheState, CoreId, LINE, MemorySystem, NodeId};
use results::pciebench::{Cache, Run};
use units::HostPhysical;
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};

use super::buffer::Buffer;
use super::{Bench, BenchError, Writes, lingering};
use crate::topology::memory_params;
use machine::IommuMode;

/// Identifies the initial cache state on a machine. Runs with equal values find the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beginning {
    cache: Cache,
    /// Window (bytes), if it was warmed.
    window: u64,
    /// Hash of the lines left by earlier runs, which are too many to keep for every run.
    lingering: u64,
}

/// Parameters of the preparation on a machine.
pub(super) struct Preparation {
    pub buffer: Buffer,
    /// A core of the helper's socket.
    pub helper: CoreId,
    /// The socket of the card.
    pub device: NodeId,
    /// Bytes of the last-level cache available to device writes.
    pub device_ways: u64,
    /// Largest cache (bytes): data written before the last so many bytes has been evicted.
    pub llc: u64,
    /// Address bits of the command interface that reach the bus, if they affect the buffer's addresses.
    pub command_reach: u64,
    /// Seed for writes in random order.
    pub seed: Seed,
}

/// Device writes that reach a steady state, in multiples of the lines that their ways hold.
const SETTLING_TIMES: u64 = 4;

impl Beginning {
    /// Identifies the initial cache state of `run`.
    ///
    /// # Errors
    /// If the run is invalid on this machine.
    pub fn new(bench: &Bench, before: &[Run], run: &Run) -> Result<Self, BenchError> {
        let window =
            if matches!(run.cache, Cache::HostWarm | Cache::DeviceWarm) { run.window.get() } else { 0 };
        let mut lingering = DefaultHasher::new();
        if bench.remembers() {
            lingering::lines(&Preparation::new(bench)?, before).hash(&mut lingering);
        }
        Ok(Self { cache: run.cache, window, lingering: lingering.finish() })
    }
}

/// The cache state before `run`, after the runs `before`, without what its own test writes.
///
/// # Errors
/// If the run is invalid on this machine.
pub fn caches(bench: &Bench, before: &[Run], run: &Run) -> Result<CacheState, BenchError> {
    let preparation = Preparation::new(bench)?;
    let seed = preparation.seed.component("replacement").u64();
    let mut memory = MemorySystem::new(&memory_params(&bench.machine.host, seed));
    let before = if bench.remembers() { before } else { &[] };
    preparation.begin(&mut memory, before, run);
    Ok(memory.into_cache_state())
}

impl Preparation {
    /// For this machine.
    pub(super) fn new(bench: &Bench) -> Result<Self, BenchError> {
        bench.check_sockets()?;
        let host = &bench.machine.host;
        let cores = host.core.count.value.get();
        let llc = &host.llc;
        let bits = bench.card.dma_engine.command.as_ref().map_or(64, |c| c.address_bits.value.get());
        let reach = u64::MAX >> (64 - bits.clamp(1, 64));
        Ok(Self {
            buffer: bench.free_buffer()?,
            helper: CoreId((bench.sockets.warming * cores) as u16),
            device: NodeId(bench.sockets.device as u8),
            device_ways: llc.size.value.get() / u64::from(llc.ways.value.get())
                * u64::from(llc.ddio_ways.value),
            llc: llc.size.value.get(),
            // IOVAs are below 4 GiB, whatever they map to.
            command_reach: if bench.iommu == IommuMode::Off { reach } else { u64::MAX },
            seed: Seed::new(bench.seed).part("caches"),
        })
    }

    /// Brings empty caches into the state before `run`, after the runs `before`.
    fn begin(&self, memory: &mut MemorySystem, before: &[Run], run: &Run) {
        let window = run.window.get();
        for line in lingering::lines(self, before) {
            memory.touch(Agent::Device(self.device), line, true);
        }
        match run.cache {
            // A thrashed cache holds nothing of the buffer, so it is equivalent to an empty one.
            Cache::Cold => {}
            Cache::HostWarm => {
                // Of a window larger than the cache, only the end can stay in it.
                let from = window.saturating_sub(self.llc + self.llc / 8);
                for offset in (from..window).step_by(LINE as usize) {
                    memory.touch(Agent::Core(self.helper), self.buffer.at(offset), true);
                }
            }
            Cache::DeviceWarm => {
                // Two passes: the second one finds what the first has left.
                for _ in 0..2 {
                    for offset in (0..window).step_by(LINE as usize) {
                        memory.touch(Agent::Device(self.device), self.command_target(offset), true);
                    }
                }
            }
            Cache::DeviceThrash => {
                let seed = self.seed.component("thrashing").u64();
                let mut anywhere = Addresses::new(CHUNK_BYTES * CHUNKS as u64, LINE, 0, Some(seed));
                for _ in 0..self.settling_lines() {
                    let target = self.command_target(anywhere.next_offset());
                    memory.touch(Agent::Device(self.device), target, true);
                }
            }
        }
    }

    /// Continues from the state of [`caches`] to the steady state of `run`, which includes what its own
    /// accesses leave, and the walked page tables of `buffer`.
    pub(super) fn settle(&self, memory: &mut MemorySystem, buffer: &Buffer, run: &Run, seed: u64) {
        if run.test.writes() || memory.keeps_device_reads(self.device) {
            self.fill(memory, run, seed);
        }
        for line in buffer.tables.clone().step_by(LINE as usize) {
            memory.touch(Agent::Walker(self.device), HostPhysical::new(line), false);
        }
    }

    /// Address that a write through the command interface reaches.
    pub(super) fn command_target(&self, offset: u64) -> HostPhysical {
        HostPhysical::new(self.buffer.at(offset).get() & self.command_reach)
    }

    /// Number of lines that bring the ways for device writes into a steady state.
    pub(super) fn settling_lines(&self) -> u64 {
        SETTLING_TIMES * self.device_ways / LINE
    }

    /// Runs an allocating test without timing until the cache holds as many of its lines as it will.
    fn fill(&self, memory: &mut MemorySystem, run: &Run, seed: u64) {
        let (transfer, window) = (run.transfer.get(), run.window.get());
        let writes =
            self.settling_lines().min(SETTLING_TIMES * window / LINE).div_ceil(transfer.div_ceil(LINE));
        let mut addresses = Addresses::new(window, transfer, run.host_offset, Some(seed ^ 1));
        for _ in 0..writes {
            let offset = addresses.next_offset();
            let (first, last) = (offset / LINE, (offset + transfer - 1) / LINE);
            for line in first..=last {
                let target = if run.test.is_command() {
                    self.command_target(line * LINE)
                } else {
                    self.buffer.at(line * LINE)
                };
                memory.touch(Agent::Device(self.device), target, run.test.writes());
            }
        }
    }
}
