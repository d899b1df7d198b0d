//! Traces computers: links, cores, write-combining buffers and cables together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use engine::Trace;
use hardware::Fabric;
use hardware::core::LinePassed;
use hardware::ethernet::{CableId, PassedFrame};
use hardware::link::LinkId;
use hardware::memory::CoreId;
use kernel::Ran;
use machine::{ClusterEnd, ComputerSetup};
use platform::cpu::Part;
use units::Time;
use wire::ethernet::FCS_LEN;

use super::doorbells::DoorbellBar;
use super::follow::{Follower, FrameSlice, LineSlice, WorkSlice};
use super::links::add_links;
use super::stall::{Stall, StallWatch};
use super::timeline::{Details, Timeline};
use super::{Capture, Recorder, Span};
use crate::computer::{self, ComputerError, Computers, FinishedProgram, Observer};
use crate::links::{LinkState, Links, link_name};
use crate::progress::Progress;

/// Records within the time span of a link recorder.
struct Log<R>(Rc<RefCell<Vec<R>>>);

impl<R: 'static> Log<R> {
    fn new() -> Self {
        Self(Rc::default())
    }

    /// A trace that keeps what begins within the recording.
    fn trace(&self, recorder: &Rc<RefCell<Recorder>>, begins: fn(&R) -> Time) -> Trace<R> {
        let (log, recorder) = (Rc::clone(&self.0), Rc::clone(recorder));
        Trace::to(move |record: R| {
            if recorder.borrow().wants(begins(&record)) {
                log.borrow_mut().push(record);
            }
        })
    }
}

/// Recorders attached to computers.
pub struct Watch {
    recorder: Rc<RefCell<Recorder>>,
    names: Vec<String>,
    /// Index of the host of each recorded link.
    link_hosts: Vec<usize>,
    work: Vec<Log<Ran>>,
    /// By host, then by core.
    lines: Vec<Vec<Log<LinePassed>>>,
    cables: Vec<(String, Log<PassedFrame>)>,
    tasks: Vec<Vec<String>>,
}

/// Everything that was recorded.
pub struct Observed {
    /// The links.
    pub capture: Capture,
    /// Negotiated parameters of the links to devices.
    pub links: Vec<LinkState>,
    /// The wait that ended the recording, if it was to end with one.
    pub stall: Option<Stall>,
    /// The longest wait seen while looking for one.
    pub longest_wait: Option<Stall>,
    watch: Watch,
}

