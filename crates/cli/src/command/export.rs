//! `nearfar export`: a simulated machine, or a real one, in the formats of other tools.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use machine::{ComputerScenario, ComputerSetup, Doc, Library, Machine};
use nearfar::computer::{self, SystemFiles};
use nearfar::experiment::{Experiment, ExperimentError};
use survey::Survey;

use crate::failure::Failure;
use crate::{Common, input, output};

/// Write a machine as hwloc's XML, NCCL's topology, an lspci dump, or a capture.
///
/// Of a scenario, a host is booted and written as its kernel finds it; of a machine, a host without devices. Of a real machine's sources
/// (see `nearfar inspect`), what they say is written.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar export octo -o octo.xml && lstopo -i octo.xml
  nearfar export gpu-switches --as nccl -o topo.xml          NCCL_TOPO_FILE=topo.xml
  nearfar export fio-switch --as lspci -o fio.lspci && lspci -F fio.lspci -vvv
  nearfar export nic-slot --host b --as capture -o b.tar.gz && nearfar inspect b.tar.gz
  nearfar export server.tar.gz --as nccl                     a real machine's, as NCCL reads it")]
pub struct ExportArgs {
    /// A scenario or a machine, by name or path; or a file or folder about a real machine.
    #[arg(value_name = "SCENARIO|SOURCE")]
    what: String,
    /// The format.
    #[arg(long = "as", value_enum, default_value_t = ExportForm::Hwloc)]
    form: ExportForm,
    /// The scenario's host; the first one if not given.
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// The file to write; - for standard output, which is where texts go if not given.
    #[arg(short, long, value_name = "FILE", value_parser = output::file)]
    output: Option<PathBuf>,
}

/// A format of other tools.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum ExportForm {
    /// hwloc's XML, version 2: `lstopo -i`.
    Hwloc,
    /// NCCL's topology: `NCCL_TOPO_FILE`.
    Nccl,
    /// Configuration spaces as `lspci -xxxx` prints them: `lspci -F`.
    Lspci,
    /// Files like those of /sys and /proc, as `nearfar capture` packs them.
    Capture,
}

pub fn run(common: &Common, arguments: &ExportArgs) -> Result<ExitCode, Failure> {
    let mut places = output::Places::new(&[("--output", arguments.output.as_deref())])?;
    let named = Path::new(&arguments.what);
    let is_source = named.exists() && !arguments.what.ends_with(".toml");
    let text = match (is_source, arguments.form) {
        (true, ExportForm::Lspci | ExportForm::Capture) => {
            return Err(Failure::new(
                "of a real machine, `lspci -xxxx` writes configuration spaces, and `nearfar capture` its files",
            ));
        }
        (true, form) => {
            if !arguments.set.is_empty() || arguments.host.is_some() {
                return Err(Failure::new(
                    "--set and --host are for scenarios, and this is a real machine's source",
                ));
            }
            places.reads_sources(&[named.to_owned()])?;
            of_survey(&super::inspect::survey_of(&[named.to_owned()])?, form)
        }
        (false, form) => {
            let library = input::library(common);
            let setup = setup(&library, arguments)?;
            places.writes_of(&setup)?;
            places.reads_through(&library)?;
            let name = host(&setup, arguments.host.as_deref())?;
            if form == ExportForm::Lspci {
                let all = computer::configuration(&setup).map_err(ExperimentError::from)?;
                all.into_iter().find(|(own, _)| *own == name).map(|(_, text)| text).unwrap_or_default()
            } else {
                let all = computer::system_files(&setup).map_err(ExperimentError::from)?;
                let own = all.into_iter().find(|own| own.host == name).unwrap_or_default();
                let packed = packed(&own)?;
                if form == ExportForm::Capture {
                    return capture(arguments, &packed);
                }
                of_survey(&Survey::from_bytes(&name, &packed).map_err(Failure::new)?, form)
            }
        }
    };
    match arguments.output.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => {
            output::write(path, files::shown(&text).as_bytes())?;
            output::complain(&format!("written: {}", path.display()));
        }
        None => output::print(text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

fn of_survey(survey: &Survey, form: ExportForm) -> String {
    match form {
        ExportForm::Nccl => survey.to_nccl_xml(),
        _ => survey.to_hwloc_xml(),
    }
}

pub(super) fn packed(files: &SystemFiles) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    survey::pack(&files.files, &files.links, &mut bytes).map_err(Failure::new)?;
    Ok(bytes)
}

fn capture(arguments: &ExportArgs, packed: &[u8]) -> Result<ExitCode, Failure> {
    let Some(path) = arguments.output.as_deref().filter(|path| *path != Path::new("-")) else {
        return Err(Failure::new("a capture is no text: name its file with -o"));
    };
    output::write(path, packed)?;
    output::complain(&format!("written: {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// The scenario, or one of a machine alone.
fn setup(library: &Library, arguments: &ExportArgs) -> Result<ComputerSetup, Failure> {
    let name = &arguments.what;
    let unknown = match Experiment::load(library, name, "--set", &arguments.set) {
        Ok(Experiment::Computers(setup)) => return Ok(*setup),
        Ok(Experiment::Bench(_)) => {
            return Err(Failure::new(format!(
                "{name} has a machine with a card, on which no kernel runs; export is for scenarios with computers, such as octo"
            )));
        }
        Err(unknown) => unknown,
    };
    if Doc::<Machine>::load(library, name).and_then(|doc| doc.read()).is_err() {
        return Err(unknown.into());
    }
    let text = format!(
        "name = \"export\"\nsummary = \"a machine\"\n[[host]]\nname = \"a\"\nmachine = {name:?}\n[[program]]\ncpus = \"0\"\nrun = \"stream\"\n"
    );
    let doc = Doc::<ComputerScenario>::from_text(library, "export.toml", &text);
    Ok(ComputerSetup::load(library, &doc)?)
}

/// The host's name.
fn host(setup: &ComputerSetup, wanted: Option<&str>) -> Result<String, Failure> {
    let names: Vec<&str> = setup.hosts.iter().map(|host| host.name.as_str()).collect();
    let found = match wanted {
        Some(wanted) => names.iter().find(|name| **name == wanted),
        None => names.first(),
    };
    let told = || {
        Failure::new(format!(
            "--host: there is no host `{}`; there are {}",
            wanted.unwrap_or_default(),
            names.join(", ")
        ))
    };
    found.map(|name| (*name).to_owned()).ok_or_else(told)
}
