//! A run beside a second card that keeps the socket's IOMMU busy.
//!
//! Two functions behind one IOMMU have domains and page tables of their own, but share the IOTLB, the walkers and the
//! translation pipeline (section 7 of the paper).

use engine::Simulation;
use hardware::iommu::tables::{ContextTables, FrameAllocator, PageTable, TableError};
use hardware::iommu::{ContextEntry, DomainId, Iommu, PageSize, Permissions, TranslationType};
use hardware::memory::PhysicalMemory;
use results::claims::Aggressor;
use results::pciebench::{Cache, Pattern, Run};
use units::{Bytes, Duration, HostPhysical, Iova};
use wire::dma_engine::{CHUNK_BYTES, CHUNKS};
use wire::pcie::Bdf;

use super::*;
use crate::counters::Window;
use crate::topology::{NEIGHBOUR_BUS, add_neighbour};

/// Bus, device and function of the second card.
const NEIGHBOUR: Bdf = Bdf::new(NEIGHBOUR_BUS, 0, 0);
/// Where firmware puts the second card's BAR 0.
const NEIGHBOUR_BAR0: u64 = BAR0 + (1 << 20);
/// First I/O virtual address of both buffers: domains do not see each other.
const FIRST_IOVA: u64 = 0xf000_0000;
/// Where page tables begin in a node's memory: clear of everything else that a run puts there.
const FRAMES_FROM: u64 = 64 << 20;
/// How long the second card is at work before the run begins: many times its window's pages in accesses.
const HEAD_START: Duration = Duration::from_us(100);

impl Bench {
    /// Simulates `run` while a second card of the same kind, behind the same IOMMU, does what `aggressor` says.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_beside(
        &self,
        run: &Run,
        effort: Effort,
        aggressor: &Aggressor,
    ) -> Result<Outcome, BenchError> {
        run.check().map_err(BenchError::Impossible)?;
        let seed = Seed::new(self.seed).part(&run.to_string());
        let socket = self.sockets.device;
        let slot = machine::slot_of(&self.machine, socket)
            .ok_or_else(|| BenchError::NoSlot { machine: self.machine.name.clone(), socket })?;
        let port = &self.machine.host.port[&slot];
        let iommu_on = self.iommu != IommuMode::Off;
        if iommu_on && self.machine.host.iommu.is_none() {
            return Err(BenchError::NoIommu(self.machine.name.clone()));
        }
        let caches = self.caches(&[], run)?;
        let mut assembled = topology::assemble(&self.machine, &self.card, &slot, iommu_on, caches, seed)?;
        let (second, _) = add_neighbour(&mut assembled, &self.machine, &self.card, &slot, seed)?;
        let Assembled { mut fabric, host, card, node, journal, .. } = assembled;
        let mut first_buffer = self.free_buffer()?;
        let beside = CHUNK_BYTES * CHUNKS as u64;
        let mut second_buffer = first_buffer.clone();
        second_buffer.chunks = first_buffer.chunks.map(|chunk| chunk + beside);
        second_buffer.addresses = second_buffer.chunks.map(|chunk| Iova::new(chunk.get()));
        let largest = match self.iommu {
            IommuMode::Off => None,
            IommuMode::Pages4k => Some(PageSize::Size4KiB),
            IommuMode::Superpages => Some(PageSize::Size1GiB),
        };
        if let Some(largest) = largest {
            let tables = memory_ranges(&self.machine.host, u32::from(node.0));
            let host = fabric.host_mut(host);
            let both = [(CARD, &mut first_buffer), (NEIGHBOUR, &mut second_buffer)];
            if let Some(iommu) = host.iommus.get_mut(node.index()) {
                map_both(iommu, host.memory.bytes_mut(), tables[0].base + FRAMES_FROM, both, largest)
                    .map_err(|error| BenchError::Mapping(error.to_string()))?;
            }
        }
        let address_seed = seed.component("addresses").u64();
        let preparation = self.preparation()?;
        preparation.settle(&mut fabric.host_mut(host).memory, &first_buffer, run, address_seed);
        let simulation = Simulation::new(fabric);
        let setup_of = |card, place| simulation.with(|fabric, _| Setup::of(fabric, host, card, port, place));
        let noise = Run {
            test: aggressor.test,
            pattern: Pattern::Random,
            cache: Cache::Cold,
            host_offset: 0,
            device_offset: 0,
            window: Bytes::new(aggressor.window_bytes),
            transfer: Bytes::new(aggressor.transfer_bytes),
        };
        let noise_seed = seed.component("neighbour's addresses").u64();
        start(
            &simulation,
            host,
            SECOND_SLOT,
            setup_of(second, SECOND_SLOT),
            &second_buffer,
            &noise,
            ENDLESS,
            noise_seed,
        )?;
        let head_start = simulation.now() + HEAD_START;
        simulation.run_until(head_start);
        start(
            &simulation,
            host,
            FIRST_SLOT,
            setup_of(card, FIRST_SLOT),
            &first_buffer,
            run,
            effort,
            address_seed,
        )?;
        let done = journal.clone();
        simulation.run_while(|_| !done.borrow().done);
        let ended = journal.borrow().ended;
        self.outcome(run, &journal, Work { tlps: 0, events: 0, ended, window: Window::default() })
    }
}

