//! The `nearfar` program: its commands, their common arguments, and exit codes.
//!
//! Exit status: 0 success; 1 a claim or comparison is outside its tolerance under `--check`, or a simulated program
//! failed; 2 invalid input; 130 interrupted by Ctrl-C, 143 and 129 by other signals.

mod build_id;
mod closed;
mod colour;
mod command;
mod complete;
mod failure;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod huge_pages;
mod input;
mod output;
mod progress;
mod stop;
mod uncertain;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::failure::Failure;

/// PCIe host I/O simulated in software, checked against measurements of real machines.
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

Exit status: 0 done, 1 outside a tolerance under --check or a program failed, 2 bad input,
130 stopped by Ctrl-C (what was finished is kept, and the same command goes on).";

/// Arguments common to all commands.
#[derive(clap::Args, Clone)]
struct Common {
    /// Number of simulation threads; by default, one per core. Results do not depend on it.
    #[arg(long, global = true, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A folder laid out like the repository (machines/, machines/parts/, scenarios/) to search first.
    #[arg(long, global = true, hide_short_help = true, value_name = "FOLDER")]
    library: Option<std::path::PathBuf>,
    /// Simulate everything again, without reading or writing the cache. The cache is in $NEARFAR_CACHE, or in
    /// `nearfar` in the user's cache folder.
    #[arg(long, global = true, hide_short_help = true)]
    no_cache: bool,
    /// Show no progress; only a note about work of minutes.
    #[arg(long, short, global = true, hide_short_help = true)]
    quiet: bool,
    /// Show where results come from, too: version, seed, changes, and files.
    ///
    /// Output files always say so.
    #[arg(long, short, global = true)]
    verbose: bool,
    /// When messages are coloured.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto"
    )]
    color: colour::Colour,
}

/// Enables the result cache, with this program's build as part of its key.
fn keep_results() -> Option<()> {
    let path = std::env::current_exe().ok()?;
    let build = match build_id::of(&files::open(&path).ok()?) {
        Some(id) => files::sha256(&id),
        None => files::sha256(&files::read(&path).ok()?),
    };
    nearfar::cache::keep_in(&nearfar::cache::usual_folder()?, build).ok()
}

/// Starts the threads that simulate, and the one that waits for signals.
fn start_threads(common: &Common, command: &Command) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(format!("threads cannot be started: {error}; free memory, or try --jobs 1"))
    };
    if common.jobs.is_some() || command.goes_on() {
        // The process's only thread pool; this must precede its first use.
        let jobs = common.jobs.map_or(0, usize::from);
        rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global().map_err(|error| failed(&error))?;
    }
    match command.ends_itself() {
        true => Ok(()),
        false => stop::watch(command.goes_on()).map_err(|error| failed(&error)),
    }
}

#[derive(Subcommand)]
enum Command {
    Bench(command::bench::BenchArgs),
    Capture(command::capture::CaptureArgs),
    Compare(command::compare::CompareArgs),
    Completions(command::shell::Completions),
    Diff(command::diff::DiffArgs),
    Draw(command::draw::DrawArgs),
    Export(command::export::ExportArgs),
    Fit(command::fit::FitArgs),
    Import(command::import::ImportArgs),
    Inspect(command::inspect::InspectArgs),
    Lend(command::lend::LendArgs),
    Live(command::live::LiveArgs),
    Machines(command::machines::MachinesArgs),
    Manual(command::shell::Manual),
    Model(command::model::ModelArgs),
    New(command::reference::New),
    P2p(command::p2p::P2pArgs),
    Place(command::place::PlaceArgs),
    Programs(command::programs::ProgramsArgs),
    Reference(command::reference::ReferenceArgs),
    Replay(command::replay::ReplayArgs),
    Reproduce(command::reproduce::ReproduceArgs),
    Run(command::run::RunArgs),
    Serve(command::serve::ServeArgs),
    Sweep(command::sweep::SweepArgs),
    Trace(command::trace::TraceArgs),
    Tree(command::tree::TreeArgs),
}

impl Command {
    /// Whether it has something to do when it is stopped.
    fn ends_itself(&self) -> bool {
        matches!(self, Self::Live(_) | Self::Place(_) | Self::Serve(_))
    }

    /// Whether it simulates many points and can continue from cached ones.
    fn goes_on(&self) -> bool {
        matches!(
            self,
            Self::Bench(_)
                | Self::Compare(_)
                | Self::Fit(_)
                | Self::Lend(_)
                | Self::P2p(_)
                | Self::Reproduce(_)
                | Self::Run(_)
                | Self::Sweep(_)
        )
    }
}

/// The command line's parser. `-h` fits on a screen: examples and what is common to all commands are for `--help`.
fn parser() -> clap::Command {
    /// Options that few need.
    const RARE: [&str; 9] =
        ["csv", "parquet", "markdown", "summary_json", "folded", "seed", "held_out", "card_set", "sample"];
    let long_only = |command: clap::Command| {
        let examples = command.get_after_help().cloned().unwrap_or_default();
        let command = command.after_long_help(examples).after_help("Examples, and all options: --help");
        command.mut_args(|arg| match RARE.contains(&arg.get_id().as_str()) {
            true => arg.hide_short_help(true),
            false => arg,
        })
    };
    complete::with_values(long_only(Arguments::command()).mut_subcommands(long_only))
}