impl Watch {
    /// Records booted computers from the start of the first program: the links of these slots, or all links.
    ///
    /// # Errors
    /// If a slot has no device; the error lists those that have one.
    pub fn new(
        computers: &Computers,
        setup: &ComputerSetup,
        span: Span,
        slots: &[String],
    ) -> Result<Self, String> {
        let recorder = Recorder::new(span);
        let mut watch = Self {
            recorder: Rc::clone(&recorder),
            names: Vec::new(),
            link_hosts: Vec::new(),
            work: Vec::new(),
            lines: Vec::new(),
            cables: Vec::new(),
            tasks: Vec::new(),
        };
        let (mut known, mut link_hosts) = (Vec::new(), Vec::new());
        let mut record = |fabric: &mut Fabric, link: LinkId, name: String, host: usize| {
            if slots.is_empty() || slots.contains(&name) {
                Recorder::tap(&recorder, fabric, link, name.clone());
                link_hosts.push(host);
            }
            known.push(name);
        };
        computers.simulation().with(|fabric, scheduler| {
            for (n, host) in computers.hosts().iter().enumerate() {
                for (switch, &(_, link)) in host.switches.iter().enumerate() {
                    let [at] = &setup.hosts[n].switches[switch].links[..] else { continue };
                    record(fabric, link, link_name(setup, at), at.host);
                }
                for (number, &device) in host.devices.iter().enumerate() {
                    let links: Vec<_> = fabric.endpoint(device).links().collect();
                    for (link, at) in links.into_iter().zip(&setup.hosts[n].devices[number].links) {
                        record(fabric, link, link_name(setup, at), at.host);
                    }
                }
                let work = Log::new();
                host.kernel.watch(work.trace(&recorder, |ran: &Ran| ran.from));
                watch.work.push(work);
                let cores = usize::from(host.kernel.face().cpus());
                let lines: Vec<Log<LinePassed>> = (0..cores).map(|_| Log::new()).collect();
                for (core, log) in lines.iter().enumerate() {
                    let trace = log.trace(&recorder, |line: &LinePassed| line.opened);
                    fabric.host_mut(host.host).stores.watch(CoreId(core as u16), trace);
                }
                watch.lines.push(lines);
                watch.names.push(host.name.clone());
            }
            for (number, &link) in computers.ntb_cables.iter().enumerate() {
                let cable = &setup.cluster.cables[number];
                let name = cable.name.clone().unwrap_or_else(|| format!("ntb-cable{number}"));
                let host = match cable.ends {
                    [ClusterEnd::Adapter(host, _), _] | [_, ClusterEnd::Adapter(host, _)] => host,
                    _ => 0,
                };
                record(fabric, link, name, host);
            }
            for cable in fabric.wires.ethernet.cables().collect::<Vec<CableId>>() {
                let log = Log::new();
                fabric.wires.ethernet.trace(cable, log.trace(&recorder, |frame: &PassedFrame| frame.at));
                watch.cables.push((format!("cable {}", cable.0), log));
            }
            // Driver activity before the first program starts is not recorded.
            let start = setup.programs.iter().map(|program| program.start).min().unwrap_or_default();
            recorder.borrow_mut().start(scheduler.now() + start);
        });
        watch.link_hosts = link_hosts;
        match slots.iter().find(|slot| !known.contains(slot)) {
            Some(slot) => Err(format!("no device is in a slot `{slot}`; there are {}", known.join(", "))),
            None => Ok(watch),
        }
    }

    /// The recorder of the links.
    pub fn recorder(&self) -> &Rc<RefCell<Recorder>> {
        &self.recorder
    }

    /// Stops recording.
    pub fn finish(mut self, computers: &Computers) -> Observed {
        computers.simulation().with(|fabric, scheduler| fabric.context(scheduler).report_dllps());
        for host in computers.hosts() {
            let name = |task: &kernel::TaskInfo| (usize::try_from(task.id.0).unwrap_or(0), task.name.clone());
            let mut names = Vec::new();
            for (id, name) in host.kernel.tasks().iter().map(name) {
                names.resize(names.len().max(id + 1), String::new());
                names[id] = name;
            }
            self.tasks.push(names);
        }
        let mut capture = self.recorder.borrow_mut().capture();
        for (link, host) in capture.links.iter().zip(&self.link_hosts) {
            let functions = computers.hosts()[*host].kernel.pci();
            let bars = functions.iter().flat_map(DoorbellBar::of);
            capture.doorbells.extend(bars.map(|bar| (link.id, bar)));
        }
        Observed { capture, links: Vec::new(), stall: None, longest_wait: None, watch: self }
    }
}

