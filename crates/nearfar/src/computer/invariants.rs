//! What holds for the counts of every run, whatever happened in it.

use machine::ComputerSetup;
use units::Duration;

use super::accounting::Account;
use super::counting::Counted;
use super::finished::{Counts, Subject};
use crate::counters::Resource;

/// Statements that do not hold: of no run of a scenario, unless the simulator is wrong.
///
/// - No resource is used for more than the time that has passed.
/// - CPU times of tasks, interrupts and idling add up to the cores' time.
/// - Every program except servers, every traffic source, event and borrowing has a report or a reason.
#[must_use]
pub fn violations(setup: &ComputerSetup, counts: &Counts) -> Vec<String> {
    let all = [shares(counts), accounts(setup, counts), reports(setup, counts)];
    all.into_iter().flatten().collect()
}

fn shares(counts: &Counts) -> Vec<String> {
    let describe = |program: usize, host: &str, resource: &Resource| {
        let (percent, kind) = (100.0 * resource.share, resource.kind.name());
        format!("{host}'s {} ({kind}) is used {percent} % of the time of program {program}", resource.place)
    };
    let of = |counted: &Counted| {
        counted.window.overused().map(|(host, resource)| describe(counted.program, host, resource)).collect()
    };
    counts.counted.iter().flat_map(|counted| -> Vec<String> { of(counted) }).collect()
}

fn accounts(setup: &ComputerSetup, counts: &Counts) -> Vec<String> {
    let wrong = setup.hosts.iter().filter_map(|host| {
        let own: Vec<&Account> = counts.accounts.iter().filter(|account| account.host == host.name).collect();
        let span = own.first()?.span;
        let cores = u64::from(host.cores());
        let (sum, all) = (own.iter().map(|account| account.total()).sum::<Duration>(), span * cores);
        let name = &host.name;
        (sum != all).then(|| format!("accounts of {name} are {sum}, of {cores} cores in {span}: {all}"))
    });
    wrong.collect()
}

fn reports(setup: &ComputerSetup, counts: &Counts) -> Vec<String> {
    let has = |subject| counts.done.iter().filter(|done| done.subject == subject).count();
    let sources = setup.programs.len()..setup.programs.len() + setup.sources.len();
    let once = (sources.map(Subject::Program)).chain((0..setup.events.len()).map(Subject::Event));
    let lacking = once.filter(|&subject| has(subject) != 1);
    let counted = counts.counted.iter().map(|counted| Subject::Program(counted.program));
    let uncounted = counted.filter(|&subject| has(subject) == 0);
    let describe = |subject| format!("{subject:?} has {} reports", has(subject));
    lacking.chain(uncounted).map(describe).collect()
}
