//! Progress reports.

use units::Duration;

/// Receiver of progress reports. Called from several threads.
pub trait Progress: Sync {
    /// Work of this many steps starts.
    fn begin(&self, _what: &str, _steps: u64) {}
    /// Steps differ in cost: `_total` is their sum, in TLPs to simulate or their equivalent.
    fn weigh(&self, _total: u64) {}
    /// Steps of this cost are done.
    fn gone(&self, _weight: u64) {}
    /// A step is done; `_what` describes it.
    fn step(&self, _what: &str) {}
    /// Simulated time so far, and when the work ends if that is known.
    fn simulated(&self, _passed: Duration, _end: Option<&PlannedEnd>) {}
    /// The work is finished.
    fn end(&self) {}
    /// Whether the caller still waits for the result. If not, the work stops early with an error.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// When simulated work ends, and whose options say so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedEnd {
    /// From the start of the first program.
    pub after: Duration,
    /// The command line or source that ends last.
    pub by: String,
}

/// Ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// Hides the reports of a part of the work; only [`Progress::is_awaited`] is passed on.
pub(crate) struct Part<'a>(pub &'a dyn Progress);

impl Progress for Part<'_> {
    fn is_awaited(&self) -> bool {
        self.0.is_awaited()
    }
}
