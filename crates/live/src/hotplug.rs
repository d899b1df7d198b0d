//! Guests learn that functions are gone, or have come: their QEMUs unplug and plug the functions' [latches](qemu::latch).
//!
//! A function that is pulled answers with all ones at once. When the host's kernel has found that out and has removed it, its guest is asked
//! to let it go; when it has been found again and the guest has let the old one go, the guest is told that it is there.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::LiveError;
use crate::driver::Present;
use crate::function::LiveFunction;
use crate::monitor::{GuestMonitor, MonitorCommand, MonitorNews};
use crate::qemu;
use crate::server::{LiveEndpoint, LiveEvent, listen};
use crate::sockets::LiveSocket;

/// How long until a QEMU that was too busy to unplug a latch is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// What happens to a function by hot-plug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlugStep<'a> {
    /// It is gone, and its guest is asked to let it go.
    Asked,
    /// Its guest has let it go.
    Left,
    /// It has come, and its guest has it.
    Given,
    /// QEMU or the guest refuses, and why.
    Refused(&'a str),
}

/// What a guest has of a function.
enum PlugState {
    /// This function; no request to let it go before the given time.
    Plugged(Rc<LiveFunction>, Option<Instant>),
    /// This function, which it was asked to let go.
    Leaving(Rc<LiveFunction>),
    /// Nothing.
    Gone,
    /// QEMU was asked to give it this function.
    Coming(Rc<LiveFunction>),
    /// Nothing, and is not to be given it before it has gone: the guest has ejected it by itself, or QEMU could not give it.
    Ejected,
}

/// A function, as a guest knows it.
struct PluggedFunction {
    /// Its number among those of its host, from 1.
    n: usize,
    state: PlugState,
}

/// A QEMU's monitor.
enum MonitorLink {
    /// It has not come.
    Awaited(LiveSocket),
    Open(GuestMonitor),
    /// Its QEMU has ended, or goes on without.
    Closed,
}

/// The monitors of live hosts' QEMUs, if they have some.
#[derive(Default)]
pub struct GuestMonitors {
    /// By host.
    connections: Vec<(usize, MonitorLink)>,
    /// By endpoint.
    functions: Vec<PluggedFunction>,
}

impl GuestMonitors {
    /// Listens for the QEMUs of hosts, each an index in the scenario and a name.
    ///
    /// # Errors
    /// If it cannot.
    pub fn new(
        folder: &Path,
        hosts: &[(usize, &str)],
        endpoints: &[LiveEndpoint],
    ) -> Result<Self, LiveError> {
        let connection = |&(host, name): &(usize, &str)| {
            let socket = listen(&qemu::monitor_place(folder, name))?;
            Ok::<_, LiveError>((host, MonitorLink::Awaited(socket)))
        };
        let connections = hosts.iter().map(connection).collect::<Result<_, _>>()?;
        let function = |(number, endpoint): (usize, &LiveEndpoint)| PluggedFunction {
            n: 1 + endpoints[..number].iter().filter(|other| other.info.host == endpoint.info.host).count(),
            state: PlugState::Plugged(Rc::clone(&endpoint.function), None),
        };
        let functions = endpoints.iter().enumerate().map(function).collect();
        Ok(Self { connections, functions })
    }

