//! Listening sockets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu};
use platform::socket::{TcpListener, TcpStream};
use platform::sync::WaitQueue;

use super::{Tcp, TcpSocket};

/// A listening socket.
pub struct Listener {
    tcp: Weak<Tcp>,
    pub local: SocketAddrV4,
    backlog: usize,
    /// Connections being opened.
    pub coming: Cell<usize>,
    ready: RefCell<VecDeque<Rc<TcpSocket>>>,
    arrived: WaitQueue,
    closed: Cell<bool>,
}

impl Listener {
    pub fn new(tcp: Weak<Tcp>, local: SocketAddrV4, backlog: usize) -> Rc<Self> {
        Rc::new(Self {
            tcp,
            local,
            backlog: backlog.max(1),
            coming: Cell::new(0),
            ready: RefCell::default(),
            arrived: WaitQueue::new(),
            closed: Cell::new(false),
        })
    }

    /// Whether the backlog has room.
    pub fn has_room(&self) -> bool {
        self.coming.get() + self.ready.borrow().len() < self.backlog
    }

    /// The next connection, or an error once the socket is closed.
    fn next(&self) -> Option<Result<Rc<dyn TcpStream>, Error>> {
        match self.ready.borrow_mut().pop_front() {
            Some(socket) => Some(Ok(socket)),
            None => self.closed.get().then_some(Err(Error::Ended)),
        }
    }

    /// A connection was opened, or failed to. Returns whether the socket is still listening.
    pub fn came(&self, socket: Option<Rc<TcpSocket>>) -> bool {
        self.coming.set(self.coming.get().saturating_sub(1));
        let Some(socket) = socket.filter(|_| !self.closed.get()) else { return false };
        self.ready.borrow_mut().push_back(socket);
        self.arrived.wake_one();
        true
    }
}

impl TcpListener for Listener {
    fn local(&self) -> SocketAddrV4 {
        self.local
    }

    fn accept<'a>(&'a self, cpu: &'a Cpu) -> Async<'a, Result<Rc<dyn TcpStream>, Error>> {
        Box::pin(async move {
            if let Some(tcp) = self.tcp.upgrade() {
                cpu.work(tcp.means.costs().syscall);
            }
            self.arrived.wait_for(|| self.next()).await
        })
    }

    fn try_accept(&self, cpu: &Cpu) -> Result<Rc<dyn TcpStream>, Error> {
        if let Some(tcp) = self.tcp.upgrade() {
            cpu.work(tcp.means.costs().syscall);
        }
        self.next().unwrap_or(Err(Error::WouldBlock))
    }

    fn readable(&self) -> Async<'_, ()> {
        Box::pin(async {
            let ready = || (self.closed.get() || !self.ready.borrow().is_empty()).then_some(());
            self.arrived.wait_for(ready).await;
            // The connection stays available: wake the next waiter, too.
            self.arrived.wake_one();
        })
    }

    fn close(&self, cpu: &Cpu) {
        self.closed.set(true);
        self.arrived.wake_all();
        let ready = core::mem::take(&mut *self.ready.borrow_mut());
        ready.iter().for_each(|socket| socket.close(cpu));
        if let Some(tcp) = self.tcp.upgrade() {
            tcp.remove_listener(self.local.port());
        }
    }
}
