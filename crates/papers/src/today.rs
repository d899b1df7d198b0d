//! Public figures of machines of today.
//!
//! Each run is a scenario in `published/today.toml`; its programs follow each other. A value's name is the run's and what a program
//! reports, `r3a/gpu0 to gpu1`, or `RUN/latency at RATE MB/s` for a load between those that `mlc --loaded_latency` has tried.

use machine::Diagnostics;
use nearfar::Progress;
use nearfar::workloads::Report;
use results::claims::{ClaimFile, ScenarioRun};

use super::rig::Rig;
use super::runs::{self as all, NamedRun, Values};
use super::{AskedClaims, Options, Reproduction, selection};

/// Name of the claims, and of the scenarios in messages.
const TODAY: &str = "today";

/// Runs all scenarios and judges the claims by the results.
///
/// # Errors
/// If a machine, part or scenario file is invalid.
pub(super) fn reproduce(options: &Options, progress: &dyn Progress) -> Result<Reproduction, Diagnostics> {
    let all = ClaimFile::of(TODAY);
    let asked = asked(options);
    let mut file = asked.file.clone();
    let keys = file.observed();
    let runs: Vec<NamedRun<Options>> =
        all.runs.into_iter().filter(|run| asked.wants(&run.name)).map(named).collect();
    let mut made =
        all::make((TODAY, options), &runs, progress, |run| &run.name, |run, options| (run.run)(options));
    for key in keys {
        if let Some(latency) = at_load(&made.values, &key) {
            made.values.insert(key, latency);
        }
    }
    selection::keep_known(&mut file, &made.values, &made.failed, options);
    let evidence = all::evidence(&file, &made.values, &made, gives, options);
    let values = all::told(&made.values, options);
    let of = Reproduction::new(
        "Machines of today, simulated",
        file,
        evidence,
        made.count,
        Vec::new(),
        made.failed,
    );
    Ok(of.with_values(values).resting_on(made.rests))
}

/// What is asked for.
pub(super) fn asked(options: &Options) -> AskedClaims {
    let file = ClaimFile::of(TODAY);
    let names = file.runs.iter().map(|run| run.name.clone()).collect();
    AskedClaims::new(file, names, gives, options)
}

/// Whether a run gives a value.
fn gives(run: &str, key: &str) -> bool {
    key.split_once('/').is_some_and(|(name, _)| name == run)
}

fn named(run: ScenarioRun) -> NamedRun<Options> {
    let name = run.name.clone();
    NamedRun { name, run: Box::new(move |options| values(options, &run)) }
}

/// What the programs of a scenario report, one after the other on the same hosts.
fn values(options: &Options, run: &ScenarioRun) -> Result<Values, String> {
    let rig = Rig::boot(options, TODAY, &run.scenario)?;
    let mut values = Values::new();
    for program in rig.programs() {
        let running = rig.start(program.host, &program.cpus, &program.command)?;
        let Report { readings, .. } = rig.report(&running)?;
        for reading in readings {
            let name = format!("{}/{}", run.name, reading.name());
            if values.insert(name.clone(), reading.value).is_some() {
                return Err(format!("two programs report `{name}`"));
            }
        }
    }
    Ok(values)
}

/// The latency at a load, between the two nearest that were tried; `None` for other values, or if it is beyond them.
fn at_load(values: &Values, key: &str) -> Option<f64> {
    let (run, load) = key.split_once("/latency at ")?;
    let load: f64 = load.strip_suffix(" MB/s")?.parse().ok()?;
    let own = format!("{run}/delay ");
    let delays = values.keys().filter_map(|name| name.strip_prefix(&own)?.strip_suffix(": bandwidth"));
    let mut tried: Vec<(f64, f64)> = delays
        .filter_map(|delay| {
            let of = |what: &str| values.get(&format!("{own}{delay}: {what}")).copied();
            Some((of("bandwidth")?, of("loaded latency")?))
        })
        .collect();
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    let above = tried.iter().position(|(rate, _)| *rate >= load)?;
    let [less, more] = [*tried.get(above.checked_sub(1)?)?, tried[above]];
    Some(less.1 + (more.1 - less.1) * (load - less.0) / (more.0 - less.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig;

    /// Every scenario can be loaded, says where its programs run, and gives all that is asked of it.
    #[test]
    fn claims_name_what_runs_give() {
        let (file, options) = (ClaimFile::of(TODAY), Options::whole(1));
        for run in &file.runs {
            let setup = rig::setup(&options, TODAY, &run.scenario)
                .unwrap_or_else(|why| panic!("{}: {why}", run.name));
            assert!(setup.programs.iter().all(|program| !program.cpus.is_empty()), "{}", run.name);
            assert!(file.observed().iter().any(|key| gives(&run.name, key)), "{} is for nothing", run.name);
        }
        for key in file.observed() {
            assert_eq!(file.runs.iter().filter(|run| gives(&run.name, &key)).count(), 1, "{key}");
        }
    }

    #[test]
    fn a_latency_at_a_load_lies_between_its_neighbours() {
        let tried = [(0, 200.0, 300.0), (100, 100.0, 120.0), (1000, 20.0, 100.0)];
        let values = tried.iter().flat_map(|(delay, rate, latency)| {
            let name = |what: &str| format!("m/delay {delay}: {what}");
            [(name("bandwidth"), *rate), (name("loaded latency"), *latency)]
        });
        let values: Values = values.collect();
        assert_eq!(at_load(&values, "m/latency at 60 MB/s"), Some(110.0));
        for beyond in
            ["m/latency at 10 MB/s", "m/latency at 201 MB/s", "n/latency at 60 MB/s", "m/delay 0: bandwidth"]
        {
            assert_eq!(at_load(&values, beyond), None, "{beyond}");
        }
    }
}