    /// What tells that a monitor comes, or tells something.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.connections.iter().filter_map(|(_, connection)| match connection {
            MonitorLink::Awaited(socket) => Some(socket.as_fd()),
            MonitorLink::Open(monitor) => Some(monitor.as_fd()),
            MonitorLink::Closed => None,
        })
    }

    /// Whether an answer is awaited, and has to come in time.
    fn are_asked(&self) -> bool {
        self.connections
            .iter()
            .any(|(_, connection)| matches!(connection, MonitorLink::Open(own) if own.is_asked()))
    }

    /// Whether something is to be done after some time by the wall clock, even if nothing else happens.
    pub fn are_patient(&self) -> bool {
        let waits = |own: &PluggedFunction| matches!(own.state, PlugState::Plugged(_, Some(_)));
        self.are_asked() || self.functions.iter().any(waits)
    }

    /// Takes monitors that come, and what they tell.
    pub fn hear(&mut self, endpoints: &[LiveEndpoint], tell: &mut dyn FnMut(LiveEvent<'_>)) {
        for at in 0..self.connections.len() {
            let (host, connection) = &mut self.connections[at];
            let host = *host;
            let heard = match connection {
                MonitorLink::Awaited(socket) => match socket.accept().map(GuestMonitor::new) {
                    Some(Ok(monitor)) => {
                        *connection = MonitorLink::Open(monitor);
                        continue;
                    }
                    Some(Err(wrong)) => Err(wrong),
                    None => continue,
                },
                MonitorLink::Open(monitor) => monitor.receive(),
                MonitorLink::Closed => continue,
            };
            match heard {
                Ok(news) => news.into_iter().for_each(|news| self.learn(host, &news, endpoints, tell)),
                Err(why) => self.give_up(at, &why, tell),
            }
        }
    }

    fn give_up(&mut self, at: usize, why: &io::Error, tell: &mut dyn FnMut(LiveEvent<'_>)) {
        let (host, connection) = &mut self.connections[at];
        *connection = MonitorLink::Closed;
        let ends = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        if !ends.contains(&why.kind()) {
            tell(LiveEvent::Unmonitored { host: *host, why });
        }
    }

    /// Takes what a host's monitor has told.
    fn learn(
        &mut self,
        host: usize,
        news: &MonitorNews,
        endpoints: &[LiveEndpoint],
        tell: &mut dyn FnMut(LiveEvent<'_>),
    ) {
        let known = |id: &String| {
            let functions = endpoints.iter().zip(&self.functions);
            functions
                .into_iter()
                .position(|(endpoint, own)| endpoint.info.host == host && qemu::latch_id(own.n) == *id)
        };
        let (number, step) = match news {
            MonitorNews::Deleted(id) => (known(id), PlugStep::Left),
            MonitorNews::Kept(id) => (known(id), PlugStep::Refused("the guest does not let it go")),
            MonitorNews::Answered(MonitorCommand::Add(number), Ok(())) => (Some(*number), PlugStep::Given),
            MonitorNews::Answered(MonitorCommand::Add(number) | MonitorCommand::Remove(number), Err(why)) => {
                (Some(*number), PlugStep::Refused(why))
            }
            // What follows is told by itself.
            MonitorNews::Answered(..) => return,
        };
        let Some(number) = number else { return };
        let state = &mut self.functions[number].state;
        *state = match (std::mem::replace(state, PlugState::Gone), news) {
            (PlugState::Leaving(_), MonitorNews::Deleted(_)) => PlugState::Gone,
            (PlugState::Leaving(own), MonitorNews::Answered(_, Err(_))) => {
                PlugState::Plugged(own, Some(Instant::now() + AGAIN))
            }
            (PlugState::Coming(own), MonitorNews::Answered(_, Ok(()))) => PlugState::Plugged(own, None),
            (PlugState::Coming(_), MonitorNews::Answered(_, Err(_)))
            | (PlugState::Plugged(..), MonitorNews::Deleted(_)) => PlugState::Ejected,
            (before, _) => before,
        };
        tell(LiveEvent::Plug { function: &endpoints[number].info, step });
    }

    /// Asks for what has to be done about an endpoint's function, of which `present` are those of its host.
    ///
    /// # Errors
    /// If its QEMU cannot be asked.
    fn ask(
        &mut self,
        number: usize,
        endpoint: &LiveEndpoint,
        present: &Present,
        tell: &mut dyn FnMut(LiveEvent<'_>),
    ) -> io::Result<()> {
        let own = |(host, _): &&mut (usize, MonitorLink)| *host == endpoint.info.host;
        let monitor = match self.connections.iter_mut().find(own) {
            Some((_, MonitorLink::Open(monitor))) if monitor.is_ready() => monitor,
            _ => return Ok(()),
        };
        let address = endpoint.function.device.address();
        let found = present.borrow().iter().find(|function| function.device.address() == address).cloned();
        let PluggedFunction { n, state } = &mut self.functions[number];
        match (&*state, found) {
            (PlugState::Plugged(own, not_before), found)
                if !found.as_ref().is_some_and(|found| Rc::ptr_eq(own, found))
                    && not_before.is_none_or(|time| time <= Instant::now()) =>
            {
                monitor.remove(number, &qemu::latch_id(*n))?;
                *state = PlugState::Leaving(Rc::clone(own));
                tell(LiveEvent::Plug { function: &endpoint.info, step: PlugStep::Asked });
            }
            (PlugState::Gone, Some(found)) => {
                monitor.add(number, qemu::latch(*n))?;
                *state = PlugState::Coming(found);
            }
            (PlugState::Ejected, None) => *state = PlugState::Gone,
            _ => {}
        }
        Ok(())
    }

    /// Asks for all that has to be done, after the simulation has gone on.
    pub fn follow<'p>(
        &mut self,
        endpoints: &[LiveEndpoint],
        present: impl Fn(usize) -> &'p Present,
        tell: &mut dyn FnMut(LiveEvent<'_>),
    ) {
        if self.are_asked() {
            self.hear(endpoints, tell);
        }
        for (number, endpoint) in endpoints.iter().enumerate() {
            let host = endpoint.info.host;
            if let Err(why) = self.ask(number, endpoint, present(host), tell)
                && let Some(at) = self.connections.iter().position(|(own, _)| *own == host)
            {
                self.give_up(at, &why, tell);
            }
        }
    }
}
