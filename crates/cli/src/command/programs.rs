//! `nearfar programs`: what runs on simulated cores.

use std::path::PathBuf;
use std::process::ExitCode;

use workloads::PROGRAMS;

use crate::failure::Failure;
use crate::output;
use crate::output::{Fit, TextTable};

/// List the programs that run on simulated cores, or say what one of them does and takes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar programs
  nearfar programs netperf")]
pub struct Arguments {
    /// The program.
    pub name: Option<String>,
    /// Write the list, or the program's help, as JSON; - for the standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file)]
    json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Some(name) = &arguments.name else {
        let all = PROGRAMS.iter().map(|p| serde_json::json!({ "name": p.name, "about": p.about() }));
        output::json(arguments.json.as_deref(), &all.collect::<Vec<_>>())?;
        if output::is_stdout(arguments.json.as_deref()) {
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = TextTable::new(["name", "what it does"], Fit::Wrap);
        PROGRAMS.iter().for_each(|p| table.add(vec![p.name.to_owned(), p.about()]));
        output::print(&table.render(output::width()));
        return Ok(ExitCode::SUCCESS);
    };
    let Some(program) = PROGRAMS.iter().find(|program| program.name == name) else {
        let known: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(Failure::new(format!(
            "there is no program `{name}`; the programs are {}",
            known.join(", ")
        )));
    };
    let json = serde_json::json!({ "name": program.name, "about": program.about(), "help": program.help() });
    output::json(arguments.json.as_deref(), &json)?;
    if !output::is_stdout(arguments.json.as_deref()) {
        output::print(program.help().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
