//! `nearfar run`: runs a scenario.

use std::path::PathBuf;
use std::process::ExitCode;

use machine::{ComputerSetup, Library};
use nearfar::LinkState;
use nearfar::experiment::Experiment;
use nearfar::origins::Origins;
use nearfar::records::Record;
use nearfar::what_if::what_if;
use nearfar::{computer, records, scenario};
use results::compare::curves;
use results::pciebench::Row;

use crate::failure::Failure;
use crate::output::Records;
use crate::uncertain::Uncertainty;
use crate::{Common, input, output, progress};

/// Run a scenario: an experiment on a machine with a card, or programs on computers.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar run latency-by-size
  nearfar run scenarios/more-ddio.toml --set change.host.llc.ddio_ways=8
  nearfar run stream                                     programs on the cores of a host
  nearfar run ping --set host.a.iommu=strict --set host.b.change.host.llc.ddio_ways=0
  nearfar run fio-randread --accounting                  and where the cores' time went
  nearfar run netperf --counters                         every counter of every host
  nearfar run remote-memory --json -
  nearfar run fio-randread --what-if                     what a tenth more of each resource would bring
  nearfar run latency-by-size --uncertainty 40           each result as an interval, and what it hangs on

Exit status: 0 done, 1 a program of the scenario failed, 2 bad input.")]
pub struct RunArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Change a value of the scenario, such as `pcie_bench.window="1 MiB"`, `host.dram.access="90 ns"` (of the
    /// machine), or `host.a.iommu=strict` (of the scenario's host `a`).
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The folder below which the scenario's own files are written: captures and drives' blocks. By default, the folder
    /// of the scenario's file; for a built-in scenario, the current one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Show where CPU time was spent: per task, by part of program and kernel; in interrupts; and idle.
    #[arg(long)]
    accounting: bool,
    /// Write CPU times as folded stacks in nanoseconds, for flame graph tools.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    folded: Option<PathBuf>,
    /// Show every counter with its place and cause, instead of a summary per host, the traffic on the link to each NIC
    /// by kind, and all warnings of kernels.
    #[arg(long)]
    counters: bool,
    /// Simulate again with a tenth more of each resource that could bind, and show what that gains.
    #[arg(long)]
    what_if: bool,
    #[command(flatten)]
    uncertainty: Uncertainty,
    #[command(flatten)]
    records: Records,
    /// Plot results of pcie-bench over their most varied parameter, or for programs the utilization of resources, as
    /// SVG, or as PDF for FILE.pdf.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    plot: Option<PathBuf>,
}

impl RunArgs {
    fn named(&self) -> input::Named<'_> {
        input::Named { scenario: &self.scenario, folder: self.folder.as_deref() }
    }
}

