//! Bringing the caches into the state that a test asks for.
//!
//! As pcie-bench's helper and firmware do it (section 4.2 of the paper): the
//! helper runs on a socket of its own choosing, thrashes that socket's cache
//! before every test, and warms the window by writing it; the firmware can warm
//! or thrash by writing through its command interface. What earlier tests left
//! in the cache of a socket that is not thrashed, [`super::lingering`] tells.
//!
//! Most of it is the same for many runs of a machine: [`Beginning`] tells for
//! which. It is done once for them ([`Bench::caches`]), and each run goes on
//! from there with what its own test writes.

use std::hash::{DefaultHasher, Hash, Hasher};

use devices::dma_engine::Addresses;
use engine::Seed;
use hardware::memory::{Agent, CacheState, CoreId, LINE, MemorySystem, NodeId};
use results::pciebench::{Cache, Run};
use units::HostPhysical;
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};

use super::buffer::Buffer;
use super::{Bench, BenchError, Writes};
use crate::topology::memory_params;
use machine::IommuMode;

/// What the state in which a run finds the caches depends on, for one machine: runs with the same find the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beginning {
    cache: Cache,
    /// The window in bytes, if it is what was warmed.
    window: u64,
    /// A hash of the lines that earlier runs left: they are too many to be kept for every run.
    lingering: u64,
}

/// How the caches of a machine get into their state.
pub(super) struct Preparation {
    /// Where the buffer's chunks lie.
    pub buffer: Buffer,
    /// A core of the socket on which the helper runs.
    pub helper: CoreId,
    /// The socket of the card.
    pub device: NodeId,
    /// Bytes of the last-level cache that device writes can allocate in.
    pub device_ways: u64,
    /// Largest cache, in bytes: what was written before that many bytes has been evicted again.
    pub llc: u64,
    /// Bits of the command interface's addresses that reach the bus, if they bear on the buffer's.
    pub command_reach: u64,
    /// Seed of what is written in random order.
    pub seed: Seed,
}

/// How many times the lines that the ways for device writes hold bring them into their steady state.
const SETTLING_TIMES: u64 = 4;

impl Bench {
    /// What the state in which `run` finds the caches depends on.
    ///
    /// # Errors
    /// If the run makes no sense on the machine.
    pub fn beginning(&self, before: &[Run], run: &Run) -> Result<Beginning, BenchError> {
        let window =
            if matches!(run.cache, Cache::HostWarm | Cache::DeviceWarm) { run.window.get() } else { 0 };
        let mut lingering = DefaultHasher::new();
        if self.remembers() {
            self.preparation()?.lingering(before).hash(&mut lingering);
        }
        Ok(Beginning { cache: run.cache, window, lingering: lingering.finish() })
    }

    /// The state in which `run` finds the caches after the runs `before`, but for what its own test writes.
    ///
    /// # Errors
    /// If the run makes no sense on the machine.
    pub fn caches(&self, before: &[Run], run: &Run) -> Result<CacheState, BenchError> {
        let preparation = self.preparation()?;
        let seed = preparation.seed.component("replacement").u64();
        let mut memory = MemorySystem::new(&memory_params(&self.machine.host, seed));
        let before = if self.remembers() { before } else { &[] };
        preparation.begin(&mut memory, before, run);
        Ok(memory.into_cache_state())
    }

    /// How this machine's caches get into their state.
    pub(super) fn preparation(&self) -> Result<Preparation, BenchError> {
        self.check_sockets()?;
        let host = &self.machine.host;
        let cores = host.core.count.value.get();
        let llc = &host.llc;
        let bits = self.card.dma_engine.command.as_ref().map_or(64, |c| c.address_bits.value.get());
        let reach = u64::MAX >> (64 - bits.clamp(1, 64));
        Ok(Preparation {
            buffer: self.free_buffer()?,
            helper: CoreId((self.sockets.warming * cores) as u16),
            device: NodeId(self.sockets.device as u8),
            device_ways: llc.size.value.get() / u64::from(llc.ways.value.get())
                * u64::from(llc.ddio_ways.value),
            llc: llc.size.value.get(),
            // I/O virtual addresses lie below 4 GiB, whatever they stand for.
            command_reach: if self.iommu == IommuMode::Off { reach } else { u64::MAX },
            seed: Seed::new(self.seed).part("caches"),
        })
    }
}

impl Preparation {
    /// Brings empty caches into the state in which `run` finds them after the runs `before`.
    fn begin(&self, memory: &mut MemorySystem, before: &[Run], run: &Run) {
        let window = run.window.get();
        for line in self.lingering(before) {
            memory.touch(Agent::Device(self.device), line, true);
        }
        match run.cache {
            // A thrashed cache holds nothing of the buffer: as good as empty.
            Cache::Cold => {}
            Cache::HostWarm => {
                // Only the end of a window larger than the cache can stay in it.
                let from = window.saturating_sub(self.llc + self.llc / 8);
                for offset in (from..window).step_by(LINE as usize) {
                    memory.touch(Agent::Core(self.helper), self.buffer.at(offset), true);
                }
            }
            Cache::DeviceWarm => {
                // Twice over the window; the second time finds what the first has left.
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

    /// Goes on from the state that [`Bench::caches`] gave to the one in which `run` is steady: what its accesses leave is there,
    /// and the page tables of `buffer` have been walked since it was mapped.
    pub(super) fn settle(&self, memory: &mut MemorySystem, buffer: &Buffer, run: &Run, seed: u64) {
        if run.test.writes() || memory.keeps_device_reads(self.device) {
            self.fill(memory, run, seed);
        }
        for line in buffer.tables.clone().step_by(LINE as usize) {
            memory.touch(Agent::Walker(self.device), HostPhysical::new(line), false);
        }
    }

    /// Where a write of the command interface lands.
    pub(super) fn command_target(&self, offset: u64) -> HostPhysical {
        HostPhysical::new(self.buffer.at(offset).get() & self.command_reach)
    }

    /// Lines that bring the ways for device writes into their steady state.
    pub(super) fn settling_lines(&self) -> u64 {
        SETTLING_TIMES * self.device_ways / LINE
    }

    /// Lets a test whose accesses allocate run without time until the cache is as full of its lines as it gets.
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
