//! pcie-bench on a simulated machine: one run, from an empty machine to a row of results.
//!
//! There is no kernel, whose own accesses would be measured: `FixedDomains` and `HostFirmware` of `hardware` map the buffer
//! and configure the card.

mod buffer;
mod caches;
#[cfg(test)]
pub(crate) mod example;
mod length;
mod lingering;
mod neighbour;
mod start;
mod steady;

use std::cell::RefCell;
use std::rc::Rc;

use devices::dma_engine::{Addresses, Journal};
use engine::{Deadlock, Seed, Simulation};
use hardware::Fabric;
use hardware::iommu::DmaRequest;
use hardware::memory::{CacheState, NodeId};
use hardware::root::HostId;
use machine::{IommuMode, Machine, Part, Sockets};
use results::pciebench::{BandwidthRow, Cdf, LatencyRow, Pattern, Row, Run, Test};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::{Bytes, Duration, Frequency, Iova, Time};
use wire::dma_engine as regs;
use wire::pcie::Bdf;
use wire::vtd::{Access, PageSize};

use crate::counters::{CountedDevice, Moment, Reading, Window};
use crate::topology::{self, Assembled, TopologyError, memory_ranges};
use crate::trace::Recorder;
use buffer::Buffer;
use caches::Preparation;
pub use caches::{Beginning, caches};
pub use length::Length;
use length::Plan;
pub use neighbour::run_beside;
use start::{BAR0, CardPlace, FIRST_SLOT, REGISTER_INTERVAL, start};
use steady::Steady;

/// A machine with a card, and its configuration.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Host.
    pub machine: Machine,
    /// Card with the DMA engine.
    pub card: Part,
    /// Sockets of the card's slot, the buffer and the helper program.
    pub sockets: Sockets,
    /// IOMMU mode and page size.
    pub iommu: IommuMode,
    /// Random seed.
    pub seed: u64,
}

/// How much of a test is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Samples of a latency test.
    pub samples: u64,
    /// Transactions of a bandwidth test.
    pub transactions: u64,
}

impl Default for Effort {
    /// Enough for a median within a tick, a 99.9th percentile, and a bandwidth within half a percent.
    fn default() -> Self {
        Self { samples: 2_000, transactions: 12_000 }
    }
}

/// Why a run cannot be simulated.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The run was cancelled.
    #[error("the run was given up: nobody waits for it any more")]
    Unwanted,
    /// The machine cannot be assembled.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The machine has no such socket.
    #[error("`{machine}` has no socket {socket}; it has {count}, numbered from 0")]
    NoSocket {
        /// Machine name.
        machine: String,
        /// Requested socket.
        socket: u32,
        /// Number of sockets.
        count: u32,
    },
    /// The machine has no slot at the card's socket.
    #[error("`{machine}` has no slot at socket {socket}")]
    NoSlot {
        /// Machine name.
        machine: String,
        /// Requested socket.
        socket: u32,
    },
    /// The machine has no IOMMU to turn on.
    #[error("`{0}` has no IOMMU: add a table `host.iommu` to its file or run without")]
    NoIommu(String),
    /// Not possible with pcie-bench.
    #[error("{0}")]
    Impossible(String),
    /// The page tables do not fit into memory.
    #[error("the buffer cannot be mapped: {0}")]
    Mapping(String),
    /// No memory range is large enough for the buffer.
    #[error(
        "socket {socket} of `{machine}` has no {least} of memory in one piece for the buffer: raise host.dram.size"
    )]
    NoRoom {
        /// Machine name.
        machine: String,
        /// Requested socket.
        socket: u32,
        /// Size of the buffer.
        least: Bytes,
    },
    /// Transfers failed, so the run says nothing about speed.
    #[error("{failed} reads ended in an error and {corrupt} brought other bytes than had been written")]
    Faulty {
        /// Reads completed with an error, or not at all.
        failed: u64,
        /// Reads that returned wrong bytes.
        corrupt: u64,
    },
    /// Reads timed out in the card.
    #[error(
        "{timed_out} reads timed out: no completion within the card's completion timeout of {timeout}; some time in the \
         machine's or the card's file is too long, or the card's `completion_timeout` too short"
    )]
    TimedOut {
        /// Reads timed out.
        timed_out: u64,
        /// The card's timeout.
        timeout: Duration,
    },
    /// The test never ended.
    #[error("the test never ends: {0}")]
    Deadlock(#[from] Deadlock),
    /// The test measured nothing.
    #[error("nothing was measured: {0}")]
    Nothing(String),
}

