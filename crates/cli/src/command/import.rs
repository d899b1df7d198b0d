//! `nearfar import`: a real machine as files that are simulated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

The last lines printed are commands: what the NIC costs at another socket, the first scenario, and every figure with its source.
For a folder called box, nearfar bench takes --machine box/box.toml.")]
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
    /// Overwrite files there that were edited since they were imported, or are somebody else's.
    #[arg(long)]
    force: bool,
    /// The machine that stands for what is not known; the most similar one if not given.
    #[arg(long, value_name = "MACHINE")]
    from: Option<String>,
}

pub fn run(common: &Common, arguments: &ImportArgs) -> Result<ExitCode, Failure> {
    let survey = survey_of(&arguments.sources)?;
    let library = input::library(common);
    let name = match &arguments.name {
        Some(name) if is_name(name) => name.clone(),
        Some(name) => {
            return Err(Failure::new(format!("--name: `{name}` is no name: letters, digits, - and _")));
        }
        None => name_of(&arguments.output),
    };
    let options = survey::ImportOptions { name: &name, from: arguments.from.as_deref() };
    let imported = survey::import(&survey, &library, options)?;
    let mut places = output::Places::new(&[])?;
    for (file, _) in &imported.files {
        places.writes("--output", &arguments.output.join(file))?;
    }
    places.reads_sources(&arguments.sources)?;
    places.reads_through(&library)?;
    let texts: Vec<(&str, String)> = imported
        .files
        .iter()
        .map(|(file, text)| (file.as_str(), files::shown_toml(text).into_owned()))
        .collect();
    let mut before = WrittenBefore::read(&arguments.output);
    if !arguments.force {
        before.check(&arguments.output, &texts)?;
    }
    for (file, text) in &texts {
        output::write(&arguments.output.join(file), text.as_bytes())?;
        before.0.insert((*file).to_owned(), files::sha256(text.as_bytes()));
    }
    before.write(&arguments.output)?;
    let folder = arguments.output.display().to_string();
    let names: Vec<&str> = texts.iter().map(|(name, _)| *name).collect();
    output::print(&output::prose(&format!(
        "written to {folder}: {}\nwhat no source says is as in {}",
        names.join(", "),
        imported.relative
    )));
    for note in &imported.notes {
        output::print(&output::prose(&format!("note: {note}")));
    }
    // Command lines are to be copied: they are not wrapped.
    let shell = survey::shell_word(&folder);
    match imported.far.first() {
        Some(place) => {
            let what = if place.scenario == "fio.toml" { "drive" } else { "NIC" };
            output::print(&format!(
                "next, what the {what} costs at another socket:\n  nearfar {}",
                place.command(&shell)
            ));
        }
        None if survey.nodes.len() < 2 => output::print("one node: no slot is far"),
        None => {}
    }
    let first =
        imported.first.map(|scenario| format!("  nearfar run {shell}/{scenario}\n")).unwrap_or_default();
    output::print(&format!("and:\n{first}  nearfar machines {shell}/{name}.toml"));
    Ok(ExitCode::SUCCESS)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// The machine's name, from that of its folder: what cannot be in a name is a `-`.
fn name_of(folder: &Path) -> String {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let text = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    match name.trim_matches('-') {
        "" => "box".into(),
        name => name.to_owned(),
    }
}

/// Files that imports wrote into a folder, each with the digest of what was written.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct WrittenBefore(BTreeMap<String, String>);

impl WrittenBefore {
    /// Where a folder has it.
    fn place(folder: &Path) -> PathBuf {
        folder.join(".nearfar-import.json")
    }

    fn read(folder: &Path) -> Self {
        let bytes = files::read(&Self::place(folder)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    fn write(&self, folder: &Path) -> Result<(), Failure> {
        output::write(&Self::place(folder), &serde_json::to_vec_pretty(self).map_err(Failure::new)?)
    }

    /// Fails if a file that is to be written is there and is not as an import wrote it.
    fn check(&self, folder: &Path, texts: &[(&str, String)]) -> Result<(), Failure> {
        let edited = texts.iter().filter(|(file, text)| {
            let Ok(now) = files::read(&folder.join(file)) else { return false };
            now != text.as_bytes() && self.0.get(*file) != Some(&files::sha256(&now))
        });
        let edited: Vec<String> =
            edited.map(|(file, _)| format!("`{}`", folder.join(file).display())).collect();
        match edited.is_empty() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{} {} edited since the import, or no import's: --force overwrites, or name another folder",
                edited.join(", "),
                if edited.len() == 1 { "was" } else { "were" }
            ))),
        }
    }
}
