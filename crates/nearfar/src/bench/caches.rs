//! Bringing the caches into the state that a test asks for.
//!
//! As pcie-bench's helper and firmware do it (section 4.2 of the paper): the
//! helper runs on a socket of its own choosing, thrashes that socket's cache
//! before every test, and warms the window by writing it; the firmware can warm
//! or thrash by writing through its command interface. What earlier tests left
//! in the cache of a socket that is not thrashed, [`super::lingering`] tells.

use devices::dma_engine::Addresses;
use hardware::memory::{Agent, CoreId, LINE, MemorySystem, NodeId};
use units::HostPhysical;
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};

use super::buffer::Buffer;
use super::{Cache, Run, Writes};

/// How the caches of a machine get into their state.
pub struct Preparation<'a> {
    /// The buffer.
    pub buffer: &'a Buffer,
    /// A core of the socket on which the helper runs.
    pub helper: CoreId,
    /// The socket of the card.
    pub device: NodeId,
    /// What ran before, oldest first, if the helper does not thrash the card's socket.
    pub before: &'a [Run],
    /// Bytes of the last-level cache that device writes can allocate in.
    pub device_ways: u64,
    /// Where other programs run, each on a socket of its own: a core and the first byte of what it touches.
    pub others: Vec<(CoreId, HostPhysical)>,
    /// Bytes that each of them touches between warming and measuring.
    pub background: u64,
    /// Largest cache, in bytes: what was written before that many bytes has been evicted again.
    pub llc: u64,
    /// Bits of the command interface's addresses that reach the bus, if they bear on the buffer's.
    pub command_reach: u64,
    /// Seed of the run's addresses.
    pub seed: u64,
}

/// Offset in a node's memory of the lines that stand for everything else on the machine.
pub(super) const BACKGROUND_AT: u64 = 16 << 20;
/// Transactions that bring the ways for device writes into their steady state: several times the lines they hold.
pub(super) const SETTLING_WRITES: u64 = 160_000;

impl Preparation<'_> {
    /// Prepares for `run`. The caches are empty before, except for what earlier runs left.
    pub fn apply(&self, memory: &mut MemorySystem, run: &Run) {
        let window = run.window.get();
        for line in self.lingering() {
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
                let mut anywhere = Addresses::new(CHUNK_BYTES * CHUNKS as u64, LINE, 0, Some(!self.seed));
                for _ in 0..SETTLING_WRITES {
                    let target = self.command_target(anywhere.next_offset());
                    memory.touch(Agent::Device(self.device), target, true);
                }
            }
        }
        // While the helper tells the card what to do, other programs run: what they touch takes the place of the oldest
        // lines, if the cache has no room to spare.
        for &(core, from) in &self.others {
            for offset in (0..self.background).step_by(LINE as usize) {
                memory.touch(Agent::Core(core), from + offset, true);
            }
        }
        if run.test.writes() {
            self.settle(memory, run);
        }
        // The tables have been walked since the buffer was mapped.
        for line in self.buffer.tables.clone().step_by(LINE as usize) {
            memory.touch(Agent::Walker(self.device), HostPhysical::new(line), false);
        }
    }

    /// Where a write of the command interface lands.
    pub(super) fn command_target(&self, offset: u64) -> HostPhysical {
        HostPhysical::new(self.buffer.at(offset).get() & self.command_reach)
    }

    /// Lets a test that writes run without time until the cache is as full of its lines as it gets.
    fn settle(&self, memory: &mut MemorySystem, run: &Run) {
        let (transfer, window) = (run.transfer.get(), run.window.get());
        let writes = SETTLING_WRITES.min(4 * window.div_ceil(transfer.next_multiple_of(LINE)));
        let mut addresses = Addresses::new(window, transfer, run.host_offset, Some(self.seed ^ 1));
        for _ in 0..writes {
            let offset = addresses.next_offset();
            let (first, last) = (offset / LINE, (offset + transfer - 1) / LINE);
            for line in first..=last {
                let target = if run.test.is_command() {
                    self.command_target(line * LINE)
                } else {
                    self.buffer.at(line * LINE)
                };
                memory.touch(Agent::Device(self.device), target, true);
            }
        }
    }
}
