//! `nearfar replay`: what a guest's driver did, on another machine.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use live::recording::GuestRecording;
use live::replay::{Replayed, ReplayedFunction, replay};
use machine::ComputerSetup;
use nearfar::experiment::Experiment;
use nearfar::records::Record;
use serde_json::json;
use units::Duration;

use crate::failure::Failure;
use crate::output::{Fit, Records, TextTable};
use crate::{Common, input, output};

/// Replay what guests of `live` or `serve` did (`--record`), on another machine.
///
/// The recorded accesses come from a simulated core, each after what it had waited for, and devices, links and memory are
/// simulated anew.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  nearfar replay nvme.rec                                on the machine of the recording
  nearfar replay nvme.rec --machine dell-r730            on another one
  nearfar replay nvme.rec --set host.a.device.0.change.link.width=1 --json replay.json

Exit status: 0 replayed, 1 an interrupt never came, 2 bad input.")]
pub struct ReplayArgs {
    /// The recording.
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// The machine of all live hosts, in place of theirs.
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Change a value of the scenario.
    #[arg(long, value_name = "PATH=VALUE", value_parser = input::setting)]
    set: Vec<(String, String)>,
    /// The scenario, if it is no longer where it was.
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,
    /// How long a core works between accesses, for each second that the guest did. By default 1 for a recording in lock-step, and 0
    /// for one by the wall clock, whose times mean nothing.
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    work: Option<f64>,
    /// Show every counter of devices, links and root complexes, too.
    #[arg(long)]
    counters: bool,
    #[command(flatten)]
    records: Records,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| (0.0..=1e6).contains(factor));
    factor.ok_or_else(|| "a number from 0 to 1000000, such as 0.5".to_owned())
}

/// Finds the recorded scenario, or that on the command line, with its changes.
fn scenario(
    common: &Common,
    arguments: &ReplayArgs,
    recording: &GuestRecording,
) -> Result<ComputerSetup, Failure> {
    let library = input::library(common);
    let head = &recording.head;
    let mut changes = head.changes.clone();
    let is_there = |path: &str| std::path::Path::new(path).is_file();
    let kept = match &arguments.scenario {
        None if !is_there(&head.path) => {
            let mut file = tempfile::Builder::new().suffix(".toml").tempfile().map_err(Failure::new)?;
            file.write_all(head.scenario.as_bytes()).map_err(Failure::new)?;
            Some(file)
        }
        _ => None,
    };
    let kept_path = kept.as_ref().map(|file| file.path().display().to_string());
    let name = arguments.scenario.as_ref().or(kept_path.as_ref()).unwrap_or(&head.path);
    if let Some(machine) = &arguments.machine {
        let mut hosts: Vec<u16> = head.functions.iter().map(|(host, _)| *host).collect();
        hosts.dedup();
        changes.extend(hosts.into_iter().map(|host| (format!("host.{host}.machine"), machine.clone())));
    }
    changes.extend(arguments.set.iter().cloned());
    let named = input::Named { scenario: name, folder: None };
    match input::scenario(&library, &named, "--set", &changes)? {
        Experiment::Computers(setup) => Ok(*setup),
        Experiment::Bench(_) => Err(Failure::new(format!("{name} has no live host"))),
    }
}

