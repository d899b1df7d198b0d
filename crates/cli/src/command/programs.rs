//! `nearfar programs`: what runs on simulated cores.

use std::process::ExitCode;

use workloads::PROGRAMS;

use crate::failure::Failure;
use crate::output;

/// List the programs that run on simulated cores, or say what one of them does and takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar programs
  nearfar programs netperf")]
pub struct Arguments {
    /// The program.
    name: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some(name) = &arguments.name else {
        let lines = PROGRAMS.iter().map(|program| format!("{:<10} {}", program.name, program.about()));
        output::print(&lines.collect::<Vec<_>>().join("\n"));
        return Ok(ExitCode::SUCCESS);
    };
    let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(Failure::new(format!(
            "there is no program `{name}`; the programs are {}",
            known.join(", ")
        )));
    };
    output::print(program.help().trim_end());
    Ok(ExitCode::SUCCESS)
}
