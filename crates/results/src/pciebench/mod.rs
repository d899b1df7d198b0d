//! The result files of pcie-bench: strict parsing, and writing in a format that its users' scripts can read
//! unchanged.
//!
//! pcie-bench (Neugebauer et al., SIGCOMM 2018) writes one CSV file per experiment: latency files with statistics in
//! cycles and nanoseconds, bandwidth files, and distributions. A directory holds the files of one machine in one
//! setup, which its name encodes.

mod dat;
mod directory;
mod error;
mod host_facts;
mod name;
mod number;
mod read;
mod row;
mod run;
mod setup;
mod suite;
mod write;

pub use dat::to_dat;
pub use directory::{ResultDirectory, read_directory, read_directory_lenient, setup_of};
pub use error::{Problem, ReadError};
pub use host_facts::HostFacts;
pub use name::family;
pub use number::{parse_number, python_float};
pub use read::{Contents, LineEnding, ResultFile, read_bytes, read_file};
pub use row::{BandwidthRow, Cdf, CdfPoint, LatencyRow, LatencyStats, Row};
pub use run::{Cache, Pattern, Run, Test, UnknownWord};
pub use setup::{BadSockets, IommuMode, Setup, Sockets};
pub use suite::{PlannedFile, missing_rows, place_in_suite, suite};
pub use write::to_csv;
