//! Serves the functions of live hosts: sockets, the clock, and what happens when clients come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use machine::{ComputerSetup, HostSetup};
use nearfar::computer::{ComputerError, FinishedProgram, Session, in_session};
use nearfar::counters::Window;
use nearfar::trace::{Capture, Span};
use platform::pci::PciDriver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use units::{Duration, Time};
use vfio_user::{ServedFunction, VfioSocket};
use wire::pcie::Bdf;

use crate::driver::{LiveDriver, Present};
use crate::function::{Attended, LiveFunction};
use crate::hotplug::{GuestMonitors, PlugStep};
use crate::iommu::{GuestIommu, Reach};
use crate::lockstep::{self, GuestClock, GuestTime};
use crate::memory::LiveMemory;
use crate::qemu;
use crate::recording::{FunctionRecorder, MemoryRecorder, RecordingHead, StepRecorder};
use crate::sockets::LiveSocket;

/// Most that the simulation advances between two looks at the sockets.
const SLICE: Duration = Duration::from_us(200);
/// How far simulated time may be behind. What is further behind is left out: a simulation that is slower than reality does
/// not make up for it.
const BEHIND: Duration = Duration::from_ms(20);

/// How long the next access of a client is looked for without sleeping: to be woken up takes longer than to serve it.
const EAGER: std::time::Duration = std::time::Duration::from_micros(100);

/// Most that is done for a client before others are looked at.
const MOST_AT_ONCE: usize = 64;

/// Interval between looks at kernels' logs.
const LOG_INTERVAL: Duration = Duration::from_ms(50);

