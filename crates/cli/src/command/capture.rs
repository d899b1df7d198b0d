//! `nearfar capture`: this machine's files, for another place.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::{Common, output};

/// Write what `inspect` and `import` read of this machine into a compressed archive.
///
/// It holds topology, PCI functions with their configuration spaces, links, nodes, interrupts and queues, as files laid out like /.
/// Serial numbers, MAC addresses, host name and command line stay out. As root, configuration spaces are complete: without, links are
/// there, but not payload sizes, tags and ACS.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar capture                        writes capture.tar.gz
  nearfar capture -o server7.tar.gz
  nearfar capture --root image           a folder laid out like /")]
pub struct CaptureArgs {
    /// The archive to write.
    #[arg(short, long, value_name = "FILE", value_parser = output::binary, default_value = "capture.tar.gz")]
    output: PathBuf,
    /// The folder to take for /.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Keep serial numbers, and the kernel's whole command line.
    #[arg(long)]
    identities: bool,
}

pub fn run(_: &Common, arguments: &CaptureArgs) -> Result<ExitCode, Failure> {
    let places = output::Places::new(&[("--output", Some(arguments.output.as_path()))])?;
    places.reads_sources(std::slice::from_ref(&arguments.root))?;
    let mut archive = Vec::new();
    let count = survey::capture(&arguments.root, arguments.identities, &mut archive).map_err(Failure::new)?;
    output::write_with(&arguments.output, |out| out.write_all(&archive))?;
    let name = arguments.output.display();
    output::complain(&format!("written: {name}, {count} files in {} KiB", archive.len().div_ceil(1024)));
    if arguments.root == Path::new("/") {
        output::complain(&format!("next: nearfar inspect {name}; nearfar import {name} -o box"));
    }
    Ok(ExitCode::SUCCESS)
}
