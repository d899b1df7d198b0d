//! `nearfar inspect`: a real machine, and what holds its devices up.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use survey::{Finding, Survey};

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

Costs are those of the link in closed form where a link decides; others say what has to be simulated.")]
pub struct InspectArgs {
    /// Files and folders about one machine; this machine if none is given.
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// Show every known value with where it was read instead.
    #[arg(long)]
    everything: bool,
    /// Write the machine and the findings as JSON; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

pub fn run(_: &Common, arguments: &InspectArgs) -> Result<ExitCode, Failure> {
    let to_stdout = output::Places::new(&[("--json", arguments.json.as_deref())])?.to_stdout;
    let survey = survey_of(&arguments.sources)?;
    let findings = survey.findings();
    if arguments.json.is_some() {
        let provenance = output::provenance(0, &[], &machine::Library::built_in());
        let mut all = survey.to_json();
        all["findings"] = findings.iter().map(Finding::to_json).collect();
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
    Survey::read(&paths).map_err(Failure::new)
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
