//! `nearfar place`: interrupts, queues, processes and guests of a real host where their devices are.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use place::{AskedFor, GuestPlacer, HostPlan, HostRoot, HostView, LoadSample, PlaceError};
use serde_json::json;

use crate::failure::Failure;
use crate::output::complain;
use crate::{Common, output, stop};

/// Place a real host's interrupts, queues, processes and guests near their devices.
///
/// Prints every write and writes nothing, unless --apply, --watch or --undo is given. Interrupts of an interface go to the CPUs of its node,
/// one for each queue; XPS, RPS and RFS follow. With --guests, vhost and I/O threads of QEMU's guests run at the device's node under
/// light load, and guests that use it are drawn there; under heavy load, they run at each guest's home. The decision is that of
/// docs/numa-io.md, by the same code. What was there before is recorded first; a write that fails undoes all before it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar place                                   what would be written, for all network interfaces with a device
  nearfar place eth0 --process memcached          and a process to its node
  nearfar place eth0 --apply
  nearfar place eth0 --guests --watch             follow the load, until it is stopped
  nearfar place --undo                            as it was before
  nearfar place --unit                            the unit file of the systemd service
  nearfar place eth0 --root image                 a folder laid out like /")]
pub struct PlaceArgs {
    /// Network interfaces.
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// A process, by name or number: its threads go to the node of the first interface.
    #[arg(long, value_name = "NAME")]
    process: Vec<String>,
    /// Guests of QEMU that use these interfaces: vhost and I/O threads, vCPUs.
    #[arg(long)]
    guests: bool,
    /// Write nothing. This is the default.
    #[arg(long, conflicts_with_all = ["apply", "undo", "watch"])]
    dry_run: bool,
    /// Write, read back, and keep what was there before.
    #[arg(long, conflicts_with_all = ["undo", "watch"])]
    apply: bool,
    /// Set back everything that was written.
    #[arg(long, conflicts_with_all = ["watch", "interfaces", "process", "guests"])]
    undo: bool,
    /// Measure, decide and write period by period, until it is stopped. A change has to be wanted twice in a row.
    #[arg(long)]
    watch: bool,
    /// Print the unit file of a systemd service.
    #[arg(long, conflicts_with_all = ["apply", "undo", "watch", "interfaces", "process", "guests"])]
    unit: bool,
    /// Seconds of a period in which guests' load is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = period)]
    period: f64,
    /// The folder to take for /.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Where what was there before is recorded; `run/nearfar/place.undo.json` of the root by default.
    #[arg(long, value_name = "FILE")]
    undo_file: Option<PathBuf>,
    /// Write the plan as JSON; - for standard output.
    #[arg(long, value_name = "FILE", value_parser = output::file, conflicts_with_all = ["undo", "watch"])]
    json: Option<PathBuf>,
}

/// A number of seconds between two looks.
pub fn period(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds from 0.01 to 3600"))
}

