//! Traces a run of pcie-bench.

use machine::Setup;

use super::{Capture, Recorder, Span};
use crate::batch::Length;
use crate::bench::{BenchError, Effort, Outcome};
use crate::scenario::{bench_of, length_of, runs_of};

/// Simulates the scenario's `number`th run, counted from 1, and records the card's link from the start of the test.
/// Stops when the span is full; the outcome then covers only the simulated part.
///
/// # Errors
/// As [`crate::bench::Bench::run`].
///
/// # Panics
/// If the scenario has fewer runs.
pub fn trace(setup: &Setup, number: usize, span: Span) -> Result<(Capture, Option<Outcome>), BenchError> {
    let run = runs_of(setup)[number - 1];
    let effort = match length_of(setup) {
        Length::Exactly(effort) => effort,
        Length::Steady => Effort::default(),
    };
    let recorder = Recorder::new(span);
    let outcome = bench_of(setup).run_recorded(&run, effort, &recorder)?;
    let capture = recorder.borrow_mut().capture();
    Ok((capture, outcome))
}