/// Why functions cannot be served.
#[derive(Debug, Error)]
pub enum LiveError {
    /// No host is live.
    #[error("no host of `{scenario}` is live; add `live = true` to a `[[host]]`")]
    NobodyLive {
        /// The scenario's name.
        scenario: String,
    },
    /// A live host has no devices.
    #[error("host `{host}` is live and has no device; add a `[[host.device]]`")]
    NoDevice {
        /// The host.
        host: String,
    },
    /// A scenario lacks a function that was recorded.
    #[error(
        "the scenario has no live function `{name}`, which was recorded; hosts and devices must have the same names"
    )]
    NoFunction {
        /// The function.
        name: String,
    },
    /// A socket cannot be made.
    #[error("cannot listen at {socket}: {problem}; {remedy}")]
    Socket {
        /// Its path.
        socket: String,
        /// The system's error.
        problem: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A link that does not exist is to be recorded.
    #[error("--link: {0}")]
    NoLink(String),
    /// Stores to a BAR that does not exist are to be combined.
    #[error("--write-combining: there is no `{wanted}`; there are {known}")]
    NoBar {
        /// What was named.
        wanted: String,
        /// The functions' BARs.
        known: String,
    },
    /// A recording cannot be made.
    #[error("cannot record to `{file}`: {problem}", file = .path.display())]
    Recording {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        problem: io::Error,
    },
    /// The system does not wait for sockets.
    #[error("cannot wait for clients: {0}")]
    Wait(io::Error),
    /// The simulation cannot go on.
    #[error(transparent)]
    Computer(#[from] ComputerError),
}

/// A function that is served.
#[derive(Clone, Debug)]
pub struct LiveFunctionInfo {
    /// Index of its host in the scenario.
    pub host: usize,
    /// Host and device, such as `a-drive0`; with the function's number if the device has several.
    pub name: String,
    /// Path of its socket.
    pub socket: PathBuf,
    /// The node whose root port is above it.
    pub node: u8,
}

/// What happens while functions are served.
#[derive(Debug)]
pub enum LiveEvent<'a> {
    /// All sockets are there.
    Ready(&'a [LiveFunctionInfo]),
    /// A client has come.
    Came(&'a LiveFunctionInfo),
    /// A client has gone, and why.
    Gone(&'a LiveFunctionInfo, &'a io::Error),
    /// A client lets a function access memory that it does not share: what one of them writes, the other does not see.
    Unshared(&'a LiveFunctionInfo),
    /// A program of a simulated host, or an event, has ended.
    Ended(&'a FinishedProgram),
    /// The kernel below a guest has logged a line, such as an error that its root port was told of.
    Logged {
        /// Index of the host in the scenario.
        host: usize,
        /// When.
        at: Time,
        /// What.
        line: &'a str,
    },
    /// A function is plugged into its guest, or unplugged.
    Plug {
        /// Which.
        function: &'a LiveFunctionInfo,
        /// What happens.
        step: PlugStep<'a>,
    },
    /// A QEMU's monitor is given up: its guest learns of functions that come and go no more.
    Unmonitored {
        /// Index of the host in the scenario.
        host: usize,
        /// Why.
        why: &'a io::Error,
    },
    /// A guest in lock-step has ended.
    Clocked(&'a GuestTime),
}

/// What simulated time follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LiveClock {
    /// The wall clock: guests run as fast as they can, and their times mean nothing.
    Wall,
    /// The guests' instructions, each of which takes `1 << shift` ns. A guest stops wherever the simulation has to come
    /// first.
    LockStep {
        /// As of QEMU's `-icount shift=`.
        shift: u32,
    },
}

/// How functions are served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The folder of the sockets.
    pub sockets: PathBuf,
    /// Whether each function has one client: its socket is removed when that has come, and the end of all clients is the
    /// end.
    pub once: bool,
    /// Whether each guest's QEMU connects with its monitor, at [`monitor_place`](crate::qemu::monitor_place), and plugs and
    /// unplugs what goes and comes.
    pub hot_plug: bool,
    /// Whether guests have IOMMUs of the fabric; by the wall clock, and without hot-plug.
    pub iommu: bool,
    /// What simulated time follows.
    pub clock: LiveClock,
    /// BARs that guests map write-combining, each as `FUNCTION/NUMBER`: a client does not tell how a guest maps them.
    pub combining: Vec<String>,
    /// Packets to record, and the slots whose links have them; all if there are none.
    pub record: Option<(Span, Vec<String>)>,
    /// Where to keep what guests and devices do, and what that is of; its functions are filled in.
    pub recording: Option<(PathBuf, RecordingHead)>,
}

/// What was seen while functions were served.
#[derive(Debug)]
pub struct LiveOutcome {
    /// The packets, if some were to be recorded.
    pub packets: Option<Capture>,
    /// All counters of all hosts.
    pub counted: Window,
    /// What the IOMMUs of the fabric did for each function.
    pub confined: Vec<ConfinedFunction>,
    /// Whether what was to be recorded could be written.
    pub recorded: io::Result<()>,
}

/// A function behind its guest's IOMMU.
#[derive(Clone, Debug)]
pub struct ConfinedFunction {
    /// What it is called.
    pub name: String,
    /// Requests of it that the IOMMU stopped.
    pub stopped: u64,
    /// What it could access when the guest ended.
    pub reach: Reach,
}

/// A guest's IOMMU with its socket and client.
pub struct IommuEndpoint {
    unit: Rc<GuestIommu>,
    /// The functions behind it, with the guest's IDs.
    functions: Vec<(Bdf, String)>,
    socket: LiveSocket,
    client: Option<VfioSocket>,
    /// What it did for its last client.
    done: Vec<ConfinedFunction>,
}

impl IommuEndpoint {
    /// For a host's functions, each of which is below a root port of its own.
    fn new(
        folder: &Path,
        host: &str,
        memory: &LiveMemory,
        functions: &[&LiveEndpoint],
    ) -> Result<Self, LiveError> {
        let path = qemu::iommu_socket(folder, host);
        let socket = listen(&path)?;
        let count = functions.len() as u8;
        let table = qemu::iommu_table(folder, host);
        std::fs::write(&table, GuestIommu::table(1..=count)).map_err(|problem| LiveError::Socket {
            socket: table.display().to_string(),
            problem,
            remedy: "choose a folder by --sockets in which files can be made",
        })?;
        let guests = (1..=count).map(|bus| Bdf::new(bus, 0, 0));
        let unit = Rc::new(GuestIommu::new(guests.clone().collect()));
        let ids = functions.iter().zip(guests.clone());
        let ids = ids.map(|(own, guest)| (own.function.device.address().bdf.bits(), guest)).collect();
        memory.translate_by(Rc::clone(&unit), ids);
        let functions = guests.zip(functions.iter().map(|own| own.info.name.clone())).collect();
        Ok(Self { unit, functions, socket, client: None, done: Vec::new() })
    }

    /// Takes its client if it comes, and does what it asks.
    fn attend(&mut self, once: bool) {
        let Some(client) = &mut self.client else {
            let come = self.socket.accept().and_then(|stream| VfioSocket::new(stream).ok());
            if come.is_some() && once {
                self.socket.remove();
            }
            self.client = come;
            return;
        };
        if serve_client(client, &mut &*self.unit).is_err() {
            self.leave();
        }
    }

    /// The client is gone: what it had is noted.
    fn leave(&mut self) {
        if self.client.take().is_none() {
            return;
        }
        let note = |(own, name): &(Bdf, String)| ConfinedFunction {
            name: name.clone(),
            stopped: self.unit.stopped(*own),
            reach: self.unit.last_reach(*own),
        };
        self.done = self.functions.iter().map(note).collect();
        self.unit.leave();
    }
}

impl AsFd for IommuEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_ref().map_or(self.socket.as_fd(), |client| client.as_fd())
    }
}

/// Does what a client asks, but lets others have their turn, whatever it has to say.
fn serve_client(client: &mut VfioSocket, function: &mut dyn ServedFunction) -> io::Result<()> {
    for _ in 0..MOST_AT_ONCE {
        let Some(message) = client.receive()? else { break };
        client.serve(function, message)?;
    }
    Ok(())
}

/// A function with its socket and client.
pub struct LiveEndpoint {
    /// What it is called.
    pub info: LiveFunctionInfo,
    /// The function.
    pub function: Rc<LiveFunction>,
    /// Bits of its BARs whose stores combine.
    combining: u8,
    socket: LiveSocket,
    /// Its client, if one has come.
    pub client: Option<VfioSocket>,
    /// Whether its client's memory was looked at.
    has_checked_memory: bool,
}

impl AsFd for LiveEndpoint {
    /// Of its client, or that by which one comes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.client.as_ref().map_or(self.socket.as_fd(), |client| client.as_fd())
    }
}

