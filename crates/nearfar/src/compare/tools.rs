//! What people's own tools measured on a real machine, beside the same tests simulated.

use std::path::{Path, PathBuf};

use machine::{ComputerScenario, ComputerSetup, Diagnostics, Doc, Library, Machine};
use results::tools::{LARGEST, ToolError, ToolReport, ToolTask, ToolTest};
use serde_json::json;
use thiserror::Error;

use super::Settings;
use crate::computer::{self, ComputerError, Counts};
use crate::peers::wide_slots;
use crate::progress::Progress;
use crate::records::Record;

/// The devices that stand for what an output does not name.
const STAND_INS: [(&str, &str); 3] = [("drive", "optane-900p"), ("nic", "modern"), ("gpu", "k420")];
/// Elements of an array of STREAM at least, and at most.
const ELEMENTS: [u64; 2] = [2_000_000, 64_000_000];

/// What to compare tools' outputs with.
#[derive(Clone, Debug)]
pub struct ToolOptions {
    /// Where to find machine and part files.
    pub library: Library,
    /// The machine: a name, its file, or the folder of an import.
    pub machine: String,
    /// The drive, NIC or GPU; the import's own, or one that stands for it, if `None`.
    pub card: Option<String>,
    /// Changes to the machine.
    pub set: Settings,
}

