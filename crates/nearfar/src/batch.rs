//! Many independent runs on all cores, results in the order in which they were asked for.
//!
//! Every run has a simulation and generators of its own, seeded by the bench's seed and the run itself: what comes
//! out depends neither on the number of threads nor on which other runs there are. Runs that find the caches in the
//! same state get it from one preparation.

use std::collections::BTreeMap;

use rayon::prelude::*;
use results::pciebench::Run;

pub use crate::bench::Length;
use crate::bench::{Beginning, Bench, BenchError, Outcome};
use crate::progress::Progress;

/// A run to be simulated.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The machine with its card.
    pub bench: &'a Bench,
    /// What to run.
    pub run: Run,
    /// What was run before on the same machine, oldest first: caches that no test thrashes still hold what it wrote.
    pub before: &'a [Run],
    /// How long to run it.
    pub effort: Length,
}

/// Simulates one job.
///
/// # Errors
/// As [`Bench::run`].
pub fn run(job: &Job<'_>) -> Result<Outcome, BenchError> {
    job.bench.run_for(job.before, &job.run, job.effort)
}

/// Simulates all jobs, in parallel, and gives their outcomes in the same order.
pub fn run_all(jobs: &[Job<'_>], what: &str, progress: &dyn Progress) -> Vec<Result<Outcome, BenchError>> {
    progress.begin(what, jobs.len() as u64);
    let mut outcomes: Vec<(usize, Result<Outcome, BenchError>)> = alike(jobs)
        .par_iter()
        .with_max_len(1)
        .flat_map(|group| {
            let first = &jobs[group[0]];
            let caches = first.bench.caches(first.before, &first.run);
            let outcome = |&index: &usize| {
                let job = &jobs[index];
                let outcome = match &caches {
                    Ok(caches) => job.bench.run_from(caches, &job.run, job.effort),
                    // Each run says itself what is wrong.
                    Err(_) => run(job),
                };
                progress.step(&job.run.to_string());
                (index, outcome)
            };
            group.par_iter().with_max_len(1).map(outcome).collect::<Vec<_>>()
        })
        .collect();
    progress.end();
    outcomes.sort_unstable_by_key(|&(index, _)| index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The jobs, by their numbers, in groups that find the caches of one machine in the same state.
fn alike(jobs: &[Job<'_>]) -> Vec<Vec<usize>> {
    let beginnings: Vec<(usize, Option<Beginning>)> = jobs
        .par_iter()
        .map(|job| (std::ptr::from_ref(job.bench).addr(), job.bench.beginning(job.before, &job.run).ok()))
        .collect();
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, beginning) in beginnings.into_iter().enumerate() {
        groups.entry(beginning).or_default().push(index);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Effort;
    use crate::progress::Silent;
    use machine::{Doc, IommuMode, Library, Machine, Part, Sockets};
    use results::pciebench::{Cache, Pattern, Test};
    use units::Bytes;

    fn bench(warming: u32) -> Bench {
        let library = Library::built_in();
        Bench {
            machine: Doc::<Machine>::load(&library, "dell-t430").unwrap().read().unwrap(),
            card: Doc::<Part>::load(&library, "nfp6000").unwrap().read().unwrap(),
            sockets: Sockets { device: 0, memory: 0, warming },
            iommu: IommuMode::Pages4k,
            seed: 1,
        }
    }

    fn run_of(test: Test, cache: Cache, transfer: u64, window: Bytes) -> Run {
        let transfer = Bytes::new(transfer);
        Run { test, pattern: Pattern::Random, cache, host_offset: 0, device_offset: 0, window, transfer }
    }

    /// A preparation that several runs share gives each what one of its own does, whatever ran before.
    #[test]
    fn runs_together_are_the_runs_alone() {
        let caches = [Cache::Cold, Cache::HostWarm, Cache::DeviceWarm, Cache::DeviceThrash];
        let tests = [(Test::LatDmaRd, 64), (Test::LatDmaWrRd, 128), (Test::BwDmaWr, 64)];
        let runs: Vec<Run> = caches
            .into_iter()
            .flat_map(|cache| tests.map(|(test, transfer)| run_of(test, cache, transfer, Bytes::kib(256))))
            .collect();
        for warming in [0, 1] {
            let bench = bench(warming);
            let effort = Length::Exactly(Effort { samples: 60, transactions: 300 });
            let job = |(index, &run)| Job { bench: &bench, run, before: &runs[..index], effort };
            let jobs: Vec<Job<'_>> = runs.iter().enumerate().map(job).collect();
            let groups = alike(&jobs).len();
            assert!(warming == 1 || groups == caches.len(), "{groups} groups");
            for (job, together) in jobs.iter().zip(run_all(&jobs, "", &Silent)) {
                assert_eq!(together.unwrap().row, run(job).unwrap().row);
            }
        }
    }
}