pub fn run(common: &Common, arguments: &RunArgs) -> Result<ExitCode, Failure> {
    let mut places = arguments
        .records
        .places(&[("--folded", arguments.folded.as_deref()), ("--plot", arguments.plot.as_deref())])?;
    let library = input::library(common);
    let experiment = input::scenario(&library, &arguments.named(), "--set", &arguments.set)?;
    input::places(&mut places, &library, &experiment)?;
    arguments.uncertainty.check(&experiment)?;
    let to_stdout = places.to_stdout;
    let setup = match experiment {
        Experiment::Computers(setup) => return on_computers(common, arguments, &library, &setup, to_stdout),
        Experiment::Bench(setup) => setup,
    };
    if arguments.accounting || arguments.folded.is_some() || arguments.what_if {
        return Err(Failure::new(
            "--accounting, --folded and --what-if are for scenarios with computers: this one has a machine with a card, on which no kernel runs; compare its rows with `--set`",
        ));
    }
    let seed = setup.scenario.seed.unwrap_or(1);
    let provenance = output::provenance(seed, &[("--set", &arguments.set)], &library);
    let done = scenario::run(&setup, progress::of(common).as_ref())?;
    let mut written = records::of_bench(&setup, &done);
    let intervals = intervals(common, arguments, &written)?;
    written.extend(intervals.iter().cloned());
    arguments.records.write(written, &provenance)?;
    let rows: Vec<Row> = done.iter().map(|done| done.outcome.row).collect();
    let (latencies, bandwidths): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| matches!(row, Row::Latency(_)));
    let charts = [curves("latency", &latencies), curves("goodput", &bandwidths)].concat();
    output::plot(arguments.plot.as_deref(), &charts, &provenance)?;
    if !to_stdout {
        let bench = scenario::bench_of(&setup);
        let origins = Origins::of_bench(&bench, done.iter().map(|done| &done.outcome));
        let link = LinkState::of_bench(&bench);
        output::heading(&provenance);
        let place =
            format!("{} in {} of {}", bench.card.name, output::place(&setup.slot), bench.machine.name);
        let title = format!("{}\n{place}, {}", setup.scenario.summary, output::placement(&bench));
        output::print(&output::prose(&title));
        output::print(&(output::link_lines(link.as_slice()) + "\n"));
        output::print(&output::outcome_table(done.iter().map(|d| (String::new(), &d.run, &d.outcome))));
        output::print(&output::answer::binding_lines(&done));
        for (row, done) in (1..).zip(&done).filter(|_| arguments.counters) {
            output::print(&format!("\ncounters of row {row}"));
            output::print(&output::counter_table(&done.outcome.window));
        }
        output::print(&output::trust_lines(&origins, &intervals));
        if let Some(answer) = output::answer::of_runs(&done) {
            output::print(&format!("\n{answer}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The results as intervals, if asked for.
fn intervals(common: &Common, arguments: &RunArgs, rows: &[Record]) -> Result<Vec<Record>, Failure> {
    let scenario = (&*arguments.scenario, &*arguments.set);
    arguments.uncertainty.of_points(common, scenario, &[Vec::new()], (rows, rows))
}

/// Runs programs on computers.
fn on_computers(
    common: &Common,
    arguments: &RunArgs,
    library: &Library,
    setup: &ComputerSetup,
    to_stdout: bool,
) -> Result<ExitCode, Failure> {
    let provenance = output::provenance(setup.seed, &[("--set", &arguments.set)], library);
    setup.doubts.iter().for_each(|doubt| output::complain(&doubt.render(crate::colour::of_errors())));
    let counts = computer::run_counted(setup, progress::of(common).as_ref())?;
    let mut rows = records::of_computers(setup, &counts, arguments.accounting);
    let intervals = intervals(common, arguments, &rows)?;
    rows.extend(intervals.iter().cloned());
    let what_if = match arguments.what_if {
        true => what_if(setup, &counts, progress::of(common).as_ref()),
        false => Vec::new(),
    };
    rows.extend(records::of_what_if(setup, &what_if));
    let origins = Origins::of_computers(setup, &counts.counted);
    let computer::Counts { done, accounts, counted, links, warnings } = counts;
    if let Some(path) = &arguments.folded {
        output::with_origin(path, output::folded(&accounts).as_bytes(), &provenance)?;
    }
    arguments.records.write(rows, &provenance)?;
    let windows = counted.iter().map(|of| {
        let run = done.iter().find(|done| done.number() == Some(of.program)).map(|done| done.run.clone());
        (run.unwrap_or_default(), &of.window)
    });
    output::plot(arguments.plot.as_deref(), &[output::fullness(windows)], &provenance)?;
    if !to_stdout {
        output::heading(&provenance);
        output::print(&(output::prose(&setup.summary) + "\n"));
        output::print(&output::link_lines(&links));
        for borrow in &setup.cluster.borrows {
            output::print(&output::prose(&format!("lent {}", borrow.reach(&setup.hosts))));
        }
        output::print("");
        // The reports of links are of use beside all counters.
        let told = done.iter().filter(|done| arguments.counters || done.subject != computer::Subject::Link);
        output::print(&output::program_table(told));
        if !warnings.is_empty() {
            output::print(&output::warning_lines(&warnings, arguments.counters));
        }
        for of in &counted {
            if counted.len() > 1 {
                let run = done.iter().find(|done| done.number() == Some(of.program)).map(|done| &done.run);
                output::print(&output::prose(
                    &run.map_or(String::new(), |run| format!("while `{run}` ran:")),
                ));
            }
            output::print(&match arguments.counters {
                true => output::counter_table(&of.window),
                false => output::counter_summary(&of.window),
            });
        }
        if arguments.accounting {
            output::print(&output::account_table(&accounts));
        }
        for one in &what_if {
            output::print(&output::what_if_table(one, &done));
        }
        output::print(&output::trust_lines(&origins, &intervals));
        if let Some(answer) = output::answer::of_programs(setup, &done) {
            output::print(&answer);
        }
    }
    let mut failed = false;
    for program in &done {
        if let Some(failure) = program.failure() {
            output::complain(&format!("error: {}: {}: {failure}", program.host, program.run));
            failed = true;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
