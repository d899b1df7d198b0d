//! The list of programs.

use std::rc::Rc;

use clap::{FromArgMatches, Parser};
use platform::cpu::{Async, Cpu};
use units::Duration;

use crate::command_line::{JobFiles, forgiving, refused};
use crate::premises::{Premises, Refused};
use crate::program::{Environment, Failure, Program, Report};
use crate::unmodelled::{self, Unmodelled};

/// Makes a program of its options.
type Maker = fn(&clap::ArgMatches) -> Result<Rc<dyn Program>, clap::Error>;

/// Makes a program of a command line with its first word, and of the files that it names.
type Reader = fn(&[String], &JobFiles) -> Result<Rc<dyn Program>, Refused>;

/// How a command line is read.
#[derive(Clone, Copy)]
enum Syntax {
    /// As options of one program.
    Options(Maker),
    /// As the program says.
    Own(Reader),
}

/// A program and its name.
pub struct Command {
    /// The name, as the first word of a command line.
    pub name: &'static str,
    syntax: Syntax,
    own_options: fn() -> clap::Command,
    unmodelled: &'static [Unmodelled],
}

impl Command {
    const fn with(self, unmodelled: &'static [Unmodelled]) -> Self {
        Self { unmodelled, ..self }
    }

    /// Its options, those included that are refused or without effect.
    pub(crate) fn options(&self) -> clap::Command {
        unmodelled::add((self.own_options)(), self.unmodelled)
    }

    fn read(&self, words: &[String], files: &JobFiles) -> Result<Rc<dyn Program>, Refused> {
        let make = match self.syntax {
            Syntax::Own(read) => return read(words, files),
            Syntax::Options(make) => make,
        };
        let options = self.options();
        let (matches, mut wrong) = forgiving(self.name, &options, words);
        let told = matches.as_ref().map(|matches| unmodelled::notes(self.name, matches, self.unmodelled));
        let notes = told.unwrap_or_default();
        wrong.extend(notes.iter().filter_map(|note| note.as_ref().err().cloned()));
        if let Some(refused) = Refused::together(wrong) {
            return Err(refused);
        }
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let Some(matches) = matches else {
            return Err(Refused::new(format!("{}: not understood", self.name), "--help"));
        };
        let program = make(&matches).map_err(|error| refused(self.name, &self.options(), &error))?;
        Ok(if notes.is_empty() { program } else { Rc::new(Noted { program, notes }) })
    }

    /// Help text: description and options.
    pub fn help(&self) -> String {
        let mut options = self.options();
        options.build();
        let own = options.render_long_help().to_string();
        let kinds = options.get_subcommands_mut().filter(|kind| kind.get_name() != "help");
        kinds.fold(own, |text, kind| {
            let (name, help) = (kind.get_name().to_owned(), kind.render_long_help());
            format!("{text}\n{name}:\n{help}")
        })
    }

    /// One-line description.
    pub fn about(&self) -> String {
        (self.own_options)().get_about().map(ToString::to_string).unwrap_or_default()
    }
}

