//! The list of programs, and the parser of their command lines.

use std::rc::Rc;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::premises::Refused;
use crate::program::Program;

/// Parses a command line, including the program's name.
type Reader = fn(&str, &[String]) -> Result<Rc<dyn Program>, Refused>;

/// A program and its name.
pub struct Command {
    /// The name, as the first word of a command line.
    pub name: &'static str,
    read: Reader,
    options: fn() -> clap::Command,
}

impl Command {
    /// Help text: description and options.
    pub fn help(&self) -> String {
        let mut options = (self.options)();
        options.build();
        options.render_long_help().to_string()
    }

    /// One-line description.
    pub fn about(&self) -> String {
        (self.options)().get_about().map(ToString::to_string).unwrap_or_default()
    }
}

/// All programs, in alphabetical order.
pub const PROGRAMS: &[Command] = &[
    command::<crate::cuda::bandwidth::BandwidthTest>("bandwidthTest"),
    command::<crate::dd::Dd>("dd"),
    command::<crate::ethtool::Ethtool>("ethtool"),
    command::<crate::fio::Fio>("fio"),
    command::<crate::cuda::copy::GpuCopy>("gpu-copy"),
    command::<crate::cuda::pingpong::GpuPingPong>("gpu-pingpong"),
    command::<crate::cuda::train::GpuTrain>("gpu-train"),
    command::<crate::boot::Init>("init"),
    command::<crate::iperf::Iperf>("iperf"),
    command::<crate::l2fwd::L2fwd>("l2fwd"),
    command::<crate::lat_mem_rd::LatMemRd>("lat_mem_rd"),
    command::<crate::memcached::Memaslap>("memaslap"),
    command::<crate::memcached::Memcached>("memcached"),
    command::<crate::boot::Mkimage>("mkimage"),
    command::<crate::netperf::Netperf>("netperf"),
    command::<crate::netperf::Netserver>("netserver"),
    command::<crate::nvm::NvmLatency>("nvm-latency"),
    command::<crate::ping::Ping>("ping"),
    command::<crate::pktgen::Pktgen>("pktgen"),
    command::<crate::pagerank::PageRank>("pr"),
    command::<crate::sockperf::Sockperf>("sockperf"),
    command::<crate::stream::Stream>("stream"),
];

/// Other names of programs.
const ALIASES: &[(&str, &str)] =
    &[("stream_c", "stream"), ("stream_c.exe", "stream"), ("stream.exe", "stream")];

const fn command<P: Program + Parser + 'static>(name: &'static str) -> Command {
    Command { name, read: read::<P>, options: P::command }
}

fn read<P: Program + Parser + 'static>(name: &str, words: &[String]) -> Result<Rc<dyn Program>, Refused> {
    match P::try_parse_from(words) {
        Ok(program) => Ok(Rc::new(program)),
        Err(error) => Err(refused(name, &P::command(), &error)),
    }
}

/// Parses a program's command line.
///
/// # Errors
/// If the program does not exist, or its options are invalid.
pub fn parse(line: &str) -> Result<Rc<dyn Program>, Refused> {
    let words: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
    // With or without a path, as in `./stream_c.exe`.
    let first = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let name = ALIASES.iter().find(|(alias, _)| *alias == first).map_or(first, |(_, name)| name);
    let known = || PROGRAMS.iter().map(|command| command.name).collect::<Vec<_>>().join(", ");
    let Some(command) = PROGRAMS.iter().find(|command| command.name == name) else {
        let message = format!("there is no program `{name}`");
        return Err(Refused { message, help: Some(format!("the programs are {}", known())) });
    };
    if words.iter().any(|word| word == "--help") {
        return Err(Refused { message: format!("{name}: this is its help"), help: Some(command.help()) });
    }
    (command.read)(name, &words)
}

/// Shortens clap's error to a line and a hint, for a program with these options.
pub(crate) fn refused(name: &str, options: &clap::Command, error: &clap::Error) -> Refused {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("not understood");
    let message = format!("{name}: {}", first.trim_start_matches("error: "));
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
    {
        return Refused { message, help: Some(near(name, options, given)) };
    }
    let rest: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(|line| line.trim_start_matches("tip: "))
        .collect();
    Refused { message, help: (!rest.is_empty()).then(|| rest.join("; ")) }
}

/// More options than these are not listed.
const LISTED: usize = 16;

/// The option that was probably meant, or all.
fn near(name: &str, options: &clap::Command, given: &str) -> String {
    let known = flags(options);
    let given = given.split('=').next().unwrap_or(given);
    let bare = |flag: &str| flag.trim_start_matches('-').replace('-', "_").to_lowercase();
    let likeness = |flag: &String| strsim::damerau_levenshtein(&bare(flag), &bare(given));
    let limit = bare(given).chars().count() / 3;
    let nearest = known.iter().map(|flag| (likeness(flag), flag)).filter(|(far, _)| *far <= limit).min();
    match nearest {
        Some((_, flag)) => format!("there is `{flag}`; `nearfar programs {name}` explains all"),
        None if known.is_empty() => format!("{name} has no options, as `nearfar programs {name}` shows"),
        None if known.len() > LISTED => format!("`nearfar programs {name}` lists its options"),
        None => format!("its options are {}", known.join(", ")),
    }
}

/// All options of a command and its subcommands, as they are written.
fn flags(options: &clap::Command) -> Vec<String> {
    let own = options.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        argument.get_short().map(|short| format!("-{short}")).or(long)
    });
    let mut all: Vec<String> = own.chain(options.get_subcommands().flat_map(flags)).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|flag| seen.insert(flag.clone()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &str) -> Refused {
        match parse(line) {
            Ok(_) => panic!("`{line}` is understood"),
            Err(refused) => refused,
        }
    }

    #[test]
    fn a_line_that_is_not_understood_says_what_would_be() {
        assert!(wrong("sleep 1").help.unwrap().contains("stream"));
        let refused = wrong("stream --ntims 3");
        assert!(refused.message.contains("--ntims"), "{refused:?}");
        assert!(refused.help.unwrap().contains("--ntimes"));
        for command in PROGRAMS {
            let help = wrong(&format!("{} --help", command.name)).help.unwrap();
            assert!(help.contains("Usage:") && !command.about().is_empty(), "{help}");
        }
        assert!(wrong("fio --help").help.unwrap().contains("--iodepth"));
        assert!(wrong("stream --ntimes many").message.contains("many"));
        assert!(wrong("").message.contains("no program"));
    }

    /// What a hint says works, or at least exists.
    #[test]
    fn a_hint_after_an_unknown_option_names_options_that_there_are() {
        for (line, hint) in [
            ("ping -Z 10.0.0.2", "its options are"),
            ("ethtool -Z eth0 rx 1024", "its options are"),
            ("stream --ntims 3", "there is `--ntimes`"),
            ("fio --iodepht=3", "there is `--iodepth`"),
            ("fio --unheard_of=3", "`nearfar programs fio` lists its options"),
        ] {
            let refused = wrong(line);
            let help = refused.help.unwrap_or_default();
            assert!(help.contains(hint) && !help.contains("as a value"), "{line}: {help}");
        }
    }
}
