//! Why computers cannot be simulated.

use machine::Diagnostics;
use thiserror::Error;
use units::Time;

use crate::topology::TopologyError;

/// Why computers cannot be simulated.
#[derive(Debug, Error)]
pub enum ComputerError {
    /// The run was cancelled.
    #[error("the run was given up: nobody waits for it any more")]
    Unwanted,
    /// A file is wrong or incomplete.
    #[error(transparent)]
    Files(#[from] Diagnostics),
    /// The hardware cannot be assembled.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There is no room for a drive's backing file.
    #[error("cannot make a temporary file for a drive's blocks: {0}; name one with `backing`, or set TMPDIR")]
    Temporary(std::io::Error),
    /// A file with a drive's blocks cannot be read or written.
    #[error("cannot go on with {file}: {problem}; this machine's disk failed, and no simulated drive")]
    Blocks {
        /// What it is.
        file: String,
        /// System error.
        problem: std::io::Error,
    },
    /// A capture cannot be written.
    #[error("cannot write the capture {file}: {problem}")]
    Capture {
        /// Path as in the scenario.
        file: String,
        /// System error.
        problem: std::io::Error,
    },
    /// A network device cannot be started.
    #[error("{host}: {device} does not start: {problem}")]
    Network {
        /// Host name in the scenario.
        host: String,
        /// Device name.
        device: String,
        /// The driver's error.
        problem: platform::Error,
    },
    /// Lending does not work.
    #[error("{host}: lending, {what}: {problem}")]
    Lending {
        /// Host name in the scenario.
        host: String,
        /// The service or the function concerned.
        what: String,
        /// The service's error.
        problem: platform::Error,
    },
    /// Events follow each other without end at the same time.
    #[error(
        "simulated time stands still at {at} while `{running}` runs: something polls without end, because a time or a rate of a \
         file or a change is 0 where it must not be"
    )]
    StandsStill {
        /// The time.
        at: Time,
        /// The programs that have not ended.
        running: String,
    },
    /// Programs that have not ended after the longest time that is simulated.
    #[error(
        "`{running}` has not ended after a simulated day, which is the most: a time, a size or a rate of a file, a change or the \
         command line is out of proportion"
    )]
    TooLong {
        /// The programs that have not ended.
        running: String,
    },
    /// Nothing is left to happen, but a task is still waiting.
    #[error("{0}")]
    Deadlock(#[from] engine::Deadlock),
}
