//! `nearfar inspect`: a real machine, and what holds its devices up.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nearfar::experiment::Experiment;
use place::{HostRoot, HostView};
use survey::{Finding, Survey};

use crate::failure::Failure;
use crate::{Common, input, output};

/// Look at a real machine: nodes, bridges, devices, and what costs its devices most.
///
/// Sources are told by their content: / for this machine, a folder or archive with its sys and proc, hwloc's XML, NCCL's
/// topology, outputs of lspci (-vvv, -t, -nn, -x), numactl -H, nvidia-smi topo -m, lstopo, or a folder of such. Several
/// sources are of the same machine; where they differ, the first is taken, and that is told. Nothing is changed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar inspect                                          this machine
  nearfar inspect server.tar.gz                            what `nearfar capture` wrote there
  nearfar inspect lspci-vvv.txt numactl-H.txt              outputs of tools, together
  nearfar inspect topology.xml --json -
  nearfar inspect / --everything                           every value, and where it was read
  nearfar inspect server.tar.gz --simulate --svg box.svg   what the far socket costs; bad paths in red
  nearfar inspect --watch                                  this machine, when findings come and go

Costs are those of the link in closed form where a link decides; --simulate has those of a device at another socket.")]
pub struct InspectArgs {
    /// Files and folders about one machine; this machine if none is given.
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Show every known value with where it was read instead.
    #[arg(long)]
    everything: bool,
    /// Simulate the machine's import: a device at its own socket and at the other one.
    #[arg(long, conflicts_with_all = ["watch", "everything"])]
    simulate: bool,
    /// Look again and again, and tell which findings come and go, until it is stopped.
    #[arg(long, conflicts_with_all = ["everything", "json", "svg"])]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "watch")]
    period: f64,
    /// Draw the machine, with what findings are about and the ways there in red.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    svg: Option<PathBuf>,
    /// Write the machine and the findings as JSON; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

pub fn run(common: &Common, arguments: &InspectArgs) -> Result<ExitCode, Failure> {
    let places = [("--json", arguments.json.as_deref()), ("--svg", arguments.svg.as_deref())];
    let places = output::Places::new(&places)?;
    places.reads_sources(&arguments.sources)?;
    let to_stdout = places.to_stdout;
    if arguments.watch {
        return watch(arguments);
    }
    let survey = survey_of(&arguments.sources)?;
    let findings = findings_of(&survey, &arguments.sources);
    let costs = if arguments.simulate { far_costs(common, &survey)? } else { Vec::new() };
    if let Some(path) = &arguments.svg {
        output::write(path, files::shown(&survey.drawing(&findings)).as_bytes())?;
    }
    if arguments.json.is_some() {
        let provenance = output::provenance(0, &[], &machine::Library::built_in());
        let mut all = survey.to_json();
        all["findings"] = findings.iter().map(Finding::to_json).collect();
        all["simulated"] = costs.iter().map(FarCost::to_json).collect();
        all["provenance"] = serde_json::to_value(provenance).map_err(Failure::new)?;
        output::json(arguments.json.as_deref(), &all)?;
    }
    if to_stdout {
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.everything {
        output::print(survey.dump().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&survey.overview());
    output::print(&output::prose(&text_of(&findings)));
    costs.iter().for_each(|cost| output::print(&output::prose(&format!("\n{cost}"))));
    let doubts: Vec<_> =
        survey.doubts.iter().map(|doubt| format!("  {}: {}", doubt.about, doubt.message)).collect();
    if !doubts.is_empty() {
        let shown = doubts.len().min(12);
        let more = match doubts.len() - shown {
            0 => String::new(),
            more => format!("\n  and {more} more (--json has all)"),
        };
        output::print(&output::prose(&format!(
            "\nwhat the sources say and cannot be so, or do not say:\n{}{more}",
            doubts[..shown].join("\n")
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the sources; this machine if there is none.
pub fn survey_of(sources: &[PathBuf]) -> Result<Survey, Failure> {
    let paths: Vec<&Path> = match sources {
        [] => vec![Path::new("/")],
        given => given.iter().map(PathBuf::as_path).collect(),
    };
    let _waiting: Vec<_> = paths.iter().map(|path| output::waits_at_pipe(path, "write to")).collect();
    Survey::read(&paths).map_err(Failure::new)
}

/// Findings of a machine, and of the guests that run on it where it is the live one or a folder.
fn findings_of(survey: &Survey, sources: &[PathBuf]) -> Vec<Finding> {
    let mut all = survey.findings();
    let root = match sources {
        [] => Some(Path::new("/")),
        [one] => Some(one.as_path()).filter(|path| path.is_dir()),
        _ => None,
    };
    let view = root.and_then(|root| HostView::new(HostRoot::new(root).ok()?).ok());
    all.extend(view.iter().flat_map(place::findings));
    all
}

/// What the import of the machine pays for a device at another socket.
struct FarCost {
    what: String,
    unit: &'static str,
    near: f64,
    far: f64,
    relative: String,
}

impl FarCost {
    fn to_json(&self) -> serde_json::Value {
        let Self { what, unit, near, far, relative } = self;
        serde_json::json!({ "what": what, "unit": unit, "near": near, "far": far, "change_pct": 100.0 * (far / near - 1.0), "relative": relative })
    }
}

impl std::fmt::Display for FarCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, unit, near, far, relative } = self;
        write!(
            f,
            "simulated: {what} {} {unit} with the device at the program's socket, {} at the other one ({:+.1} %); as {relative}, whose errors \
             docs/accuracy.md has",
            output::number(*near),
            output::number(*far),
            100.0 * (far / near - 1.0)
        )
    }
}

/// Runs the import's first scenario with its device in its own slot and in one at the other socket.
fn far_costs(common: &Common, survey: &Survey) -> Result<Vec<FarCost>, Failure> {
    const FOLDER: &str = "inspected";
    let library = input::library(common);
    let options = survey::ImportOptions { name: FOLDER, from: None };
    let imported = survey::import(survey, &library, options)?;
    let texts = imported.files.iter().map(|(name, text)| (format!("{FOLDER}/{name}"), text.clone()));
    let library = library.with_texts(texts);
    let has = |name: &str| imported.files.iter().any(|(file, _)| file == name);
    let (scenario, slot) = match () {
        () if has("netperf.toml") => ("netperf.toml", "host.b.device.0.slot"),
        () if has("fio.toml") => ("fio.toml", "host.a.device.0.slot"),
        () => return Err(Failure::new("--simulate: the machine has neither a NIC nor a drive to simulate")),
    };
    let path = format!("{FOLDER}/{scenario}");
    let run = |changes: &[(String, String)]| -> Result<Vec<serde_json::Value>, Failure> {
        Ok(Experiment::load(&library, &path, "--simulate", changes)?.run(false, &nearfar::Silent)?)
    };
    let near = run(&[])?;
    let far = run(&[(slot.to_owned(), "elsewhere".to_owned())]).map_err(|_| {
        Failure::new("--simulate: the machine has one socket, and no other one to put a device at")
    })?;
    let wanted = [
        ("throughput", "Mbit/s"),
        ("rate", "transactions/s"),
        ("read iops", "1/s"),
        ("read clat mean", "µs"),
        ("latency: read iops", "1/s"),
        ("rate: read iops", "1/s"),
    ];
    let get = |all: &[serde_json::Value], number: &serde_json::Value, quantity: &str| {
        let is_it = |row: &&serde_json::Value| {
            row["kind"] == "reading" && row["quantity"] == quantity && row["program"] == *number
        };
        all.iter().find(is_it).and_then(|row| row["value"].as_f64())
    };
    let mut costs = Vec::new();
    for row in near.iter().filter(|row| row["kind"] == "reading") {
        let Some((quantity, unit)) = wanted.iter().find(|(quantity, _)| row["quantity"] == *quantity) else {
            continue;
        };
        if let (Some(near), Some(far)) = (row["value"].as_f64(), get(&far, &row["program"], quantity)) {
            let line = row["run"].as_str().unwrap_or_default();
            // With many in flight, a latency is what is in flight over the rate.
            if quantity.contains("clat") && line.contains("libaio") {
                continue;
            }
            costs.push(FarCost {
                what: format!("`{line}`: {quantity}"),
                unit,
                near,
                far,
                relative: imported.relative.clone(),
            });
        }
    }
    Ok(costs)
}

/// Looks again and again, and tells what has changed.
fn watch(arguments: &InspectArgs) -> Result<ExitCode, Failure> {
    let period =
        std::time::Duration::try_from_secs_f64(arguments.period).ok().filter(|period| !period.is_zero());
    let period = period.ok_or_else(|| Failure::new("--period: a number of seconds above 0"))?;
    let mut known: Option<Vec<Finding>> = None;
    loop {
        let survey = survey_of(&arguments.sources)?;
        let findings = findings_of(&survey, &arguments.sources);
        match &known {
            None => {
                output::print(&survey.overview());
                output::print(&output::prose(&text_of(&findings)));
            }
            Some(before) => {
                let has = |all: &[Finding], id: &str| all.iter().any(|finding| finding.id == id);
                for finding in findings.iter().filter(|finding| !has(before, &finding.id)) {
                    output::print(&output::prose(&format!(
                        "new: {} [{}]\n   cure: {}",
                        finding.title, finding.id, finding.cure
                    )));
                }
                for finding in before.iter().filter(|finding| !has(&findings, &finding.id)) {
                    output::print(&output::prose(&format!("gone: {} [{}]", finding.title, finding.id)));
                }
            }
        }
        known = Some(findings);
        std::thread::sleep(period);
    }
}

/// Findings as numbered paragraphs.
fn text_of(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing was found that costs these devices, as far as the sources say".into();
    }
    let each = findings.iter().enumerate().map(|(place, finding)| {
        let share = finding.cost.share.map_or(String::new(), |share| format!("{:.0} %: ", 100.0 * share));
        let evidence: String = finding.evidence.iter().map(|line| format!("\n     {line}")).collect();
        format!(
            "{}. {} [{}]\n   cost: {share}{} ({}){evidence}\n   cure: {}",
            place + 1,
            finding.title,
            finding.id,
            finding.cost.text,
            finding.cost.source,
            finding.cure
        )
    });
    each.collect::<Vec<_>>().join("\n")
}
