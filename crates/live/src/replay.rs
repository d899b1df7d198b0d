//! A recording on another machine: the guest's accesses come from a simulated core, and its devices are simulated anew.
//!
//! Each access waits for what the guest's driver could have waited for: the access before it, with the value if it was read;
//! the interrupts that had come; and, of a function that never interrupted, what it had written to memory, as somebody must
//! have looked there. In between, the core works for as long as the guest did. Devices read from memory what they read then,
//! each byte in the same order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hardware::root::OutsideMemory;
use kernel::Kernel;
use machine::{ComputerSetup, HostSetup};
use nearfar::computer::{Session, in_session};
use nearfar::counters::Window;
use platform::cpu::{Cpu, CpuId};
use platform::kernel::TaskParams;
use platform::pci::PciDriver;
use platform::sync::{Completion, WaitQueue};
use units::{Duration, HostPhysical, Iova, Time};
use wire::pcie::Bdf;

use crate::LiveError;
use crate::driver::{LiveDriver, Present};
use crate::function::LiveFunction;
use crate::memory::LiveMemory;
use crate::recording::{GuestRecording, ManagementAct, RecordedStep, of_requester};
use crate::server::names;

/// A core that works for longer than this between two accesses has nothing to do meanwhile: others may run there.
const LONG: Duration = Duration::from_us(20);
/// Interval between looks at what a device writes, and at a register whose value is waited for.
const LOOK: Duration = Duration::from_ns(500);
/// How long a register may take to have the value that it had.
const PATIENCE: Duration = Duration::from_ms(100);
/// How long an interrupt may take to come before the replay ends.
const STUCK: Duration = Duration::from_ms(1_000);
/// How far the simulation advances between two looks at the replay.
const SLICE: Duration = Duration::from_ms(1);
/// How many differences are told of a kind.
const TOLD: usize = 5;

/// What was counted of a function in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionCounts {
    /// Reads and writes of the guest.
    pub accesses: u64,
    /// Bytes that the function read from memory.
    pub fetched: u64,
    /// Bytes that it wrote to memory.
    pub stored: u64,
    /// Interrupts.
    pub interrupts: u64,
}

/// A function, in the recording and in the replay.
#[derive(Clone, Debug)]
pub struct ReplayedFunction {
    /// Its name.
    pub name: String,
    /// What was counted.
    pub counts: [FunctionCounts; 2],
    /// From each interrupt's last write before it to the interrupt; sorted.
    pub answers: [Vec<Duration>; 2],
}

/// A replay beside its recording.
#[derive(Debug)]
pub struct Replayed {
    /// All functions.
    pub functions: Vec<ReplayedFunction>,
    /// From the first access to the end of the last.
    pub took: [Duration; 2],
    /// Of that, how long the guests worked between their accesses.
    pub worked: [Duration; 2],
    /// How many accesses came after an interrupt that had come after them, and the first of them in words.
    pub order: (u64, Vec<String>),
    /// How many reads returned another value, and the first of them in words.
    pub values: (u64, Vec<String>),
    /// Bytes that devices read from memory and had not read in the recording.
    pub unknown: u64,
    /// What it waited for in vain.
    pub stuck: Option<String>,
    /// All counters of all hosts.
    pub counted: Window,
}

/// What a guest does.
#[derive(Clone, PartialEq, Eq, Debug)]
enum GuestAct {
    Read {
        region: u32,
        offset: u64,
        length: u32,
        returned: Vec<u8>,
        /// Another read of the same follows: the guest waits for another value.
        again: bool,
    },
    Write {
        region: u32,
        offset: u64,
        bytes: Vec<u8>,
    },
    Manage(ManagementAct),
}

/// A guest's next step, and what it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct GuestStep {
    function: u16,
    act: GuestAct,
    /// How long the guest worked before.
    work: Duration,
    /// Interrupts that had come: function, vector, and how many.
    interrupts: Vec<(u16, u16, u64)>,
    /// What a function that never interrupts had written.
    stored: u64,
}

