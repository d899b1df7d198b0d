//! Many independent runs on all cores, results in the order in which they were asked for.
//!
//! Every run has a simulation and generators of its own, seeded by the bench's seed and the run itself: what comes
//! out depends neither on the number of threads nor on which other runs there are.

use rayon::prelude::*;
use results::pciebench::Run;

use crate::bench::{Bench, BenchError, Effort, Outcome};
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

/// How long a run is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as its estimate needs to be steady, for the latency or the bandwidth.
    Steady,
    /// So many samples or transactions.
    Exactly(Effort),
}

/// Transactions of a bandwidth test's first attempt.
const SHORT: u64 = 4_000;
/// Relative half-width of the 95 % confidence interval of a bandwidth or a mean latency that is steady.
const STEADY: f64 = 0.004;
/// Most samples of a latency test: a mean of which half the samples miss is steady with fewer.
const MOST_SAMPLES: u64 = 24_000;

/// Simulates one job: a test that is not steady after a short run is given a longer one.
///
/// # Errors
/// As [`Bench::run`].
pub fn run(job: &Job<'_>) -> Result<Outcome, BenchError> {
    let usual = Effort::default();
    match job.effort {
        Length::Exactly(effort) => job.bench.run_after(job.before, &job.run, effort),
        Length::Steady => {
            let first = job.bench.run_after(job.before, &job.run, Effort { transactions: SHORT, ..usual })?;
            // Where a machine stops now and then, nothing is steady within bounds.
            if first.half_width <= STEADY || job.bench.stops() {
                return Ok(first);
            }
            // The interval narrows with the square root of the samples; a tenth more, as it was only estimated.
            let samples = usual.samples as f64 * 1.1 * (first.half_width / STEADY).powi(2);
            let samples = (samples as u64).clamp(usual.samples, MOST_SAMPLES);
            job.bench.run_after(job.before, &job.run, Effort { samples, ..usual })
        }
    }
}

/// Simulates all jobs, in parallel, and gives their outcomes in the same order.
pub fn run_all(jobs: &[Job<'_>], what: &str, progress: &dyn Progress) -> Vec<Result<Outcome, BenchError>> {
    progress.begin(what, jobs.len() as u64);
    let outcomes = jobs
        .par_iter()
        .with_max_len(1)
        .map(|job| {
            let outcome = run(job);
            progress.step(&job.run.to_string());
            outcome
        })
        .collect();
    progress.end();
    outcomes
}
