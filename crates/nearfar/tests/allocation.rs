//! In steady state a TLP needs no memory of the program's, on its way through card, link, root complex, IOMMU and caches.

use allocation_counter::measure;
use machine::{Doc, IommuMode, Library, Part, Sockets};
use nearfar::bench::{Bench, Effort};
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

/// Allocations of a run of so many transactions.
fn allocations(bench: &Bench, run: &Run, transactions: u64) -> u64 {
    let effort = Effort { transactions, ..Effort::default() };
    measure(|| drop(bench.run(run, effort).expect("a run that the machine can do"))).count_total
}

#[test]
fn a_tlp_needs_no_memory() {
    let library = Library::built_in();
    let machine = Doc::load(&library, "dell-t430").and_then(|doc| doc.read()).unwrap();
    let card = Doc::<Part>::load(&library, "nfp6000").and_then(|doc| doc.read()).unwrap();
    let sockets = Sockets { device: 0, memory: 1, warming: 1 };
    let mut bench = Bench { machine, card, sockets, iommu: IommuMode::Off, seed: 1 };
    for (test, iommu, window) in [
        (Test::BwDmaRd, IommuMode::Off, 256 << 10),
        // Twice what the IOTLB reaches: every other access walks.
        (Test::BwDmaRd, IommuMode::Pages4k, 1 << 20),
        (Test::BwDmaWr, IommuMode::Pages4k, 256 << 10),
        (Test::BwDmaRw, IommuMode::Superpages, 1 << 20),
    ] {
        bench.iommu = iommu;
        let (window, transfer) = (Bytes::new(window), Bytes::new(256));
        let (pattern, cache) = (Pattern::Random, Cache::HostWarm);
        let run = Run { test, pattern, cache, host_offset: 0, device_offset: 0, window, transfer };
        let (few, many) = (allocations(&bench, &run, 20_000), allocations(&bench, &run, 60_000));
        // Lists that grow double: a few times, however many transactions there are.
        let more = many.saturating_sub(few);
        assert!(more <= 50, "{test:?} {iommu:?}: {more} more allocations for 40,000 more transactions");
    }
}