/// What a recording says of a guest, while it is read.
#[derive(Default)]
struct GuestSoFar {
    steps: Vec<GuestStep>,
    /// When what it did last ended, or an interrupt came.
    last: Option<u64>,
    fresh: Vec<(u16, u16, u64)>,
}

/// What has been counted of each function, in a recording or in its replay.
struct Tally {
    counts: Vec<FunctionCounts>,
    /// From the last write to it to each of its interrupts.
    answers: Vec<Vec<Duration>>,
    /// When it was last written.
    written: Vec<Option<Time>>,
    /// Interrupts by function and vector.
    told: BTreeMap<(u16, u16), u64>,
}

impl Tally {
    fn new(functions: usize) -> Self {
        Self {
            counts: vec![FunctionCounts::default(); functions],
            answers: vec![Vec::new(); functions],
            written: vec![None; functions],
            told: BTreeMap::new(),
        }
    }

    fn of(&mut self, function: u16) -> &mut FunctionCounts {
        &mut self.counts[usize::from(function)]
    }

    fn wrote(&mut self, function: u16, at: Time) {
        self.of(function).accesses += 1;
        self.written[usize::from(function)] = Some(at);
    }

    /// Returns how many have come of its vector.
    fn interrupted(&mut self, function: u16, vector: u16, at: Time) -> u64 {
        self.of(function).interrupts += 1;
        let since = self.written[usize::from(function)];
        self.answers[usize::from(function)].extend(since.map(|since| at.since(since)));
        let number = self.told.entry((function, vector)).or_default();
        *number += 1;
        *number
    }
}

/// The steps of each host's guest, and what was counted.
struct Script {
    guests: Vec<Vec<GuestStep>>,
    tally: Tally,
    took: Duration,
    worked: Duration,
}

impl Script {
    fn of(recording: &GuestRecording, hosts: usize) -> Self {
        let functions = &recording.head.functions;
        let mut guests: Vec<GuestSoFar> = (0..hosts).map(|_| GuestSoFar::default()).collect();
        let mut tally = Tally::new(functions.len());
        let (mut first, mut end) = (None, 0);
        let interrupts = |of: u16| {
            recording
                .steps
                .iter()
                .any(|step| matches!(step, RecordedStep::Interrupted { function, .. } if *function == of))
        };
        let interrupts: Vec<bool> = (0..functions.len() as u16).map(interrupts).collect();
        for step in &recording.steps {
            let function = step.function();
            let Some(guest) = guests.get_mut(usize::from(functions[usize::from(function)].0)) else {
                continue;
            };
            let (act, at) = match step {
                RecordedStep::Fetched { bytes, .. } => {
                    tally.of(function).fetched += bytes.len() as u64;
                    continue;
                }
                RecordedStep::Stored { length, .. } => {
                    tally.of(function).stored += u64::from(*length);
                    continue;
                }
                RecordedStep::Interrupted { vector, at, .. } => {
                    let number = tally.interrupted(function, *vector, Time::from_ps(*at));
                    guest.fresh.push((function, *vector, number));
                    guest.last = guest.last.map(|last| last.max(*at));
                    end = end.max(*at);
                    continue;
                }
                RecordedStep::Returned { bytes, at, .. } => {
                    let of = guest.steps.iter_mut().rev().find(|step| step.function == function);
                    if let Some(GuestStep { act: GuestAct::Read { returned, .. }, .. }) = of {
                        returned.clone_from(bytes);
                    }
                    guest.last = Some(*at);
                    end = end.max(*at);
                    continue;
                }
                RecordedStep::Read { region, offset, length, at, .. } => {
                    tally.of(function).accesses += 1;
                    let (region, offset, length, returned) = (*region, *offset, *length, Vec::new());
                    let is_same = |act: &GuestAct| matches!(act, GuestAct::Read { region: r, offset: o, length: l, .. } if (*r, *o, *l) == (region, offset, length));
                    let before = guest
                        .steps
                        .last_mut()
                        .filter(|before| before.function == function && is_same(&before.act));
                    if let Some(GuestStep { act: GuestAct::Read { again, .. }, .. }) = before {
                        *again = true;
                    }
                    (GuestAct::Read { region, offset, length, returned, again: false }, *at)
                }
                RecordedStep::Write { region, offset, bytes, at, .. } => {
                    tally.wrote(function, Time::from_ps(*at));
                    (GuestAct::Write { region: *region, offset: *offset, bytes: bytes.clone() }, *at)
                }
                RecordedStep::Managed { act, at, .. } => (GuestAct::Manage(*act), *at),
            };
            let work = guest.last.map_or(0, |last| at.saturating_sub(last));
            guest.last = Some(at);
            first = first.or(Some(at));
            end = end.max(at);
            let stored = if interrupts[usize::from(function)] { 0 } else { tally.of(function).stored };
            let (work, interrupts) = (Duration::from_ps(work), std::mem::take(&mut guest.fresh));
            guest.steps.push(GuestStep { function, act, work, interrupts, stored });
        }
        let took = Duration::from_ps(end.saturating_sub(first.unwrap_or(0)));
        let guests: Vec<Vec<GuestStep>> = guests.into_iter().map(|guest| guest.steps).collect();
        let worked = guests.iter().flatten().map(|step| step.work).sum();
        Self { guests, tally, took, worked }
    }
}