/// Serves the functions of a scenario's live hosts until `stop` can be read, or at the end of the last client if the
/// options say so.
///
/// # Errors
/// If no host is live, a socket is taken, or the simulation cannot go on.
pub fn serve(
    setup: &ComputerSetup,
    options: &ServeOptions,
    stop: BorrowedFd<'_>,
    mut tell: impl FnMut(LiveEvent<'_>),
) -> Result<LiveOutcome, LiveError> {
    if !setup.hosts.iter().any(|host| host.live) {
        return Err(LiveError::NobodyLive { scenario: setup.name.clone() });
    }
    let hosts: Vec<(Rc<LiveMemory>, Present)> = setup.hosts.iter().map(|_| Default::default()).collect();
    let drivers = |host: &HostSetup| {
        let number = setup.hosts.iter().position(|own| own.name == host.name).filter(|_| host.live)?;
        let (memory, present) = &hosts[number];
        let driver = LiveDriver::new(Rc::clone(memory), Rc::clone(present));
        Some(vec![Rc::new(driver) as Rc<dyn PciDriver>])
    };
    in_session(setup, drivers, |session| {
        let mut endpoints = Vec::new();
        let live: Vec<usize> = (0..setup.hosts.len()).filter(|&host| setup.hosts[host].live).collect();
        for &host in &live {
            let (memory, present) = &hosts[host];
            session.use_memory(host, Rc::clone(memory) as _);
            endpoints.extend(self::endpoints(setup, session, host, present, &options.sockets)?);
        }
        combine(&mut endpoints, &options.combining)?;
        let mut iommus = Vec::new();
        for &host in live.iter().filter(|_| options.iommu) {
            let own: Vec<&LiveEndpoint> = endpoints.iter().filter(|of| of.info.host == host).collect();
            let name = &setup.hosts[host].name;
            iommus.push(IommuEndpoint::new(&options.sockets, name, &hosts[host].0, &own)?);
        }
        let recorder = match &options.recording {
            Some((path, head)) => Some(record(path, head, &endpoints, &hosts)?),
            None => None,
        };
        let record = options.record.clone();
        let watch = record.map(|(span, slots)| session.watch(span, &slots).map_err(LiveError::NoLink));
        let watch = watch.transpose()?;
        let clocks = match options.clock {
            LiveClock::Wall => None,
            LiveClock::LockStep { shift } => {
                let begins = session.simulation().now();
                let clock = |&host: &usize| {
                    GuestClock::new(&options.sockets, host, &setup.hosts[host].name, shift, begins)
                };
                Some(live.iter().map(clock).collect::<Result<Vec<_>, _>>()?)
            }
        };
        let monitors = match options.hot_plug {
            true => {
                let hosts: Vec<_> =
                    live.iter().map(|&host| (host, setup.hosts[host].name.as_str())).collect();
                GuestMonitors::new(&options.sockets, &hosts, &endpoints)?
            }
            false => GuestMonitors::default(),
        };
        let infos: Vec<LiveFunctionInfo> = endpoints.iter().map(|endpoint| endpoint.info.clone()).collect();
        tell(LiveEvent::Ready(&infos));
        let tell = &mut tell;
        let logged = session.simulation().now();
        let once = options.once;
        let mut attendance = Attendance {
            session,
            hosts: &hosts,
            endpoints,
            iommus,
            monitors,
            recorder: recorder.clone(),
            once,
            has_served: false,
            logged,
            tell,
        };
        let followed = match clocks {
            None => follow_wall(&mut attendance, stop),
            Some(clocks) => lockstep::follow(&mut attendance, clocks, stop),
        };
        // The last lines are often those that say why it ended.
        attendance.tell_logs();
        followed?;
        let mut iommus = attendance.iommus;
        iommus.iter_mut().for_each(IommuEndpoint::leave);
        let confined = iommus.into_iter().flat_map(|of| of.done).collect();
        let packets = watch.map(|watch| session.observed(watch).capture);
        let recorded = recorder.map_or(Ok(()), |recorder| recorder.finish());
        Ok(LiveOutcome { packets, counted: session.counted(), confined, recorded })
    })?
}

/// Begins to keep what guests and devices do.
fn record(
    path: &Path,
    head: &RecordingHead,
    endpoints: &[LiveEndpoint],
    hosts: &[(Rc<LiveMemory>, Present)],
) -> Result<Rc<StepRecorder>, LiveError> {
    let at = |of: &LiveEndpoint| (of.info.host, of.function.device.address().bdf);
    let functions = endpoints.iter().map(|of| (of.info.host as u16, of.info.name.clone())).collect();
    let head = RecordingHead { functions, ..head.clone() };
    let recorder = StepRecorder::new(path, &head, &endpoints.iter().map(at).collect::<Vec<_>>());
    let recorder = recorder.map_err(|problem| LiveError::Recording { path: path.to_owned(), problem })?;
    let recorder = Rc::new(recorder);
    for (host, (memory, _)) in hosts.iter().enumerate() {
        memory.record(MemoryRecorder { recorder: Rc::clone(&recorder), host });
    }
    for (number, endpoint) in endpoints.iter().enumerate() {
        endpoint.function.record(&FunctionRecorder::new(&recorder, number));
    }
    Ok(recorder)
}

/// What the functions of a host are called: `a-drive0`, or `a-drive0.1` for one of several of a device.
pub fn names(setup: &ComputerSetup, session: &Session<'_>, host: usize, present: &Present) -> Vec<String> {
    let device_of = |function: &Rc<LiveFunction>| {
        session.device_name(host, function.device.address()).unwrap_or_else(|| "function".to_owned())
    };
    let names: Vec<String> = present.borrow().iter().map(device_of).collect();
    let of = |names: &[String], own: &String| names.iter().filter(|name| *name == own).count();
    let numbered = |(n, own): (usize, &String)| {
        let several = of(&names, own) > 1;
        let number = if several { format!(".{}", of(&names[..n], own)) } else { String::new() };
        format!("{}-{own}{number}", setup.hosts[host].name)
    };
    names.iter().enumerate().map(numbered).collect()
}

/// The functions of a host with their sockets.
fn endpoints(
    setup: &ComputerSetup,
    session: &Session<'_>,
    host: usize,
    present: &Present,
    sockets: &Path,
) -> Result<Vec<LiveEndpoint>, LiveError> {
    let names = names(setup, session, host, present);
    let present = present.borrow();
    if present.is_empty() {
        return Err(LiveError::NoDevice { host: setup.hosts[host].name.clone() });
    }
    let endpoint = |(name, function): (String, &Rc<LiveFunction>)| {
        let path = sockets.join(format!("{name}.sock"));
        let socket = listen(&path)?;
        let info = LiveFunctionInfo { host, name, socket: path, node: function.device.node().0 };
        Ok(LiveEndpoint {
            info,
            function: Rc::clone(function),
            combining: 0,
            socket,
            client: None,
            has_checked_memory: false,
        })
    };
    names.into_iter().zip(present.iter()).map(endpoint).collect()
}

/// Notes which BARs' stores combine.
fn combine(endpoints: &mut [LiveEndpoint], combining: &[String]) -> Result<(), LiveError> {
    let bars = |of: &LiveEndpoint| {
        let name = of.info.name.clone();
        let device = &of.function.device;
        (0..6).filter(|&bar| device.bar(bar).is_some()).map(|bar| format!("{name}/{bar}")).collect::<Vec<_>>()
    };
    for wanted in combining {
        let found = endpoints.iter().position(|endpoint| bars(endpoint).contains(wanted));
        let number = wanted.rsplit('/').next().and_then(|number| number.parse::<u8>().ok());
        let Some((found, number)) = found.zip(number) else {
            let known = endpoints.iter().flat_map(bars).map(|bar| format!("`{bar}`")).collect::<Vec<_>>();
            return Err(LiveError::NoBar { wanted: wanted.clone(), known: known.join(", ") });
        };
        endpoints[found].combining |= 1 << number;
    }
    Ok(())
}

/// Simulated time that follows the wall clock.
struct WallClock {
    begun: Instant,
    at: Time,
}

impl WallClock {
    fn starting(at: Time) -> Self {
        Self { begun: Instant::now(), at }
    }

    /// The simulated time that it should be.
    fn time(&self) -> Time {
        self.at + Duration::from_ns(self.begun.elapsed().as_nanos() as u64)
    }
}

/// The endpoints of live hosts while the simulation runs.
pub struct Attendance<'a, 's> {
    /// The simulation.
    pub session: &'a mut Session<'s>,
    hosts: &'a [(Rc<LiveMemory>, Present)],
    /// All functions of live hosts.
    pub endpoints: Vec<LiveEndpoint>,
    /// IOMMUs of the fabric.
    iommus: Vec<IommuEndpoint>,
    /// Their QEMUs' monitors.
    pub monitors: GuestMonitors,
    recorder: Option<Rc<StepRecorder>>,
    once: bool,
    has_served: bool,
    /// Until when kernels' logs have been told.
    logged: Time,
    /// Is told what happens.
    pub tell: &'a mut dyn FnMut(LiveEvent<'_>),
}

