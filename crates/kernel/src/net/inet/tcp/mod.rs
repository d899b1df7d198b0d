//! TCP: connections by their endpoints, listeners, and dispatch of segments.

mod buffer;
mod coalesce;
mod collapse;
mod listener;
mod socket;
mod transmit;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::{Rc, Weak};

use inet::tcp::{Connection, Failure, Payload, State, TcpParams, reset_for};
use platform::Error;
use platform::cpu::Cpu;
use platform::socket::{TcpListener, TcpStream};
use wire::ip::{TcpFlags, TcpHeader, protocol};

use super::InetParams;
use super::buffers::{Heads, Piece};
use super::interfaces::{Interfaces, is_for};
use super::means::Means;
use super::output::{LOOPBACK_MTU, Outgoing, Output};
use super::steering::Steering;
use super::timers::{Owner, Timers};
use super::upward::{Came, Ends};
pub use coalesce::Coalescing;
use listener::Listener;
use socket::TcpSocket;

/// All connections.
pub struct Tcp {
    me: Weak<Self>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    heads: Rc<Heads>,
    timers: Rc<Timers>,
    output: Rc<Output>,
    steering: Rc<Steering>,
    params: InetParams,
    sockets: RefCell<BTreeMap<Ends, Rc<TcpSocket>>>,
    by_number: RefCell<BTreeMap<Owner, Weak<TcpSocket>>>,
    listeners: RefCell<BTreeMap<u16, Rc<Listener>>>,
    /// Connections whose opener gave up; to be closed.
    abandoned: RefCell<Vec<Rc<TcpSocket>>>,
    last: Cell<Owner>,
}

/// A connection that a program is opening. If the program gives up, the socket is closed by the next operation, since
/// closing needs a core.
struct Opening<'a> {
    tcp: &'a Tcp,
    socket: Option<Rc<TcpSocket>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.tcp.abandoned.borrow_mut().extend(self.socket.take());
    }
}

