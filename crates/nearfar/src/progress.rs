//! How long things take, told to whoever wants to know.

use units::Duration;

/// Is told how a piece of work gets on. Called from several threads.
pub trait Progress: Sync {
    /// Work of so many steps begins.
    fn begin(&self, _what: &str, _steps: u64) {}
    /// The steps are not alike: together they weigh so much, in TLPs to be simulated or what takes as long.
    fn weigh(&self, _total: u64) {}
    /// Steps that weigh so much are done.
    fn gone(&self, _weight: u64) {}
    /// One step is done; `what` it was.
    fn step(&self, _what: &str) {}
    /// A simulation gets on: so much simulated time has passed, of so much where that is known.
    fn simulated(&self, _passed: Duration, _of: Option<Duration>) {}
    /// The work is over.
    fn end(&self) {}
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}