impl Attendance<'_, '_> {
    /// Takes an endpoint's client if it comes, and does what it asks.
    pub fn attend(&mut self, number: usize) {
        let endpoint = &mut self.endpoints[number];
        let Some(client) = &mut endpoint.client else {
            let come = endpoint.socket.accept().and_then(|stream| VfioSocket::new(stream).ok());
            if let Some(client) = come {
                endpoint.client = Some(client);
                endpoint.has_checked_memory = false;
                if self.once {
                    endpoint.socket.remove();
                }
                self.has_served = true;
                (self.tell)(LiveEvent::Came(&endpoint.info));
            }
            return;
        };
        // A device that was plugged in again has been found again.
        let address = endpoint.function.device.address();
        let present = &self.hosts[endpoint.info.host].1;
        let again = present.borrow().iter().find(|function| function.device.address() == address).cloned();
        if let Some(again) = again.filter(|again| !Rc::ptr_eq(again, &endpoint.function)) {
            self.recorder.iter().for_each(|own| again.record(&FunctionRecorder::new(own, number)));
            endpoint.function = again;
        }
        endpoint.function.combine(endpoint.combining);
        let kernel = self.session.kernel(endpoint.info.host);
        let mut attended =
            Attended { function: &endpoint.function, kernel: &kernel, session: &*self.session };
        let served = serve_client(client, &mut attended);
        if !endpoint.has_checked_memory
            && let Some(is_shared) = endpoint.function.has_shared_memory(client.as_fd())
        {
            endpoint.has_checked_memory = true;
            if !is_shared {
                (self.tell)(LiveEvent::Unshared(&endpoint.info));
            }
        }
        if let Err(gone) = served {
            attended.leave();
            endpoint.client = None;
            (self.tell)(LiveEvent::Gone(&endpoint.info, &gone));
        }
    }

