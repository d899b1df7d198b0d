//! `nearfar serve`: functions of live hosts for virtual machines that somebody else starts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use live::iommu::Reach;
use live::lockstep::GuestTime;
use live::qemu::{self, GuestSize, IommuOf};
use live::recording::RecordingHead;
use live::server::LiveEvent;
use live::{LiveClock, LiveOutcome, PlugStep, ServeOptions, serve};
use machine::ComputerSetup;
use nearfar::experiment::Experiment;
use nearfar::trace::{Span, pcapng};
use units::Duration;

use crate::failure::Failure;
use crate::{Common, input, output, stop};

/// Serve the devices of a scenario's live hosts to virtual machines, by vfio-user.
///
/// For each host, the command line of its QEMU is shown (10.1 or newer); `nearfar live` starts it itself.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar serve tools/live/nvme.toml --sockets /tmp/nearfar
  nearfar serve tools/live/nics.toml --set host.a.change.host.llc.ddio_ways=0

Ctrl-C and SIGTERM end it and remove the sockets. Exit status: 0 ended, 2 bad input.")]
pub struct ServeArgs {
    #[command(flatten)]
    pub scene: LiveScene,
    /// The folder for the sockets, HOST-DEVICE.sock each.
    #[arg(long, value_name = "DIR", default_value = ".")]
    sockets: PathBuf,
    /// End when the last client has gone.
    #[arg(long)]
    once: bool,
}

/// What guests run on.
#[derive(clap::Args)]
pub struct LiveScene {
    /// The scenario, by path: a host that is a virtual machine has `live = true`.
    pub scenario: String,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    pub set: Vec<(String, String)>,
    /// The folder below which the scenario's own files are written. By default, that of the scenario's file.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Memory of each guest in MiB.
    #[arg(long, value_name = "MIB", default_value = "512", value_parser = clap::value_parser!(u32).range(64..))]
    memory: u32,
    /// Processors of each guest. By default 2; 1 in lock-step, where there cannot be more.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// NUMA nodes of each guest, which share its memory and processors. Devices are at the node of their slot.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: u32,
    /// Give each guest an IOMMU, by which it says what devices may access.
    ///
    /// That of `qemu` knows of memory only, that of the `fabric` of other devices as well.
    #[arg(long, value_enum, value_name = "WHOSE", hide_possible_values = true, num_args = 0..=1, default_missing_value = "qemu",
        require_equals = true)]
    iommu: Option<Iommu>,
    /// What simulated time follows: the wall clock, so that times mean nothing, or the guests' instructions.
    #[arg(long, value_enum, default_value_t = Clock::Wall)]
    pub clock: Clock,
    /// Time of an instruction in lock-step, in nanoseconds: a power of two up to 1024.
    #[arg(long, value_name = "NS", default_value = "1", value_parser = instruction)]
    instruction: u32,
    /// The plugin for QEMU that lock-step takes, built from linux/qemu_lockstep.
    #[arg(long, value_name = "FILE", default_value = "linux/qemu_lockstep/lockstep.so")]
    pub plugin: PathBuf,
    /// BARs that guests map write-combining, separated by commas, as HOST-DEVICE/NUMBER: the simulated core's buffers make TLPs of
    /// whole lines of what guests store there.
    #[arg(long, hide_short_help = true, value_name = "BARS", value_delimiter = ',')]
    write_combining: Vec<String>,
    /// At the end, write TLPs as a capture file: `wireshark -X lua_script:tools/pcie.lua FILE` reads it.
    #[arg(long, value_name = "FILE", value_parser = output::binary)]
    pcapng: Option<PathBuf>,
    /// Only those on links of these slots, separated by commas, as SLOT or HOST/SLOT; by default, of all.
    #[arg(long, value_name = "SLOTS", value_delimiter = ',', requires = "pcapng")]
    link: Vec<String>,
    /// Number of TLPs.
    #[arg(long, value_name = "N", default_value = "100000", requires = "pcapng",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    packets: u32,
    /// Start this long after the start, in simulated time.
    #[arg(long, value_name = "TIME", default_value = "0 ns", requires = "pcapng")]
    from: Duration,
    /// At the end, show every counter of devices, links and root complexes.
    #[arg(long)]
    counters: bool,
    /// Keep what guests and devices do in a file, for `nearfar replay`.
    #[arg(long, hide_short_help = true, value_name = "FILE", value_parser = output::binary)]
    record: Option<PathBuf>,
}

/// What simulated time follows.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Clock {
    Wall,
    LockStep,
}

/// Whose a guest's IOMMU is.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Iommu {
    Qemu,
    Fabric,
}

/// The shift of an instruction's time.
fn instruction(text: &str) -> Result<u32, String> {
    let ns: u32 = text.parse().map_err(|_| "a power of two from 1 to 1024".to_owned())?;
    let is_right = ns.is_power_of_two() && ns <= 1024;
    is_right.then(|| ns.ilog2()).ok_or_else(|| "a power of two from 1 to 1024".to_owned())
}

