//! Results as data: pcie-bench's files, comparisons of simulated with
//! measured, published claims with verdicts, and the report.
//!
//! This crate depends on no model: it is given numbers.

pub mod claims;
pub mod compare;
pub mod pciebench;
pub mod report;
