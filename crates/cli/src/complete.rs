//! What shells complete beyond commands and options: scenarios, machines, devices, programs and keys. The shell asks the
//! program itself.

use std::ffi::OsStr;
use std::sync::LazyLock;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use machine::{KINDS, Library, figures};
use nearfar::experiment::Experiment;

/// Gives the arguments of all commands what completes them.
pub fn with_values(program: Command) -> Command {
    program.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        command.mut_args(|arg| of(&name, arg))
    })
}

fn of(command: &str, arg: Arg) -> Arg {
    match (command, arg.get_id().as_str()) {
        (_, "scenario") => arg.add(ArgValueCompleter::new(FileNames(&["scenarios"], true))),
        ("machines", "name") => arg.add(ArgValueCompleter::new(FileNames(&ALL, true))),
        ("programs", "name") => arg.add(ArgValueCompleter::new(programs)),
        (_, "machine") => arg.add(ArgValueCompleter::new(FileNames(&["machines"], true))),
        (_, "card") => arg.add(ArgValueCompleter::new(FileNames(&["machines/parts"], true))),
        ("new", "from") => arg.add(ArgValueCompleter::new(FileNames(&ALL, false))),
        ("reference", "kind") => arg.add(ArgValueCompleter::new(kinds)),
        (_, "set" | "over") => arg.add(ArgValueCompleter::new(keys)),
        _ => arg,
    }
}

/// The folders of files by name.
static ALL: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let machines = KINDS.iter().filter(|kind| kind.extends).map(|kind| kind.folder);
    machines.chain(["scenarios"]).collect()
});

fn beginning<'a>(current: &OsStr, all: impl IntoIterator<Item = &'a str>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    all.into_iter().filter(|name| name.starts_with(&*current)).map(CompletionCandidate::new).collect()
}

/// The names of files in some folders of the library, and paths if these are possible as well.
struct FileNames(&'static [&'static str], bool);

impl ValueCompleter for FileNames {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let library = Library::built_in();
        let names: Vec<String> = self.0.iter().flat_map(|folder| library.names(folder)).collect();
        let mut found = beginning(current, names.iter().map(String::as_str));
        if self.1 && found.is_empty() {
            let is_toml = |path: &std::path::Path| path.extension().is_some_and(|end| end == "toml");
            found = PathCompleter::any().filter(is_toml).complete(current);
        }
        found
    }
}

fn programs(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, workloads::PROGRAMS.iter().map(|program| program.name))
}

fn kinds(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, KINDS.iter().map(|kind| kind.word))
}

/// The keys of the scenario, or of the machine, that the command line names.
fn keys(current: &OsStr) -> Vec<CompletionCandidate> {
    let library = Library::built_in();
    let words = || std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let scenarios = library.names("scenarios");
    let named = words().find(|word| word.ends_with(".toml") || scenarios.contains(word));
    let all = match named {
        Some(name) => {
            Experiment::load(&library, &name, "--set", &[]).map(|own| keys_of(&own)).unwrap_or_default()
        }
        None => words()
            .find_map(|word| {
                machine::Doc::<machine::Machine>::load(&library.aside(), &word).ok()?.read().ok()
            })
            .map(|machine| figures(&machine).into_iter().map(|figure| figure.path).collect())
            .unwrap_or_default(),
    };
    let all: Vec<String> = all.into_iter().map(|key| key + "=").collect();
    beginning(current, all.iter().map(String::as_str))
}

/// The keys of a scenario that can be changed.
fn keys_of(experiment: &Experiment) -> Vec<String> {
    let paths = |all: Vec<machine::Listed>| all.into_iter().map(|figure| figure.path);
    match experiment {
        Experiment::Bench(setup) => {
            let own = ["pcie_bench.transfer_size", "pcie_bench.window", "pcie_bench.samples", "seed"];
            let own = own.into_iter().map(str::to_owned);
            own.chain(paths(figures(&setup.machine))).chain(paths(figures(&setup.card))).collect()
        }
        Experiment::Computers(setup) => {
            let mut all = vec!["seed".to_owned()];
            for host in &setup.hosts {
                let mut add = |key: &str| all.push(format!("host.{}.{key}", host.name));
                ["machine", "iommu", "kernel"].into_iter().for_each(&mut add);
                for (number, device) in host.devices.iter().enumerate() {
                    add(&format!("device.{number}.slot"));
                    paths(device.kind.model().list())
                        .for_each(|path| add(&format!("device.{number}.change.{path}")));
                }
                paths(figures(&host.machine)).for_each(|path| add(&format!("change.{path}")));
                paths(figures(&host.kernel)).for_each(|path| add(&format!("change_kernel.{path}")));
            }
            let programs = 0..setup.programs.len();
            all.extend(
                programs.flat_map(|n| ["run", "cpus", "start"].map(|key| format!("program.{n}.{key}"))),
            );
            all
        }
    }
}
