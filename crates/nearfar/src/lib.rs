//! Machine and scenario in, simulation, results out.
//!
//! [`topology`] puts hardware together as the files describe it; [`bench`] runs
//! pcie-bench on it, [`batch`] many times. What the program's commands do
//! stands beside: [`compare`](mod@compare) measured with simulated.

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
pub mod records;
pub mod reproduce;
pub mod scenario;
pub mod suite;
pub mod topology;
pub mod trace;
