//! How many TLPs per second one core simulates, with the full host model and real bytes.
//!
//! The aim is 5 million for 64 B reads from a warm window behind an IOMMU whose IOTLB holds it; it is printed, not
//! asserted. Time is that of the processor where the system tells it, so that a busy machine does not count.
//! `cargo bench -p nearfar -- QUICK` takes a tenth of the time; a number says how many transactions each line measures;
//! any other argument names the lines to measure by a part of them, as in `cargo bench -p nearfar -- BW_DMA_WR`.

#[path = "clock/mod.rs"]
mod clock;

use clock::seconds_of_work;
use machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
use nearfar::bench::{Bench, Effort};
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

fn main() {
    // cargo passes `--bench` on.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "QUICK");
    let number = arguments.iter().find_map(|argument| argument.parse().ok());
    let is_label = |argument: &&String| *argument != "QUICK" && argument.parse::<u64>().is_err();
    let wanted: Vec<&String> = arguments.iter().filter(is_label).collect();
    let transactions = number.unwrap_or(if quick { 100_000 } else { 1_000_000 });
    let iommu = IommuMode::Pages4k;
    println!("TLPs per second of one core, dell-t430 with nfp6000 (aim: 5 million in the first two lines)");
    let first = [(Test::BwDmaRd, 64, 256 << 10, IommuMode::Off), (Test::BwDmaRd, 64, 256 << 10, iommu)];
    let windows = [512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
    let misses = windows.map(|window| (Test::BwDmaRd, 64, window, iommu));
    let others = [
        (Test::BwDmaRd, 64, 64 << 20, IommuMode::Off),
        (Test::BwDmaWr, 64, 256 << 10, IommuMode::Off),
        (Test::BwDmaRd, 2048, 256 << 10, IommuMode::Off),
        (Test::BwDmaRw, 256, 256 << 10, IommuMode::Off),
    ];
    for (test, transfer, window, iommu) in first.into_iter().chain(misses).chain(others) {
        let label = format!("{test:<10} {transfer:>5} of {:>8}, IOMMU {iommu:<4}", Bytes::new(window));
        if wanted.is_empty() || wanted.iter().any(|part| label.contains(*part)) {
            measure(&label, test, transfer, window, iommu, transactions);
        }
    }
    // Linux keeps the peak of the process for those who ask.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        println!("peak memory: {} (aim: below 200 MB)", peak.unwrap_or("unknown").trim());
    }
}

fn measure(label: &str, test: Test, transfer: u64, window: u64, iommu: IommuMode, transactions: u64) {
    let library = Library::built_in();
    let load = |text: Result<Machine, machine::Diagnostics>| text.unwrap_or_else(|error| panic!("{error}"));
    let bench = Bench {
        machine: load(Doc::load(&library, "dell-t430").and_then(|doc| doc.read())),
        card: Doc::<Part>::load(&library, "nfp6000")
            .and_then(|doc| doc.read())
            .expect("a part of the repository"),
        sockets: Sockets { device: 0, memory: 0, warming: 0 },
        iommu,
        seed: 1,
    };
    let run = Run {
        test,
        pattern: Pattern::Random,
        cache: Cache::HostWarm,
        host_offset: 0,
        device_offset: 0,
        window: Bytes::new(window),
        transfer: Bytes::new(transfer),
    };
    // What a run costs before its first transaction is not part of it.
    let time = |transactions| {
        let began = seconds_of_work();
        let outcome = bench.run(&run, Effort { transactions, ..Effort::default() });
        (seconds_of_work() - began, outcome.expect("a run that the machine can do"))
    };
    let (few, many) = (time(transactions / 10), time(transactions));
    let seconds = many.0 - few.0;
    let tlps = many.1.tlps - few.1.tlps;
    println!(
        "{label}  {:>6.2} M TLP/s  {:.2} events per TLP  {:>7.0} ns of host time per transfer  {:.2} Gbit/s",
        tlps as f64 / seconds / 1e6,
        (many.1.events - few.1.events) as f64 / tlps as f64,
        seconds * 1e9 / (transactions * 9 / 10) as f64,
        many.1.headline()
    );
}