/// All programs, in alphabetical order.
pub const PROGRAMS: &[Command] = &[
    command::<crate::cuda::all_reduce::AllReduce>("all_reduce_perf")
        .with(crate::cuda::all_reduce::UNMODELLED),
    command::<crate::cuda::bandwidth::BandwidthTest>("bandwidthTest"),
    command::<crate::core_to_core::CoreToCore>("core-to-core-latency").with(crate::core_to_core::UNMODELLED),
    command::<crate::dd::Dd>("dd"),
    command::<crate::testpmd::Testpmd>("dpdk-testpmd").with(crate::testpmd::UNMODELLED),
    command::<crate::ethtool::Ethtool>("ethtool").with(crate::ethtool::UNMODELLED),
    FIO,
    command::<crate::cuda::copy::GpuCopy>("gpu-copy"),
    command::<crate::cuda::pingpong::GpuPingPong>("gpu-pingpong"),
    command::<crate::cuda::train::GpuTrain>("gpu-train"),
    command::<crate::boot::Init>("init"),
    command::<crate::iperf::Iperf>("iperf").with(crate::iperf::UNMODELLED),
    command::<crate::iperf::Iperf3>("iperf3").with(crate::iperf::UNMODELLED_3),
    command::<crate::l2fwd::L2fwd>("l2fwd").with(crate::l2fwd::UNMODELLED),
    command::<crate::lat_mem_rd::LatMemRd>("lat_mem_rd"),
    command::<crate::memcached::Memaslap>("memaslap").with(crate::memcached::CLIENT_UNMODELLED),
    command::<crate::memcached::Memcached>("memcached").with(crate::memcached::SERVER_UNMODELLED),
    command::<crate::boot::Mkimage>("mkimage"),
    command::<crate::mlc::Mlc>("mlc").with(crate::mlc::UNMODELLED),
    command::<crate::netperf::Netperf>("netperf").with(crate::netperf::UNMODELLED),
    command::<crate::netperf::Netserver>("netserver").with(crate::netperf::SERVER_UNMODELLED),
    command::<crate::cuda::nvbandwidth::NvBandwidth>("nvbandwidth")
        .with(crate::cuda::nvbandwidth::UNMODELLED),
    command::<crate::nvm::NvmLatency>("nvm-latency"),
    command::<crate::cuda::peers::PeerTest>("p2pBandwidthLatencyTest"),
    command::<crate::pcimem::PciMem>("pcimem"),
    command::<crate::ping::Ping>("ping").with(crate::ping::UNMODELLED),
    command::<crate::pktgen::Pktgen>("pktgen").with(crate::pktgen::UNMODELLED),
    command::<crate::pagerank::PageRank>("pr"),
    command::<crate::rogue::RogueDma>("rogue-dma"),
    command::<crate::sockperf::Sockperf>("sockperf").with(crate::sockperf::UNMODELLED),
    command::<crate::spdk::SpdkPerf>("spdk_nvme_perf").with(crate::spdk::UNMODELLED),
    command::<crate::stream::Stream>("stream"),
];

const FIO: Command = Command {
    name: "fio",
    syntax: Syntax::Own(crate::fio::Fio::read),
    own_options: crate::fio::Fio::options,
    unmodelled: &[],
};

/// Other names of programs.
const ALIASES: &[(&str, &str)] = &[
    ("dpdk-l2fwd", "l2fwd"),
    ("mlc_avx512", "mlc"),
    ("stream_c", "stream"),
    ("stream_c.exe", "stream"),
    ("stream.exe", "stream"),
    ("testpmd", "dpdk-testpmd"),
];

/// Programs that there are not, and what does the same.
const COUNTERPARTS: &[(&[&str], &str)] = &[
    (&["hdparm", "ioping", "iozone", "vdbench"], "`fio` and `dd` measure drives"),
    (&["nvme", "lspci", "lstopo", "lsblk", "lsusb"], "`nearfar tree SCENARIO` shows what a host has"),
    (&["qperf", "nuttcp", "uperf", "ntttcp"], "`netperf`, `iperf3` and `sockperf` measure networks"),
    (&["hping3", "fping", "arping"], "`ping`"),
    (
        &["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"],
        "there is no RDMA; `sockperf` and `iperf3` measure networks",
    ),
    (&["redis-server", "redis-benchmark", "wrk", "ab", "nginx"], "`memcached` with `memaslap`"),
    (&["sysbench", "mbw", "lmbench", "bw_mem"], "`stream`, `mlc` and `lat_mem_rd` measure memory"),
    (&["gpu_burn"], "`bandwidthTest`, `nvbandwidth` and `p2pBandwidthLatencyTest`"),
    (&["trex", "t-rex-64", "MoonGen", "l3fwd"], "a `[[generator]]` with `dpdk-testpmd` or `l2fwd`"),
    (&["tcpdump", "tshark"], "a `[[capture]]` of the scenario, or `nearfar trace`"),
    (
        &["ifconfig", "ip", "modprobe", "sysctl", "setpci"],
        "keys of the scenario and an `[[event]]` with `do = \"set\"`",
    ),
    (&["dma_from_device", "dma_to_device"], "`dd if=/dev/xdma0_c2h_0 of=/dev/null bs=1M count=1`"),
    (&["reg_rw", "devmem", "devmem2"], "`pcimem`"),
];

const fn command<P: Program + Parser + 'static>(name: &'static str) -> Command {
    Command { name, syntax: Syntax::Options(make::<P>), own_options: P::command, unmodelled: &[] }
}

fn make<P: Program + FromArgMatches + 'static>(
    matches: &clap::ArgMatches,
) -> Result<Rc<dyn Program>, clap::Error> {
    Ok(Rc::new(P::from_arg_matches(matches)?))
}