/// Result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The row as pcie-bench writes it.
    pub row: Row,
    /// Distribution of latencies; empty for a bandwidth test.
    pub distribution: Cdf,
    /// Relative half-width of the 95 % confidence interval of the bandwidth or mean latency.
    pub half_width: f64,
    /// TLPs on the link.
    pub tlps: u64,
    /// Simulation events.
    pub events: u64,
    /// Counters from the test's start to its end.
    pub window: Window,
}

impl Outcome {
    /// The value by which the row is judged: median in ns, or Gbit/s.
    pub fn headline(&self) -> f64 {
        self.row.headline()
    }
}

/// Work of a simulation.
struct Work {
    tlps: u64,
    events: u64,
    ended: Time,
    window: Window,
}

/// Address of the card: the first function behind its root port.
const CARD: Bdf = Bdf::new(1, 0, 0);
/// Clock in which pcie-bench's NFP firmware counts cycles.
const CARD_CLOCK: Frequency = Frequency::mhz(1_200);

impl Bench {
    /// Simulates `run`.
    ///
    /// # Errors
    /// If the machine cannot be assembled, or the run is invalid on it.
    pub fn run(&self, run: &Run, effort: Effort) -> Result<Outcome, BenchError> {
        self.run_after(&[], run, effort)
    }