/// How many steps each host's guest takes in a replay.
pub fn guest_steps(recording: &GuestRecording, hosts: usize) -> Vec<usize> {
    Script::of(recording, hosts).guests.iter().map(Vec::len).collect()
}

/// What a page held, each time that it was read.
#[derive(Default)]
struct PageReads {
    reads: Vec<(u16, Vec<u8>)>,
    /// For each byte, the first read that is not done.
    next: Vec<u32>,
}

const PAGE: u64 = 4096;

impl PageReads {
    /// The byte that is read next at an offset; the last one again once all are done.
    fn take(&mut self, at: usize) -> Option<u8> {
        let holds =
            |(start, bytes): &(u16, Vec<u8>)| bytes.get(at.checked_sub(usize::from(*start))?).copied();
        if self.next.is_empty() {
            self.next = vec![0; PAGE as usize];
        }
        let from = self.next[at] as usize;
        let found =
            self.reads[from..].iter().enumerate().find_map(|(n, read)| Some((from + n + 1, holds(read)?)));
        match found {
            Some((next, byte)) => {
                self.next[at] = next as u32;
                Some(byte)
            }
            None => self.reads[..from].iter().rev().find_map(holds),
        }
    }
}

/// What all guests, devices and the memory between them have done so far in a replay.
struct ReplayState {
    tally: RefCell<Tally>,
    interrupted: WaitQueue,
    order: RefCell<(u64, Vec<String>)>,
    values: RefCell<(u64, Vec<String>)>,
    unknown: Cell<u64>,
    worked: Cell<Duration>,
    first: Cell<Option<Time>>,
    end: Cell<Time>,
    /// What each guest waits for, and since when.
    waits: RefCell<Vec<Option<(Time, String)>>>,
}

impl ReplayState {
    fn new(functions: usize, hosts: usize) -> Self {
        Self {
            tally: RefCell::new(Tally::new(functions)),
            interrupted: WaitQueue::new(),
            order: RefCell::default(),
            values: RefCell::default(),
            unknown: Cell::new(0),
            worked: Cell::new(Duration::ZERO),
            first: Cell::new(None),
            end: Cell::new(Time::ZERO),
            waits: RefCell::new(vec![None; hosts]),
        }
    }

    fn interrupted(&self, function: u16, vector: usize, at: Time) {
        self.tally.borrow_mut().interrupted(function, vector as u16, at);
        self.end.set(self.end.get().max(at));
        self.interrupted.wake_all();
    }

    fn have_come(&self, interrupts: &[(u16, u16, u64)]) -> bool {
        let told = &self.tally.borrow().told;
        interrupts.iter().all(|(function, vector, count)| told.get(&(*function, *vector)) >= Some(count))
    }
}

