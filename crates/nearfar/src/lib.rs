//! Machine and scenario in, simulation, results out.
//!
//! [`topology`] puts hardware together as the files describe it; [`bench`] runs
//! pcie-bench on it, [`batch`] many times. What the program's commands do
//! stands beside: [`compare`](mod@compare) measured with simulated.
//!
//! Most need no more than a scenario by its name or path, changes, and the records of what came out:
//!
//! ```
//! use nearfar::{Experiment, ExperimentError, Library, Silent};
//!
//! let changes = [("host.llc.ddio_ways", "4"), ("pcie_bench.samples", "100")];
//! let changes = changes.map(|(path, value)| (path.to_owned(), value.to_owned()));
//! let experiment = Experiment::load(&Library::built_in(), "latency-by-size", "set", &changes)?;
//! let records = experiment.run(false, &Silent)?;
//! let rows = records.iter().filter(|record| record["kind"] == "row");
//! for row in rows {
//!     assert!(row["median_ns"].as_f64().unwrap() > 300.0, "{} B", row["transfer_bytes"]);
//! }
//! # Ok::<(), ExperimentError>(())
//! ```
//!
//! What is wrong with a file or a change is told with its place and what would be right:
//!
//! ```
//! use nearfar::{Experiment, ExperimentError, Library};
//!
//! let changes = [("host.llc.ddio_wayz".to_owned(), "4".to_owned())];
//! match Experiment::load(&Library::built_in(), "latency-by-size", "set", &changes) {
//!     Err(ExperimentError::Files(wrong)) => assert!(wrong.to_string().contains("ddio_ways")),
//!     other => panic!("{other:?}"),
//! }
//! ```

pub mod batch;
pub mod bench;
pub mod cache;
pub mod compare;
pub mod computer;
pub mod counters;
pub mod experiment;
pub mod fit;
pub mod links;
pub mod progress;
pub mod prototype;
pub mod records;
pub mod reproduce;
pub mod scenario;
pub mod suite;
pub mod topology;
pub mod trace;

pub use experiment::{Experiment, ExperimentError};
pub use machine::Library;
pub use progress::Silent;
