//! `nearfar completions` and `nearfar manual`: what registers the program for completion with a shell, and manual pages,
//! generated from the program's arguments.

use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::env::{EnvCompleter, Shells};

use crate::failure::Failure;
use crate::output;

/// Print a shell completion script: commands, options, scenarios, machines and keys.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar completions bash > ~/.local/share/bash-completion/completions/nearfar
  nearfar completions zsh > ~/.zfunc/_nearfar
  nearfar completions fish > ~/.config/fish/completions/nearfar.fish

The script asks `nearfar`, which has to be on the PATH.")]
pub struct Completions {
    /// The shell whose completions are written to the standard output.
    shell: clap_complete::Shell,
}

/// Write manual pages: one for the program and one per command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar manual ~/.local/share/man/man1")]
pub struct Manual {
    /// The folder for the pages.
    #[arg(value_name = "DIR", value_parser = output::folder)]
    folder: PathBuf,
}

/// Prints completions.
pub fn completions(arguments: &Completions) -> Result<ExitCode, Failure> {
    let shells = Shells::builtins();
    let name = arguments.shell.to_string();
    let known = || shells.names().collect::<Vec<_>>();
    let shell: &dyn EnvCompleter = shells.completer(&name).ok_or_else(|| {
        Failure::unknown("shell", &name, known(), &format!("there are {}", known().join(", ")))
    })?;
    let mut text = Vec::new();
    shell.write_registration("COMPLETE", "nearfar", "nearfar", "nearfar", &mut text).map_err(Failure::new)?;
    output::print(String::from_utf8_lossy(&text).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Writes manual pages.
pub fn manual(arguments: &Manual) -> Result<ExitCode, Failure> {
    let mut program = crate::parser();
    program.build();
    let mut pages = vec![("nearfar".to_owned(), program.clone())];
    for command in program.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = format!("nearfar-{}", command.get_name());
        // The library requires a title with static lifetime.
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
