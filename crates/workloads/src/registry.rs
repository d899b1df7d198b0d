//! The list of programs, and the parser of their command lines.

use std::rc::Rc;

use clap::Parser;

use crate::premises::Refused;
use crate::program::Program;

/// Parses a command line, including the program's name.
type Reader = fn(&[String]) -> Result<Rc<dyn Program>, clap::Error>;

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

const fn command<P: Program + Parser + 'static>(name: &'static str) -> Command {
    Command { name, read: read::<P>, options: P::command }
}

fn read<P: Program + Parser + 'static>(words: &[String]) -> Result<Rc<dyn Program>, clap::Error> {
    Ok(Rc::new(P::try_parse_from(words)?))
}

/// Parses a program's command line.
///
/// # Errors
/// If the program does not exist, or its options are invalid.
pub fn parse(line: &str) -> Result<Rc<dyn Program>, Refused> {
    let words: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
    let name = words.first().map_or("", String::as_str);
    let known = || PROGRAMS.iter().map(|command| command.name).collect::<Vec<_>>().join(", ");
    let Some(command) = PROGRAMS.iter().find(|command| command.name == name) else {
        let message = format!("there is no program `{name}`");
        return Err(Refused { message, help: Some(format!("the programs are {}", known())) });
    };
    if words.iter().any(|word| word == "--help") {
        return Err(Refused { message: format!("{name}: this is its help"), help: Some(command.help()) });
    }
    (command.read)(&words).map_err(|error| refused(name, &error))
}

/// Shortens clap's error to a line and a hint.
pub(crate) fn refused(name: &str, error: &clap::Error) -> Refused {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("not understood");
    let rest: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(|line| line.trim_start_matches("tip: "))
        .collect();
    let message = format!("{name}: {}", first.trim_start_matches("error: "));
    Refused { message, help: (!rest.is_empty()).then(|| rest.join("; ")) }
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
}