/// Adds one of which the first are told.
fn tell(of: &RefCell<(u64, Vec<String>)>, words: impl FnOnce() -> String) {
    let mut of = of.borrow_mut();
    of.0 += 1;
    if of.1.len() < TOLD {
        of.1.push(words());
    }
}

/// A guest's memory in a replay: what its functions read there.
struct ReplayedMemory {
    live: Rc<LiveMemory>,
    pages: RefCell<BTreeMap<(u16, u64), PageReads>>,
    /// Number of a function by its address.
    numbers: BTreeMap<u16, u16>,
    state: Rc<ReplayState>,
}

impl ReplayedMemory {
    fn number(&self, requester: Bdf) -> Option<u16> {
        of_requester(&self.numbers, requester).copied()
    }

    /// Keeps what a function read.
    fn add(&self, function: u16, address: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        let mut done = 0;
        while done < bytes.len() {
            let Some(at) = address.checked_add(done as u64) else { return };
            let take = ((PAGE - at % PAGE) as usize).min(bytes.len() - done);
            let page = pages.entry((function, at / PAGE)).or_default();
            page.reads.push(((at % PAGE) as u16, bytes[done..done + take].to_vec()));
            done += take;
        }
    }
}

impl OutsideMemory for ReplayedMemory {
    fn place(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<u64> {
        self.number(requester).filter(|_| self.live.device(requester, address, length, writes).is_none())?;
        Some(address.get())
    }

    fn read(&self, requester: Bdf, address: Iova, into: &mut [u8]) {
        let Some(function) = self.number(requester) else { return into.fill(0xff) };
        self.state.tally.borrow_mut().of(function).fetched += into.len() as u64;
        let mut pages = self.pages.borrow_mut();
        for (n, byte) in into.iter_mut().enumerate() {
            let at = address.get().wrapping_add(n as u64);
            let page = pages.get_mut(&(function, at / PAGE));
            let known = page.and_then(|page| page.take((at % PAGE) as usize));
            *byte = known.unwrap_or_else(|| {
                self.state.unknown.set(self.state.unknown.get() + 1);
                0
            });
        }
    }

    fn write(&self, requester: Bdf, _: Iova, from: &[u8]) {
        if let Some(function) = self.number(requester) {
            self.state.tally.borrow_mut().of(function).stored += from.len() as u64;
        }
    }

    fn device(&self, requester: Bdf, address: Iova, length: u32, writes: bool) -> Option<HostPhysical> {
        self.live.device(requester, address, length, writes)
    }
}

/// A guest that does what is in its script.
struct GuestPlayer {
    host: usize,
    steps: Vec<GuestStep>,
    functions: Vec<Option<(Rc<LiveFunction>, Option<Bdf>)>>,
    names: Vec<String>,
    state: Rc<ReplayState>,
    /// How long the core works, for each second that the guest did.
    work: f64,
    /// Registers, by function, region and offset, whose values have not come again.
    other: RefCell<BTreeSet<(u16, u32, u64)>>,
}

impl GuestPlayer {
    fn waits_for(&self, now: Time, what: String) {
        self.state.waits.borrow_mut()[self.host] = Some((now, what));
    }

    async fn play(&self, cpu: &Cpu) {
        // What had come at each access, by function and vector.
        let mut had_come: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        let mut ahead: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            let Some(Some((function, above))) = self.functions.get(usize::from(step.function)) else {
                continue;
            };
            self.wait(cpu, number, step).await;
            had_come.extend(
                step.interrupts.iter().map(|(function, vector, count)| ((*function, *vector), *count)),
            );
            let work = Duration::from_ps((step.work.as_ps() as f64 * self.work) as u64);
            self.state.worked.set(self.state.worked.get() + work);
            match work > LONG {
                true => cpu.sleep(work).await,
                false => cpu.stall(work),
            }
            cpu.sync().await;
            self.compare_order(number, &had_come, &mut ahead);
            let state = &self.state;
            state.first.set(state.first.get().or(Some(cpu.now())));
            match &step.act {
                GuestAct::Read { .. } => self.read(cpu, number, function, *above).await,
                GuestAct::Write { region, offset, bytes } => {
                    state.tally.borrow_mut().wrote(step.function, cpu.now());
                    function.region_write(cpu, *region, *offset, bytes).await;
                }
                GuestAct::Manage(act) => drop(function.manage(cpu, *act).await),
            }
            cpu.sync().await;
            state.end.set(state.end.get().max(cpu.now()));
        }
    }

