//! `nearfar live`: virtual machines with a real Linux, started on a scenario's live hosts.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use live::qemu::{self, GuestSize, IommuOf};
use live::server::{LiveEvent, LiveFunctionInfo};
use live::{PlugStep, ServeOptions, serve};
use machine::ComputerSetup;

use super::serve::{LiveScene, tell};
use crate::failure::Failure;
use crate::{Common, output, stop};

/// Start a scenario's live hosts: QEMUs with a Linux of yours and simulated devices.
///
/// Consoles are shown; with several guests, behind their names.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar live tools/live/nvme.toml --kernel vmlinuz --initrd initrd.gz
  nearfar live tools/live/nvme.toml --kernel vmlinuz --initrd initrd.gz --clock lock-step
  nearfar live tools/live/nvme.toml --kernel vmlinuz --initrd initrd.gz --pcapng tlps.pcapng --counters
  nearfar live tools/live/nvme.toml --kernel vmlinuz --disk root.qcow2 --append root=/dev/vda1

It ends with the guests, or by Ctrl-C. Exit status: 0 the guests ended, 1 a QEMU failed, 2 bad input.")]
pub struct LiveArgs {
    #[command(flatten)]
    pub scene: LiveScene,
    /// The kernel's image.
    #[arg(long, value_name = "FILE")]
    kernel: PathBuf,
    /// The initial RAM file system.
    #[arg(long, value_name = "FILE")]
    initrd: Option<PathBuf>,
    /// A disk image of QEMU's own, virtio-blk; a guest's changes are thrown away.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// QEMU 10.1 or newer.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// QEMU's accelerator: `tcg` runs everywhere, `kvm` needs `/dev/kvm`.
    #[arg(long, value_name = "NAME", default_value = "tcg")]
    accel: String,
    /// Further words of the kernel's command line.
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    append: String,
    /// Guests see functions go and come by themselves, as in slots of PCIe. Each is behind a switch then.
    #[arg(long, hide_short_help = true)]
    hot_plug: bool,
    /// Further options of QEMU, separated by spaces.
    #[arg(long, value_name = "OPTIONS", default_value = "", allow_hyphen_values = true)]
    qemu_options: String,
}

fn no_temporary(what: &str, problem: &std::io::Error) -> Failure {
    Failure::new(format!("no temporary {what} can be made: {problem}; name a folder for it by TMPDIR"))
}

/// What a QEMU says when it is started with these words, which it is not to run for long.
fn ask_qemu(program: &Path, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String, Failure> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let shown = program.display();
    let told = tempfile::NamedTempFile::new().map_err(|problem| no_temporary("file", &problem))?;
    let [out, err] = [told.as_file(), told.as_file()].map(|file| file.try_clone().map_err(Failure::new));
    let mut command = Command::new(program);
    let command = command.args(words).stdin(Stdio::null()).stdout(out?).stderr(err?);
    let wrong = |problem| Failure::new(format!("{shown} does not start: {problem}; {QEMU_REMEDY}"));
    let mut child = command.spawn().map_err(wrong)?;
    let begun = Instant::now();
    while child.try_wait().map_err(wrong)?.is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(Failure::new(format!(
                "{shown} does not answer within {} s when it is asked what it can do; {QEMU_REMEDY}",
                PATIENCE.as_secs()
            )));
        }
        thread::sleep(LOOK);
    }
    let bytes = std::fs::read(told.path()).map_err(Failure::new)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What to do without a QEMU that serves.
const QEMU_REMEDY: &str =
    "install QEMU 10.1 or newer (Debian: qemu-system-x86 of trixie-backports), or name one by --qemu";

/// Whether a QEMU is there and knows vfio-user.
fn check_qemu(program: &Path) -> Result<(), Failure> {
    if ask_qemu(program, ["-device", "help"])?.contains("vfio-user-pci") {
        return Ok(());
    }
    let version = ask_qemu(program, ["--version"])?;
    let version = version.lines().next().unwrap_or("it").trim();
    Err(Failure::new(format!(
        "{} has no device `vfio-user-pci` ({version}); {QEMU_REMEDY}",
        program.display()
    )))
}

/// Whether a QEMU takes the plugin.
fn check_plugin(program: &Path, plugin: &Path) -> Result<(), Failure> {
    let told = ask_qemu(program, qemu::trial(plugin))?;
    if told.contains(qemu::WORKS) {
        return Ok(());
    }
    let why = told.lines().find(|line| line.contains("plugin")).unwrap_or("it says nothing").trim();
    Err(Failure::new(format!(
        "{} does not take the plugin {}: {why}; lock-step takes a QEMU with TCG plugins (`--enable-plugins`) of interface \
         version 7, such as 11.1: name one by --qemu, or use `--clock wall`",
        program.display(),
        plugin.display()
    )))
}