impl Observed {
    /// Everything as a timeline, with a story per frame.
    pub fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::default();
        let (work, lines) = self.add_cores(&mut timeline);
        let packets = add_links(&mut timeline, &self.capture);
        let frames = self.add_cables(&mut timeline);
        let hosts = &self.watch.link_hosts;
        Follower::new(&self.capture, &packets, hosts, &work, &lines).follow(&mut timeline, &frames);
        timeline
    }

    /// Frames on cables.
    pub fn frames(&self) -> Vec<PassedFrame> {
        self.watch.cables.iter().flat_map(|(_, log)| log.0.borrow().clone()).collect()
    }

    /// Lines that passed a core's write-combining buffers.
    pub fn lines(&self, host: usize, core: usize) -> Vec<LinePassed> {
        self.watch.lines[host][core].0.borrow().clone()
    }

    /// Activities of a host's cores.
    pub fn work(&self, host: usize) -> Vec<Ran> {
        self.watch.work[host].0.borrow().clone()
    }

    fn add_cores(&self, timeline: &mut Timeline) -> (Vec<WorkSlice>, Vec<LineSlice>) {
        let (mut all, mut lines) = (Vec::new(), Vec::new());
        let mut parts: BTreeMap<Part, Rc<str>> = BTreeMap::new();
        for (host, name) in self.watch.names.iter().enumerate() {
            let mut work = merged(&self.watch.work[host].0.borrow());
            work.sort_by_key(|ran| (ran.core, std::cmp::Reverse(ran.level), ran.from));
            let mut slices = Vec::new();
            let tasks: Vec<Rc<str>> =
                self.watch.tasks[host].iter().map(|name| Rc::from(name.as_str())).collect();
            for ran in &work {
                let level = ["tasks", "deferred interrupts", "interrupts"][usize::from(ran.level.min(2))];
                let track = timeline.track(&format!("host {name}"), &format!("core {}, {level}", ran.core.0));
                let task = ran.task.and_then(|id| tasks.get(id.0 as usize));
                let name = parts.entry(ran.part).or_insert_with(|| format!("{:?}", ran.part).into());
                let slice = timeline.slice(track, (ran.from, ran.to), Rc::clone(name));
                if let Some(task) = task {
                    timeline.slices[slice].details = Details::One("task", Rc::clone(task));
                }
                slices.push(WorkSlice {
                    host,
                    context: (ran.core.0, ran.level),
                    is_driver: matches!(ran.part, Part::Driver | Part::Dma),
                    is_user: ran.part == Part::User,
                    from: ran.from,
                    to: ran.to,
                    slice,
                });
            }
            slices.sort_by_key(|work| work.from);
            all.extend(slices);
            for (core, log) in self.watch.lines[host].iter().enumerate() {
                let slices = add_lines(timeline, &format!("host {name}"), core, &log.0.borrow());
                lines.extend(slices.into_iter().map(|(line, opened, slice)| LineSlice {
                    host,
                    line,
                    opened,
                    slice,
                }));
            }
        }
        (all, lines)
    }

    fn add_cables(&self, timeline: &mut Timeline) -> Vec<FrameSlice> {
        let mut all = Vec::new();
        for (name, log) in &self.watch.cables {
            for frame in log.0.borrow().iter() {
                let track =
                    timeline.track(name, if frame.from.end == 0 { "from end 0" } else { "from end 1" });
                let text = format!("frame {} B", frame.bytes.len());
                let slice = timeline.slice(track, (frame.at, frame.until), text);
                // The card adds the check sequence.
                let bytes = frame.bytes[..frame.bytes.len().saturating_sub(FCS_LEN)].into();
                all.push(FrameSlice { bytes, at: frame.at, until: frame.until, slice });
            }
        }
        all.sort_by_key(|frame| frame.at);
        all
    }
}

/// Merges adjacent work on the same account.
fn merged(work: &[Ran]) -> Vec<Ran> {
    let mut merged: Vec<Ran> = Vec::new();
    for ran in work {
        let same = |last: &&mut Ran| {
            let of = |ran: &Ran| (ran.core, ran.level, ran.task, ran.part);
            of(last) == of(ran) && last.to == ran.from
        };
        match merged.iter_mut().rev().take(8).find(same) {
            Some(last) => last.to = ran.to,
            None if ran.from == ran.to => {}
            None => merged.push(*ran),
        }
    }
    merged
}