    /// Waits for what the guest could have waited for.
    async fn wait(&self, cpu: &Cpu, number: usize, step: &GuestStep) {
        let state = &self.state;
        if !state.have_come(&step.interrupts) {
            let of = |(function, vector, count): &(u16, u16, u64)| {
                let lacks = state.tally.borrow().told.get(&(*function, *vector)) < Some(count);
                let name = &self.names[usize::from(*function)];
                lacks.then(|| format!("interrupt {count} of vector {vector} of {name}"))
            };
            let what = step.interrupts.iter().find_map(of).unwrap_or_default();
            self.waits_for(cpu.now(), format!("step {number} waits for {what}"));
            state.interrupted.wait_for(|| state.have_come(&step.interrupts).then_some(())).await;
        }
        let stored = || state.tally.borrow_mut().of(step.function).stored;
        if stored() < step.stored {
            let name = &self.names[usize::from(step.function)];
            let what =
                format!("step {number} waits until {name} has written {} bytes to memory", step.stored);
            self.waits_for(cpu.now(), what);
            while stored() < step.stored {
                cpu.sleep(LOOK).await;
            }
        }
        state.waits.borrow_mut()[self.host] = None;
    }

    /// Tells if interrupts have come that had not at this step.
    fn compare_order(
        &self,
        number: usize,
        had_come: &BTreeMap<(u16, u16), u64>,
        ahead: &mut BTreeMap<(u16, u16), u64>,
    ) {
        for (&(function, vector), &count) in &self.state.tally.borrow().told {
            let had = had_come.get(&(function, vector)).copied().unwrap_or(0);
            let most = ahead.entry((function, vector)).or_default();
            // Each interrupt once, at the first access that it overtakes.
            if count > had.max(*most) && self.functions[usize::from(function)].is_some() {
                *most = count;
                tell(&self.state.order, || {
                    let name = &self.names[usize::from(function)];
                    format!(
                        "interrupt {count} of vector {vector} of {name} comes before step {number}, which it had followed"
                    )
                });
            }
        }
    }

    async fn read(&self, cpu: &Cpu, number: usize, function: &Rc<LiveFunction>, above: Option<Bdf>) {
        let GuestStep {
            function: of, act: GuestAct::Read { region, offset, length, returned, again }, ..
        } = &self.steps[number]
        else {
            return;
        };
        self.state.tally.borrow_mut().of(*of).accesses += 1;
        let (place, since) = ((*of, *region, *offset), cpu.now());
        // A register that counts or tells the time will not have the value again.
        let until = if self.other.borrow().contains(&place) { since } else { since + PATIENCE };
        let value = loop {
            let value = function.region_read(cpu, *region, *offset, *length as usize, above).await;
            // The last look at a register has seen what the guest waited for.
            if value == *returned || *again || cpu.now() >= until {
                break value;
            }
            cpu.sleep(LOOK).await;
        };
        if value != *returned && !again {
            self.other.borrow_mut().insert(place);
            tell(&self.state.values, || {
                let place = match region {
                    0..=5 => format!("BAR {region}"),
                    _ => "configuration space".to_owned(),
                };
                let name = &self.names[usize::from(*of)];
                format!(
                    "step {number}: {name}, {place} at {offset:#x}: {value:02x?}, where it was {returned:02x?}"
                )
            });
        }
    }
}