fn check_file(option: &str, file: Option<&Path>) -> Result<(), Failure> {
    match file.filter(|file| !file.is_file()) {
        None => Ok(()),
        Some(file) => Err(Failure::new(format!(
            "{option}: there is no file `{}`; name one that is there",
            file.display()
        ))),
    }
}

/// The guests that run.
struct GuestProcesses(Vec<(String, Child)>);

/// How long a QEMU has to end by itself, once its console or its devices' connections have.
const GRACE: Duration = Duration::from_secs(2);
/// Interval between looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

impl LiveArgs {
    /// The command of a host's QEMU.
    fn command(
        &self,
        setup: &ComputerSetup,
        guest: &GuestSize,
        host: usize,
        functions: &[LiveFunctionInfo],
    ) -> Command {
        // A guest whose server was killed has no devices: it ends as well, where there is a program that sees to that.
        let keeper =
            Command::new("setpriv").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let mut command = match keeper.is_ok_and(|status| status.success()) {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL"]).arg(&self.qemu);
                command
            }
            false => Command::new(&self.qemu),
        };
        command.args(qemu::options(setup, host, functions, guest));
        command.args(["-accel", self.accel.as_str(), "-cpu", "max"]);
        command.args([
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            "stdio",
        ]);
        command.arg("-kernel").arg(&self.kernel);
        if let Some(initrd) = &self.initrd {
            command.arg("-initrd").arg(initrd);
        }
        if let Some(disk) = &self.disk {
            command.arg("-drive").arg(format!("if=virtio,snapshot=on,file={}", disk.display()));
        }
        // A processor that halts would skip the time until its next timer, whatever devices do meanwhile.
        let idle = if guest.lockstep.is_some() { "idle=poll " } else { "" };
        // Linux would look at it before it knows of BARs, if it could remap interrupts.
        let iommu = if guest.iommu == Some(IommuOf::Fabric) { "intel_iommu=on intremap=off " } else { "" };
        let name = &setup.hosts[host].name;
        // A machine that others keep busy is late with the timer for which Linux checks.
        let words = format!(
            "console=ttyS0 panic=-1 quiet no_timer_check {idle}{iommu}systemd.hostname={name} {}",
            self.append
        );
        command.arg("-append").arg(words.trim_end());
        command.args(self.qemu_options.split_whitespace());
        command
    }

    /// Starts all live hosts. The end of the last one is told to `told`.
    fn start(
        &self,
        setup: &ComputerSetup,
        guest: &GuestSize,
        functions: &[LiveFunctionInfo],
        told: &UnixStream,
    ) -> Result<GuestProcesses, Failure> {
        let hosts: Vec<usize> = (0..setup.hosts.len()).filter(|&host| setup.hosts[host].live).collect();
        let is_alone = hosts.len() == 1;
        let mut guests = GuestProcesses(Vec::new());
        let running = Arc::new(AtomicUsize::new(hosts.len()));
        for host in hosts {
            let mut command = self.command(setup, guest, host, functions);
            if !is_alone {
                command.stdin(Stdio::null());
            }
            command.stdout(Stdio::piped());
            let started = command.spawn();
            let mut child = started.map_err(|problem| {
                Failure::new(format!("{} does not start: {problem}", self.qemu.display()))
            })?;
            let name = setup.hosts[host].name.clone();
            let lead = if is_alone { String::new() } else { format!("{name} | ") };
            let (running, console) = (Arc::clone(&running), child.stdout.take());
            let told = told.try_clone().map_err(Failure::new)?;
            let watch = move || {
                if let Some(console) = console {
                    show(console, &lead);
                }
                // The console ends with QEMU.
                if running.fetch_sub(1, Ordering::Relaxed) == 1 {
                    let _ = (&told).write(&[1]);
                }
            };
            let watches = thread::Builder::new().spawn(watch);
            guests.0.push((name, child));
            watches.map_err(|problem| {
                Failure::new(format!("no thread can be started that shows a console: {problem}"))
            })?;
        }
        Ok(guests)
    }
}

