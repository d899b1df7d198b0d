//! PCIe host I/O simulated in software: machine and scenario in, simulation, results out.
//!
//! The root exports what most users need: scenarios by name or path, changes, and records of results. The
//! repository's `docs/outputs.md` describes the keys of records.
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
//! Errors in a file or a change say where and what would be valid:
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
//!
//! A sweep runs its points on all cores. Results depend only on files, changes and seed:
//!
//! ```
//! use nearfar::{Combination, Experiment, ExperimentError, Library, Silent, combinations, sweep};
//!
//! let library = Library::built_in();
//! let over = [
//!     ("dma_engine.tags".to_owned(), vec!["2".to_owned(), "32".to_owned()]),
//!     ("pcie_bench.samples".to_owned(), vec!["500".to_owned()]),
//! ];
//! let load = |values: Combination| -> Result<_, ExperimentError> {
//!     let experiment = Experiment::load(&library, "card-bandwidth", "over", &values)?;
//!     Ok((values, experiment))
//! };
//! let points = combinations(&over).into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
//! let records = sweep(&points, false, &Silent)?;
//! let gbit_per_s = |point: usize| records[point][0]["goodput_gbit_per_s"].as_f64().unwrap();
//! assert!(gbit_per_s(1) > 2.0 * gbit_per_s(0), "few tags bound the bandwidth");
//! # Ok::<(), ExperimentError>(())
//! ```
//!
//! Each command of the program has a module:
//!
//! | module | what it does |
//! |---|---|
//! | [`mod@bench`], [`suite`] | one test of pcie-bench on a machine with a card; all of them |
//! | [`batch`] | many such tests on all cores |
//! | [`mod@compare`], [`mod@fit`] | rows that were measured against the same rows simulated; figures fitted to them |
//! | [`computer`], [`scenario`] | a scenario of programs on computers, or of pcie-bench, with results as typed values |
//! | [`counters`] | what was counted meanwhile, and which resource binds |
//! | [`mod@what_if`] | what a tenth more of each resource gains, by simulating again |
//! | [`origins`] | where the figures come from that a result rests on |
//! | [`uncertainty`] | results as intervals, by runs with drawn figures |
//! | [`lend_cost`] | what a program pays for a lent device |
//! | [`peers`] | what GPUs copy to each other |
//! | [`prototype`] | a device of your own in a slot of a simulated host |
//! | [`trace`] | what passes the links, packet by packet |
//! | [`draw`] | a scenario as a picture |
//! | [`cache`] | results that were simulated before |
//!
//! Types of other crates in this interface are re-exported under the crates' names: [`machine`], [`platform`],
//! [`results`], [`units`] and [`wire`].

pub mod batch;
pub mod bench;
pub mod cache;
pub mod changes;
pub mod compare;
pub mod computer;
pub mod counters;
pub mod draw;
pub mod experiment;
pub mod fit;
pub mod lend_cost;
mod links;
pub mod origins;
pub mod peers;
mod plain;
pub mod progress;
pub mod prototype;
pub mod records;
pub mod scenario;
pub mod suite;
mod tenth;
// Hardware built from files, for tests and fuzzing of its parts; not part of the public interface.
#[doc(hidden)]
pub mod topology;
pub mod trace;
pub mod uncertainty;
pub mod what_if;

pub use experiment::{Changes, Combination, Experiment, ExperimentError, combinations, sweep};
pub use links::LinkState;
pub use machine::Library;
pub use progress::{Progress, Silent};
pub use records::Record;
pub use {machine, platform, results, units, wire};
// What measures inside of simulated computers sees their parts; not part of the public interface.
#[doc(hidden)]
pub use {drivers, engine, hardware, kernel, tester, virt, workloads};
