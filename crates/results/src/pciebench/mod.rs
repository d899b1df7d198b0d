//! The result files of pcie-bench: read strictly, written so that its users'
//! scripts work on them unchanged.
//!
//! pcie-bench (Neugebauer et al., SIGCOMM 2018) writes one CSV file per
//! experiment: latency files with statistics in cycles and nanoseconds,
//! bandwidth files, and distributions. A directory holds the files of one
//! machine in one set-up, which its name tells.

mod directory;
mod error;
mod name;
mod number;
mod read;
mod row;
mod run;
mod suite;
mod write;

pub use directory::{
    BadSockets, IommuMode, ResultDirectory, Setup, Sockets, read_directory, read_directory_lenient, setup_of,
};
pub use error::{Problem, ReadError};
pub use name::family;
pub use number::{parse_number, python_float};
pub use read::{Contents, LineEnding, ResultFile, read_bytes, read_file};
pub use row::{BandwidthRow, Cdf, CdfPoint, LatencyRow, LatencyStats, Row};
pub use run::{Cache, Pattern, Run, Test, UnknownWord};
pub use suite::{PlannedFile, suite};
pub use write::{to_csv, write_file};