    /// Simulates `run` after the runs `before`, oldest first. If helper and card are on different sockets, nothing
    /// thrashes the cache that the card writes to.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_after(&self, before: &[Run], run: &Run, effort: Effort) -> Result<Outcome, BenchError> {
        self.run_for(before, run, Length::Exactly(effort))
    }

    /// As [`Bench::run_after`], for a given length.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_for(&self, before: &[Run], run: &Run, length: Length) -> Result<Outcome, BenchError> {
        run.check().map_err(BenchError::Impossible)?;
        self.run_from(&caches(self, before, run)?, run, length)
    }

    /// Simulates `run` from a cache state of [`caches`], for this run or one with the same initial state
    /// ([`Beginning`]).
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_from(&self, caches: &CacheState, run: &Run, length: Length) -> Result<Outcome, BenchError> {
        self.simulate(caches, run, length, None)?.ok_or_else(|| BenchError::Nothing(run.to_string()))
    }

    /// Whether earlier runs affect a run.
    pub fn remembers(&self) -> bool {
        self.sockets.warming != self.sockets.device
    }

    /// Simulates `run` while `recorder` records the card's link from the start of the test.
    ///
    /// Stops early, without an outcome, when the recorder is full.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_recorded(
        &self,
        run: &Run,
        effort: Effort,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> Result<Option<Outcome>, BenchError> {
        run.check().map_err(BenchError::Impossible)?;
        self.simulate(&caches(self, &[], run)?, run, Length::Exactly(effort), Some(recorder))
    }

    /// Whether the machine occasionally pauses for milliseconds.
    pub fn stops(&self) -> bool {
        self.controller_period().is_some()
    }

    fn controller_period(&self) -> Option<Duration> {
        let power = self.machine.host.power.as_ref()?;
        Some(power.controller.as_ref()?.period.value)
    }

    fn check_sockets(&self) -> Result<(), BenchError> {
        let Sockets { device, memory, warming } = self.sockets;
        let count = self.machine.host.sockets.value.get();
        match [device, memory, warming].into_iter().find(|&socket| socket >= count) {
            Some(socket) => Err(BenchError::NoSocket { machine: self.machine.name.clone(), socket, count }),
            None => Ok(()),
        }
    }

    fn simulate(
        &self,
        caches: &CacheState,
        run: &Run,
        length: Length,
        recorder: Option<&Rc<RefCell<Recorder>>>,
    ) -> Result<Option<Outcome>, BenchError> {
        run.check().map_err(BenchError::Impossible)?;
        let seed = Seed::new(self.seed).part(&run.to_string());
        let preparation = Preparation::new(self)?;
        let slot = self.slot()?;
        let port = &self.machine.host.port[&slot];
        let Assembled { mut fabric, host, card, link, node, journal } =
            self.assembled(&slot, caches.clone(), seed)?;
        if let Some(recorder) = recorder {
            Recorder::tap(recorder, &mut fabric, link, &slot);
        }
        let mut buffer = self.free_buffer()?;
        self.map(&mut fabric, host, node, buffer::FIRST_IOVA, &mut [(CARD, &mut buffer)])?;
        let address_seed = seed.component("addresses").u64();
        preparation.settle(&mut fabric.host_mut(host).memory, &buffer, run, address_seed);
        let simulation = Simulation::new(fabric);
        let begin =
            simulation.with(|fabric, _| warm_translations(fabric, host, node, &buffer, run, address_seed));
        simulation.run_until(begin);
        let plan = Plan::new(self.controller_period(), run, length);
        start(&simulation, host, (card, FIRST_SLOT), port, &buffer, run, plan.told, address_seed)?;
        let count = |simulation: &Simulation<Fabric>| {
            let now = simulation.now();
            let sends_at_wire_speed = topology::sends_at_wire_speed(&self.card);
            let place = CountedDevice { name: "card0", endpoint: card, nic: None, sends_at_wire_speed };
            let reading = simulation.with(|fabric, _| Reading::of_hardware(fabric, host, &[place], &[], now));
            Moment::new(now, vec![(self.machine.name.clone(), reading)])
        };
        let began = count(&simulation);
        let progress = Rc::clone(&journal.borrow().progress);
        if let Some(recorder) = recorder {
            // The last register write starts the test.
            recorder.borrow_mut().start(simulation.now() - REGISTER_INTERVAL);
            simulation.run_while(|_| !progress.is_done() && !recorder.borrow().is_full());
            simulation.with(|fabric, scheduler| fabric.context(scheduler).report_dllps());
            if !progress.is_done() {
                return Ok(None);
            }
        }
        plan.watch(&simulation, &journal, run);
        let tlps = simulation.with(|fabric, _| {
            use hardware::link::Side;
            let link = fabric.wires.link(link);
            [Side::Upstream, Side::Downstream]
                .iter()
                .map(|&side| link.counters(side).tlps.iter().sum::<u64>())
                .sum()
        });
        let ended = if progress.is_done() { journal.borrow().ended } else { simulation.now() };
        let window = began.until(&count(&simulation));
        debug_assert_eq!(window.overused().next(), None);
        let work = Work { tlps, events: simulation.processed(), ended, window };
        self.outcome(run, &journal, work).map(Some)
    }

    /// A buffer of consecutive chunks in the requested memory.
    fn free_buffer(&self) -> Result<Buffer, BenchError> {
        let ranges = memory_ranges(&self.machine.host, self.sockets.memory);
        Buffer::place(&ranges).ok_or_else(|| BenchError::NoRoom {
            machine: self.machine.name.clone(),
            socket: self.sockets.memory,
            least: buffer::LEAST_MEMORY,
        })
    }

    /// Name of the card's slot.
    fn slot(&self) -> Result<String, BenchError> {
        let socket = self.sockets.device;
        machine::slot_of(&self.machine, socket)
            .ok_or_else(|| BenchError::NoSlot { machine: self.machine.name.clone(), socket })
    }

    /// The machine with its card in `slot`.
    fn assembled(&self, slot: &str, caches: CacheState, seed: Seed) -> Result<Assembled, BenchError> {
        let iommu_on = self.iommu != IommuMode::Off;
        if iommu_on && self.machine.host.iommu.is_none() {
            return Err(BenchError::NoIommu(self.machine.name.clone()));
        }
        Ok(topology::assemble(&self.machine, &self.card, slot, iommu_on, caches, seed)?)
    }

    /// Maps the buffer of each card, if the IOMMU is on.
    fn map(
        &self,
        fabric: &mut Fabric,
        host: HostId,
        node: NodeId,
        first: Iova,
        cards: &mut [(Bdf, &mut Buffer)],
    ) -> Result<(), BenchError> {
        let largest = match self.iommu {
            IommuMode::Off => return Ok(()),
            IommuMode::Pages4k => PageSize::Size4KiB,
            IommuMode::Superpages => PageSize::Size1GiB,
        };
        // The kernel allocates page tables at the IOMMU's socket, if that has memory.
        let host_file = &self.machine.host;
        let tables = memory_ranges(host_file, u32::from(node.0).min(host_file.memory_nodes() - 1));
        buffer::map(fabric, host, node, &tables, first, cards, largest)
            .map_err(|error| BenchError::Mapping(error.to_string()))
    }

    fn outcome(&self, run: &Run, journal: &Rc<RefCell<Journal>>, work: Work) -> Result<Outcome, BenchError> {
        let Work { tlps, events, ended, window } = work;
        let journal = journal.borrow();
        let nothing = || BenchError::Nothing(run.to_string());
        if journal.timed_out > 0 {
            let timeout = topology::completion_timeout(&self.card);
            return Err(BenchError::TimedOut { timed_out: journal.timed_out, timeout });
        }
        if journal.failed + journal.corrupt > 0 {
            return Err(BenchError::Faulty { failed: journal.failed, corrupt: journal.corrupt });
        }
        let cycles = |time: Duration| (time.as_ps() as f64 * CARD_CLOCK.hz() as f64 / 1e12).round() as u64;
        if run.test.is_latency() {
            let mut samples = Vec::new();
            for (&latency, &count) in &journal.latencies {
                samples.extend(std::iter::repeat_n(cycles(latency), count as usize));
            }
            let counts: Vec<_> = journal.latencies.iter().map(|(&l, &n)| (cycles(l), n)).collect();
            let total = cycles(ended.since(journal.started));
            let row = LatencyRow::from_samples(*run, &mut samples, total, CARD_CLOCK).ok_or_else(nothing)?;
            let distribution = Cdf::from_histogram(counts, CARD_CLOCK);
            // A single sample has no confidence interval.
            let half_width = steady::latency_half_width(&journal).unwrap_or(f64::INFINITY);
            return Ok(Outcome { row: Row::Latency(row), distribution, half_width, tlps, events, window });
        }
        let steady = Steady::of(&journal).ok_or_else(nothing)?;
        // pcie-bench counts each direction of a test that reads and writes.
        let directions = if run.test == Test::BwDmaRw { 2 } else { 1 };
        let transactions = steady.transactions / directions;
        let row = BandwidthRow::from_cycles(*run, cycles(steady.time), CARD_CLOCK, transactions);
        Ok(Outcome {
            row: Row::Bandwidth(row),
            distribution: Cdf::default(),
            half_width: steady.half_width,
            tlps,
            events,
            window,
        })
    }
}