/// Adds a core's write-combining buffers, each line on the first free track. Returns addresses, start times and
/// slices.
fn add_lines(
    timeline: &mut Timeline,
    process: &str,
    core: usize,
    lines: &[LinePassed],
) -> Vec<(u64, Time, usize)> {
    let mut slices = Vec::new();
    let mut lines = lines.to_vec();
    lines.sort_by_key(|line| (line.opened, line.line));
    let mut free: Vec<Time> = Vec::new();
    for line in lines {
        let buffer = free.iter().position(|&at| at <= line.opened).unwrap_or_else(|| {
            free.push(Time::ZERO);
            free.len() - 1
        });
        free[buffer] = line.accepted;
        let track = timeline.track(process, &format!("core {core}, write-combining buffer {buffer}"));
        let slice = timeline.slice(track, (line.opened, line.accepted), format!("line {:#x}", line.line));
        let left = line.left.since(line.opened).as_ns_f64();
        timeline.slices[slice].details = Details::One("left after", format!("{left:.1} ns").into());
        slices.push((line.line, line.opened, slice));
    }
    slices
}

/// Runs a scenario's programs and records until the span is full or over, or they end.
///
/// # Errors
/// As [`computer::run`]; also if a slot does not exist.
pub fn trace(
    setup: &ComputerSetup,
    span: Span,
    slots: &[String],
    progress: &dyn Progress,
) -> Result<(Observed, Vec<FinishedProgram>), TraceError> {
    let watcher = Watcher {
        setup,
        span,
        slots,
        watch: None,
        stalls: None,
        seen: None,
        is_over: false,
        wrong: String::new(),
    };
    let mut watching = (watcher, Links::new(setup));
    let done = computer::run_watched(setup, progress, &mut watching)?;
    let (watcher, links) = watching;
    match watcher.seen {
        Some(seen) => Ok((Observed { links: links.seen, ..seen }, done)),
        None => Err(TraceError::Slot(watcher.wrong)),
    }
}

struct Watcher<'a> {
    setup: &'a ComputerSetup,
    span: Span,
    slots: &'a [String],
    watch: Option<Watch>,
    stalls: Option<StallWatch>,
    seen: Option<Observed>,
    /// Whether the recording's end has come.
    is_over: bool,
    wrong: String,
}

impl Observer for Watcher<'_> {
    fn booted(&mut self, computers: &Computers) {
        match Watch::new(computers, self.setup, self.span.clone(), self.slots) {
            Ok(watch) => {
                let begins = watch.recorder.borrow().starts();
                self.stalls =
                    self.span.stall().zip(begins).map(|(stall, begins)| StallWatch::new(stall, begins));
                self.watch = Some(watch);
            }
            Err(wrong) => self.wrong = wrong,
        }
    }

    fn look(&mut self, computers: &Computers) -> Option<Time> {
        let ends = self.watch.as_ref().and_then(|watch| {
            watch.recorder.borrow_mut().forget();
            let ends = watch.recorder.borrow().ends()?;
            self.is_over |= computers.simulation().now() >= ends;
            Some(ends)
        });
        let look = self.stalls.as_mut().map(|stalls| stalls.look(self.setup, computers));
        ends.into_iter().chain(look).filter(|&at| at > computers.simulation().now()).min()
    }

    fn has_enough(&self) -> bool {
        let is_full = self.watch.as_ref().is_none_or(|watch| watch.recorder.borrow().is_full());
        is_full || self.is_over || self.stalls.as_ref().is_some_and(|stalls| stalls.found.is_some())
    }

    fn ended(&mut self, computers: &Computers) {
        let seen = self.watch.take().map(|watch| watch.finish(computers));
        let stalls = self.stalls.take();
        let (found, longest) = stalls.map_or((None, None), |stalls| (stalls.found, stalls.longest));
        self.seen = seen.map(|seen| Observed { stall: found, longest_wait: longest, ..seen });
    }
}

/// Why tracing is impossible.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The run failed.
    #[error(transparent)]
    Computer(#[from] ComputerError),
    /// The link does not exist.
    #[error("{0}")]
    Slot(String),
}