    /// Hears what QEMUs' monitors tell.
    pub fn attend_monitors(&mut self) {
        self.monitors.hear(&self.endpoints, self.tell);
    }

    /// Advances the simulation, and tells what has ended, and guests which functions are gone and have come.
    ///
    /// # Errors
    /// If it cannot go on.
    pub fn run_until(&mut self, time: Time) -> Result<(), LiveError> {
        self.session.run_until(time)?;
        self.session.ended(|done| (self.tell)(LiveEvent::Ended(done)));
        self.monitors.follow(&self.endpoints, |host| &self.hosts[host].1, self.tell);
        if time > self.logged + LOG_INTERVAL {
            self.tell_logs();
        }
        Ok(())
    }

    /// Tells what the kernels below the guests have logged since the last call.
    fn tell_logs(&mut self) {
        let now = self.session.simulation().now();
        let mut hosts: Vec<usize> = self.endpoints.iter().map(|endpoint| endpoint.info.host).collect();
        hosts.dedup();
        for host in hosts {
            for (at, line) in self.session.kernel(host).log() {
                // The link repeats what is corrected; counters say how often.
                if at > self.logged && !line.contains(": corrected error") {
                    (self.tell)(LiveEvent::Logged { host, at, line: &line });
                }
            }
        }
        self.logged = now;
    }

