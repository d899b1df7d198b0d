//! Options of the real tools that are read and not carried out: some change nothing in a simulation, for others the
//! scenario has a key.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

use crate::premises::Refused;

/// An option that is read and not carried out.
#[derive(Clone, Copy)]
pub(crate) struct Unmodelled {
    /// The option as in the tool's manual: `-q`, `-D, --daemon`, `--logfile FILE`.
    option: &'static str,
    /// Whether it changes nothing here. It is refused otherwise.
    is_harmless: bool,
    /// The value with which one that is refused changes nothing: what there is anyway.
    anyway: Option<&'static str>,
    /// Why it changes nothing, or what there is instead.
    why: &'static str,
}

impl Unmodelled {
    /// An option that changes nothing in a simulation, with the reason.
    pub(crate) const fn harmless(option: &'static str, why: &'static str) -> Self {
        Self { option, is_harmless: true, anyway: None, why }
    }

    /// An option that is refused, with what there is instead.
    pub(crate) const fn refused(option: &'static str, why: &'static str) -> Self {
        Self { option, is_harmless: false, anyway: None, why }
    }

    /// An option that is refused unless it asks for what there is anyway.
    pub(crate) const fn unless(option: &'static str, anyway: &'static str, why: &'static str) -> Self {
        Self { option, is_harmless: false, anyway: Some(anyway), why }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.option.split([',', ' ']).filter(|word| word.starts_with('-'))
    }

    fn takes_value(&self) -> bool {
        self.option.split([',', ' ']).any(|word| !word.is_empty() && !word.starts_with('-'))
    }

    fn arg(&self, is_global: bool) -> Arg {
        let heading = if self.is_harmless { "Without effect here" } else { "Not carried out here" };
        let mut arg = Arg::new(self.option).help(self.why).help_heading(heading).global(is_global);
        for name in self.names() {
            match name.strip_prefix("--") {
                Some(long) => arg = arg.long(long),
                None => arg = arg.short(name.chars().nth(1)),
            }
        }
        match self.takes_value() {
            true => arg.action(ArgAction::Append).allow_hyphen_values(true).value_name("VALUE"),
            false => arg.action(ArgAction::Count),
        }
    }
}

/// Adds them to a tool's options, and to those of its subcommands.
pub(crate) fn add(command: clap::Command, all: &[Unmodelled]) -> clap::Command {
    let is_global = command.has_subcommands();
    command.args(all.iter().map(|one| one.arg(is_global)))
}

/// A note on each of those that a command line has, or why it is refused.
pub(crate) fn notes(program: &str, matches: &ArgMatches, all: &[Unmodelled]) -> Vec<Result<String, Refused>> {
    let is_given = |one: &&Unmodelled| matches.value_source(one.option) == Some(ValueSource::CommandLine);
    let note = |one: &Unmodelled| {
        let name = one.names().last().unwrap_or(one.option);
        let mut values = matches.try_get_many::<String>(one.option).ok().flatten().into_iter().flatten();
        let is_anyway = one.anyway.is_some_and(|anyway| values.all(|value| value == anyway));
        match one.is_harmless || is_anyway {
            true => Ok(format!("{name} changes nothing here: {}", one.why)),
            false => Err(Refused::new(format!("{program}: {name} is not carried out here"), one.why)),
        }
    };
    all.iter().filter(is_given).map(note).collect()
}
