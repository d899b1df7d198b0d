//! A run beside a second card that loads the socket's IOMMU.
//!
//! Two functions behind one IOMMU have separate domains and page tables, but share the IOTLB, the page walkers and
//! the translation pipeline (section 7 of the paper).

use engine::Simulation;
use results::claims::Aggressor;
use results::pciebench::{Cache, Pattern, Run};
use units::{Bytes, Duration, Iova};
use wire::pcie::Bdf;

use super::*;
use crate::counters::Window;
use crate::topology::{NEIGHBOUR_BUS, add_neighbour};

/// Address of the second card.
const NEIGHBOUR: Bdf = Bdf::new(NEIGHBOUR_BUS, 0, 0);
/// BAR 0 of the second card.
const NEIGHBOUR_BAR0: u64 = BAR0 + (1 << 20);
/// First IOVA of both buffers; domains are independent.
const FIRST_IOVA: Iova = Iova::new(0xf000_0000);
/// How long the second card runs before the test starts: many times the accesses that touch its window's pages.
const HEAD_START: Duration = Duration::from_us(100);

/// Simulates `run` while a second card of the same kind, behind the same IOMMU, performs `aggressor`.
///
/// # Errors
/// As [`Bench::run`].
pub fn run_beside(
    bench: &Bench,
    run: &Run,
    effort: Effort,
    aggressor: &Aggressor,
) -> Result<Outcome, BenchError> {
    run.check().map_err(BenchError::Impossible)?;
    let seed = Seed::new(bench.seed).part(&run.to_string());
    let slot = bench.slot()?;
    let port = &bench.machine.host.port[&slot];
    let mut assembled = bench.assembled(&slot, caches(bench, &[], run)?, seed)?;
    let (second, _) = add_neighbour(&mut assembled, &bench.machine, &bench.card, &slot, seed)?;
    let Assembled { mut fabric, host, card, node, journal, .. } = assembled;
    let mut first_buffer = bench.free_buffer()?;
    let mut second_buffer = first_buffer.behind();
    let mut both = [(CARD, &mut first_buffer), (NEIGHBOUR, &mut second_buffer)];
    bench.map(&mut fabric, host, node, FIRST_IOVA, &mut both)?;
    // The page tables have not been walked yet; the second card will do that.
    first_buffer.tables = 0..0;
    let address_seed = seed.component("addresses").u64();
    let preparation = Preparation::new(bench)?;
    preparation.settle(&mut fabric.host_mut(host).memory, &first_buffer, run, address_seed);
    let simulation = Simulation::new(fabric);
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
    start(&simulation, host, (second, SECOND_SLOT), port, &second_buffer, &noise, ENDLESS, noise_seed)?;
    let head_start = simulation.now() + HEAD_START;
    simulation.run_until(head_start);
    start(&simulation, host, (card, FIRST_SLOT), port, &first_buffer, run, effort, address_seed)?;
    let progress = Rc::clone(&journal.borrow().progress);
    simulation.run_while(|_| !progress.is_done());
    let ended = journal.borrow().ended;
    bench.outcome(run, &journal, Work { tlps: 0, events: 0, ended, window: Window::default() })
}

/// As many transactions as the card can count, so that it runs forever.
const ENDLESS: Effort = Effort { transactions: u32::MAX as u64, samples: u32::MAX as u64 };
const SECOND_SLOT: CardPlace = CardPlace { card: NEIGHBOUR, bar0: NEIGHBOUR_BAR0, port: 1 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::example;

    /// A function with few pages loses bandwidth beside one with many, and none beside one with few.
    #[test]
    fn a_neighbour_with_many_pages_costs_bandwidth() {
        let bench = example::bench();
        let run = example::run(Test::BwDmaRd, Bytes::kib(128));
        let effort = Effort { transactions: 3_000, ..Effort::default() };
        let beside = |window_bytes| {
            let aggressor = Aggressor { test: Test::BwDmaRd, window_bytes, transfer_bytes: 64 };
            run_beside(&bench, &run, effort, &aggressor).unwrap().headline()
        };
        assert!(beside(64 << 20) < 0.9 * beside(64 << 10));
    }
}