/// A test, measured and simulated.
#[derive(Debug)]
pub struct ToolComparison {
    /// The output.
    pub file: PathBuf,
    /// The tool.
    pub tool: &'static str,
    /// The test in the tool's words.
    pub title: String,
    /// The simulated command line; empty if nothing was simulated.
    pub run: String,
    /// Each quantity: what it is, its unit, measured, and simulated if it is.
    pub rows: Vec<(String, &'static str, f64, Option<f64>)>,
    /// What binds in the simulation.
    pub binds: String,
    /// Why nothing was simulated.
    pub skipped: Option<String>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// Why outputs cannot be compared.
#[derive(Debug, Error)]
pub enum ToolsError {
    /// An output cannot be read.
    #[error("`{0}`: {1}")]
    File(PathBuf, std::io::Error),
    /// It is a device or a pipe.
    #[error("`{0}` is neither a file nor a folder: write the output into a file first")]
    NoFile(PathBuf),
    /// An output is too large to be one.
    #[error("`{0}` has more than {mib} MiB, which no such output has", mib = LARGEST >> 20)]
    Large(PathBuf),
    /// An output is none of a known tool.
    #[error("`{0}`: {1}")]
    Output(PathBuf, ToolError),
    /// The machine or the card is wrong.
    #[error(transparent)]
    Machine(#[from] Diagnostics),
    /// A change to the machine has no effect.
    #[error("--set {0}: {1} has no such parameter; `nearfar reference machine` shows all")]
    Change(String, String),
}

/// Reads an output.
///
/// # Errors
/// If it cannot be read, or is none of a known tool.
pub fn read_tool(path: &Path) -> Result<ToolReport, ToolsError> {
    let wrong = |error| ToolsError::File(path.to_owned(), error);
    let about = std::fs::metadata(path).map_err(wrong)?;
    if !about.is_file() {
        return Err(ToolsError::NoFile(path.to_owned()));
    }
    if about.len() > LARGEST {
        return Err(ToolsError::Large(path.to_owned()));
    }
    let bytes = files::read(path).map_err(wrong)?;
    results::tools::read(&bytes).map_err(|error| ToolsError::Output(path.to_owned(), error))
}

/// Simulates all tests of these outputs.
///
/// # Errors
/// If an output or the machine cannot be read. A test that cannot be simulated says why in its result.
pub fn compare_tools(
    paths: &[PathBuf],
    options: &ToolOptions,
    progress: &dyn Progress,
) -> Result<Vec<ToolComparison>, ToolsError> {
    let reports = paths
        .iter()
        .map(|path| Ok((path.clone(), read_tool(path)?)))
        .collect::<Result<Vec<_>, ToolsError>>()?;
    compare_reports(reports, options, progress)
}

/// Simulates all tests of outputs that were read.
///
/// # Errors
/// If the machine cannot be read. A test that cannot be simulated says why in its result.
pub fn compare_reports(
    reports: Vec<(PathBuf, ToolReport)>,
    options: &ToolOptions,
    progress: &dyn Progress,
) -> Result<Vec<ToolComparison>, ToolsError> {
    let bench = Testbed::new(options)?;
    let mut all = Vec::new();
    let mut planned: Vec<PlannedRun> = Vec::new();
    for (path, report) in reports {
        let gpu = report.gpu.as_deref();
        for test in report.tests {
            let ToolTest { title, task, values, notes } = test;
            let mut one = ToolComparison {
                file: path.clone(),
                tool: report.tool,
                title,
                run: String::new(),
                rows: values
                    .into_iter()
                    .map(|value| (value.quantity, value.unit, value.value, None))
                    .collect(),
                binds: String::new(),
                skipped: None,
                notes,
            };
            match bench.scenario(&task, gpu, &mut one.notes) {
                Ok((text, run)) => {
                    // Tests that are simulated by the same run share it.
                    match planned.iter_mut().find(|planned| planned.text == text) {
                        Some(planned) => planned.of.push(all.len()),
                        None => planned.push(PlannedRun { text, of: vec![all.len()] }),
                    }
                    one.run = run;
                }
                Err(why) => one.skipped = Some(why),
            }
            all.push(one);
        }
    }
    let mut setups = Vec::new();
    for plan in planned {
        let loaded = bench.load(&plan.text);
        match loaded {
            Ok(setup) => setups.push((setup, plan)),
            Err(why) => plan.of.iter().for_each(|&place| all[place].skipped = Some(why.to_string())),
        }
    }
    if let Some((path, _)) = options.set.iter().find(|(path, _)| !bench.library.has_changed(path)) {
        return Err(ToolsError::Change(path.clone(), options.machine.clone()));
    }
    let runs =
        computer::run_all(&setups.iter().map(|(setup, _)| setup).collect::<Vec<_>>(), "compare", progress);
    for ((_, plan), done) in setups.iter().zip(runs) {
        for &place in &plan.of {
            all[place].take(&done);
        }
    }
    Ok(all)
}

/// A scenario's text, and the tests that it is for.
struct PlannedRun {
    text: String,
    of: Vec<usize>,
}

impl ToolComparison {
    /// Takes what was simulated.
    fn take(&mut self, done: &Result<Counts, ComputerError>) {
        let counts = match done {
            Ok(counts) => counts,
            Err(error) => return self.skipped = Some(error.to_string()),
        };
        let program = counts.done.iter().find(|done| done.run == self.run);
        let report = match program.map(|program| &program.outcome) {
            Some(Ok(report)) => report,
            Some(Err(failure)) => return self.skipped = Some(failure.to_string()),
            None => return self.skipped = Some("it did not end".into()),
        };
        for (quantity, _, _, simulated) in &mut self.rows {
            *simulated = report.get(quantity);
        }
        if self.rows.iter().all(|(.., simulated)| simulated.is_none()) {
            self.skipped = Some("the simulated run has no such result: a node that is not there?".into());
        }
        self.notes.extend(report.notes.iter().filter(|note| !note.starts_with("what binds")).cloned());
        let number = program.and_then(|program| program.number());
        self.binds = number.map_or(String::new(), |number| counts.binding_of(number));
    }

    /// A record for each quantity, or one that says why there is none.
    pub fn records(&self) -> Vec<Record> {
        let about = json!({
            "file": self.file.display().to_string(), "tool": self.tool, "test": self.title, "run": self.run,
            "binds": self.binds, "skipped": self.skipped, "notes": self.notes,
        });
        let row = |(quantity, unit, measured, simulated): &(String, &'static str, f64, Option<f64>)| {
            let mut row = about.clone();
            row["quantity"] = quantity.as_str().into();
            row["unit"] = (*unit).into();
            row["measured"] = (*measured).into();
            row["simulated"] = json!(simulated);
            row["error_pct"] = json!(simulated.and_then(|value| error_pct(*measured, value)));
            row
        };
        match self.rows.is_empty() {
            true => vec![about],
            false => self.rows.iter().map(row).collect(),
        }
    }
}

/// By how much a simulated value differs from a measured one, in percent; `None` of a measured 0.
pub fn error_pct(measured: f64, simulated: f64) -> Option<f64> {
    (measured != 0.0).then(|| 100.0 * (simulated - measured) / measured)
}

/// The machine with the devices that tests need.
struct Testbed {
    library: Library,
    /// The machine's file, as scenarios name it.
    machine: String,
    content: Machine,
    card: Option<String>,
    /// The folder of an import, with scenarios for its devices.
    import: Option<PathBuf>,
}

impl Testbed {
    fn new(options: &ToolOptions) -> Result<Self, ToolsError> {
        let library = options.library.with_changes(options.set.iter().cloned());
        let (machine, folder) = machine_file(&library, &options.machine);
        let content = Doc::<Machine>::load(&library, &machine)?.read()?;
        let import = folder.filter(|folder| {
            ["fio", "netperf", "p2p"].iter().any(|name| folder.join(name).with_extension("toml").is_file())
        });
        Ok(Self { library, machine, content, card: options.card.clone(), import })
    }

    /// The text of a scenario that does what a test did, and the command line whose report is the result.
    /// `gpu` is the name of the GPU that the output has.
    fn scenario(
        &self,
        task: &ToolTask,
        gpu: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Result<(String, String), String> {
        let program = |host: &str, cpus: &str, memory: &str, run: &str| {
            format!("\n[[program]]\nhost = \"{host}\"\ncpus = \"{cpus}\"\n{memory}run = \"{run}\"\n")
        };
        match task {
            ToolTask::Nothing(why) => Err(why.clone()),
            ToolTask::Drive { run, cores } => {
                let (mut text, core) = self.hosts("fio", ("drive", None, 1), "", notes)?;
                text += &program("a", &self.cores_from(core, *cores), "", run);
                Ok((text, run.clone()))
            }
            ToolTask::Network { server, client } => {
                let (mut text, core) = self.hosts("netperf", ("nic", None, 1), "", notes)?;
                // As many cores as there are: a test with several streams may use them.
                let cpus = self.cores_from(core, 4);
                text += &(program("b", &cpus, "", server) + &program("a", &cpus, "", client));
                Ok((text, client.clone()))
            }
            ToolTask::Gpus { run, count } => {
                let (mut text, core) = self.hosts("p2p", ("gpu", gpu, *count), "", notes)?;
                text += &program("a", &core.to_string(), "", run);
                Ok((text, run.clone()))
            }
            ToolTask::Forwarding { options, frame_bytes, cores } => {
                let polled = "\n[host.nic_driver]\nuser_space = true\n";
                let (mut text, core) = self.hosts("netperf", ("nic", None, 1), polled, notes)?;
                let own = core..=core + cores.min(&(self.cores() - 1));
                let own: Vec<String> = own.map(|core| core.to_string()).collect();
                let run = format!("dpdk-testpmd -l {} -n 4 -- {options}", own.join(","));
                text += &format!("\n[[program]]\nhost = \"a\"\nrun = \"{run}\"\n");
                if !options.contains("txonly") {
                    let send = format!("pktgen -i eth0 -s {frame_bytes} -n 8000 -t 4 -c 1000 -b 32");
                    text += &(program("b", &self.cores_from(core, 4), "start = \"1 ms\"\n", &send));
                }
                Ok((text, run))
            }
            ToolTask::Cores { run, node, memory, count } => {
                let sockets = self.content.host.sockets.value.get();
                if let Some(missing) =
                    [Some(*node), *memory].into_iter().flatten().find(|node| *node >= sockets)
                {
                    return Err(format!("node {missing} is none of {}'s {sockets}", self.content.name));
                }
                let all = self.cores();
                let most = all * (sockets - node);
                let count = count.unwrap_or(all);
                if count > most {
                    notes.push(format!("{count} threads are more than {most} cores: one runs on each"));
                }
                let run = self.sized(run);
                let cpus = format!("{}-{}", node * all, node * all + count.clamp(1, most) - 1);
                let memory = memory.map_or(String::new(), |node| format!("memory = \"node{node}\"\n"));
                Ok((self.host_alone() + &program("a", &cpus, &memory, &run), run))
            }
            ToolTask::AllCores { run } => Ok((
                self.host_alone() + &format!("\n[[program]]\nhost = \"a\"\nrun = \"{run}\"\n"),
                run.clone(),
            )),
        }
    }

    /// A scenario's text with the machine as host `a`, without devices.
    fn host_alone(&self) -> String {
        let head = "name = \"compare\"\nsummary = \"a measured test\"\n";
        format!("{head}[[host]]\nname = \"a\"\nmachine = {:?}\n", self.machine)
    }

    /// Cores of a socket.
    fn cores(&self) -> u32 {
        self.content.host.core.count.value.get()
    }

    /// So many cores of a socket, from one on.
    fn cores_from(&self, first: u32, count: u32) -> String {
        let end = (first / self.cores() + 1) * self.cores();
        format!("{first}-{}", (first + count.max(1)).min(end) - 1)
    }

    /// A command line with sizes for the machine's caches.
    fn sized(&self, run: &str) -> String {
        let llc = self.content.host.llc.size.value.get();
        // Three arrays of eight bytes, of twice the caches.
        let elements = (llc * 2 / 24).clamp(ELEMENTS[0], ELEMENTS[1]);
        run.replace("{elements}", &elements.to_string())
    }

    /// The part whose name is in a device's printed one: `h100-pcie` of `NVIDIA H100 PCIe`. The longest, if several are.
    fn part_of(&self, kind: &str, printed: &str) -> Option<String> {
        let words = |text: &str| {
            let text = text.to_ascii_lowercase();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
            format!("-{}-", words.collect::<Vec<_>>().join("-"))
        };
        let printed = words(printed);
        let names = self.library.names(&format!("machines/{kind}s")).into_iter();
        names.filter(|name| printed.contains(&words(name))).max_by_key(String::len)
    }

    /// Hosts with the devices that a test needs, without programs, and a core near them: their kind, their printed name if there is
    /// one, and how many. Two hosts with a cable for a NIC.
    fn hosts(
        &self,
        scenario: &str,
        (kind, printed, count): (&str, Option<&str>, usize),
        more: &str,
        notes: &mut Vec<String>,
    ) -> Result<(String, u32), String> {
        let own = self.import.as_ref().map(|folder| folder.join(scenario).with_extension("toml"));
        let own = own.filter(|file| file.is_file() && self.card.is_none());
        if let Some(file) = own {
            return self.imported(&file, kind, count, more, notes);
        }
        let named = printed.and_then(|printed| self.part_of(kind, printed));
        let part = match (&self.card, &named) {
            (Some(card), _) => card.as_str(),
            (None, Some(named)) => {
                notes.push(format!("the {kind} is {named}, by the name that the output has"));
                named
            }
            (None, None) => {
                let stand_in = STAND_INS.iter().find(|(of, _)| *of == kind).map_or("", |(_, part)| part);
                notes.push(format!("the {kind} is {stand_in}; --card names yours"));
                stand_in
            }
        };
        let port = self.content.host.port.keys().next().map_or("slot", String::as_str);
        let mut text = "name = \"compare\"\nsummary = \"a measured test\"\n".to_owned();
        let hosts: &[&str] = if kind == "nic" { &["a", "b"] } else { &["a"] };
        for host in hosts {
            text += &format!("\n[[host]]\nname = \"{host}\"\nmachine = {:?}\n", self.machine);
            if *host == "a" {
                text += more;
            }
            let slots = if kind == "gpu" { self.slots(count) } else { vec![port.to_owned()] };
            if kind == "gpu" && slots.len() < count {
                notes.push(format!(
                    "{} has {} slots of x16 for {count} GPUs",
                    self.content.name,
                    slots.len()
                ));
            }
            for (number, slot) in slots.iter().enumerate() {
                text += &format!(
                    "\n[[host.device]]\nname = \"{kind}{number}\"\n{kind} = {part:?}\nslot = \"{slot}\"\n"
                );
            }
        }
        if hosts.len() > 1 {
            text += "\n[[cable]]\nends = [\"a\", \"b\"]\n";
        }
        let socket = self.content.host.port.values().next().map_or(0, |port| port.socket.value);
        Ok((text, socket * self.cores()))
    }

    /// The hosts of an import's scenario. Only its machine's file is changed.
    fn imported(
        &self,
        file: &Path,
        kind: &str,
        count: usize,
        more: &str,
        notes: &mut Vec<String>,
    ) -> Result<(String, u32), String> {
        let wrong = |error: Diagnostics| error.to_string();
        let mut doc =
            Doc::<ComputerScenario>::load(&self.library, &file.display().to_string()).map_err(wrong)?;
        let programs = doc.read().map_err(wrong)?.program;
        let first = programs.first().and_then(|program| program.cpus.as_ref());
        let core = first.and_then(|cpus| cpus.value.split(['-', ',']).next()?.parse().ok()).unwrap_or(0);
        doc.remove("program").map_err(wrong)?;
        doc.remove("event").map_err(wrong)?;
        let mut text = doc.to_text().map_err(wrong)?;
        if !more.is_empty() {
            // Of the first host: behind its keys, before its first table.
            let place = text.find("[[host.").ok_or_else(|| format!("`{}` has no device", file.display()))?;
            text.insert_str(place, &format!("{}\n", more.trim_start()));
        }
        let there = text.matches(&format!("\n{kind} = ")).count();
        if kind == "gpu" && there < count {
            notes.push(format!("`{}` has {there} of {count} GPUs: others are not simulated", file.display()));
        }
        // Its paths are relative to its own folder.
        let folder = file.parent().unwrap_or(Path::new("")).display().to_string();
        let text = text.lines().map(|line| absolute(line, &folder) + "\n").collect();
        Ok((text, core))
    }

    /// Slots that take a GPU.
    fn slots(&self, most: usize) -> Vec<String> {
        wide_slots(&self.content).take(most).collect()
    }

    fn load(&self, text: &str) -> Result<ComputerSetup, String> {
        let doc = Doc::<ComputerScenario>::from_text(&self.library, "compare.toml", text);
        let setup = ComputerSetup::load(&self.library, &doc).map_err(|error| error.to_string())?;
        computer::check_syntax(&setup).map_err(|error| error.to_string())?;
        Ok(setup)
    }
}

/// The machine's file that a name, a file or the folder of an import stands for, and the folder.
pub(super) fn machine_file(library: &Library, named: &str) -> (String, Option<PathBuf>) {
    let path = Path::new(named);
    if !path.is_dir() {
        let folder = path.parent().filter(|_| named.ends_with(".toml"));
        return (named.to_owned(), folder.map(Path::to_owned));
    }
    let usual = path
        .canonicalize()
        .ok()
        .and_then(|path| path.file_name().map(|name| path.join(name).with_extension("toml")));
    let usual = usual.and_then(|usual| usual.file_name().map(|name| path.join(name)));
    // An import has another name than its folder's if it was asked for one, or if the folder was renamed.
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    others.sort();
    let is_machine = |file: &PathBuf| {
        let doc = Doc::<Machine>::load(&library.aside(), &file.display().to_string());
        doc.and_then(|doc| doc.read()).is_ok()
    };
    let found = usual.clone().into_iter().chain(others).find(is_machine).or(usual);
    (found.unwrap_or_else(|| path.to_owned()).display().to_string(), Some(path.to_owned()))
}

/// A line of a scenario whose file is named from another folder.
fn absolute(line: &str, folder: &str) -> String {
    let named = line.split_once(" = \"").filter(|(key, value)| {
        ["machine", "nic", "drive", "gpu", "part"].contains(&key.trim()) && value.ends_with(".toml\"")
    });
    match named {
        Some((key, value)) if !folder.is_empty() && !value.starts_with('/') => {
            format!("{key} = \"{folder}/{value}")
        }
        _ => line.to_owned(),
    }
}
