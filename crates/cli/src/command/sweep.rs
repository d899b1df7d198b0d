//! `nearfar sweep`: a scenario over several values of something.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use machine::{ComputerSetup, Setup};
use nearfar::batch::{Job, run_all};
use nearfar::bench::Bench;
use nearfar::{computer, scenario};
use results::pciebench::Run;

use crate::failure::Failure;
use crate::input::Loaded;
use crate::{Common, input, output, progress};

/// Run a scenario for every value of a key, or every combination of several.
#[derive(clap::Args)]
#[command(after_help = "\
A key is a path in the scenario (pcie_bench.transfer), in the machine (host.llc.ddio_ways) or in the card
(dma_engine.tags, link.width); in a scenario with computers, host.a begins the path of what the scenario calls a.
Values are separated by commas.

Examples:
  nearfar sweep iommu-window --over host.iommu.walkers=1,2,6
  nearfar sweep pktgen --over host.a.nic_driver.channels=1,2,4
  nearfar sweep latency-by-size --over dma_engine.tags=8,16,32 --over machine=dell-t430,dell-t630 --json sweep.json")]
pub struct Arguments {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// A key and its values.
    #[arg(long, required = true, value_name = "KEY=VALUES", value_parser = input::values)]
    pub over: Vec<(String, String)>,
    /// Write every row as JSON; - for the standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

/// One value for each key.
type Combination = Vec<(String, String)>;

/// A combination of values, and what it makes of the scenario.
struct Variant {
    label: String,
    values: Combination,
    bench: Bench,
    runs: Vec<Run>,
    setup: Box<Setup>,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    for (n, (key, _)) in arguments.over.iter().enumerate() {
        if arguments.over[..n].iter().any(|(other, _)| other == key) {
            let message =
                format!("--over names `{key}` twice; give all its values at once, separated by commas");
            return Err(Failure::new(message));
        }
    }
    let library = input::library(common);
    let (mut variants, mut computers) = (Vec::new(), Vec::new());
    for values in combinations(&arguments.over) {
        match input::scenario(&library, &arguments.scenario, "--over", &values)? {
            Loaded::Computers(setup) => computers.push((values, setup)),
            Loaded::Bench(setup) => {
                let (bench, runs) = (scenario::bench_of(&setup), scenario::runs_of(&setup));
                variants.push(Variant { label: label(&values), values, bench, runs, setup });
            }
        }
    }
    if !computers.is_empty() {
        return on_computers(common, arguments, &computers);
    }
    let jobs: Vec<Job<'_>> = variants
        .iter()
        .flat_map(|v| {
            let effort = scenario::length_of(&v.setup);
            v.runs.iter().map(move |&run| Job { bench: &v.bench, run, before: &[], effort })
        })
        .collect();
    let mut outcomes = run_all(&jobs, &arguments.scenario, progress::of(common).as_ref()).into_iter();
    let (mut table, mut rows) = (Vec::new(), Vec::new());
    for variant in &variants {
        for run in &variant.runs {
            let outcome = outcomes.next().expect("an outcome for each job")?;
            let mut row = output::row(&arguments.scenario, rows.len() + 1, &outcome.row, outcome.half_width);
            for (key, value) in &variant.values {
                row[key.as_str()] = value.as_str().into();
            }
            rows.push(row);
            table.push((variant.label.clone(), run, outcome));
        }
    }
    tell_without_effect(arguments, &rows);
    output::json(arguments.json.as_deref(), &rows)?;
    if !output::is_stdout(arguments.json.as_deref()) {
        output::print(&output::outcome_table(table.iter().map(|(l, run, o)| (l.clone(), *run, o))));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs programs on computers, once for every combination, several at a time.
fn on_computers(
    common: &Common,
    arguments: &Arguments,
    variants: &[(Combination, Box<ComputerSetup>)],
) -> Result<ExitCode, Failure> {
    let setups: Vec<_> = variants.iter().map(|(_, setup)| &**setup).collect();
    let all = computer::run_all(&setups, &arguments.scenario, progress::of(common).as_ref());
    let (mut text, mut rows, mut failed) = (String::new(), Vec::new(), false);
    for ((values, setup), done) in variants.iter().zip(all) {
        let done = done?;
        failed |= done.iter().any(|program| program.failure().is_some());
        for mut row in output::program_rows(&setup.name, &done) {
            values.iter().for_each(|(key, value)| row[key.as_str()] = value.as_str().into());
            rows.push(row);
        }
        text += &format!("{}\n{}", label(values), output::program_table(&done));
    }
    tell_without_effect(arguments, &rows);
    output::json(arguments.json.as_deref(), &rows)?;
    if !output::is_stdout(arguments.json.as_deref()) {
        output::print(text.trim_end());
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Says of a key that has several values if every row is the same whichever it takes: it is perhaps not the key that was meant.
fn tell_without_effect(arguments: &Arguments, rows: &[serde_json::Value]) {
    for (key, values) in arguments.over.iter().filter(|(_, values)| values.contains(',')) {
        let mut by_value = BTreeMap::<String, Vec<String>>::new();
        for row in rows {
            let mut row = row.clone();
            let Some(fields) = row.as_object_mut() else { continue };
            let value = fields.remove(key).unwrap_or_default().to_string();
            // Rows are numbered over all values.
            fields.remove("row");
            by_value.entry(value).or_default().push(row.to_string());
        }
        let mut all = by_value.into_values();
        if let Some(first) = all.next()
            && all.len() > 0
            && all.all(|rows| rows == first)
        {
            output::complain(&format!(
                "note: no row depends on `{key}`: all are the same for each of {values}; this scenario does not use what it sets"
            ));
        }
    }
}

/// What stands before the results of a combination.
fn label(values: &[(String, String)]) -> String {
    values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Every combination of the values, the last key's varying fastest.
pub fn combinations(over: &[(String, String)]) -> Vec<Combination> {
    let mut all = vec![Vec::new()];
    for (key, values) in over {
        let longer = |before: &Vec<(String, String)>| {
            let with = |value: &str| {
                let mut longer = before.clone();
                longer.push((key.clone(), value.trim().to_owned()));
                longer
            };
            values.split(',').map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
