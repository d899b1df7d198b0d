//! The closed-form model compared with the simulator.

use machine::{Diagnostics, Doc, IommuMode, Library, Machine, Part, Sockets};
use nearfar::Progress;
use nearfar::batch::{Job, Length, run_all};
use nearfar::bench::Bench;
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

/// Goodput of one kind of transfer, by closed form and by simulation (Gbit/s; per direction if both are used).
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPoint {
    /// Bandwidth of reads, of writes, or of both together.
    pub test: Test,
    /// Bytes per transfer.
    pub transfer: u64,
    /// pcie-bench's closed form, Gen3 x8 with MPS 256 and MRRS 512.
    pub closed_form: f64,
    /// Simulated engine without overheads; `None` if not simulated.
    pub ideal: Option<f64>,
    /// Simulated card of the paper; `None` if not simulated.
    pub card: Option<f64>,
}

/// The machine for both simulated cards: MPS 256, one socket.
const MACHINE: &str = "dell-t630";
/// Sizes: powers of two, and one byte more than the payload size.
const SIZES: [u64; 7] = [64, 128, 256, 257, 512, 1024, 2048];

/// Simulates the closed form's conditions: back-to-back transfers from a warm cache.
///
/// # Errors
/// If a machine or part file is invalid.
pub fn against_the_closed_form(
    library: &Library,
    seed: u64,
    progress: &dyn Progress,
) -> Result<Vec<ModelPoint>, Diagnostics> {
    let machine = Doc::<Machine>::load(library, MACHINE)?.read()?;
    let bench = |card: &str| -> Result<Bench, Diagnostics> {
        let card = Doc::<Part>::load(library, card)?.read()?;
        let sockets = Sockets { device: 0, memory: 0, warming: 0 };
        Ok(Bench { machine: machine.clone(), card, sockets, iommu: IommuMode::Off, seed })
    };
    let benches = [bench("ideal")?, bench("nfp6000")?];
    let tests = [
        (Test::BwDmaWr, analytic::Direction::Write),
        (Test::BwDmaRd, analytic::Direction::Read),
        (Test::BwDmaRw, analytic::Direction::Both),
    ];
    let cases: Vec<_> = tests.iter().flat_map(|&test| SIZES.map(|size| (test, size))).collect();
    let run = |test, size| Run {
        test,
        pattern: Pattern::Random,
        cache: Cache::HostWarm,
        host_offset: 0,
        device_offset: 0,
        window: Bytes::kib(8),
        transfer: Bytes::new(size),
    };
    let jobs: Vec<Job<'_>> = cases
        .iter()
        .flat_map(|&((test, _), size)| {
            benches.each_ref().map(|bench| Job {
                bench,
                run: run(test, size),
                before: &[],
                effort: Length::Steady,
            })
        })
        .collect();
    let mut outcomes = run_all(&jobs, "closed form", progress).into_iter();
    let mut next = || outcomes.next().and_then(Result::ok).map(|outcome| outcome.headline());
    let link = analytic::Link::gen3_x8();
    Ok(cases
        .iter()
        .map(|&((test, direction), transfer)| ModelPoint {
            test,
            transfer,
            closed_form: link.goodput(direction, Bytes::new(transfer)).as_gbit_per_s_f64(),
            ideal: next(),
            card: next(),
        })
        .collect())
}
