//! `nearfar draw`: a scenario as a picture.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::{Common, input, output};

/// Draw a scenario: hosts, sockets, slots, links, switches, devices and cables, as SVG.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar draw octo -o octo.svg
  nearfar draw netperf --set host.a.machine=dell-r730 > netperf.svg

Lines are as wide as they carry. Any browser opens the file; it is legible at a width of 420 pixels.")]
pub struct DrawArgs {
    /// The scenario, by name or path (`nearfar machines` lists them).
    pub scenario: String,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The file to write; the standard output if not given, or -.
    #[arg(short, long, value_name = "FILE", value_parser = output::file, default_value = "-")]
    output: PathBuf,
}

pub fn run(common: &Common, arguments: &DrawArgs) -> Result<ExitCode, Failure> {
    let mut places = output::Places::new(&[("--output", Some(arguments.output.as_path()))])?;
    places.writes_origin("--output", &arguments.output)?;
    let library = input::library(common);
    let named = input::Named { scenario: &arguments.scenario, folder: None };
    let experiment = input::scenario(&library, &named, "--set", &arguments.set)?;
    let provenance = output::provenance(experiment.seed(), &[("--set", &arguments.set)], &library);
    input::places(&mut places, &library, &experiment)?;
    let picture = nearfar::draw::picture(&experiment);
    output::with_origin(&arguments.output, files::shown(&picture).as_bytes(), &provenance)?;
    Ok(ExitCode::SUCCESS)
}
