//! Results as data: pcie-bench's files, comparisons of simulation and measurement, published claims with verdicts,
//! and the report.
//!
//! This crate depends on no model; it only processes numbers.
//!
//! ```
//! use results::claims::{ClaimFile, Evidence, Outcome};
//! use results::report::Report;
//!
//! let file = ClaimFile::of("pcie-bench");
//! let mut evidence = Evidence::default();
//! for experiment in file.experiments() {
//!     // Here, simulating the experiment would give latencies or a goodput.
//!     let gbit_per_s = 32.0;
//!     if !experiment.run.test.is_latency() {
//!         evidence.outcomes.insert(experiment, Outcome::Bandwidth(gbit_per_s));
//!     }
//! }
//! let verdicts = file.judge(&evidence);
//! let page = Report::of_claims("pcie-bench, simulated", &file, &evidence).to_html();
//! assert!(verdicts.len() > 400 && page.starts_with("<!DOCTYPE html>"));
//! ```

pub mod answer;
pub mod claims;
pub mod compare;
pub mod difference;
pub mod pciebench;
pub mod provenance;
pub mod records;
pub mod report;
pub mod table;
pub mod tools;

pub use provenance::Provenance;