fn main() -> ExitCode {
    // A shell that asks what completes a line gets its answer here, and the program ends.
    clap_complete::CompleteEnv::with_factory(parser).complete();
    let colour = colour::choose(std::env::args_os().map(|word| word.to_string_lossy().into_owned()));
    let parsed = parser().color(colour).try_get_matches();
    let Arguments { common, command } = match parsed.and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        // Help and version are normal output: a write error is reported.
        Err(told) if !told.use_stderr() => {
            output::note_unwritten(
                closed::check().and_then(|()| told.print()).and_then(|()| std::io::stdout().flush()),
            );
            return match output::unwritten() {
                None => ExitCode::SUCCESS,
                Some(failure) => {
                    failure.tell();
                    ExitCode::from(2)
                }
            };
        }
        // It quotes what was typed, or pasted: read again as it may be shown, which is as wrong.
        Err(wrong) => {
            let shown = std::env::args_os().map(|word| files::shown(&word.to_string_lossy()).into_owned());
            parser().color(colour).try_get_matches_from(shown).err().unwrap_or(wrong).exit()
        }
    };
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if command.goes_on() && closed::check().is_ok() {
        huge_pages::ask();
    }
    if common.verbose {
        output::be_verbose();
    }
    if let Err(failure) = start_threads(&common, &command) {
        failure.tell();
        return ExitCode::from(2);
    }
    if let Some(folder) = common.library.as_ref().filter(|folder| !folder.is_dir()) {
        crate::output::complain(&format!("error: --library: there is no folder `{}`", folder.display()));
        return ExitCode::from(2);
    }
    if !common.no_cache {
        // Without a cache, everything is simulated; that is no error.
        let _ = keep_results();
    }
    let done = match command {
        Command::Bench(arguments) => command::bench::run(&common, &arguments),
        Command::Capture(arguments) => command::capture::run(&common, &arguments),
        Command::Compare(arguments) => command::compare::run(&common, &arguments),
        Command::Completions(arguments) => command::shell::completions(&arguments),
        Command::Diff(arguments) => command::diff::run(&common, &arguments),
        Command::Draw(arguments) => command::draw::run(&common, &arguments),
        Command::Export(arguments) => command::export::run(&common, &arguments),
        Command::Fit(arguments) => command::fit::run(&common, &arguments),
        Command::Import(arguments) => command::import::run(&common, &arguments),
        Command::Inspect(arguments) => command::inspect::run(&common, &arguments),
        Command::Lend(arguments) => command::lend::run(&common, &arguments),
        Command::Live(arguments) => command::live::run(&common, &arguments),
        Command::P2p(arguments) => command::p2p::run(&common, &arguments),
        Command::Place(arguments) => command::place::run(&common, &arguments),
        Command::Machines(arguments) => command::machines::run(&common, &arguments),
        Command::Manual(arguments) => command::shell::manual(&arguments),
        Command::Model(arguments) => command::model::run(&common, &arguments),
        Command::New(arguments) => command::reference::new(&common, &arguments),
        Command::Reference(arguments) => command::reference::run(&arguments),
        Command::Programs(arguments) => command::programs::run(&arguments),
        Command::Replay(arguments) => command::replay::run(&common, &arguments),
        Command::Reproduce(arguments) => command::reproduce::run(&common, &arguments),
        Command::Run(arguments) => command::run::run(&common, &arguments),
        Command::Serve(arguments) => command::serve::run(&common, &arguments),
        Command::Sweep(arguments) => command::sweep::run(&common, &arguments),
        Command::Trace(arguments) => command::trace::run(&common, &arguments),
        Command::Tree(arguments) => command::tree::run(&common, &arguments),
    };
    nearfar::cache::tidy();
    match (done, output::unwritten()) {
        (Ok(code), None) => code,
        (Err(failure), _) | (_, Some(failure)) => {
            failure.tell();
            ExitCode::from(2)
        }
    }
}

/// Tests that the examples in help texts and in the README work: they parse, and the files that they name exist.
#[cfg(test)]
mod tests {
    use machine::Library;

    use super::*;

    /// The command lines in a text: what follows `nearfar` at the start of a line, without surrounding prose.
    fn command_lines(text: &str) -> Vec<Vec<String>> {
        let lines = text.lines().map(str::trim).filter_map(|line| line.strip_prefix("nearfar "));
        let command = |line: &str| {
            let end = [" #", "  ", " &&", " ||", " > "].iter().filter_map(|mark| line.find(mark)).min();
            let words = line[..end.unwrap_or(line.len())].split_whitespace();
            words.map(|word| word.replace('"', "")).collect::<Vec<_>>()
        };
        lines.map(command).collect()
    }