/// Maps each card's buffer in a domain of its own and switches the IOMMU on.
fn map_both(
    iommu: &mut Iommu,
    memory: &mut PhysicalMemory,
    frames_from: HostPhysical,
    cards: [(Bdf, &mut Buffer); 2],
    largest: PageSize,
) -> Result<(), TableError> {
    let mut frames = Frames(frames_from);
    let contexts = ContextTables::new(memory, &mut frames)?;
    for (number, (card, buffer)) in cards.into_iter().enumerate() {
        let table = PageTable::new(memory, &mut frames, 4, iommu.features())?;
        for (index, chunk) in buffer.chunks.iter().enumerate() {
            let iova = Iova::new(FIRST_IOVA + index as u64 * CHUNK_BYTES);
            let bytes = Bytes::new(CHUNK_BYTES);
            table.map(memory, &mut frames, iova, *chunk, bytes, Permissions::READ_WRITE, largest)?;
            buffer.addresses[index] = iova;
        }
        let entry = ContextEntry {
            domain: DomainId(number as u16 + 1),
            translation: TranslationType::Untranslated,
            levels: table.levels(),
            page_table: table.root(),
            fault_processing_disabled: false,
        };
        contexts.set(memory, &mut frames, card, entry)?;
    }
    iommu.set_root_table(contexts.root());
    iommu.set_enabled(true);
    Ok(())
}

/// Frames one after the other.
struct Frames(HostPhysical);

impl FrameAllocator for Frames {
    fn allocate_frame(&mut self) -> Option<HostPhysical> {
        let frame = self.0;
        self.0 = frame.checked_add(4096)?;
        Some(frame)
    }
}

/// As many transactions as the card's counter holds: it works without end.
const ENDLESS: Effort = Effort { transactions: u32::MAX as u64, samples: u32::MAX as u64 };
/// The place of the second card.
const SECOND_SLOT: Place = Place { card: NEIGHBOUR, bar0: NEIGHBOUR_BAR0, port: 1 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::example;

    /// A function with few pages loses bandwidth to one with many, and none to one with few.
    #[test]
    fn a_neighbour_with_many_pages_costs_bandwidth() {
        let bench = example::bench();
        let run = example::run(Test::BwDmaRd, Bytes::kib(128));
        let effort = Effort { transactions: 3_000, ..Effort::default() };
        let beside = |window_bytes| {
            let aggressor = Aggressor { test: Test::BwDmaRd, window_bytes, transfer_bytes: 64 };
            bench.run_beside(&run, effort, &aggressor).unwrap().headline()
        };
        assert!(beside(64 << 20) < 0.9 * beside(64 << 10));
    }
}