/// Translations that bring the IOTLB into a steady state: several times its entries.
const SETTLING_TRANSLATIONS: u64 = 1024;
/// Interval between them: longer than any walk, so that none waits for another.
const SETTLING_INTERVAL: Duration = Duration::from_us(2);

/// Translates the test's pages until the IOTLB is full. Returns the end time.
fn warm_translations(
    fabric: &mut Fabric,
    host: HostId,
    node: NodeId,
    buffer: &Buffer,
    run: &Run,
    seed: u64,
) -> Time {
    let host = fabric.host_mut(host);
    let Some(iommu) = host.iommus.get_mut(node.index()) else { return Time::ZERO };
    let random = (run.pattern == Pattern::Random).then_some(seed ^ 2);
    let mut pages = Addresses::new(run.window.get(), run.transfer.get(), run.host_offset, random);
    let mut now = Time::ZERO;
    for _ in 0..SETTLING_TRANSLATIONS {
        let offset = pages.next_offset();
        let at = buffer.addresses[(offset / regs::CHUNK_BYTES) as usize] + offset % regs::CHUNK_BYTES;
        let request = DmaRequest::new(CARD, at, Access::Read);
        let translation = iommu.translate(now, request, &mut host.memory);
        // If a lookup takes longer than the interval, later ones would delay the test.
        now = (now + SETTLING_INTERVAL).max(translation.ready);
    }
    now
}

/// Whether a test writes host memory.
trait Writes {
    fn writes(self) -> bool;
}

impl Writes for Test {
    fn writes(self) -> bool {
        matches!(self, Self::LatCmdWrRd | Self::LatDmaWrRd | Self::BwDmaWr | Self::BwDmaRw)
    }
}