/// Shows a console as it comes: one alone by the byte, several by lines.
fn show(console: std::process::ChildStdout, lead: &str) {
    let mut reader = BufReader::new(console);
    let mut line = Vec::new();
    loop {
        let Ok(arrived) = reader.fill_buf() else { return };
        if arrived.is_empty() {
            return;
        }
        let taken = arrived.len();
        let mut out = std::io::stdout().lock();
        if lead.is_empty() {
            let _ = out.write_all(arrived);
        }
        for &byte in arrived.iter().filter(|_| !lead.is_empty()) {
            line.push(byte);
            if byte == b'\n' {
                let _ = out.write_all(lead.as_bytes()).and_then(|()| out.write_all(&line));
                line.clear();
            }
        }
        let _ = out.flush();
        reader.consume(taken);
    }
}

impl GuestProcesses {
    /// Waits for those that end by themselves, and ends the others. Returns those that failed.
    fn end(&mut self) -> Vec<(String, ExitStatus)> {
        let begun = Instant::now();
        let mut failed = Vec::new();
        for (name, child) in &mut self.0 {
            let status = loop {
                match child.try_wait() {
                    Ok(None) if begun.elapsed() < GRACE => thread::sleep(LOOK),
                    Ok(status) => break status,
                    Err(_) => break None,
                }
            };
            match status {
                Some(status) if !status.success() => failed.push((name.clone(), status)),
                Some(_) => {}
                None => {
                    let _ = child.kill().and_then(|()| child.wait().map(drop));
                }
            }
        }
        self.0.clear();
        failed
    }
}

impl Drop for GuestProcesses {
    fn drop(&mut self) {
        self.end();
    }
}

pub fn run(common: &Common, arguments: &LiveArgs) -> Result<ExitCode, Failure> {
    let files =
        [Some(&arguments.qemu), Some(&arguments.kernel), arguments.initrd.as_ref(), arguments.disk.as_ref()];
    let inputs: Vec<&Path> = files.into_iter().flatten().map(PathBuf::as_path).collect();
    let setup = arguments.scene.load(common, &inputs)?;
    check_file("--kernel", Some(&arguments.kernel))?;
    check_file("--initrd", arguments.initrd.as_deref())?;
    check_file("--disk", arguments.disk.as_deref())?;
    check_qemu(&arguments.qemu)?;
    let guest = GuestSize { hot_plug: arguments.hot_plug, ..arguments.scene.guest()? };
    if guest.hot_plug && guest.iommu == Some(IommuOf::Fabric) {
        return Err(Failure::new("--iommu=fabric goes not together with --hot-plug; leave one of them out"));
    }
    if guest.hot_plug && guest.nodes > 1 {
        return Err(Failure::new(
            "--hot-plug: QEMU plugs in slots of the first node only; leave --nodes or --hot-plug out",
        ));
    }
    if let Some((plugin, _)) = &guest.lockstep {
        if arguments.accel != "tcg" {
            let message =
                format!("--accel {}: lock-step counts instructions, which takes tcg", arguments.accel);
            return Err(Failure::new(message));
        }
        check_plugin(&arguments.qemu, plugin)?;
    }
    // It is gone as soon as all QEMUs have come: nothing stays behind then, whoever is killed.
    let folder = tempfile::Builder::new()
        .prefix("nearfar-")
        .tempdir()
        .map_err(|problem| no_temporary("folder", &problem))?;
    let options =
        ServeOptions { hot_plug: guest.hot_plug, ..arguments.scene.options(folder.path().to_owned(), true)? };
    let (mut folder, mut awaited) = (Some(folder), 0);
    let (stop, stops) = stop::readable().map_err(Failure::new)?;
    let mut guests = None;
    let served = serve(&setup, &options, stop.as_fd(), |event| {
        let is_wrong = matches!(
            event,
            LiveEvent::Unmonitored { .. }
                | LiveEvent::Unshared(_)
                | LiveEvent::Plug { step: PlugStep::Refused(_), .. }
        );
        if common.verbose || is_wrong || matches!(event, LiveEvent::Clocked(_)) {
            tell(&setup, &event);
        }
        if matches!(event, LiveEvent::Came(_)) {
            awaited -= 1;
            folder = folder.take().filter(|_| awaited > 0);
        }
        if let LiveEvent::Ready(functions) = event {
            awaited = functions.len();
            guests = Some(arguments.start(&setup, &guest, functions, &stops));
            if matches!(guests, Some(Err(_))) {
                let _ = (&stops).write(&[1]);
            }
        }
    });
    let seen = served.map_err(Failure::new)?;
    let mut guests = guests.transpose()?;
    let mut code = ExitCode::SUCCESS;
    for (name, status) in guests.as_mut().map(GuestProcesses::end).unwrap_or_default() {
        output::complain(&format!("error: the QEMU of host `{name}` failed: {status}"));
        code = ExitCode::FAILURE;
    }
    arguments.scene.report(common, &setup, &seen)?;
    Ok(code)
}