impl Tcp {
    pub fn new(
        means: &Rc<Means>,
        interfaces: &Rc<Interfaces>,
        heads: &Rc<Heads>,
        timers: &Rc<Timers>,
        output: &Rc<Output>,
        steering: &Rc<Steering>,
        params: InetParams,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            heads: Rc::clone(heads),
            timers: Rc::clone(timers),
            output: Rc::clone(output),
            steering: Rc::clone(steering),
            params,
            sockets: RefCell::default(),
            by_number: RefCell::default(),
            listeners: RefCell::default(),
            abandoned: RefCell::default(),
            last: Cell::new(0),
        })
    }

    pub fn clear(&self) {
        self.sockets.borrow_mut().clear();
        self.by_number.borrow_mut().clear();
        self.listeners.borrow_mut().clear();
        self.abandoned.borrow_mut().clear();
    }

    fn of(&self, number: Owner) -> Option<Rc<TcpSocket>> {
        self.by_number.borrow().get(&number).and_then(Weak::upgrade)
    }

    /// A socket's timer has expired.
    pub fn timer(&self, cpu: &Cpu, number: Owner) {
        if let Some(socket) = self.of(number) {
            socket.timer(cpu);
        }
    }

    /// A host is unreachable: fails connections that wait for it.
    pub fn unreachable(&self, cpu: &Cpu, host: Ipv4Addr) {
        let concerned: Vec<_> =
            self.sockets.borrow().values().filter(|s| *s.ends.peer.ip() == host).cloned().collect();
        concerned.iter().for_each(|socket| socket.unreachable(cpu));
    }

    /// Opens a connection and waits until it is established.
    ///
    /// # Errors
    /// If there is no route or no free port, or why it could not be established.
    pub async fn connect(
        &self,
        cpu: &Cpu,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<Rc<dyn TcpStream>, Error> {
        let mut opening = Opening { tcp: self, socket: Some(self.open_connection(cpu, from, to)?) };
        cpu.sync().await;
        let Some(socket) = opening.socket.clone() else { return Err(Error::Cancelled) };
        let opened = socket.opened().await;
        opening.socket = None;
        match opened {
            Ok(()) => Ok(socket),
            Err(error) => {
                socket.close(cpu);
                Err(error)
            }
        }
    }

    /// Closes connections whose programs gave up while opening them.
    pub fn close_abandoned(&self, cpu: &Cpu) {
        if !self.abandoned.borrow().is_empty() {
            let abandoned = core::mem::take(&mut *self.abandoned.borrow_mut());
            abandoned.iter().for_each(|socket| socket.close(cpu));
        }
    }

    /// MTU towards an address, including the IP header.
    fn mtu_to(&self, to: Ipv4Addr) -> u16 {
        let interface = self.interfaces.way(to).map_or(usize::MAX, |(interface, _, _)| interface);
        self.interfaces.mtu(interface).unwrap_or(LOOPBACK_MTU)
    }

    fn tcp_params(&self, to: Ipv4Addr) -> TcpParams {
        TcpParams { ecn: self.params.ecn, ..TcpParams::linux(self.mtu_to(to)) }
    }

    /// Initial sequence number, from the endpoints and the clock (RFC 6528, without its secret, which a simulation
    /// does not need).
    fn initial_number(&self, cpu: &Cpu, ends: &Ends) -> u32 {
        let words = [
            u32::from(*ends.local.ip()),
            u32::from(*ends.peer.ip()),
            u32::from(ends.local.port()) << 16 | u32::from(ends.peer.port()),
        ];
        let mixed = words
            .into_iter()
            .fold(0x9e37_79b9u32, |h, word| (h ^ word).wrapping_mul(0x85eb_ca6b).rotate_left(13));
        // The RFC's clock ticks every 4 microseconds.
        mixed.wrapping_add((cpu.now().as_ps() / 4_000_000) as u32)
    }

    /// Adds a connection.
    fn add_socket(
        &self,
        cpu: &Cpu,
        ends: Ends,
        connection: Connection<Piece>,
        listener: Option<Weak<Listener>>,
    ) -> Result<Rc<TcpSocket>, Error> {
        let number = self.last.get() + 1;
        self.last.set(number);
        let memory = self.heads.take(cpu)?;
        let socket = TcpSocket::new(self.me.clone(), number, ends, connection, memory, listener);
        self.sockets.borrow_mut().insert(ends, Rc::clone(&socket));
        self.by_number.borrow_mut().insert(number, Rc::downgrade(&socket));
        Ok(socket)
    }

    /// Removes a connection that has ended and is no longer in use.
    fn remove_socket(&self, cpu: &Cpu, socket: &TcpSocket) {
        let removed = self.by_number.borrow_mut().remove(&socket.number);
        if removed.is_some() {
            self.sockets.borrow_mut().remove(&socket.ends);
            self.heads.give(cpu, socket.memory);
        }
    }

    /// Starts to open a connection.
    fn open_connection(
        &self,
        cpu: &Cpu,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Result<Rc<TcpSocket>, Error> {
        let (_, own, _) = self.interfaces.way(*to.ip()).ok_or(Error::Unreachable)?;
        let own = match from.ip().is_unspecified() {
            true => own,
            false if self.interfaces.is_own(*from.ip()) => *from.ip(),
            false => return Err(Error::Invalid),
        };
        let taken = |port| {
            let ends = Ends { local: SocketAddrV4::new(own, port), peer: to };
            self.sockets.borrow().contains_key(&ends)
        };
        let port = match from.port() {
            0 => self.means.free_port(|port| !taken(port)).ok_or(Error::AddressInUse)?,
            // As without SO_REUSEADDR: ports with a listener are not used.
            port if taken(port) || self.listeners.borrow().contains_key(&port) => {
                return Err(Error::AddressInUse);
            }
            port => port,
        };
        let ends = Ends { local: SocketAddrV4::new(own, port), peer: to };
        let params = self.tcp_params(*to.ip());
        let connection = Connection::connect(params, (port, to.port()), self.initial_number(cpu, &ends));
        let socket = self.add_socket(cpu, ends, connection, None)?;
        socket.push(cpu);
        Ok(socket)
    }

    /// Listens on a port.
    pub fn listen(&self, at: SocketAddrV4, backlog: usize) -> Result<Rc<dyn TcpListener>, Error> {
        let mut listeners = self.listeners.borrow_mut();
        if listeners.contains_key(&at.port()) || at.port() == 0 {
            return Err(Error::AddressInUse);
        }
        let listener = Listener::new(self.me.clone(), at, backlog);
        listeners.insert(at.port(), Rc::clone(&listener));
        Ok(listener)
    }

    /// Handles a packet of one or more segments.
    pub fn input(&self, cpu: &Cpu, ends: Ends, header: &TcpHeader, piece: Piece, came: Came) {
        cpu.work(self.means.costs().tcp_input);
        let socket = self.sockets.borrow().get(&ends).cloned();
        if let Some(socket) = socket {
            return socket.input(cpu, header, piece, came);
        }
        let listener = self.listeners.borrow().get(&ends.local.port()).cloned();
        if let Some(listener) = listener.filter(|l| is_for(*l.local.ip(), *ends.local.ip()))
            && header.flags.contains(TcpFlags::SYN)
            && !header.flags.contains(TcpFlags::ACK)
        {
            let refused = self.accept_connection(cpu, ends, header, &listener).is_err();
            if refused {
                self.means.count(|c| c.socket_full += 1);
            }
            return piece.release(cpu);
        }
        self.means.count(|c| c.unwanted += 1);
        if let Some(reset) = reset_for(header, piece.len()) {
            self.means.count(|c| c.resets += 1);
            let mut bytes = [0; 60];
            let length = reset.emit(&mut bytes);
            let (own, peer) = (*ends.local.ip(), *ends.peer.ip());
            let _ = self.output.send(cpu, Outgoing::bare(own, peer, protocol::TCP, &bytes[..length]));
        }
        piece.release(cpu);
    }

    fn accept_connection(
        &self,
        cpu: &Cpu,
        ends: Ends,
        syn: &TcpHeader,
        listener: &Rc<Listener>,
    ) -> Result<(), Error> {
        if !listener.has_room() {
            return Err(Error::NoSpace);
        }
        let (params, initial) = (self.tcp_params(*ends.peer.ip()), self.initial_number(cpu, &ends));
        let connection = Connection::accept(params, initial, syn).ok_or(Error::Invalid)?;
        let socket = self.add_socket(cpu, ends, connection, Some(Rc::downgrade(listener)))?;
        listener.coming.set(listener.coming.get() + 1);
        socket.push(cpu);
        Ok(())
    }

    fn remove_listener(&self, port: u16) {
        self.listeners.borrow_mut().remove(&port);
    }
}

/// The error that a program sees for a connection that has ended.
fn error_of(connection: &Connection<Piece>) -> Option<Error> {
    if connection.state() != State::Closed {
        return None;
    }
    Some(match connection.failure() {
        None => Error::Ended,
        Some(Failure::Refused) => Error::Refused,
        Some(Failure::Reset) => Error::Reset,
        Some(Failure::TimedOut) => Error::TimedOut,
        Some(Failure::Aborted) => Error::Cancelled,
    })
}
