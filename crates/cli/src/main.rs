//! The `nearfar` program: what its commands are called, what they take and how they end.
//!
//! Exit status: 0 done, 1 a claim or comparison outside its tolerance under `--check`, or a simulated program
//! that failed, 2 bad input.

mod command;
mod failure;
mod input;
mod output;
mod progress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// PCIe host I/O in software, held against what real machines measured.
#[derive(Parser)]
#[command(name = "nearfar", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  nearfar reproduce pcie-bench --report report         the paper's claims, simulated, with a report
  nearfar compare measured/nfp6000-...-dell-t430-...   every measured row beside the same run simulated
  nearfar bench --machine dell-t430 --short            pcie-bench on a simulated machine
  nearfar run latency-by-size                          one experiment
  nearfar sweep iommu-window --over host.iommu.walkers=1,2,6
  nearfar trace latency-by-size --packets 20           what passes the link, as an analyser shows it
  nearfar tree pktgen                                  what the hosts' kernels find, as sysfs shows it
  nearfar programs                                     what can run on the hosts' cores
  nearfar machines                                     which machines, cards and scenarios there are

Exit status: 0 done, 1 outside a tolerance under --check or a program failed, 2 bad input.";

/// What every command takes.
#[derive(clap::Args, Clone)]
struct Common {
    /// Threads to simulate with; all cores if not given. Results do not depend on it.
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A folder laid out as the repository is (machines/, machines/parts/, scenarios/) to look in first.
    #[arg(long, global = true, value_name = "FOLDER")]
    library: Option<std::path::PathBuf>,
    /// No progress on the terminal.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Bench(command::bench::Arguments),
    Compare(command::compare::Arguments),
    Fit(command::fit::Arguments),
    Machines(command::machines::Arguments),
    Model(command::model::Arguments),
    Programs(command::programs::Arguments),
    Reproduce(command::reproduce::Arguments),
    Run(command::run::Arguments),
    Sweep(command::sweep::Arguments),
    Trace(command::trace::Arguments),
    Tree(command::tree::Arguments),
}

fn main() -> ExitCode {
    let Arguments { common, command } = Arguments::parse();
    if let Some(jobs) = common.jobs {
        // The only pool of the process, and the first thing that asks for it.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(jobs.into()).build_global();
    }
    if let Some(folder) = common.library.as_ref().filter(|folder| !folder.is_dir()) {
        crate::output::complain(&format!("error: --library: there is no folder `{}`", folder.display()));
        return ExitCode::from(2);
    }
    let done = match command {
        Command::Bench(arguments) => command::bench::run(&common, &arguments),
        Command::Compare(arguments) => command::compare::run(&common, &arguments),
        Command::Fit(arguments) => command::fit::run(&common, &arguments),
        Command::Machines(arguments) => command::machines::run(&common, &arguments),
        Command::Model(arguments) => command::model::run(&common, &arguments),
        Command::Programs(arguments) => command::programs::run(&arguments),
        Command::Reproduce(arguments) => command::reproduce::run(&common, &arguments),
        Command::Run(arguments) => command::run::run(&common, &arguments),
        Command::Sweep(arguments) => command::sweep::run(&common, &arguments),
        Command::Trace(arguments) => command::trace::run(&common, &arguments),
        Command::Tree(arguments) => command::tree::run(&common, &arguments),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            crate::output::complain(&format!("{failure}"));
            ExitCode::from(2)
        }
    }
}
