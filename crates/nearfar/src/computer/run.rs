//! A scenario's programs, run together.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use machine::{ComputerSetup, DeviceFile, HostSetup, SourceSetup};
use rayon::prelude::*;
use units::{Duration, Time};
use workloads::{Failure, Program};

use super::accounting::Accounting;
use super::balance::Balance;
use super::checks::check_booted;
use super::computers::Computers;
use super::counting::{Counted, Counting};
use super::error::ComputerError;
use super::events::Events;
use super::finished::{Counts, Ended, FinishedProgram, Subject};
use super::host::Computer;
use super::invariants::violations;
use super::kept;
use super::observer::Observer;
use super::packets::PacketCosts;
use super::processes::{Processes, place};
use super::programs::parse;
use super::traffic::TrafficSource;
use super::warnings::Warnings;
use crate::counters::OfferedLoad;
use crate::links::Links;
use crate::progress::{Part, PlannedEnd, Progress};

/// Simulation events between progress updates: less than a tenth of a second.
const EVENTS_A_LOOK: u32 = 1 << 16;

/// Events of programs that load and store memory take longer: after so many, progress is told if so long has passed.
const EVENTS_A_GLANCE: u32 = 64;
const GLANCE: std::time::Duration = std::time::Duration::from_millis(200);

/// Looks in a row at the same simulated time after which it counts as standing still: far more events than all devices
/// and cores of the largest scenario can have at one instant.
const MOST_LOOKS: u32 = 256;

/// Longest simulated time of a run: a day, which takes a year to simulate, and some time to end.
const LONGEST: Duration = Duration::from_ms(25 * 3_600_000);

/// Runs the programs of a scenario to their end. Servers run as long as other programs do; an event
/// under way, such as a reboot, is completed.
///
/// # Errors
/// If a command line is invalid, or the computers cannot be assembled. A program that waits forever is reported as
/// failed.
pub fn run(setup: &ComputerSetup, progress: &dyn Progress) -> Result<Vec<FinishedProgram>, ComputerError> {
    run_counted(setup, progress).map(|counts| counts.done)
}

/// Runs several scenarios, in parallel unless drives have named backing files. Results come in the same order.
pub fn run_all(
    setups: &[&ComputerSetup],
    what: &str,
    progress: &dyn Progress,
) -> Vec<Result<Counts, ComputerError>> {
    progress.begin(what, setups.len() as u64);
    let one = |setup: &&ComputerSetup| {
        let done = run_counted(setup, &Part(progress));
        progress.step(&setup.name);
        done
    };
    // A backing file belongs to one drive at a time.
    let is_kept = |device: &DeviceFile| device.drive().is_some_and(|drive| drive.backing.is_some());
    let keeps = |host: &HostSetup| host.devices.iter().any(|device| is_kept(&device.kind));
    let all = match setups.iter().any(|setup| setup.hosts.iter().any(keeps)) {
        true => setups.iter().map(one).collect(),
        false => setups.par_iter().with_max_len(1).map(one).collect(),
    };
    progress.end();
    all
}

/// As [`run`], with CPU times and counters.
///
/// # Errors
/// As [`run`].
pub fn run_counted(setup: &ComputerSetup, progress: &dyn Progress) -> Result<Counts, ComputerError> {
    let key = kept::key(setup);
    if let Some(counts) = kept::get(key.as_deref()) {
        return Ok(counts);
    }
    let watching =
        ((PacketCosts::default(), Accounting::default()), (Counting::new(setup), Links::new(setup)));
    let mut watching = ((watching, Warnings::new(setup)), Balance::default());
    let mut done = run_watched(setup, progress, &mut watching)?;
    let ((((costs, accounting), (counting, links)), warnings), balance) = watching;
    costs.explain(setup, &mut done);
    warnings.explain(&mut done);
    let mut counted = counting.counted();
    for program in &mut done {
        let number = program.number();
        let of = |counted: &&mut Counted| Some(counted.program) == number;
        let Ok(report) = &mut program.outcome else { continue };
        for part in counted.iter_mut().filter(of) {
            let pace = report.pace.clone().map(OfferedLoad::Pace);
            part.window.offered = part.window.offered.take().or(pace);
            let placement = part.placement(setup).into_iter();
            let is_new = |note: &String| !report.notes.contains(note);
            let placement: Vec<String> = placement.filter(is_new).collect();
            report.notes.extend(placement);
            report.notes.push(part.window.binding(&program.host).to_string());
        }
    }
    let counts =
        Counts { done, accounts: accounting.accounts(), counted, links: links.seen, warnings: warnings.seen };
    if cfg!(debug_assertions) {
        let wrong = [violations(setup, &counts), balance.found].concat();
        assert!(wrong.is_empty(), "{}: {}", setup.name, wrong.join("; "));
    }
    kept::put(key.as_deref(), &counts);
    Ok(counts)
}

