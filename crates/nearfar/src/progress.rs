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
    /// Whether somebody still waits for what comes out. If not, the work ends before long with an error that says so.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// A part of a piece of work, of which nobody wants to know by itself.
pub(crate) struct Part<'a>(pub &'a dyn Progress);

impl Progress for Part<'_> {
    fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }
}
