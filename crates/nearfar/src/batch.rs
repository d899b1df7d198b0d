//! Runs many independent simulations on all cores. Results come in the order of the jobs.
//!
//! Each run has its own simulation and random generators, seeded by the bench's seed and the run itself. So results
//! depend neither on the number of threads nor on the other runs. Runs that start with the same cache state share one
//! preparation.

use std::collections::BTreeMap;

use rayon::prelude::*;
use results::pciebench::Run;

pub use crate::bench::Length;
use crate::bench::{self, Beginning, Bench, BenchError, Outcome};
use crate::cache;
use crate::progress::Progress;

/// A run to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Machine and card.
    pub bench: &'a Bench,
    /// Test, window and transfers.
    pub run: Run,
    /// Earlier runs on the same machine, oldest first: caches that no test thrashes still hold what they wrote.
    pub before: &'a [Run],
    /// How much to simulate.
    pub effort: Length,
}

/// Simulates one job.
///
/// # Errors
/// As [`Bench::run`].
pub fn run(job: &Job<'_>) -> Result<Outcome, BenchError> {
    job.bench.run_for(job.before, &job.run, job.effort)
}

/// Simulates all jobs in parallel. Outcomes come in the order of the jobs.
pub fn run_all(jobs: &[Job<'_>], what: &str, progress: &dyn Progress) -> Vec<Result<Outcome, BenchError>> {
    progress.begin(what, jobs.len() as u64);
    let beginnings = beginnings(jobs);
    let keys = keys(jobs, &beginnings);
    let known: Vec<Option<Outcome>> = keys.par_iter().map(|key| cache::get(key.as_deref())).collect();
    known.iter().flatten().for_each(|_| progress.step("known"));
    let left = jobs.iter().zip(&known).filter(|(_, known)| known.is_none());
    progress.weigh(left.map(|(job, _)| weight(job)).sum());
    let mut outcomes: Vec<(usize, Result<Outcome, BenchError>)> = alike(&beginnings)
        .into_iter()
        .map(|mut group| {
            group.retain(|&index| known[index].is_none());
            group
        })
        .filter(|group| !group.is_empty())
        .collect::<Vec<_>>()
        .par_iter()
        .with_max_len(1)
        .flat_map(|group| {
            let first = &jobs[group[0]];
            let caches = match progress.is_awaited() {
                true => bench::caches(first.bench, first.before, &first.run),
                false => Err(BenchError::Unwanted),
            };
            let outcome = |&index: &usize| {
                let job = &jobs[index];
                let outcome = match &caches {
                    _ if !progress.is_awaited() => Err(BenchError::Unwanted),
                    Ok(caches) => job.bench.run_from(caches, &job.run, job.effort),
                    // Each run reports the error itself.
                    Err(_) => run(job),
                };
                if let Ok(outcome) = &outcome {
                    cache::put(keys[index].as_deref(), outcome);
                }
                progress.gone(weight(job));
                progress.step(&job.run.to_string());
                (index, outcome)
            };
            group.par_iter().with_max_len(1).map(outcome).collect::<Vec<_>>()
        })
        .collect();
    progress.end();
    let known = known.into_iter().enumerate().filter_map(|(index, outcome)| Some((index, Ok(outcome?))));
    outcomes.extend(known);
    outcomes.sort_unstable_by_key(|&(index, _)| index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Approximate cost of simulating a job, in TLPs: those of its transfers, plus the lines that prepare its caches.
fn weight(job: &Job<'_>) -> u64 {
    /// Cost of a run until it is steady, for latencies and bandwidths.
    const STEADY: (u64, u64) = (4_000, 12_000);
    /// Cache lines prepared in the time that a TLP takes to simulate.
    const LINES: u64 = 16;
    let count = match (job.effort, job.run.test.is_latency()) {
        (Length::Exactly(effort), true) => effort.samples,
        (Length::Exactly(effort), false) => effort.transactions,
        (Length::Steady, true) => STEADY.0,
        (Length::Steady, false) => STEADY.1,
    };
    count * (1 + job.run.transfer.get().div_ceil(128)) + job.run.window.get() / 64 / LINES
}

/// A machine and the initial cache state of a job; `None` if the job is invalid.
type Start = (usize, Option<Beginning>);

fn beginnings(jobs: &[Job<'_>]) -> Vec<Start> {
    let start = |job: &Job<'_>| {
        (std::ptr::from_ref(job.bench).addr(), Beginning::new(job.bench, job.before, &job.run).ok())
    };
    jobs.par_iter().map(start).collect()
}

/// Groups of jobs, by index, with the same machine and initial cache state.
fn alike(beginnings: &[Start]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, beginning) in beginnings.iter().enumerate() {
        groups.entry(beginning).or_default().push(index);
    }
    groups.into_values().collect()
}

/// Cache key of each job's outcome: machine and card, the run and its length, and the initial cache state.
fn keys(jobs: &[Job<'_>], beginnings: &[Start]) -> Vec<Option<String>> {
    let mut benches: BTreeMap<usize, String> = BTreeMap::new();
    for (job, (machine, _)) in jobs.iter().zip(beginnings) {
        benches.entry(*machine).or_insert_with(|| cache::digest(job.bench));
    }
    let key = |(job, (machine, beginning)): (&Job<'_>, &Start)| {
        let of = format!("{:?} {:?} {:?}", job.run, job.effort, beginning.as_ref()?);
        cache::key("bench", &[&benches[machine], &of])
    };
    jobs.iter().zip(beginnings).map(key).collect()
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

    /// Weights predict the waiting time within a factor of two, so each kind of job has to weigh what it takes.
    #[test]
    fn jobs_weigh_what_they_take() {
        let bench = bench(0);
        let tests = [Test::LatDmaRd, Test::LatDmaWrRd, Test::BwDmaRd, Test::BwDmaWr, Test::BwDmaRw];
        let runs: Vec<Run> = tests
            .into_iter()
            .flat_map(|test| [8, 64, 512, 2048].map(|transfer| (test, transfer)))
            .flat_map(|(test, transfer)| {
                [Bytes::kib(64), Bytes::mib(4)].map(|window| run_of(test, Cache::HostWarm, transfer, window))
            })
            .collect();
        let job = |&run: &Run| Job { bench: &bench, run, before: &[], effort: Length::Steady };
        let jobs: Vec<Job<'_>> = runs.iter().map(job).collect();
        let took: Vec<f64> =
            run_all(&jobs, "", &Silent).into_iter().map(|outcome| outcome.unwrap().tlps as f64).collect();
        let share = |of: &dyn Fn(&Run) -> bool| {
            let of = || jobs.iter().zip(&took).filter(|(job, _)| of(&job.run));
            let weights: f64 = of().map(|(job, _)| weight(job) as f64).sum();
            of().map(|(_, took)| took).sum::<f64>() / weights
        };
        let all = share(&|_| true);
        let far = |share: f64| !(0.5..2.0).contains(&(share / all));
        assert!(!tests.iter().any(|&test| far(share(&|run| run.test == test))));
        assert!(![8, 64, 512, 2048].iter().any(|&t| far(share(&|run| run.transfer == Bytes::new(t)))));
    }

    /// A shared preparation gives each run the same result as its own, whatever ran before.
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
            let groups = alike(&beginnings(&jobs)).len();
            assert!(warming == 1 || groups == caches.len(), "{groups} groups");
            for (job, together) in jobs.iter().zip(run_all(&jobs, "", &Silent)) {
                assert_eq!(together.unwrap().row, run(job).unwrap().row);
            }
        }
    }
}