/// As [`run`], with an observer. Programs still running when it stops leave no report.
///
/// # Errors
/// As [`run`].
pub fn run_watched(
    setup: &ComputerSetup,
    progress: &dyn Progress,
    observer: &mut dyn Observer,
) -> Result<Vec<FinishedProgram>, ComputerError> {
    let programs = parse(setup)?;
    progress.begin(&setup.name, (1 + programs.len() + setup.sources.len()) as u64);
    let mut computers = Computers::new(setup)?;
    computers.boot()?;
    check_booted(setup, &computers, &programs)?;
    progress.step("booted");
    observer.booted(&computers);
    let ended = Rc::new(Ended::default());
    let processes = Processes::start(setup, &programs, &computers, &ended);
    computers.generators.iter().for_each(|generator| generator.start(computers.simulation()));
    let mut events = Events::new(setup, &computers, processes, &ended)?;
    for (n, source) in (programs.len()..).zip(&setup.sources) {
        start_source(n, source, &computers.sources[n - programs.len()], &computers, &ended);
    }
    let serves = |n: usize| programs.get(n).is_some_and(|program| program.serves());
    let (mut seen, started) = (0, computers.simulation().now());
    let end_known = planned_end(setup, &programs);
    // All programs except servers, the last one first.
    let mut starts: Vec<(Time, usize)> = setup
        .programs
        .iter()
        .map(|entry| entry.start)
        .enumerate()
        .filter(|&(n, _)| !serves(n))
        .chain((programs.len()..).zip(setup.sources.iter().map(|source| source.start)))
        .map(|(n, start)| (started + start, n))
        .collect();
    starts.sort_by_key(|&start| std::cmp::Reverse(start));
    loop {
        let due = |(at, _): &mut (Time, usize)| *at <= computers.simulation().now();
        let beginning: Vec<usize> =
            std::iter::from_fn(|| starts.pop_if(due)).map(|(_, program)| program).collect();
        if !beginning.is_empty() {
            observer.began(&beginning, &computers);
        }
        for (program, begins) in ended.marks.take() {
            match begins {
                true => observer.began(&[program], &computers),
                false => {
                    observer.opened(program, &events.processes().opened(program));
                    observer.measured(program, &computers);
                }
            }
        }
        let done = ended.done.borrow();
        let ending: Vec<usize> = done[seen..].iter().filter_map(FinishedProgram::number).collect();
        done[seen..].iter().for_each(|done| progress.step(&done.run));
        if !ending.is_empty() {
            let opened = ended.opened.borrow();
            let opened = ending.iter().filter_map(|&program| Some((program, opened.get(&program)?)));
            opened.for_each(|(program, devices)| observer.opened(program, devices));
            observer.done(&ending, &computers);
        }
        seen = done.len();
        let all = 0..programs.len() + setup.sources.len();
        drop(done);
        let has_ended = |n: usize| serves(n) || ended.has(Subject::Program(n));
        if all.into_iter().all(has_ended) && !events.are_under_way() {
            break;
        }
        events.happen(&mut computers)?;
        let before = seen;
        let look = observer.look(&computers).unwrap_or(Time::NEVER);
        let end = started + LONGEST;
        let next = starts.last().map_or(Time::NEVER, |&(at, _)| at).min(look).min(end);
        let (mut count, is_awaited) = (0u32, Cell::new(progress.is_awaited()));
        let (mut looked, mut looks, stands) = (computers.simulation().now(), 0u32, Cell::new(false));
        let mut told = Instant::now();
        computers.simulation().run_while(|fabric| {
            count += 1;
            if count % EVENTS_A_LOOK == 0 {
                progress.simulated(computers.simulation().now().since(started), end_known.as_ref());
                is_awaited.set(progress.is_awaited());
                let now = computers.simulation().now();
                looks = if std::mem::replace(&mut looked, now) == now { looks + 1 } else { 0 };
                stands.set(looks > MOST_LOOKS);
            } else if count % EVENTS_A_GLANCE == 0 && told.elapsed() >= GLANCE {
                told = Instant::now();
                progress.simulated(computers.simulation().now().since(started), end_known.as_ref());
                is_awaited.set(progress.is_awaited());
            }
            is_awaited.get()
                && !stands.get()
                && ended.done.borrow().len() == before
                && ended.marks.borrow().is_empty()
                && computers.simulation().now() < next
                && !observer.has_enough()
                && !computers.have_blocks_failed()
                && !events.are_due(&computers, fabric)
        });
        if !is_awaited.get() {
            return Err(ComputerError::Unwanted);
        }
        computers.check_blocks()?;
        let running = || {
            let unfinished = |&n: &usize| !serves(n) && !ended.has(Subject::Program(n));
            let running =
                (0..programs.len()).filter(unfinished).map(|n| setup.programs[n].run.value.as_str());
            running.collect::<Vec<_>>().join("`, `")
        };
        if stands.get() {
            return Err(ComputerError::StandsStill { at: looked, running: running() });
        }
        if computers.simulation().now() >= end {
            return Err(ComputerError::TooLong { running: running() });
        }
        let is_quiet = ended.done.borrow().len() == before
            && ended.marks.borrow().is_empty()
            && computers.simulation().now() < next;
        let are_due = || computers.simulation().with(|fabric, _| events.are_due(&computers, fabric));
        if is_quiet && !are_due() {
            if observer.has_enough() {
                break;
            }
            give_up(setup, &programs, &computers, started, &ended);
            break;
        }
    }
    observer.ended(&computers);
    tell_servers(setup, &programs, (started, computers.simulation().now()), &ended);
    if !observer.has_enough() {
        events.tell_missing();
        write_back(&computers);
    }
    progress.end();
    computers.check_blocks()?;
    computers.finish_captures()?;
    let mut done = ended.done.take();
    done.sort_by_key(|done| done.subject);
    Ok(done)
}