impl LiveScene {
    /// The scenario, of which a host is live; `inputs` are read beside.
    pub fn load(&self, common: &Common, inputs: &[&Path]) -> Result<ComputerSetup, Failure> {
        let named = input::Named { scenario: &self.scenario, folder: self.folder.as_deref() };
        if self.clock == Clock::LockStep {
            if self.cpus.is_some_and(|cpus| cpus > 1) {
                return Err(Failure::new(
                    "--cpus: a guest in lock-step has one processor, since QEMU runs several one after the other; \
                     leave --cpus out",
                ));
            }
            if !self.plugin.is_file() {
                let plugin = self.plugin.display();
                return Err(Failure::new(format!(
                    "--plugin: there is no file `{plugin}`; build it by `make -C linux/qemu_lockstep`"
                )));
            }
        }
        let library = input::library(common);
        let experiment = input::scenario(&library, &named, "--set", &self.set)?;
        let outputs = [("--pcapng", self.pcapng.as_deref()), ("--record", self.record.as_deref())];
        let mut places = output::Places::new(&outputs)?;
        places.reads(inputs)?;
        if self.clock == Clock::LockStep {
            places.reads([&self.plugin])?;
        }
        input::places(&mut places, &library, &experiment)?;
        match experiment {
            Experiment::Computers(setup) => Ok(*setup),
            Experiment::Bench(_) => Err(Failure::new(format!(
                "{} has a machine with a card; virtual machines are hosts of scenarios with computers",
                self.scenario
            ))),
        }
    }

    /// The guests' size.
    pub fn guest(&self) -> Result<GuestSize, Failure> {
        let lockstep = match self.clock {
            Clock::Wall => None,
            Clock::LockStep => {
                Some((std::path::absolute(&self.plugin).map_err(Failure::new)?, self.instruction))
            }
        };
        let cpus = self.cpus.unwrap_or(if lockstep.is_some() { 1 } else { 2 });
        let nodes = self.nodes;
        for (option, amount) in [("--memory", self.memory), ("--cpus", cpus)] {
            if amount % nodes != 0 {
                return Err(Failure::new(format!(
                    "{option} {amount}: {nodes} nodes cannot share it equally; choose a multiple of {nodes}"
                )));
            }
        }
        let iommu = self.iommu.map(|whose| match whose {
            Iommu::Qemu => IommuOf::Qemu,
            Iommu::Fabric => IommuOf::Fabric,
        });
        if iommu == Some(IommuOf::Fabric) {
            let others = [
                (nodes > 1, "--nodes: its buses are numbered otherwise"),
                (lockstep.is_some(), "--clock lock-step: its accesses are not timed"),
                (self.record.is_some(), "--record: a replay does not translate"),
            ];
            if let Some((_, why)) = others.iter().find(|(is_so, _)| *is_so) {
                return Err(Failure::new(format!(
                    "--iommu=fabric goes not together with {why}; leave one of them out"
                )));
            }
        }
        let memory_mib = self.memory;
        Ok(GuestSize { memory_mib, cpus, nodes, iommu, hot_plug: false, lockstep })
    }

    /// How functions are served, with sockets in a folder.
    pub fn options(&self, sockets: PathBuf, once: bool) -> Result<ServeOptions, Failure> {
        let clock = match self.clock {
            Clock::Wall => LiveClock::Wall,
            Clock::LockStep => LiveClock::LockStep { shift: self.instruction },
        };
        let filter = "TLP".parse().map_err(Failure::new)?;
        let span = Span { from: self.from, until: None, packets: self.packets as usize, filter };
        let record = self.pcapng.is_some().then(|| (span, self.link.clone()));
        let recording =
            self.record.as_ref().map(|path| self.recording_head().map(|head| (path.clone(), head)));
        let (combining, recording) = (self.write_combining.clone(), recording.transpose()?);
        let iommu = self.iommu == Some(Iommu::Fabric);
        Ok(ServeOptions { sockets, once, hot_plug: false, iommu, clock, combining, record, recording })
    }

    /// What a recording is of; its functions are known later.
    fn recording_head(&self) -> Result<RecordingHead, Failure> {
        let path = std::path::absolute(&self.scenario).map_err(Failure::new)?;
        let scenario =
            if path.is_file() { files::read_to_string(&path).map_err(Failure::new)? } else { String::new() };
        let path = if path.is_file() { path.display().to_string() } else { self.scenario.clone() };
        let instruction_ns = (self.clock == Clock::LockStep).then_some(1 << self.instruction);
        Ok(RecordingHead { path, scenario, changes: self.set.clone(), instruction_ns, functions: Vec::new() })
    }

