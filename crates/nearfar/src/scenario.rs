//! Runs scenario files of pcie-bench.

use machine::{BenchRun, Interface, Machine, Setup};
use results::pciebench::{Cache, Pattern, Run, Test};
use units::Bytes;

use crate::batch::{self, Job};
use crate::bench::{Bench, BenchError, Effort, Length, Outcome};
use crate::progress::Progress;

/// A run of a scenario and its outcome.
#[derive(Debug)]
pub struct FinishedRun {
    /// The test, its window and its transfers.
    pub run: Run,
    /// Latencies or bandwidth, and what was counted meanwhile.
    pub outcome: Outcome,
}

/// The bench described by a scenario.
pub fn bench_of(setup: &Setup) -> Bench {
    Bench {
        machine: with_only_slot(&setup.machine, &setup.slot),
        card: setup.card.clone(),
        sockets: setup.scenario.pcie_bench.sockets(),
        iommu: setup.scenario.pcie_bench.iommu(),
        seed: setup.scenario.seed.unwrap_or(1),
    }
}

/// The machine reduced to one slot, so that the card must be in it.
fn with_only_slot(machine: &Machine, slot: &str) -> Machine {
    let mut machine = machine.clone();
    machine.host.port.retain(|name, _| name == slot);
    machine
}

/// The runs of a scenario, in pcie-bench's terms.
pub fn runs_of(setup: &Setup) -> Vec<Run> {
    setup.scenario.pcie_bench.runs().iter().map(run_of).collect()
}

/// Length of a scenario's runs.
pub(crate) fn length_of(setup: &Setup) -> Length {
    match setup.scenario.pcie_bench.samples {
        Some(samples) => Length::Exactly(Effort { samples, ..Effort::default() }),
        None => Length::Steady,
    }
}

/// Runs a scenario on all cores.
///
/// # Errors
/// The first run that cannot be simulated.
pub fn run(setup: &Setup, progress: &dyn Progress) -> Result<Vec<FinishedRun>, BenchError> {
    run_all(&[setup], &setup.scenario.name, progress).remove(0)
}

/// Runs several scenarios on all cores. Returns the outcomes of each, or its first run that cannot be simulated.
/// `what` is the name in progress reports.
pub fn run_all(
    setups: &[&Setup],
    what: &str,
    progress: &dyn Progress,
) -> Vec<Result<Vec<FinishedRun>, BenchError>> {
    let benches: Vec<(Bench, Vec<Run>, Length)> =
        setups.iter().map(|setup| (bench_of(setup), runs_of(setup), length_of(setup))).collect();
    let jobs: Vec<Job<'_>> = benches
        .iter()
        .flat_map(|(bench, runs, effort)| {
            runs.iter().map(|&run| Job { bench, run, before: &[], effort: *effort })
        })
        .collect();
    let mut outcomes = batch::run_all(&jobs, what, progress).into_iter();
    let done = |(&run, outcome): (&Run, Result<Outcome, _>)| Ok(FinishedRun { run, outcome: outcome? });
    // Consumes all outcomes of its own, even after a failed run.
    let own = |(_, runs, _): &(_, Vec<Run>, _)| {
        let own: Vec<_> = outcomes.by_ref().take(runs.len()).collect();
        runs.iter().zip(own).map(done).collect()
    };
    benches.iter().map(own).collect()
}

fn run_of(run: &BenchRun) -> Run {
    let command = run.interface == Interface::Command;
    Run {
        test: match run.test {
            machine::Test::LatRd if command => Test::LatCmdRd,
            machine::Test::LatRd => Test::LatDmaRd,
            machine::Test::LatWrRd if command => Test::LatCmdWrRd,
            machine::Test::LatWrRd => Test::LatDmaWrRd,
            machine::Test::BwRd => Test::BwDmaRd,
            machine::Test::BwWr => Test::BwDmaWr,
            machine::Test::BwRdWr => Test::BwDmaRw,
        },
        pattern: match run.pattern {
            machine::Pattern::Sequential => Pattern::Sequential,
            machine::Pattern::Random => Pattern::Random,
        },
        cache: match run.cache {
            machine::Cache::Cold => Cache::Cold,
            machine::Cache::HostWarm => Cache::HostWarm,
            machine::Cache::DeviceWarm => Cache::DeviceWarm,
            machine::Cache::DeviceThrash => Cache::DeviceThrash,
        },
        host_offset: run.host_offset.get(),
        device_offset: run.device_offset.get(),
        window: Bytes::new(run.window.get()),
        transfer: run.transfer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::{ComputerScenario, ComputerSetup, Doc, Library, Scenario};

    /// Every built-in scenario can be assembled, and its runs are valid for pcie-bench.
    #[test]
    fn scenarios_of_the_repository_are_runnable() {
        let library = Library::built_in();
        for name in library.names("scenarios") {
            let computers = Doc::<ComputerScenario>::load(&library, &name).unwrap();
            if computers.has("host").unwrap() {
                let setup = ComputerSetup::load(&library, &computers).unwrap();
                crate::computer::check(&setup).unwrap();
                continue;
            }
            let doc = Doc::<Scenario>::load(&library, &name).unwrap();
            let setup = Setup::load(&library, &doc).unwrap();
            assert!(!runs_of(&setup).is_empty(), "{name}");
            assert_eq!(bench_of(&setup).machine.host.port.len(), 1, "{name}");
        }
    }
}