/// Reports servers that have counted something, and those on whose command lines there are notes; others report nothing.
fn tell_servers(
    setup: &ComputerSetup,
    programs: &[Rc<dyn Program>],
    (started, now): (Time, Time),
    ended: &Ended,
) {
    for (n, (program, entry)) in programs.iter().zip(&setup.programs).enumerate() {
        let (subject, notes) = (Subject::Program(n), program.notes().to_vec());
        let counted = ended.so_far.borrow().get(&n).and_then(|so_far| so_far.at(now));
        if program.serves() && (counted.is_some() || !notes.is_empty()) && !ended.has(subject) {
            let (host, run) = (place(setup, entry), entry.run.value.clone());
            let mut report = counted.unwrap_or_default();
            report.notes.extend(notes);
            ended.tell(FinishedProgram::new(subject, host, run, now.since(started), Ok(report)));
        }
    }
}

/// Writes back dirty pages of drives that no program has open any more.
fn write_back(computers: &Computers) {
    let alive = computers.hosts().iter().filter(|host| !host.kernel.is_halted());
    let guests = |host: &Computer| host.vms().into_iter().map(|vm| vm.kernel()).collect::<Vec<_>>();
    let kernels = alive.flat_map(|host| [Rc::clone(&host.kernel)].into_iter().chain(guests(host)));
    let drives: Vec<_> = kernels.flat_map(|kernel| kernel.block().devices()).collect();
    computers.simulation().run_while(|_| drives.iter().any(|drive| drive.is_closing()));
}

/// When the run ends, if all programs except servers state their duration.
fn planned_end(setup: &ComputerSetup, programs: &[Rc<dyn Program>]) -> Option<PlannedEnd> {
    let clients = programs.iter().zip(&setup.programs).filter(|(program, _)| !program.serves());
    let ends = clients.map(|(program, entry)| {
        Some(PlannedEnd { after: entry.start + program.lasts()?, by: entry.run.value.clone() })
    });
    let sources = setup.sources.iter().map(|source| {
        let by = format!("TCP stream to {}", source.to);
        Some(PlannedEnd { after: source.start + source.time, by })
    });
    ends.chain(sources).collect::<Option<Vec<_>>>()?.into_iter().max_by_key(|end| end.after)
}

/// Nothing is left to happen, so unfinished programs never will finish.
fn give_up(
    setup: &ComputerSetup,
    programs: &[Rc<dyn Program>],
    computers: &Computers,
    started: Time,
    ended: &Ended,
) {
    let at = computers.simulation().now();
    for (n, entry) in setup.programs.iter().enumerate() {
        let subject = Subject::Program(n);
        if programs[n].serves() || ended.has(subject) {
            continue;
        }
        let why = format!("it hangs: it waits, and nothing is left to happen after {at}");
        let took = at.since(started + entry.start);
        let outcome = Err(Failure(why));
        let (host, run) = (place(setup, entry), entry.run.value.clone());
        ended.tell(FinishedProgram::new(subject, host, run, took, outcome));
    }
}

/// Starts a traffic source, which is number `n` after the programs.
fn start_source(
    n: usize,
    setup: &SourceSetup,
    source: &TrafficSource,
    computers: &Computers,
    ended: &Rc<Ended>,
) {
    let simulation = computers.simulation();
    let at = simulation.now() + setup.start;
    source.start(simulation, at);
    let (host, run) = (setup.name.clone(), format!("TCP stream to {}", setup.to));
    let (clock, ended) = (simulation.handle(), Rc::clone(ended));
    source.when_ended(simulation, move |outcome| {
        let took = clock.now().since(at);
        ended.tell(FinishedProgram::new(Subject::Program(n), host, run, took, outcome));
    });
}