pub fn run(_: &Common, arguments: &PlaceArgs) -> Result<ExitCode, Failure> {
    if arguments.unit {
        output::print(place::UNIT.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let wrong = |error| Failure::new(format!("`{}`: {error}", arguments.root.display()));
    let root = HostRoot::new(&arguments.root).map_err(wrong)?;
    let undo = arguments.undo_file.clone().unwrap_or_else(|| root.path().join("run/nearfar/place.undo.json"));
    let mut places = output::Places::new(&[("--json", arguments.json.as_deref())])?;
    places.writes("the record for --undo", &undo)?;
    places.reads_sources(std::slice::from_ref(&arguments.root))?;
    let to_stdout = places.to_stdout;
    // A signal between two writes waits until they are done.
    let (mut told, _tells) = stop::readable().map_err(Failure::new)?;
    if arguments.undo {
        let (count, notes) = place::undo(&root, &undo).map_err(Failure::new)?;
        notes.iter().for_each(|note| complain(&format!("note: {note}")));
        output::print(&format!("{count} values are as they were"));
        return Ok(ExitCode::from(if notes.iter().any(|note| note.contains("stays recorded")) {
            2
        } else {
            0
        }));
    }
    let mut view = HostView::new(root).map_err(Failure::new)?;
    let asked = asked(arguments, &view)?;
    let mut placer = GuestPlacer::default();
    if arguments.watch {
        return watch(arguments, view, &asked, &mut placer, &undo, &mut told);
    }
    if asked.guests {
        measure(&mut view, &mut placer, arguments.period, &mut told)?;
    }
    let plan = place::plan(&view, &asked, &placer).map_err(Failure::new)?;
    if !to_stdout {
        show(&plan);
    }
    if arguments.apply {
        place::apply(&view.root, &plan.writes, &undo).map_err(Failure::new)?;
    }
    let provenance = output::provenance(0, &[], &machine::Library::built_in());
    let record = json!({
        "writes": plan.writes, "notes": plan.notes, "kept": plan.kept, "applied": arguments.apply, "provenance": provenance,
    });
    output::json(arguments.json.as_deref(), &record)?;
    if !to_stdout {
        output::print(&match (plan.writes.is_empty(), arguments.apply) {
            (true, _) => format!("nothing to write: {} values are as they should be", plan.kept),
            (false, true) => {
                format!("{}; `{}` sets them back", values(plan.writes.len(), "written"), undoing(arguments))
            }
            (false, false) if arguments.interfaces.is_empty() && !asked.guests => {
                format!(
                    "{}; --apply writes them for interfaces that are named",
                    values(plan.writes.len(), "would be written")
                )
            }
            (false, false) => {
                format!("{}; --apply writes them", values(plan.writes.len(), "would be written"))
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn values(count: usize, what: &str) -> String {
    format!("{count} {} {what}", if count == 1 { "value" } else { "values" })
}

/// The command line that sets back what this one wrote.
fn undoing(arguments: &PlaceArgs) -> String {
    let mut line = "nearfar place".to_owned();
    let mut add = |option: &str, path: &std::path::Path| {
        line += &format!(" {option} {}", survey::shell_word(&path.display().to_string()));
    };
    if arguments.root != std::path::Path::new("/") {
        add("--root", &arguments.root);
    }
    arguments.undo_file.iter().for_each(|path| add("--undo-file", path));
    line + " --undo"
}

/// What is to be placed: what was named, or all interfaces with a device if nothing is written.
fn asked(arguments: &PlaceArgs, view: &HostView) -> Result<AskedFor, Failure> {
    let mut asked = AskedFor {
        interfaces: arguments.interfaces.clone(),
        processes: arguments.process.clone(),
        guests: arguments.guests,
    };
    if asked.interfaces.is_empty() && !asked.guests {
        if arguments.apply || arguments.watch {
            return Err(Failure::new(
                "name the network interfaces to place, or --guests: nothing else is touched",
            ));
        }
        asked.interfaces = view.interfaces();
        if asked.interfaces.is_empty() {
            return Err(Failure::new("no network interface has a device: name one"));
        }
    }
    Ok(asked)
}

fn show(plan: &HostPlan) {
    let mut why = "";
    for write in &plan.writes {
        if write.why != why {
            why = &write.why;
            output::print(&format!("# {why}"));
        }
        let before = if write.before.is_empty() { "nothing" } else { &write.before };
        output::print(&format!("{}: {before} -> {}", write.target, write.after));
    }
    plan.notes.iter().for_each(|note| complain(&format!("note: {note}")));
}

/// Waits for a period; true if the program is to end.
fn wait(told: &mut UnixStream, seconds: f64) -> Result<bool, Failure> {
    told.set_read_timeout(Some(Duration::from_secs_f64(seconds))).map_err(Failure::new)?;
    Ok(told.read(&mut [0; 8]).is_ok())
}

/// Two periods of the guests' load, as many as a decision about the mode takes. A copy of a host has no load.
fn measure(
    view: &mut HostView,
    placer: &mut GuestPlacer,
    seconds: f64,
    told: &mut UnixStream,
) -> Result<(), Failure> {
    let mut before = LoadSample::new(view);
    let (turns, seconds) = if view.root.is_live() { (2, seconds) } else { (1, 0.01) };
    for _ in 0..turns {
        let began = Instant::now();
        if wait(told, seconds)? {
            return Err(Failure::new("stopped; nothing was written"));
        }
        view.refresh();
        let now = LoadSample::new(view);
        placer.decide(view, [&before, &now], began.elapsed());
        before = now;
    }
    Ok(())
}

fn watch(
    arguments: &PlaceArgs,
    mut view: HostView,
    asked: &AskedFor,
    placer: &mut GuestPlacer,
    undo: &std::path::Path,
    told: &mut UnixStream,
) -> Result<ExitCode, Failure> {
    let mut before = LoadSample::new(&view);
    let mut wanted_before: Option<Vec<place::PlannedWrite>> = None;
    let (mut modes, mut last_trouble) = (0, String::new());
    place::notify("READY=1");
    let pause =
        place::watchdog().map_or(arguments.period, |often| arguments.period.min(often.as_secs_f64() / 2.0));
    loop {
        let began = Instant::now();
        if wait(told, pause)? {
            place::notify("STOPPING=1");
            output::print(&format!("stopped; `{}` sets everything back", undoing(arguments)));
            return Ok(ExitCode::SUCCESS);
        }
        view.refresh();
        let now = LoadSample::new(&view);
        placer.decide(&view, [&before, &now], began.elapsed());
        before = now;
        if placer.switches() != modes {
            modes = placer.switches();
            output::print(&format!("the load asks for another number of I/O threads, the {modes}. time"));
        }
        let trouble = match place::plan(&view, asked, placer) {
            Ok(plan) => {
                let is_steady = wanted_before.as_ref().is_none_or(|before| *before == plan.writes);
                if !is_steady || plan.writes.is_empty() {
                    wanted_before = Some(plan.writes);
                    None
                } else {
                    let done = place::apply(&view.root, &plan.writes, undo);
                    if done.is_ok() {
                        show(&plan);
                        output::print(&format!("{} values written", plan.writes.len()));
                    }
                    wanted_before = Some(Vec::new());
                    match done {
                        Err(
                            error @ (PlaceError::Locked(_) | PlaceError::Own(..) | PlaceError::Damaged(..)),
                        ) => {
                            return Err(Failure::new(error));
                        }
                        done => done.err().map(|error| error.to_string()),
                    }
                }
            }
            Err(error) => Some(error),
        };
        // A device that is gone may come back; it is told once.
        let trouble = trouble.unwrap_or_default();
        if trouble != last_trouble && !trouble.is_empty() {
            complain(&format!("warning: {trouble}"));
        }
        last_trouble = trouble;
        place::notify(&format!("WATCHDOG=1\nSTATUS={} guests, {modes} changes of mode", view.guests.len()));
    }
}
