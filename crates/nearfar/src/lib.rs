//! Machine and scenario in, simulation, results out.
//!
//! [`topology`] puts hardware together as the files describe it; [`bench`] runs
//! pcie-bench on it.

pub mod bench;
pub mod topology;
