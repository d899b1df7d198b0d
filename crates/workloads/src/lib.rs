//! Programs that run on simulated cores. They see the platform alone, and are called as the real tools are.
//!
//! [`PROGRAMS`] lists them: a new one takes a module and a line there.

pub mod dd;
pub mod ethtool;
pub mod fio;
pub mod iperf;
mod latency;
pub mod netperf;
mod options;
pub mod ping;
pub mod pktgen;
mod program;
mod random;
mod registry;
pub mod stream;

pub use program::{Environment, Failure, Program, Reading, Report, Way};
pub use registry::{Command, PROGRAMS, Refused, parse};