    /// Writes and shows what was seen.
    pub fn report(&self, common: &Common, setup: &ComputerSetup, seen: &LiveOutcome) -> Result<(), Failure> {
        let provenance = output::provenance(setup.seed, &[("--set", &self.set)], &input::library(common));
        if let (Some(path), Some(capture)) = (&self.pcapng, &seen.packets) {
            let time = match self.clock {
                Clock::Wall => "live, by the wall clock: order and contents mean something, times do not",
                Clock::LockStep => "live, in lock-step: an instruction of a guest takes one period",
            };
            let comment = [&provenance.lines()[..], &[time.to_owned()]].concat().join("\n");
            let bytes = pcapng::capture(capture, &comment).map_err(Failure::new)?;
            output::write(path, &bytes)?;
            if let Some(why) = capture.why_empty() {
                output::complain(&format!("note: {why}"));
            }
        }
        if let (Some(path), Err(problem)) = (&self.record, &seen.recorded) {
            let path = path.display();
            return Err(Failure::new(format!(
                "{path}: {problem}: nothing is recorded; free space, or name another file"
            )));
        }
        if self.counters {
            output::print(&output::counter_table(&seen.counted));
            for live::server::ConfinedFunction { name, stopped, reach } in &seen.confined {
                let reach = match reach {
                    Reach::Everything => "nothing was translated".to_owned(),
                    Reach::Mapped(bytes) => format!("{bytes} bytes were mapped"),
                };
                output::print(&format!("{name}: its IOMMU stopped {stopped} requests; at the end, {reach}"));
            }
        }
        Ok(())
    }
}

/// Tells what happens, except that all sockets are there.
pub fn tell(setup: &ComputerSetup, event: &LiveEvent<'_>) {
    match event {
        LiveEvent::Ready(_) => {}
        LiveEvent::Came(function) => output::complain(&format!("{}: a client came", function.name)),
        LiveEvent::Gone(function, why) => {
            let why = match why.kind() {
                std::io::ErrorKind::UnexpectedEof => "it closed its connection".to_owned(),
                _ => why.to_string(),
            };
            output::complain(&format!("{}: the client has gone: {why}", function.name));
        }
        LiveEvent::Unshared(function) => output::complain(&format!(
            "{}: its client does not share its memory, so neither sees what the other writes there: give QEMU \
             `-machine memory-backend=memory0 -object memory-backend-memfd,id=memory0,size=...,share=on`",
            function.name
        )),
        LiveEvent::Plug { function, step } => {
            let what = match step {
                PlugStep::Asked => "it is gone: its guest is asked to let it go".to_owned(),
                PlugStep::Left => "its guest has let it go".to_owned(),
                PlugStep::Given => "its guest is given it".to_owned(),
                PlugStep::Refused(why) => format!("hot-plug: {why}"),
            };
            output::complain(&format!("{}: {what}", function.name));
        }
        LiveEvent::Unmonitored { host, why } => {
            let name = &setup.hosts[*host].name;
            output::complain(&format!(
                "{name}: the monitor of its QEMU is given up: {why}; its guest finds functions that come by a rescan only"
            ));
        }
        LiveEvent::Logged { host, at, line } => {
            let name = &setup.hosts[*host].name;
            output::complain(&format!("{name}: [{:12.6}] {line}", at.as_ns_f64() / 1e9));
        }
        LiveEvent::Clocked(guest) => {
            let GuestTime { host, instructions, computed, waited, stops } = guest;
            let [computed, waited] = [computed, waited].map(|time| time.as_s_f64());
            output::complain(&format!(
                "{}: {instructions} instructions stand for {computed:.6} s; accesses of devices took {waited:.6} s more, which the \
                 guest's own clock does not show; stopped {stops} times.\n\
                 Counts, order, devices' times and differences between designs follow from that. Processors' times do not: \
                 every instruction takes the same time, and there are no caches.",
                setup.hosts[*host].name
            ));
        }
        LiveEvent::Ended(done) => match &done.outcome {
            Ok(_) => output::complain(&format!("{}: {}: done after {}", done.host, done.run, done.took)),
            Err(failure) => output::complain(&format!("{}: {}: {failure}", done.host, done.run)),
        },
    }
}

pub fn run(common: &Common, arguments: &ServeArgs) -> Result<ExitCode, Failure> {
    let setup = arguments.scene.load(common, &[])?;
    if !arguments.sockets.is_dir() {
        let folder = arguments.sockets.display();
        return Err(Failure::new(format!(
            "--sockets: there is no folder `{folder}`; make it, or name another one"
        )));
    }
    let sockets = std::path::absolute(&arguments.sockets).map_err(Failure::new)?;
    let options = arguments.scene.options(sockets, arguments.once)?;
    let (stop, _stops) = stop::readable().map_err(Failure::new)?;
    let guest = arguments.scene.guest()?;
    let seen = serve(&setup, &options, std::os::fd::AsFd::as_fd(&stop), |event| {
        tell(&setup, &event);
        if let LiveEvent::Ready(functions) = event {
            for (number, host) in setup.hosts.iter().enumerate().filter(|(_, host)| host.live) {
                let line = qemu::options(&setup, number, functions, &guest);
                output::print(&format!("# host {}", host.name));
                output::print(&format!("qemu-system-x86_64 {}", qemu::in_shell(&line)));
            }
        }
    })
    .map_err(Failure::new)?;
    arguments.scene.report(common, &setup, &seen)?;
    Ok(ExitCode::SUCCESS)
}
