//! `nearfar inspect`: a real machine, and what holds its devices up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use survey::{Finding, Survey};

use super::cost::{self, Costs, FarCost};
use crate::failure::Failure;
use crate::{Common, output};

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
  nearfar inspect server.tar.gz --cost --svg box.svg       what findings cost, simulated; bad paths in red
  nearfar inspect --watch                                  this machine, when findings come and go

Costs are those of the link in closed form where a link decides; --cost simulates them on the machine's import, in some seconds.")]
pub struct InspectArgs {
    /// Files and folders about one machine; this machine if none is given.
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Show every known value with where it was read instead.
    #[arg(long)]
    everything: bool,
    /// Simulate the machine's import: what each finding costs, and a device at the other socket.
    #[arg(long, visible_alias = "simulate", conflicts_with_all = ["watch", "everything"])]
    cost: bool,
    /// Look again and again, and tell which findings come and go, until it is stopped.
    #[arg(long, conflicts_with_all = ["everything", "json", "svg"])]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "watch")]
    period: f64,
    /// Draw the machine, with what findings are about and the ways there in red; as a page if the name ends with .html.
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
    let mut findings = survey.findings();
    let costs = match arguments.cost {
        true => cost::simulate(common, &survey, &mut findings)?,
        false => Costs::default(),
    };
    if let Some(path) = &arguments.svg {
        let is_page = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("html"));
        let drawn = if is_page { survey.page(&findings) } else { survey.drawing(&findings) };
        output::write(path, files::shown(&drawn).as_bytes())?;
    }
    if arguments.json.is_some() {
        let provenance = output::provenance(0, &[], &machine::Library::built_in());
        let mut all = survey.to_json();
        all["findings"] = findings.iter().map(Finding::to_json).collect();
        all["simulated"] = costs.far.iter().map(FarCost::to_json).collect();
        all["not_simulated"] = costs.failed.clone().into();
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
    costs.far.iter().for_each(|cost| output::print(&output::prose(&format!("\n{cost}"))));
    costs.failed.iter().for_each(|failed| output::print(&output::prose(&format!("\n{failed}"))));
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

/// Looks again and again, and tells what has changed.
fn watch(arguments: &InspectArgs) -> Result<ExitCode, Failure> {
    let period =
        std::time::Duration::try_from_secs_f64(arguments.period).ok().filter(|period| !period.is_zero());
    let period = period.ok_or_else(|| Failure::new("--period: a number of seconds above 0"))?;
    let mut known: Option<Vec<Finding>> = None;
    loop {
        let survey = survey_of(&arguments.sources)?;
        let findings = survey.findings();
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
        output::is_heard()?;
        std::thread::sleep(period);
    }
}

/// Findings as numbered paragraphs. Those of a kind that has many are one, at the place of the most costly of them.
fn text_of(findings: &[Finding]) -> String {
    /// So many of one kind are told each.
    const MOST_OF_A_KIND: usize = 5;
    if findings.is_empty() {
        return "nothing was found that costs these devices, as far as the sources say".into();
    }
    let kind = |finding: &Finding| finding.id.split('/').next().unwrap_or_default().to_owned();
    let mut kinds: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    findings.iter().for_each(|finding| kinds.entry(kind(finding)).or_default().push(finding));
    let first_or_few = findings.iter().filter(|finding| {
        let all = &kinds[&kind(finding)];
        all.len() <= MOST_OF_A_KIND || std::ptr::eq(all[0], *finding)
    });
    let each = first_or_few.enumerate().map(|(place, finding)| {
        let share = finding.cost.share.map_or(String::new(), |share| format!("{:.0} %: ", 100.0 * share));
        let evidence: String = finding.evidence.iter().map(|line| format!("\n     {line}")).collect();
        let all = &kinds[&kind(finding)];
        let others = match all.len() > MOST_OF_A_KIND {
            true => {
                let subjects = all[1..]
                    .iter()
                    .map(|finding| finding.id.split_once('/').map_or("", |(_, subject)| subject).to_owned());
                let subjects: Vec<String> = subjects.collect();
                format!(
                    "\n   the same, at most as costly, of {} others: {} (--json has each with its cure)",
                    subjects.len(),
                    survey::some_of(&subjects, 12)
                )
            }
            false => String::new(),
        };
        format!(
            "{}. {} [{}]\n   cost: {share}{} ({}){evidence}\n   cure: {}{others}",
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
