//! Programs that run on simulated cores. They see the platform alone, and are called as the real tools are.
//!
//! [`PROGRAMS`] lists them: a new one takes a module and a line there. What a command line asks for that cannot be is told before
//! anything runs: by [`parse`], as far as the line itself shows it, by [`Program::check`] where it depends on what is there.

pub mod boot;
pub mod cuda;
pub mod dd;
pub mod ethtool;
pub mod fio;
pub mod iperf;
pub mod l2fwd;
mod lat_mem_rd;
mod latency;
pub mod memcached;
pub mod netperf;
pub mod nvm;
mod options;
pub mod pagerank;
pub mod ping;
pub mod pktgen;
mod premises;
mod program;
mod random;
mod registry;
pub mod sockperf;
pub mod stream;

pub use premises::{Disk, Link, Premises, Refused};
pub use program::{Environment, Failure, Program, Reading, Report, Way};
pub use registry::{Command, PROGRAMS, parse};
