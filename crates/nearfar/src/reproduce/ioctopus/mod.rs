//! "IOctopus: Outsmarting Nonuniform DMA", ASPLOS 2020.
//!
//! Every run is a scenario of its own: the paper's server in one of its organisations, a workload, and counters of hardware
//! and kernel over a window in which the workload's rate is steady.

mod latency;
mod packets;
mod rig;
mod streams;

use std::collections::BTreeMap;

use machine::Diagnostics;
use rayon::prelude::*;
use results::claims::{ClaimFile, Evidence};

use super::{Options, Reproduction};
use crate::progress::Progress;
use rig::{Bench, Organisation};

/// Values by the names that claims use.
type Values = BTreeMap<String, f64>;

/// Sizes of netperf's buffers (Figures 6 and 7), of frames (Figure 8) and of messages (Figure 9); the paper's axes are lost.
const BUFFERS: [u32; 7] = [64, 256, 1024, 1500, 4096, 16384, 65536];
const FRAMES: [u32; 6] = [64, 128, 256, 512, 1024, 1500];
const MESSAGES: [u32; 5] = [1, 64, 1024, 8192, 65536];

/// What gives values.
type Experiment = Box<dyn Fn(&Bench) -> Result<Values, String> + Sync + Send>;

/// A run, and what it gives.
struct Run {
    name: String,
    run: Experiment,
}

impl Run {
    fn new(name: String, run: impl Fn(&Bench) -> Result<Values, String> + Sync + Send + 'static) -> Self {
        Self { name, run: Box::new(run) }
    }
}

/// What the claims' keys contain that no run gives yet, and why.
const NOT_MODELLED: [(&str, &str); 11] = [
    ("/octo/", "no scenario reaches a NIC with links to both sockets yet"),
    ("octo-2x", "no scenario reaches a NIC with links to both sockets yet"),
    ("multicore-", "all cores at line rate need a NIC with links to both sockets"),
    ("memcached-", "there is no memcached yet"),
    ("qpi-", "there are no STREAM instances that only read or only write yet"),
    ("pagerank-", "there is no PageRank yet"),
    ("migration/", "no program moves while it is measured yet"),
    ("fio-", "there is no machine with the paper's drives yet"),
    ("trend/", "the figure's data are not there yet"),
    ("/ring-at-device/", "the driver has its rings at the core's node"),
    ("link-io", "no scenario reaches a NIC with links to both sockets yet"),
];

/// Why no run gives a value.
fn why_not(key: &str) -> Option<&'static str> {
    NOT_MODELLED.iter().find(|(part, _)| key.contains(part)).map(|(_, reason)| *reason)
}

/// All runs, the longest first.
fn runs() -> Vec<Run> {
    use Organisation::{DdioOff, Local, Remote, RemoteDdioDevice, RemoteDdioHome};
    let mut runs = Vec::new();
    for organisation in [Local, Remote] {
        for buffer in BUFFERS.into_iter().rev() {
            runs.push(Run::new(format!("RX {} {buffer}", organisation.name()), move |bench| {
                let rates = streams::receive(bench, organisation, buffer)?;
                Ok(streams::values("rx", organisation, buffer, &rates))
            }));
            runs.push(Run::new(format!("TX {} {buffer}", organisation.name()), move |bench| {
                let rates = streams::send(bench, organisation, buffer, true)?;
                Ok(streams::values("tx", organisation, buffer, &rates))
            }));
        }
        runs.push(Run::new(format!("TX {} without TSO", organisation.name()), move |bench| {
            let rates = streams::send(bench, organisation, 65536, false)?;
            Ok(streams::values("tx-no-tso", organisation, 65536, &rates))
        }));
        for frame in FRAMES {
            runs.push(Run::new(format!("pktgen {} {frame}", organisation.name()), move |bench| {
                packets::run(bench, organisation, frame)
            }));
        }
    }
    for organisation in [DdioOff, RemoteDdioDevice, RemoteDdioHome] {
        runs.push(Run::new(format!("RX {} 65536", organisation.name()), move |bench| {
            let rates = streams::receive(bench, organisation, 65536)?;
            Ok(streams::values("rx", organisation, 65536, &rates))
        }));
        runs.push(Run::new(format!("pktgen {} 64", organisation.name()), move |bench| {
            packets::run(bench, organisation, 64)
        }));
    }
    for organisation in [Local, Remote, DdioOff] {
        for bytes in MESSAGES {
            runs.push(Run::new(format!("RR {} {bytes}", organisation.name()), move |bench| {
                latency::run(bench, organisation, bytes)
            }));
        }
    }
    runs
}

/// Runs everything and judges the claims and figures by what was observed.
///
/// # Errors
/// A machine, part or scenario file that is wrong.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let file = ClaimFile::ioctopus();
    let runs = runs();
    progress.begin("ioctopus", runs.len() as u64);
    let bench = Bench::new(options);
    let outcome = |run: &Run| {
        let outcome = bench.as_ref().map_err(Clone::clone).and_then(|bench| (run.run)(bench));
        progress.step(&run.name);
        outcome
    };
    let outcomes: Vec<Result<Values, String>> = runs.par_iter().with_max_len(1).map(outcome).collect();
    progress.end();
    let observed: Values = outcomes.iter().flatten().flatten().map(|(k, v)| (k.clone(), *v)).collect();
    let mut evidence = Evidence::default();
    for key in file.observed() {
        let why = || why_not(&key).unwrap_or("its run failed").to_owned();
        let value = observed.get(&key).copied().ok_or_else(why);
        evidence.observed.insert(key, value);
    }
    let ran = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let failed = runs
        .iter()
        .zip(&outcomes)
        .filter_map(|(run, outcome)| outcome.as_ref().err().map(|reason| format!("{}: {reason}.", run.name)));
    let notes: Vec<String> = failed.collect();
    Ok(Reproduction::new("IOctopus, simulated", file, evidence, ran, Vec::new(), notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { library: machine::Library::built_in(), data: ".".into(), seed: 1 }
    }

    /// Every value that a claim names is one that a run gives, or one of which it is said why not.
    #[test]
    fn claims_name_what_runs_give() {
        let file = ClaimFile::ioctopus();
        let names: Vec<String> = runs().into_iter().map(|run| run.name).collect();
        assert!(names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len());
        for key in file.observed() {
            let starts = ["rx-", "tx-", "pktgen-", "rr-"];
            assert!(starts.iter().any(|start| key.starts_with(start)) || why_not(&key).is_some(), "{key}");
        }
    }

    /// The mechanism behind Figures 6 to 8: what a remote NIC writes and reads crosses the interconnect, and what a local one
    /// does never.
    #[test]
    fn only_a_remote_nic_crosses_the_interconnect() {
        let bench = Bench::new(&options()).unwrap();
        let [local, remote] = [Organisation::Local, Organisation::Remote]
            .map(|organisation| streams::send(&bench, organisation, 65536, true).unwrap());
        assert!(remote.link_dma > 0.9 * remote.gbit, "{remote:?}");
        assert!(local.link_dma < 0.02 * local.gbit, "{local:?}");
        assert!(remote.memory > 3.0 * local.memory, "{remote:?} {local:?}");
    }
}
