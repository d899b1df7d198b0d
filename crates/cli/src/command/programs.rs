//! `nearfar programs`: the programs that run on simulated cores.

use std::process::ExitCode;

use workloads::PROGRAMS;

use crate::failure::Failure;
use crate::output;
use crate::output::{Fit, Records, TextTable};

/// List the programs that run on simulated cores, or show the help of one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar programs
  nearfar programs netperf")]
pub struct ProgramsArgs {
    /// The program to show.
    pub name: Option<String>,
    #[command(flatten)]
    records: Records,
}

pub fn run(arguments: &ProgramsArgs) -> Result<ExitCode, Failure> {
    let to_stdout = arguments.records.places(&[])?.to_stdout;
    let provenance = output::provenance(0, &[], &machine::Library::built_in());
    let Some(name) = &arguments.name else {
        let all = PROGRAMS.iter().map(|p| serde_json::json!({ "name": p.name, "about": p.about() }));
        arguments.records.write(all.collect(), &provenance)?;
        if to_stdout {
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
    arguments.records.write(vec![json], &provenance)?;
    if !to_stdout {
        output::print(program.help().trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