pub fn run(common: &Common, arguments: &ReplayArgs) -> Result<ExitCode, Failure> {
    let shown = arguments.recording.display();
    let recording = GuestRecording::open(&arguments.recording)
        .map_err(|error| Failure::new(format!("{shown}: {error}; `nearfar live --record FILE` makes one")))?;
    let to_stdout = arguments.records.places(&[])?.to_stdout;
    let setup = scenario(common, arguments, &recording)?;
    let is_timed = recording.head.instruction_ns.is_some();
    let work = arguments.work.unwrap_or(if is_timed { 1.0 } else { 0.0 });
    let replayed = replay(&setup, &recording, work).map_err(Failure::new)?;
    let changes = [&recording.head.changes[..], &arguments.set].concat();
    let provenance = output::provenance(setup.seed, &[("--set", &changes)], &input::library(common));
    arguments.records.write(records(&replayed), &provenance)?;
    if !to_stdout {
        output::heading(&provenance);
        show(&recording, &replayed, work);
        if arguments.counters {
            output::print(&output::counter_table(&replayed.counted));
        }
    }
    match &replayed.stuck {
        None => Ok(ExitCode::SUCCESS),
        Some(what) => {
            output::complain(&output::prose(&format!(
                "error: {what}, which never came: the replay ends there. With other rings or vectors, a device does something else; \
                 record again on such a machine"
            )));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The middle of what is sorted.
fn median(sorted: &[Duration]) -> Option<Duration> {
    sorted.get(sorted.len() / 2).copied()
}

/// Quantities with their units, recorded and replayed.
fn quantities(of: &ReplayedFunction) -> Vec<(&'static str, &'static str, [f64; 2])> {
    let both = |get: fn(&live::replay::FunctionCounts) -> u64| of.counts.map(|counts| get(&counts) as f64);
    let mut all = vec![
        ("accesses", "", both(|counts| counts.accesses)),
        ("read from memory", "B", both(|counts| counts.fetched)),
        ("written to memory", "B", both(|counts| counts.stored)),
        ("interrupts", "", both(|counts| counts.interrupts)),
    ];
    if let [Some(recorded), Some(replayed)] = [median(&of.answers[0]), median(&of.answers[1])] {
        let both = [recorded, replayed].map(|time| time.as_ns_f64() / 1e3);
        all.push(("last write to interrupt, median", "µs", both));
    }
    all
}

fn show(recording: &GuestRecording, replayed: &Replayed, work: f64) {
    let is_timed = recording.head.instruction_ns.is_some();
    let header = ["", "recorded", "replayed", "change"];
    let mut table = TextTable::new(header, Fit::Fold(1)).numbers(1..4);
    let mut add = |name: String, [before, after]: [f64; 2], has_time: bool| {
        let change = if before == 0.0 || !has_time {
            String::new()
        } else {
            format!("{:+.1} %", 100.0 * (after / before - 1.0))
        };
        let before = if has_time { output::number(before) } else { "-".to_owned() };
        table.add(vec![name, before, output::number(after), change]);
    };
    for function in &replayed.functions {
        for (quantity, unit, both) in quantities(function) {
            let name = format!("{}, {quantity} {unit}", function.name);
            add(name.trim_end().to_owned(), both, is_timed || unit != "µs");
        }
    }
    let us = |times: [Duration; 2]| times.map(|time| time.as_ns_f64() / 1e3);
    add("guests' work µs".to_owned(), us(replayed.worked), is_timed);
    add("first access to end µs".to_owned(), us(replayed.took), is_timed);
    output::print(&table.render(output::width()));
    let note = |text: String| output::print(&output::prose(&format!("note: {text}")));
    match recording.head.instruction_ns {
        Some(ns) => note(format!(
            "recorded in lock-step: an instruction of the guest took {ns} ns, whatever it was; a core works {work} times as long"
        )),
        None => note(format!(
            "recorded by the wall clock, whose times mean nothing: what the guest did in between takes {work} times as long"
        )),
    }
    let differences = [
        (
            &replayed.order,
            "interrupts came before accesses that they had followed: a guest could have acted otherwise",
        ),
        (&replayed.values, "reads returned another value than to the guest"),
    ];
    for ((count, first), what) in differences {
        if *count > 0 {
            note(format!(
                "{count} {what}: {}{}",
                first.join("; "),
                if *count > first.len() as u64 { "; ..." } else { "" }
            ));
        }
    }
    if replayed.unknown > 0 {
        note(format!(
            "devices read {} bytes of memory that they had not read before: as zeros",
            replayed.unknown
        ));
    }
}

fn records(replayed: &Replayed) -> Vec<Record> {
    let of = |function: &ReplayedFunction| {
        let rows = quantities(function).into_iter().map(|(quantity, unit, [recorded, now])| {
            json!({
                "kind": "replay", "function": function.name, "quantity": quantity, "unit": unit, "recorded": recorded,
                "replayed": now,
            })
        });
        rows.collect::<Vec<_>>()
    };
    let us = |times: [Duration; 2]| times.map(|time| time.as_ns_f64() / 1e3);
    let whole = |quantity: &str, unit: &str, [recorded, now]: [f64; 2]| {
        json!({
            "kind": "replay", "function": null, "quantity": quantity, "unit": unit, "recorded": recorded, "replayed": now,
        })
    };
    let whole = [
        whole("guests' work", "µs", us(replayed.worked)),
        whole("first access to end", "µs", us(replayed.took)),
        whole("interrupts before accesses that they had followed", "", [0.0, replayed.order.0 as f64]),
        whole("reads with another value", "", [0.0, replayed.values.0 as f64]),
    ];
    replayed.functions.iter().flat_map(of).chain(whole).collect()
}
