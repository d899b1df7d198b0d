//! What benchmarks of whole computers share; each uses a part of it.
#![allow(dead_code)]

use nearfar::computer;
use nearfar::progress::Silent;
use units::Duration;
use workloads::Report;

use crate::clock::seconds_of_work;

/// A run of a scenario's programs.
pub struct Run {
    /// Processor time that it took, putting the computers together included.
    pub seconds: f64,
    /// Simulated time from its start to the last program's end.
    pub simulated: Duration,
    /// What the last program reports.
    pub report: Report,
}

/// Runs a scenario in which every program ends well.
pub fn run(scenario: &str) -> Run {
    let setup = crate::scenario::loaded(scenario);
    let began = seconds_of_work();
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    let seconds = seconds_of_work() - began;
    let simulated = done.iter().map(|done| done.took).max().unwrap_or_default();
    // What a run adds about links comes behind the programs.
    let last = done.into_iter().rfind(|done| !done.run.starts_with("link to ")).expect("there is a program");
    let report = last.outcome.unwrap_or_else(|failure| panic!("{}: {failure}", last.run));
    Run { seconds, simulated, report }
}

/// The most memory that the process had since [`forget_peak`], in kB, where Linux tells it.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Begins anew with [`peak`]. Where the system does not let it, the peak is that of all so far.
pub fn forget_peak() {
    // proc_pid_clear_refs(5): 5 resets the peak.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
