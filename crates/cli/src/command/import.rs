//! `nearfar import`: a real machine as files that are simulated.

use std::path::PathBuf;
use std::process::ExitCode;

use super::inspect::survey_of;
use crate::failure::Failure;
use crate::{Common, input, output};

/// Make a machine file, parts and scenarios of a real machine.
///
/// Sources are those of `nearfar inspect`. Every figure says whether it was read and where, or is assumed; what no source says is the
/// nearest machine's or part's, which is told.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar import -o box                                    this machine
  nearfar import server.tar.gz -o server7
  nearfar import lspci-vvv.txt numactl-H.txt cpuinfo.txt -o box

Then, for a folder called box: nearfar run box/netperf.toml, nearfar bench with --machine box/box.toml,
and nearfar machines box/box.toml for every figure with its source.")]
pub struct ImportArgs {
    /// Files and folders about one machine; this machine if none is given.
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The folder to write into.
    #[arg(short, long, value_name = "DIR", value_parser = output::folder)]
    output: PathBuf,
    /// The machine's name; that of the folder if not given.
    #[arg(long)]
    name: Option<String>,
    /// The machine that stands for what is not known; the most similar one if not given.
    #[arg(long, value_name = "MACHINE")]
    from: Option<String>,
}

pub fn run(common: &Common, arguments: &ImportArgs) -> Result<ExitCode, Failure> {
    let survey = survey_of(&arguments.sources)?;
    let library = input::library(common);
    let folder = arguments.output.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = arguments.name.clone().or(folder).unwrap_or_else(|| "box".into());
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Err(Failure::new(format!("--name: `{name}` is no name: letters, digits, - and _")));
    }
    let options = survey::ImportOptions { name: &name, from: arguments.from.as_deref() };
    let imported = survey::import(&survey, &library, options)?;
    let mut places = output::Places::new(&[])?;
    for (file, _) in &imported.files {
        places.writes("--output", &arguments.output.join(file))?;
    }
    places.reads_sources(&arguments.sources)?;
    places.reads_through(&library)?;
    for (file, text) in &imported.files {
        output::write(&arguments.output.join(file), files::shown_toml(text).as_bytes())?;
    }
    let folder = arguments.output.display();
    let files: Vec<&str> = imported.files.iter().map(|(name, _)| name.as_str()).collect();
    output::print(&output::prose(&format!(
        "written to {folder}: {}\nwhat no source says is as in {}",
        files.join(", "),
        imported.relative
    )));
    for note in &imported.notes {
        output::print(&output::prose(&format!("note: {note}")));
    }
    let first =
        imported.first.map(|scenario| format!("nearfar run {folder}/{scenario}; ")).unwrap_or_default();
    output::print(&output::prose(&format!("next: {first}nearfar machines {folder}/{name}.toml")));
    Ok(ExitCode::SUCCESS)
}
