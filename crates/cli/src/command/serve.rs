//! `nearfar serve`: functions of live hosts for virtual machines that somebody else starts.

use std::path::PathBuf;
use std::process::ExitCode;

use live::qemu::{self, GuestSize};
use live::server::LiveEvent;
use live::{ServeOptions, serve};
use machine::ComputerSetup;
use nearfar::experiment::Experiment;

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
    /// Processors of each guest.
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// Give each guest an IOMMU, by which it says what devices may access.
    #[arg(long)]
    iommu: bool,
}

impl LiveScene {
    /// The scenario, of which a host is live.
    pub fn load(&self, common: &Common) -> Result<ComputerSetup, Failure> {
        let named = input::Named { scenario: &self.scenario, folder: self.folder.as_deref() };
        match input::scenario(&input::library(common), &named, "--set", &self.set)? {
            Experiment::Computers(setup) => Ok(*setup),
            Experiment::Bench(_) => Err(Failure::new(format!(
                "{} has a machine with a card; virtual machines are hosts of scenarios with computers",
                self.scenario
            ))),
        }
    }

    /// The guests' size.
    pub fn guest(&self) -> GuestSize {
        GuestSize { memory_mib: self.memory, cpus: self.cpus, iommu: self.iommu }
    }
}

/// Tells what happens, except that all sockets are there.
pub fn tell(event: &LiveEvent<'_>) {
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
        LiveEvent::Ended(done) => match &done.outcome {
            Ok(_) => output::complain(&format!("{}: {}: done after {}", done.host, done.run, done.took)),
            Err(failure) => output::complain(&format!("{}: {}: {failure}", done.host, done.run)),
        },
    }
}

pub fn run(common: &Common, arguments: &ServeArgs) -> Result<ExitCode, Failure> {
    let setup = arguments.scene.load(common)?;
    if !arguments.sockets.is_dir() {
        let folder = arguments.sockets.display();
        return Err(Failure::new(format!(
            "--sockets: there is no folder `{folder}`; make it, or name another one"
        )));
    }
    let sockets = std::path::absolute(&arguments.sockets).map_err(Failure::new)?;
    let options = ServeOptions { sockets, once: arguments.once };
    let (stop, _stops) = stop::readable().map_err(Failure::new)?;
    let guest = arguments.scene.guest();
    serve(&setup, &options, std::os::fd::AsFd::as_fd(&stop), |event| {
        tell(&event);
        if let LiveEvent::Ready(functions) = event {
            for (number, host) in setup.hosts.iter().enumerate().filter(|(_, host)| host.live) {
                let line = qemu::options(&setup, number, functions, &guest);
                output::print(&format!("# host {}", host.name));
                output::print(&format!("qemu-system-x86_64 {}", qemu::in_shell(&line)));
            }
        }
    })
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
