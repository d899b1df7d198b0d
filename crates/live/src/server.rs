//! Serves the functions of live hosts: sockets, the clock, and what happens when clients come and go.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use machine::{ComputerSetup, HostSetup};
use nearfar::computer::{ComputerError, FinishedProgram, Session, in_session};
use platform::pci::PciDriver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;
use units::{Duration, Time};
use vfio_user::VfioSocket;

use crate::driver::{LiveDriver, Present};
use crate::function::{Attended, LiveFunction};
use crate::memory::LiveMemory;
use crate::sockets::LiveSocket;

/// Most that the simulation advances between two looks at the sockets.
const SLICE: Duration = Duration::from_us(200);
/// How far simulated time may be behind. What is further behind is left out: a simulation that is slower than reality does
/// not make up for it.
const BEHIND: Duration = Duration::from_ms(20);

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
    /// A program of a simulated host, or an event, has ended.
    Ended(&'a FinishedProgram),
}

/// How functions are served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The folder of the sockets.
    pub sockets: PathBuf,
    /// Whether each function has one client: its socket is removed when that has come, and the end of all clients is the
    /// end.
    pub once: bool,
}

/// A function with its socket and client.
struct LiveEndpoint {
    info: LiveFunctionInfo,
    function: Rc<LiveFunction>,
    socket: LiveSocket,
    client: Option<VfioSocket>,
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
) -> Result<(), LiveError> {
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
        for (number, (memory, present)) in hosts.iter().enumerate().filter(|(n, _)| setup.hosts[*n].live) {
            session.use_memory(number, Rc::clone(memory) as _);
            endpoints.extend(self::endpoints(setup, session, number, present, &options.sockets)?);
        }
        let infos: Vec<LiveFunctionInfo> = endpoints.iter().map(|endpoint| endpoint.info.clone()).collect();
        tell(LiveEvent::Ready(&infos));
        attend(session, &hosts, endpoints, options, stop, &mut tell)
    })?
}

/// The functions of a host with their sockets.
fn endpoints(
    setup: &ComputerSetup,
    session: &Session<'_>,
    host: usize,
    present: &Present,
    sockets: &Path,
) -> Result<Vec<LiveEndpoint>, LiveError> {
    let present = present.borrow();
    if present.is_empty() {
        return Err(LiveError::NoDevice { host: setup.hosts[host].name.clone() });
    }
    let device_of = |function: &LiveFunction| {
        session.device_name(host, function.device.address()).unwrap_or_else(|| "function".to_owned())
    };
    let names: Vec<String> = present.iter().map(|function| device_of(function)).collect();
    let endpoint = |(n, function): (usize, &Rc<LiveFunction>)| {
        let own = &names[n];
        let (of, before) = (|names: &[String]| names.iter().filter(|name| *name == own).count(), &names[..n]);
        let number = if of(&names) > 1 { format!(".{}", of(before)) } else { String::new() };
        let name = format!("{}-{own}{number}", setup.hosts[host].name);
        let path = sockets.join(format!("{name}.sock"));
        let socket = LiveSocket::bind(path.clone()).map_err(|problem| {
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
        })?;
        let info = LiveFunctionInfo { host, name, socket: path, node: function.device.node().0 };
        Ok(LiveEndpoint { info, function: Rc::clone(function), socket, client: None })
    };
    present.iter().enumerate().map(endpoint).collect()
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

fn attend(
    session: &mut Session<'_>,
    hosts: &[(Rc<LiveMemory>, Present)],
    mut endpoints: Vec<LiveEndpoint>,
    options: &ServeOptions,
    stop: BorrowedFd<'_>,
    tell: &mut dyn FnMut(LiveEvent<'_>),
) -> Result<(), LiveError> {
    let mut clock = WallClock::starting(session.simulation().now());
    let mut has_served = false;
    loop {
        let now = session.simulation().now();
        let wanted = clock.time();
        if wanted > now + BEHIND {
            clock = WallClock::starting(now);
        }
        session.run_until(wanted.min(now + SLICE).max(now))?;
        session.ended(|done| tell(LiveEvent::Ended(done)));
        let (stopped, ready) = wait(session, &clock, &endpoints, stop).map_err(LiveError::Wait)?;
        if stopped {
            return Ok(());
        }
        for (endpoint, ready) in endpoints.iter_mut().zip(ready) {
            if !ready {
                continue;
            }
            let Some(client) = &mut endpoint.client else {
                if let Some(client) = endpoint.socket.accept().and_then(|stream| VfioSocket::new(stream).ok())
                {
                    endpoint.client = Some(client);
                    if options.once {
                        endpoint.socket.remove();
                    }
                    has_served = true;
                    tell(LiveEvent::Came(&endpoint.info));
                }
                continue;
            };
            // A device that was plugged in again has been found again.
            let address = endpoint.function.device.address();
            let present = &hosts[endpoint.info.host].1;
            let again =
                present.borrow().iter().find(|function| function.device.address() == address).cloned();
            endpoint.function = again.unwrap_or_else(|| Rc::clone(&endpoint.function));
            let kernel = session.kernel(endpoint.info.host);
            let mut attended = Attended { function: &endpoint.function, kernel: &kernel, session };
            let served = loop {
                match client.receive() {
                    Ok(Some(message)) => match client.serve(&mut attended, message) {
                        Ok(()) => {}
                        Err(gone) => break Err(gone),
                    },
                    Ok(None) => break Ok(()),
                    Err(gone) => break Err(gone),
                }
            };
            if let Err(gone) = served {
                attended.leave();
                endpoint.client = None;
                tell(LiveEvent::Gone(&endpoint.info, &gone));
            }
        }
        if options.once && has_served && endpoints.iter().all(|endpoint| endpoint.client.is_none()) {
            return Ok(());
        }
    }
}

/// Waits until a client has something, or the simulation. Returns whether to stop, and which endpoints are ready.
fn wait(
    session: &Session<'_>,
    clock: &WallClock,
    endpoints: &[LiveEndpoint],
    stop: BorrowedFd<'_>,
) -> io::Result<(bool, Vec<bool>)> {
    let fds = endpoints.iter().map(|LiveEndpoint { client, socket, .. }| {
        let fd = client.as_ref().map_or(socket.as_fd(), |client| client.as_fd());
        PollFd::from_borrowed_fd(fd, PollFlags::IN)
    });
    let mut fds: Vec<PollFd<'_>> = fds.collect();
    fds.push(PollFd::from_borrowed_fd(stop, PollFlags::IN));
    let timeout = session.simulation().next_time().map(|next| {
        let left = next.since(clock.time().min(next)).as_ps() / 1000;
        Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(wrong) => return Err(wrong.into()),
    }
    let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let stopped = ready.pop().unwrap_or(true);
    Ok((stopped, ready))
}
