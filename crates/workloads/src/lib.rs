//! Programs for simulated cores. They use only the platform's interfaces, and have the command lines of the real
//! tools.
//!
//! [`PROGRAMS`] lists them; a new one needs a module and an entry there. Invalid command lines are rejected before
//! the simulation starts: by [`parse`] as far as the line alone shows it, by [`Program::check`] if it depends on the
//! host.

pub mod boot;
mod command_line;
mod core_to_core;
pub mod cuda;
pub mod dd;
pub mod ethtool;
pub mod fio;
pub mod iperf;
pub mod l2fwd;
mod lat_mem_rd;
mod latency;
pub mod memcached;
pub mod mlc;
pub mod netperf;
pub mod nvm;
mod options;
pub mod pagerank;
mod pcimem;
pub mod ping;
pub mod pktgen;
mod premises;
mod program;
mod random;
mod registry;
mod rewrite;
pub mod rogue;
mod scattered;
pub mod sockperf;
mod spdk;
pub mod stream;
pub mod testpmd;
mod unmodelled;
mod usage;

pub use command_line::JobFiles;
pub use premises::{Disk, Link, Premises, Refused};
pub use program::{
    Environment, Failure, Firmware, MeasuredSpan, Program, Reading, Report, ReportSoFar, TrafficKind,
};
pub use registry::{Command, PROGRAMS, parse, parse_with};
pub use rewrite::{option_axis, with_option};