    /// Checks that a command line parses, and that its scenario, machine or program exists.
    fn check(words: &[String]) -> Result<(), String> {
        let line = words.join(" ");
        let parsed = Arguments::try_parse_from(["nearfar".to_owned()].iter().chain(words));
        let command = parsed.map_err(|error| format!("{line}: {error}"))?.command;
        let library = Library::built_in();
        // Paths to the repository's own files are relative to its root.
        let at_root = |name: &str| match name.ends_with(".toml") {
            true => format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR")),
            false => name.to_owned(),
        };
        let scenario = |name: &str, option, changes: &[(String, String)]| {
            // What an earlier example writes is not there.
            let is_missing =
                |value: &String| value.ends_with(".toml") && !std::path::Path::new(value).exists();
            if changes.iter().any(|(_, value)| is_missing(value)) {
                return Ok(());
            }
            let named = input::Named { scenario: &at_root(name), folder: None };
            let loaded = input::scenario(&library, &named, option, changes);
            loaded.map(drop).map_err(|failure| format!("{line}: {failure}"))
        };
        match &command {
            Command::Run(arguments) => scenario(&arguments.scenario, "--set", &arguments.set),
            Command::Trace(arguments) => scenario(&arguments.scenario, "--set", &arguments.set),
            Command::Draw(arguments) => scenario(&arguments.scenario, "--set", &arguments.set),
            Command::Tree(arguments) => scenario(&arguments.scenario, "--set", &arguments.set),
            Command::Lend(arguments) => match &arguments.what {
                command::lend::LendCommand::Cost(arguments) => {
                    scenario(&arguments.scenario, "--set", &arguments.set)
                }
                _ => Ok(()),
            },
            Command::P2p(arguments) if arguments.set.is_empty() => Ok(()),
            Command::P2p(arguments) => scenario(&arguments.scenario, "--set", &arguments.set),
            Command::Sweep(arguments) => {
                nearfar::experiment::combinations(&arguments.over).iter().try_for_each(|values| {
                    scenario(&arguments.scenario, "--over", &[&arguments.set[..], values].concat())
                })
            }
            Command::Machines(arguments) => {
                let kinds = [
                    "",
                    "/parts",
                    "/drives",
                    "/nics",
                    "/gpus",
                    "/ntbs",
                    "/clusters",
                    "/switches",
                    "/kernels",
                ];
                let folders = kinds.map(|f| format!("machines{f}"));
                let known = |name: &String| {
                    let mut folders = folders.iter().map(String::as_str).chain(["scenarios"]);
                    folders.any(|folder| library.names(folder).contains(name))
                };
                arguments.name.iter().all(known).then_some(()).ok_or(line)
            }
            Command::Programs(arguments) => {
                let known = |name: &String| workloads::PROGRAMS.iter().any(|program| program.name == name);
                arguments.name.iter().all(known).then_some(()).ok_or(line)
            }
            _ => Ok(()),
        }
    }

    fn check_all(what: &str, text: &str, least: usize) {
        let lines = command_lines(text);
        assert!(lines.len() >= least, "{what} has {} examples", lines.len());
        // A name in capitals is a placeholder.
        let placeholder = |word: &String| word.len() > 4 && word.chars().all(|c| c.is_ascii_uppercase());
        for words in lines.iter().filter(|words| !words.iter().any(placeholder)) {
            check(words).unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
        }
    }

    #[test]
    fn examples_in_helps_work() {
        let mut program = parser();
        program.build();
        check_all("nearfar", &program.get_after_long_help().unwrap().to_string(), 9);
        for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            check_all(command.get_name(), &help, 1);
        }
    }

    #[test]
    fn examples_in_documents_work() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (document, least) in
            [("README.md", 6), ("docs/commands.md", 30), ("docs/scenarios.md", 3), ("docs/outputs.md", 3)]
        {
            check_all(document, &std::fs::read_to_string(root.join(document)).unwrap(), least);
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        parser().debug_assert();
    }

    #[test]
    fn short_helps_fit_on_a_screen() {
        let mut program = parser();
        program.build();
        assert!(program.render_help().to_string().lines().count() <= 40);
        for command in program.get_subcommands_mut() {
            let help = command.render_help().to_string();
            assert!(help.lines().count() <= 45, "{help}");
        }
    }

    #[test]
    fn words_are_completed_by_what_there_is() {
        for (line, wanted) in [
            (&["run", "oct"][..], "octo"),
            (&["machines", "conn"], "connectx4"),
            (&["bench", "--machine", "dell-t4"], "dell-t430"),
            (&["programs", "net"], "netperf"),
            (&["reference", "ni"], "nic"),
            (&["new", "ni"], "nic"),
        ] {
            let words = ["nearfar"].iter().chain(line).map(std::ffi::OsString::from).collect();
            let found = clap_complete::engine::complete(&mut parser(), words, line.len(), None).unwrap();
            let found: Vec<_> =
                found.iter().map(|candidate| candidate.get_value().to_string_lossy()).collect();
            assert!(found.iter().any(|word| word == wanted), "{line:?}: {found:?}");
        }
    }
}