/// Replays a recording on a scenario's hosts. A core works `work` times as long between accesses as the guest did.
///
/// # Errors
/// If the scenario has not the functions that were recorded, or cannot be simulated.
pub fn replay(setup: &ComputerSetup, recording: &GuestRecording, work: f64) -> Result<Replayed, LiveError> {
    let hosts: Vec<(Rc<LiveMemory>, Present)> = setup.hosts.iter().map(|_| Default::default()).collect();
    let drivers = |host: &HostSetup| {
        let number = setup.hosts.iter().position(|own| own.name == host.name).filter(|_| host.live)?;
        let (memory, present) = &hosts[number];
        let driver = LiveDriver::new(Rc::clone(memory), Rc::clone(present));
        Some(vec![Rc::new(driver) as Rc<dyn PciDriver>])
    };
    in_session(setup, drivers, |session| {
        let script = Script::of(recording, setup.hosts.len());
        let known = &recording.head.functions;
        let state = Rc::new(ReplayState::new(known.len(), setup.hosts.len()));
        let mut functions: Vec<Option<(Rc<LiveFunction>, Option<Bdf>)>> = vec![None; known.len()];
        for (host, (memory, present)) in hosts.iter().enumerate() {
            let names = names(setup, session, host, present);
            let kernel = session.kernel(host);
            let mut numbers = BTreeMap::new();
            for (name, function) in names.into_iter().zip(present.borrow().iter()) {
                let Some(number) = known.iter().position(|(_, own)| *own == name) else { continue };
                let (at, state) = (function.device.address(), Rc::clone(&state));
                let number = number as u16;
                function.interrupts.hear(Rc::new(move |vector, at| state.interrupted(number, vector, at)));
                functions[usize::from(number)] = Some((Rc::clone(function), kernel.root_port_of(at)));
                numbers.insert(at.bdf.bits(), number);
                // It may reach the BARs of others.
                memory.of(at.bdf, |_| ());
            }
            let own = ReplayedMemory {
                live: Rc::clone(memory),
                pages: RefCell::default(),
                numbers,
                state: Rc::clone(&state),
            };
            let of_host = |function: u16| usize::from(known[usize::from(function)].0) == host;
            for step in &recording.steps {
                if let RecordedStep::Fetched { function, address, bytes } = step
                    && of_host(*function)
                {
                    own.add(*function, *address, bytes);
                }
            }
            session.use_memory(host, Rc::new(own));
        }
        let lacks = functions.iter().zip(known).find(|(found, _)| found.is_none());
        if let Some((_, (_, name))) = lacks {
            return Err(LiveError::NoFunction { name: name.clone() });
        }
        let names: Vec<String> = known.iter().map(|(_, name)| name.clone()).collect();
        let mut playing = Vec::new();
        for (host, steps) in script.guests.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
            let player = GuestPlayer {
                host,
                steps,
                functions: functions.clone(),
                names: names.clone(),
                state: Rc::clone(&state),
                work,
                other: RefCell::default(),
            };
            playing.push(start(&session.kernel(host), player));
        }
        let stuck = run(session, &playing, &state)?;
        let mut both = [script.tally, state.tally.replace(Tally::new(0))];
        let function = |n: usize| {
            let mut answers = both.each_mut().map(|tally| std::mem::take(&mut tally.answers[n]));
            answers.iter_mut().for_each(|one| one.sort_unstable());
            let counts = both.each_ref().map(|tally| tally.counts[n]);
            ReplayedFunction { name: names[n].clone(), counts, answers }
        };
        let took = state.first.get().map_or(Duration::ZERO, |first| state.end.get().since(first));
        Ok(Replayed {
            functions: (0..known.len()).map(function).collect(),
            took: [script.took, took],
            worked: [script.worked, state.worked.get()],
            order: state.order.take(),
            values: state.values.take(),
            unknown: state.unknown.get(),
            stuck,
            counted: session.counted(),
        })
    })?
}

/// Starts a guest on a core near its first function.
fn start(kernel: &Kernel, player: GuestPlayer) -> Completion<()> {
    let first = player.steps.first().map_or(0, |step| usize::from(step.function));
    let near =
        player.functions.get(first).and_then(Option::as_ref).map(|(function, _)| function.device.node());
    let face = kernel.face();
    let is_near = |&cpu: &CpuId| Some(face.node_of(cpu)) == near;
    let core = (0..face.cpus()).map(CpuId).find(is_near).unwrap_or_default();
    face.run(TaskParams::named("guest").on(core), async move |cpu| player.play(&cpu).await)
}

