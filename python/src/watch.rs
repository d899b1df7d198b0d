//! Work that Python waits for: beside the interpreter, which goes on with other threads, shows how far it is, and can stop it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nearfar::progress::{PlannedEnd, Progress};
use pyo3::prelude::*;

use crate::failure::Failure;

/// Between two looks whether somebody pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// How far a piece of work is.
#[derive(Clone, Default)]
struct State {
    what: String,
    done: u64,
    steps: u64,
    last: String,
}

#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    is_unwanted: AtomicBool,
}

impl Watch {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Watch {
    fn begin(&self, what: &str, steps: u64) {
        self.with(|state| *state = State { what: what.to_owned(), steps, ..State::default() });
    }

    fn step(&self, what: &str) {
        self.with(|state| {
            state.done += 1;
            what.clone_into(&mut state.last);
        });
    }

    fn simulated(&self, passed: units::Duration, end: Option<&PlannedEnd>) {
        self.with(|state| {
            state.last = match end {
                Some(end) => format!("{passed} of {} simulated", end.after),
                None => format!("{passed} simulated"),
            };
        });
    }

    fn is_awaited(&self) -> bool {
        !self.is_unwanted.load(Ordering::Relaxed)
    }
}

/// Does `work` with so many threads, all cores if not given, and tells `progress` (a callable that takes what is done, how
/// many steps, of how many, and the last one) how far it is. No thread outlives the call: a process may fork between calls.
pub fn watched<T: Send>(
    py: Python<'_>,
    jobs: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&dyn Progress) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let watch = Watch::default();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs.unwrap_or(0)).build();
    let pool =
        pool.map_err(|error| Failure::Run(format!("there are no threads to simulate with: {error}")))?;
    let mut interrupted = None;
    let outcome = std::thread::scope(|scope| {
        let (sender, ended) = channel();
        let (watch, pool) = (&watch, &pool);
        scope.spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| pool.install(|| work(watch))));
            // Who waits is there until this is told.
            let _ = sender.send(outcome);
        });
        let ended = Mutex::new(ended);
        loop {
            let told = py.detach(|| ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK));
            match told {
                Ok(outcome) => return Some(outcome),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if interrupted.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    let state = watch.with(|state| state.clone());
                    let told = py.check_signals().and_then(|()| match progress {
                        Some(tell) => tell.call1((state.what, state.done, state.steps, state.last)).map(drop),
                        None => Ok(()),
                    });
                    if let Err(error) = told {
                        watch.is_unwanted.store(true, Ordering::Relaxed);
                        interrupted = Some(error);
                    }
                }
            }
        }
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    match outcome {
        Some(Ok(outcome)) => Ok(outcome?),
        Some(Err(panic)) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
            Err(Failure::Run(format!("a fault of the simulator, please report it: {said}")).into())
        }
        None => Err(Failure::Run("the simulation ended without a word".into()).into()),
    }
}