/// A program with notes on its command line.
struct Noted {
    program: Rc<dyn Program>,
    notes: Vec<String>,
}

impl Program for Noted {
    fn serves(&self) -> bool {
        self.program.serves()
    }

    fn lasts(&self) -> Option<Duration> {
        self.program.lasts()
    }

    fn parts(&self) -> Vec<String> {
        self.program.parts()
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn check(&self, premises: &Premises) -> Result<(), Refused> {
        self.program.check(premises)
    }

    fn run(self: Rc<Self>, cpu: Cpu, environment: Environment) -> Async<'static, Result<Report, Failure>> {
        Rc::clone(&self.program).run(cpu, environment)
    }
}

/// The name of the program that a word without a path stands for.
fn named(word: &str) -> &str {
    // The kernel's sample scripts have the options of their `parameters.sh`, as our pktgen.
    if word.starts_with("pktgen_sample") && word.ends_with(".sh") {
        return "pktgen";
    }
    ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, name)| name)
}

/// The words of a line as a shell takes them: quotes hold words together, and a line that ends in `\\` goes on.
///
/// # Errors
/// If it is more than a command.
fn words_of(line: &str) -> Result<Vec<String>, Refused> {
    let lines = line.replace("\\\n", " ");
    let joined = lines.trim_end().strip_suffix('\\').unwrap_or(&lines);
    let words = shlex::split(joined);
    let words =
        words.ok_or_else(|| Refused::new("a quote is not closed", "one `'` or `\"` more, or one less"))?;
    let is_of_shell = |word: &&String| {
        let is_redirection = word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['>', '<']);
        is_redirection || ["|", "&", "&&", "||", ";"].contains(&word.as_str()) || word.ends_with(';')
    };
    match words.iter().find(is_of_shell) {
        None => Ok(words),
        Some(word) => Err(Refused::new(
            format!("`{word}` is for a shell, and there is none"),
            "the command alone; what it prints is in nearfar's own output, and several are several `[[program]]`s",
        )),
    }
}

/// Parses a program's command line.
///
/// # Errors
/// If the program does not exist, or its options are invalid.
pub fn parse(line: &str) -> Result<Rc<dyn Program>, Refused> {
    parse_with(line, &JobFiles::new())
}

/// As [`parse`], for a command line that refers to these files.
///
/// # Errors
/// As [`parse`], or if a file is missing or invalid.
pub fn parse_with(line: &str, files: &JobFiles) -> Result<Rc<dyn Program>, Refused> {
    let words = words_of(line)?;
    // With or without a path, as in `./stream_c.exe`.
    let first = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    // SPDK's examples had short names. Linux's perf has no such option.
    let is_spdk = first == "perf" && words.iter().any(|word| word == "-w");
    let name = if is_spdk { "spdk_nvme_perf" } else { named(first) };
    let known = || PROGRAMS.iter().map(|command| command.name).collect::<Vec<_>>().join(", ");
    let Some(command) = PROGRAMS.iter().find(|command| command.name == name) else {
        let message = format!("there is no program `{name}`");
        let counterpart = COUNTERPARTS.iter().find(|(names, _)| names.contains(&name));
        let help =
            counterpart.map_or_else(|| format!("the programs are {}", known()), |(_, own)| own.to_string());
        return Err(Refused::new(message, help));
    };
    if words.iter().any(|word| word == "--help") {
        return Err(Refused::new(format!("{name}: this is its help"), command.help()));
    }
    if let [_, "--version" | "--cmdhelp"] = words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        let help = format!(
            "`nearfar programs {name}` explains its options, `nearfar --version` says which one it is"
        );
        return Err(Refused::new(format!("{name}: nothing is run"), help));
    }
    command.read(&words, files)
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
        assert!(wrong("dd --version").help.unwrap().contains("nearfar --version"));
        assert!(wrong("hdparm -t /dev/nvme0n1").help.unwrap().contains("`fio` and `dd`"));
        assert!(wrong("stream --ntimes many").message.contains("many"));
        assert!(wrong("").message.contains("no program"));
    }

    /// What a hint says works, or at least exists.
    #[test]
    fn a_hint_after_an_unknown_option_names_options_that_there_are() {
        for (line, hint) in [
            ("ping -Z 10.0.0.2", "`nearfar programs ping` lists its options"),
            ("ethtool -Z eth0 rx 1024", "`nearfar programs ethtool` lists its options"),
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
