//! `nearfar completions` and `nearfar manual`: what shells and `man` know of the program, made from its own arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::failure::Failure;
use crate::output;

/// Print what a shell needs to complete command lines of the program.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar completions bash > ~/.local/share/bash-completion/completions/nearfar
  nearfar completions zsh > ~/.zfunc/_nearfar")]
pub struct Completions {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Write the manual's pages, one for the program and one for each command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar manual ~/.local/share/man/man1")]
pub struct Manual {
    /// The folder for them.
    #[arg(value_name = "DIR", value_parser = output::folder)]
    folder: PathBuf,
}

/// Prints completions.
pub fn completions(arguments: &Completions) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "nearfar", &mut text);
    output::print(String::from_utf8_lossy(&text).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Writes manual pages.
pub fn manual(arguments: &Manual) -> Result<ExitCode, Failure> {
    let mut program = crate::Arguments::command();
    program.build();
    let mut pages = vec![("nearfar".to_owned(), program.clone())];
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("nearfar-{}", command.get_name());
        // A page is named by a text that lives as long as the program.
        let title: &'static str = Box::leak(name.clone().into_boxed_str());
        pages.push((name, command.clone().name(title)));
    }
    for (name, command) in pages {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text).map_err(Failure::new)?;
        output::write(&arguments.folder.join(format!("{name}.1")), &text)?;
    }
    output::complain(&format!("pages in {}", arguments.folder.display()));
    Ok(ExitCode::SUCCESS)
}
