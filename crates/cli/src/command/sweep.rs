//! `nearfar sweep`: a scenario over several values of something.

use std::path::PathBuf;
use std::process::ExitCode;

use machine::{Doc, Scenario, Setup};
use nearfar::batch::{Job, run_all};
use nearfar::bench::Bench;
use nearfar::scenario;
use results::pciebench::Run;

use crate::failure::Failure;
use crate::{Common, input, output, progress};

/// Run a scenario for every value of a key, or every combination of several.
#[derive(clap::Args)]
#[command(after_help = "\
A key is a path in the scenario (pcie_bench.transfer), in the machine (host.llc.ddio_ways) or in the card
(dma_engine.tags, link.width). Values are separated by commas.

Examples:
  nearfar sweep iommu-window --over host.iommu.walkers=1,2,6
  nearfar sweep latency-by-size --over dma_engine.tags=8,16,32 --over machine=dell-t430,dell-t630 --json sweep.json")]
pub struct Arguments {
    /// The scenario, by name or path.
    scenario: String,
    /// A key and its values.
    #[arg(long, required = true, value_name = "KEY=VALUES", value_parser = input::setting)]
    over: Vec<(String, String)>,
    /// Write every row as JSON; - for the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A combination of values, and what it makes of the scenario.
struct Variant {
    label: String,
    values: Vec<(String, String)>,
    bench: Bench,
    runs: Vec<Run>,
    setup: Setup,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let mut variants = Vec::new();
    for values in combinations(&arguments.over) {
        let mut doc = Doc::<Scenario>::load(&library, &arguments.scenario)?;
        for (key, value) in &values {
            doc.set(&path_in_scenario(key), value)?;
        }
        let setup = Setup::load(&library, &doc)?;
        let label = values.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let (bench, runs) = (scenario::bench_of(&setup), scenario::runs_of(&setup));
        variants.push(Variant { label, values, bench, runs, setup });
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
            let mut row = output::row(&arguments.scenario, rows.len() + 1, &outcome.row);
            for (key, value) in &variant.values {
                row[key.as_str()] = value.as_str().into();
            }
            rows.push(row);
            table.push((variant.label.clone(), run, outcome));
        }
    }
    output::json(arguments.json.as_deref(), &rows)?;
    if arguments.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        output::print(&output::outcome_table(table.iter().map(|(l, run, o)| (l.clone(), *run, o))));
    }
    Ok(ExitCode::SUCCESS)
}

/// Every combination of the values, the last key's varying fastest.
fn combinations(over: &[(String, String)]) -> Vec<Vec<(String, String)>> {
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

/// Where a scenario file states what the machine's or the card's file calls `key`.
fn path_in_scenario(key: &str) -> String {
    match key.split('.').next().unwrap_or(key) {
        "host" => format!("change.{key}"),
        "dma_engine" | "link" => format!("change_card.{key}"),
        _ => key.to_owned(),
    }
}
