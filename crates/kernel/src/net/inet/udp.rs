//! Datagrams (RFC 768).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, Part};
use platform::memory::Pages;
use platform::net::{FlowKey, Fragment, TxFlow};
use platform::socket::UdpSocket;
use platform::sync::WaitQueue;
use wire::ip::udp::HEADER_LEN;
use wire::ip::{UdpHeader, protocol};

use super::Stack;
use super::buffers::{Hold, Piece, copy_out};
use super::output::{MOST_PAYLOAD, Outgoing};
use super::steering::flow_key;

/// Bytes of memory whose packets wait for a reader (Linux: `net.core.rmem_default`).
const BUFFER: u32 = 212_992;

/// All sockets, by port.
#[derive(Default)]
pub(super) struct Udp {
    sockets: RefCell<BTreeMap<u16, Rc<Socket>>>,
}

impl Udp {
    pub fn clear(&self) {
        self.sockets.borrow_mut().clear();
    }
}

struct Socket {
    stack: Weak<Stack>,
    local: SocketAddrV4,
    queue: RefCell<VecDeque<(Piece, SocketAddrV4)>>,
    held: Cell<u32>,
    arrived: WaitQueue,
    /// The flow of what arrived last, by which programs are known to be here.
    last: Cell<Option<FlowKey>>,
    flow: Rc<TxFlow>,
    closed: Cell<bool>,
}

impl Stack {
    pub(super) fn udp_socket(&self, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error> {
        let taken = |port| self.udp.sockets.borrow().contains_key(&port);
        let port = match at.port() {
            0 => self.free_port(|port| !taken(port)).ok_or(Error::AddressInUse)?,
            port if taken(port) => return Err(Error::AddressInUse),
            port => port,
        };
        let socket = Rc::new(Socket {
            stack: self.me.clone(),
            local: SocketAddrV4::new(*at.ip(), port),
            queue: RefCell::default(),
            held: Cell::new(0),
            arrived: WaitQueue::new(),
            last: Cell::new(None),
            flow: Rc::default(),
            closed: Cell::new(false),
        });
        self.udp.sockets.borrow_mut().insert(port, Rc::clone(&socket));
        Ok(socket)
    }

    /// A datagram arrived.
    pub(super) fn udp_input(&self, cpu: &Cpu, from: SocketAddrV4, to: SocketAddrV4, piece: Piece) {
        let Some(kernel) = self.kernel.upgrade() else { return piece.release(cpu) };
        cpu.work(kernel.cores.costs.udp_input);
        let socket = self.udp.sockets.borrow().get(&to.port()).cloned();
        let Some(socket) = socket.filter(|s| Self::matches(*s.local.ip(), *to.ip())) else {
            self.count(|c| c.unwanted += 1);
            return piece.release(cpu);
        };
        let length = piece.true_size();
        socket.last.set(Some(flow_key(protocol::UDP, from, to)));
        if socket.held.get() + length > BUFFER {
            self.count(|c| c.socket_full += 1);
            return piece.release(cpu);
        }
        socket.held.set(socket.held.get() + length);
        socket.queue.borrow_mut().push_back((piece, from));
        cpu.work(kernel.cores.costs.wake_up);
        socket.arrived.wake_one();
    }
}

impl Socket {
    /// A program uses it on this core: packets may come here.
    fn used_here(&self, cpu: &Cpu, stack: &Stack) {
        if let Some(flow) = self.last.get() {
            stack.used_here(cpu, flow);
        }
    }
}

impl UdpSocket for Socket {
    fn local(&self) -> SocketAddrV4 {
        self.local
    }

    fn send_to(&self, cpu: &Cpu, to: SocketAddrV4, from: Segment) -> Result<(), Error> {
        let stack = self.stack.upgrade().ok_or(Error::NoDevice)?;
        let kernel = stack.kernel.upgrade().ok_or(Error::NoDevice)?;
        let _part = cpu.book(Part::Net);
        cpu.work(kernel.cores.costs.syscall + kernel.cores.costs.udp_output);
        self.used_here(cpu, &stack);
        let (_, source, _) = stack.way(*to.ip()).ok_or(Error::Unreachable)?;
        if from.length as usize + HEADER_LEN > MOST_PAYLOAD {
            return Err(Error::TooLong);
        }
        let source = if self.local.ip().is_unspecified() { source } else { *self.local.ip() };
        let header = UdpHeader {
            source: self.local.port(),
            destination: to.port(),
            len: (HEADER_LEN + from.length as usize) as u16,
            checksum: 0,
        };
        let mut transport = [0; HEADER_LEN];
        header.emit(&mut transport);
        let mut outgoing = Outgoing::bare(source, *to.ip(), protocol::UDP, &transport);
        outgoing.flow = Some(&self.flow);
        if from.length > 0 {
            let hold = Hold::pages(&kernel, &stack.kernel, cpu, Pages::order_for(from.length.into()))?;
            if hold.pages.len() < u64::from(from.length) {
                Hold::Pages(hold).let_go(cpu);
                return Err(Error::NoMemory);
            }
            {
                let _part = cpu.book(Part::Copy);
                cpu.copy(hold.pages.start, from.at, from.length.into());
            }
            outgoing.payload = vec![Fragment { pages: None, at: hold.pages.start, length: from.length }];
            outgoing.holds = vec![Hold::Pages(hold)];
        }
        stack.send(cpu, outgoing)
    }

    fn recv_from<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<(u32, SocketAddrV4), Error>> {
        Box::pin(async move {
            let stack = self.stack.upgrade().ok_or(Error::NoDevice)?;
            let kernel = stack.kernel.upgrade().ok_or(Error::NoDevice)?;
            cpu.work(kernel.cores.costs.syscall);
            self.used_here(cpu, &stack);
            let next = || match self.queue.borrow_mut().pop_front() {
                Some(datagram) => Some(Ok(datagram)),
                None => self.closed.get().then_some(Err(Error::Ended)),
            };
            let (piece, from) = self.arrived.wait_for(next).await?;
            let _part = cpu.book(Part::Net);
            cpu.work(kernel.cores.costs.udp_input);
            self.used_here(cpu, &stack);
            self.held.set(self.held.get() - piece.true_size());
            let copied = {
                let _part = cpu.book(Part::Copy);
                copy_out(cpu, &piece, into.at, into.length)
            };
            piece.release(cpu);
            Ok((copied, from))
        })
    }

    fn close(&self, cpu: &Cpu) {
        self.closed.set(true);
        self.arrived.wake_all();
        for (piece, _) in self.queue.borrow_mut().drain(..) {
            piece.release(cpu);
        }
        if let Some(stack) = self.stack.upgrade() {
            stack.udp.sockets.borrow_mut().remove(&self.local.port());
        }
    }
}
