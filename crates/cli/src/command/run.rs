//! `nearfar run`: a scenario.

use std::path::PathBuf;
use std::process::ExitCode;

use machine::{Doc, Scenario, Setup};
use nearfar::scenario;

use crate::failure::Failure;
use crate::{Common, input, output, progress};

/// Run a scenario: an experiment on a machine with a card.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar run latency-by-size
  nearfar run scenarios/more-ddio.toml --set change.host.llc.ddio_ways=8
  nearfar run remote-memory --json -")]
pub struct Arguments {
    /// The scenario, by name or path.
    scenario: String,
    /// Change a value of the scenario, such as `pcie_bench.window="1 MiB"` or `change.host.dram.access="90 ns"`.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// Write every row as JSON; - for the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let library = input::library(common);
    let mut doc = Doc::<Scenario>::load(&library, &arguments.scenario)?;
    for (path, value) in &arguments.set {
        doc.set(path, value)?;
    }
    let setup = Setup::load(&library, &doc)?;
    let done = scenario::run(&setup, progress::of(common).as_ref())?;
    let rows: Vec<_> = done
        .iter()
        .enumerate()
        .map(|(i, d)| output::row(&setup.scenario.name, i + 1, &d.outcome.row))
        .collect();
    output::json(arguments.json.as_deref(), &rows)?;
    if arguments.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        let bench = scenario::bench_of(&setup);
        output::print(&format!(
            "{}\n{} in slot {} of {}, {}\n",
            setup.scenario.summary,
            bench.card.name,
            setup.slot,
            bench.machine.name,
            output::placement(&bench)
        ));
        output::print(&output::outcome_table(done.iter().map(|d| (String::new(), &d.run, &d.outcome))));
    }
    Ok(ExitCode::SUCCESS)
}
