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