    /// Whether all have come and gone.
    pub fn is_over(&self) -> bool {
        self.once && self.has_served && self.endpoints.iter().all(|endpoint| endpoint.client.is_none())
    }
}

/// Lets simulated time follow the wall clock.
fn follow_wall(attendance: &mut Attendance<'_, '_>, stop: BorrowedFd<'_>) -> Result<(), LiveError> {
    let mut clock = WallClock::starting(attendance.session.simulation().now());
    let mut served_at: Option<Instant> = None;
    loop {
        let simulation = attendance.session.simulation();
        let now = simulation.now();
        // An access ran ahead: it took longer in the simulation than here.
        if now > clock.time() {
            clock = WallClock::starting(now);
        }
        // Where nothing happens, it is not behind.
        let due = simulation.next_time().unwrap_or(Time::NEVER).min(clock.time()).max(now);
        if clock.time() > due + BEHIND {
            clock = WallClock::starting(due);
        }
        attendance.run_until(clock.time().min(due + SLICE).max(now))?;
        let next = attendance.session.simulation().next_time();
        let timeout = next.map(|next| {
            let left = next.since(clock.time().min(next)).as_ps() / 1000;
            Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
        });
        let look = attendance.monitors.are_patient().then_some(Timespec { tv_sec: 1, tv_nsec: 0 });
        let is_eager = served_at.is_some_and(|at| at.elapsed() < EAGER);
        let at_once = is_eager.then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        let timeout = timeout.into_iter().chain(look).chain(at_once).min();
        let functions = attendance.endpoints.len();
        let iommus = functions..functions + attendance.iommus.len();
        let fds = attendance.endpoints.iter().map(|endpoint| endpoint.as_fd());
        let fds = fds.chain(attendance.iommus.iter().map(|own| own.as_fd()));
        let (stopped, ready) = wait(fds.chain(attendance.monitors.fds()), stop, timeout)?;
        if stopped {
            return Ok(());
        }
        match ready.is_empty() {
            false => served_at = Some(Instant::now()),
            // Others may need the core, such as the client.
            true if is_eager => rustix::thread::sched_yield(),
            true => {}
        }
        if ready.last().is_some_and(|&last| last >= iommus.end) {
            attendance.attend_monitors();
        }
        for &number in ready.iter().filter(|number| iommus.contains(number)) {
            attendance.iommus[number - functions].attend(attendance.once);
        }
        for number in ready.into_iter().filter(|&number| number < functions) {
            attendance.attend(number);
        }
        if attendance.is_over() {
            return Ok(());
        }
    }
}

/// Waits until something can be read, or for a time. Returns whether to stop, and the numbers of what can be read.
///
/// # Errors
/// If the system does not wait.
pub fn wait<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
    stop: BorrowedFd<'a>,
    timeout: Option<Timespec>,
) -> Result<(bool, Vec<usize>), LiveError> {
    let mut fds: Vec<PollFd<'_>> =
        fds.chain([stop]).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(wrong) => return Err(LiveError::Wait(wrong.into())),
    }
    let stopped = fds.pop().is_some_and(|fd| !fd.revents().is_empty());
    let ready = fds.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(n, _)| n);
    Ok((stopped, ready.collect()))
}

/// Listens at a path.
///
/// # Errors
/// If it cannot; with what to do.
pub fn listen(path: &Path) -> Result<LiveSocket, LiveError> {
    LiveSocket::bind(path.to_owned()).map_err(|problem| {
        let remedy = match problem.kind() {
            io::ErrorKind::AddrInUse => {
                "another server listens there: end it, or choose another folder by --sockets"
            }
            io::ErrorKind::InvalidInput => {
                "a socket's path has 107 bytes at most: choose a shorter one by --sockets"
            }
            _ => "choose a folder by --sockets in which files can be made",
        };
        LiveError::Socket { socket: path.display().to_string(), problem, remedy }
    })
}