/// Runs until all guests are done. Returns what one waits for in vain.
fn run(
    session: &mut Session<'_>,
    playing: &[Completion<()>],
    state: &ReplayState,
) -> Result<Option<String>, LiveError> {
    let mut left: Vec<&Completion<()>> = playing.iter().collect();
    loop {
        left.retain(|done| done.try_take().is_none());
        if left.is_empty() {
            return Ok(None);
        }
        let now = session.simulation().now();
        let waits = state.waits.borrow();
        let stuck = waits.iter().flatten().find(|(since, _)| now.since(*since) > STUCK);
        if let Some((_, what)) = stuck {
            return Ok(Some(what.clone()));
        }
        drop(waits);
        session.run_until(now + SLICE)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::RecordingHead;

    fn recording(steps: Vec<RecordedStep>) -> GuestRecording {
        let functions = vec![(0, "a-drive0".to_owned()), (0, "a-nic0".to_owned())];
        let (path, scenario) = (String::new(), String::new());
        let head = RecordingHead { path, scenario, changes: Vec::new(), instruction_ns: Some(1), functions };
        GuestRecording { head, steps }
    }

    /// An access waits for interrupts that had come, and works for as long as had passed since; looks at memory are seen by
    /// what the device had written.
    #[test]
    fn accesses_wait_for_what_had_happened() {
        let ns = |ns: u64| ns * 1000;
        let write =
            |function, at| RecordedStep::Write { function, region: 0, offset: 8, bytes: vec![1], at: ns(at) };
        let steps = vec![
            write(0, 100),
            RecordedStep::Interrupted { function: 0, vector: 2, at: ns(400) },
            write(0, 450),
            RecordedStep::Stored { function: 1, address: 0, length: 64 },
            RecordedStep::Read { function: 1, region: 0, offset: 4, length: 4, at: ns(500) },
            RecordedStep::Stored { function: 1, address: 0, length: 64 },
            RecordedStep::Returned { function: 1, bytes: vec![0; 4], at: ns(900) },
            RecordedStep::Read { function: 1, region: 0, offset: 4, length: 4, at: ns(910) },
            RecordedStep::Returned { function: 1, bytes: vec![1; 4], at: ns(990) },
        ];
        let script = Script::of(&recording(steps), 1);
        let all: Vec<_> = script.guests[0]
            .iter()
            .map(|step| (step.work.as_ps() / 1000, step.interrupts.clone(), step.stored))
            .collect();
        let expected = vec![(0, vec![], 0), (50, vec![(0, 2, 1)], 0), (50, vec![], 64), (10, vec![], 128)];
        assert_eq!(all, expected);
        let looks = |n: usize| match &script.guests[0][n].act {
            GuestAct::Read { again, returned, .. } => (*again, returned[0]),
            _ => panic!("a read"),
        };
        assert_eq!([looks(2), looks(3)], [(true, 0), (false, 1)]);
        assert_eq!(script.tally.answers[0], [Duration::from_ns(300)]);
        assert_eq!((script.took, script.worked), (Duration::from_ns(890), Duration::from_ns(110)));
    }

    /// Bytes come as they came, whatever pieces they are read in.
    #[test]
    fn each_byte_is_read_as_it_was() {
        let mut page =
            PageReads { reads: vec![(0, vec![1, 2]), (2, vec![3, 4]), (0, vec![5, 6, 7])], next: vec![] };
        let mut take = |range: std::ops::Range<usize>| range.map(|at| page.take(at)).collect::<Vec<_>>();
        assert_eq!(take(0..4), [1, 2, 3, 4].map(Some));
        assert_eq!(take(0..4), [5, 6, 7, 4].map(Some));
        assert_eq!(take(0..1), [Some(5)]);
        assert_eq!(take(9..10), [None]);
    }
}
