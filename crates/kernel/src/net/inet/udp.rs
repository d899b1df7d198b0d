//! UDP (RFC 768).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddrV4;
use std::rc::{Rc, Weak};

use inet::tcp::Payload;
use platform::Error;
use platform::block::Segment;
use platform::cpu::{Async, Cpu, Part};
use platform::memory::Pages;
use platform::net::{FlowKey, Fragment, TxFlow};
use platform::socket::{BufferSizes, UdpSocket};
use platform::sync::WaitQueue;
use wire::ip::udp::HEADER_LEN;
use wire::ip::{UdpHeader, protocol};

use super::buffers::{Hold, Piece, Sender, copy_out, waits_below};
use super::interfaces::{Interfaces, is_for};
use super::means::Means;
use super::output::{MOST_PAYLOAD, Outgoing, Output};
use super::steering::Steering;
use super::upward::flow_key;

/// Memory limits of the receive and the send buffer (Linux: `net.core.rmem_default`, `net.core.wmem_default`).
const BUFFER: u32 = 212_992;

/// All sockets, by port.
pub struct Udp {
    me: Weak<Self>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    output: Rc<Output>,
    steering: Rc<Steering>,
    sockets: RefCell<BTreeMap<u16, Rc<BoundUdp>>>,
}

impl Udp {
    pub fn new(
        means: &Rc<Means>,
        interfaces: &Rc<Interfaces>,
        output: &Rc<Output>,
        steering: &Rc<Steering>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            output: Rc::clone(output),
            steering: Rc::clone(steering),
            sockets: RefCell::default(),
        })
    }

    pub fn clear(&self) {
        self.sockets.borrow_mut().clear();
    }
}

struct BoundUdp {
    udp: Weak<Udp>,
    me: Weak<Self>,
    local: SocketAddrV4,
    queue: RefCell<VecDeque<(Piece, SocketAddrV4)>>,
    held: Cell<u32>,
    /// Memory limits for sending and for receiving (bytes).
    buffers: Cell<(u32, u32)>,
    arrived: WaitQueue,
    sent: WaitQueue,
    /// Flow of the last datagram, for flow steering.
    last: Cell<Option<FlowKey>>,
    flow: Rc<TxFlow>,
    closed: Cell<bool>,
}

impl Udp {
    pub fn socket(&self, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error> {
        let taken = |port| self.sockets.borrow().contains_key(&port);
        let port = match at.port() {
            0 => self.means.free_port(|port| !taken(port)).ok_or(Error::AddressInUse)?,
            port if taken(port) => return Err(Error::AddressInUse),
            port => port,
        };
        let socket = Rc::new_cyclic(|me| BoundUdp {
            udp: self.me.clone(),
            me: me.clone(),
            local: SocketAddrV4::new(*at.ip(), port),
            queue: RefCell::default(),
            held: Cell::new(0),
            buffers: Cell::new((BUFFER, BUFFER)),
            arrived: WaitQueue::new(),
            sent: WaitQueue::new(),
            last: Cell::new(None),
            flow: Rc::default(),
            closed: Cell::new(false),
        });
        self.sockets.borrow_mut().insert(port, Rc::clone(&socket));
        Ok(socket)
    }

    /// Handles a datagram.
    pub fn input(&self, cpu: &Cpu, from: SocketAddrV4, to: SocketAddrV4, piece: Piece) {
        cpu.work(self.means.costs().udp_input);
        let socket = self.sockets.borrow().get(&to.port()).cloned();
        let Some(socket) = socket.filter(|s| is_for(*s.local.ip(), *to.ip())) else {
            self.means.count(|c| c.unwanted += 1);
            return piece.release(cpu);
        };
        let length = piece.true_size();
        socket.last.set(Some(flow_key(protocol::UDP, from, to)));
        if socket.held.get() + length > socket.buffers.get().1 {
            self.means.count(|c| c.socket_full += 1);
            return piece.release(cpu);
        }
        socket.held.set(socket.held.get() + length);
        socket.queue.borrow_mut().push_back((piece, from));
        cpu.work(self.means.costs().wake_up);
        socket.arrived.wake_one();
    }
}

impl BoundUdp {
    /// Records that a program uses the socket on this core, for flow steering.
    fn used_here(&self, cpu: &Cpu, udp: &Udp) {
        if let Some(flow) = self.last.get() {
            udp.steering.used_here(cpu, flow);
        }
    }

    fn begin_sending(&self, cpu: &Cpu) -> Result<Rc<Udp>, Error> {
        let udp = self.udp.upgrade().ok_or(Error::NoDevice)?;
        cpu.work(udp.means.costs().syscall + udp.means.costs().udp_output);
        self.used_here(cpu, &udp);
        Ok(udp)
    }

    /// Whether a datagram may be sent, or an error; `None` if the send buffer is full.
    fn may_send(&self) -> Option<Result<(), Error>> {
        if self.closed.get() {
            return Some(Err(Error::Ended));
        }
        (waits_below(&self.flow) < self.buffers.get().0.into()).then_some(Ok(()))
    }

    /// Whether to wake a waiting sender (Linux: `sock_writeable`, half of the buffer).
    fn has_room(&self) -> bool {
        waits_below(&self.flow) <= u64::from(self.buffers.get().0) / 2
    }

    fn send_now(&self, cpu: &Cpu, udp: &Udp, to: SocketAddrV4, from: Segment) -> Result<(), Error> {
        let (_, source, _) = udp.interfaces.way(*to.ip()).ok_or(Error::Unreachable)?;
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
        outgoing.socket = Some(self.me.clone() as _);
        if from.length > 0 {
            let hold = Hold::pages(udp.means.memory(), cpu, Pages::order_for(from.length.into()))?;
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
        match udp.output.send(cpu, outgoing) {
            // The device has counted the drop.
            Err(Error::NoSpace) => Ok(()),
            result => result,
        }
    }

    fn begin_receiving(&self, cpu: &Cpu) -> Result<Rc<Udp>, Error> {
        let udp = self.udp.upgrade().ok_or(Error::NoDevice)?;
        cpu.work(udp.means.costs().syscall);
        self.used_here(cpu, &udp);
        Ok(udp)
    }

    /// The next datagram, or an error once the socket is closed.
    fn next(&self) -> Option<Result<(Piece, SocketAddrV4), Error>> {
        match self.queue.borrow_mut().pop_front() {
            Some(datagram) => Some(Ok(datagram)),
            None => self.closed.get().then_some(Err(Error::Ended)),
        }
    }

    fn recv_now(
        &self,
        cpu: &Cpu,
        udp: &Udp,
        (piece, from): (Piece, SocketAddrV4),
        into: Segment,
    ) -> (u32, SocketAddrV4) {
        let _part = cpu.book(Part::Net);
        cpu.work(udp.means.costs().udp_input);
        self.used_here(cpu, udp);
        self.held.set(self.held.get() - piece.true_size());
        let copied = {
            let _part = cpu.book(Part::Copy);
            copy_out(cpu, &piece, into.at, into.length)
        };
        piece.release(cpu);
        (copied, from)
    }
}

impl Sender for BoundUdp {
    fn packet_gone(&self, cpu: &Cpu) {
        if !self.sent.is_empty() && self.has_room() {
            if let Some(udp) = self.udp.upgrade() {
                cpu.work(udp.means.costs().wake_up);
            }
            self.sent.wake_all();
        }
    }
}

impl UdpSocket for BoundUdp {
    fn local(&self) -> SocketAddrV4 {
        self.local
    }

    fn send_to<'a>(&'a self, cpu: &'a Cpu, to: SocketAddrV4, from: Segment) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            let udp = self.begin_sending(cpu)?;
            self.sent.wait_for(|| self.may_send()).await?;
            self.send_now(cpu, &udp, to, from)
        })
    }

    fn try_send_to(&self, cpu: &Cpu, to: SocketAddrV4, from: Segment) -> Result<(), Error> {
        let _part = cpu.book(Part::Net);
        let udp = self.begin_sending(cpu)?;
        self.may_send().unwrap_or(Err(Error::WouldBlock))?;
        self.send_now(cpu, &udp, to, from)
    }

    fn recv_from<'a>(&'a self, cpu: &'a Cpu, into: Segment) -> Async<'a, Result<(u32, SocketAddrV4), Error>> {
        Box::pin(async move {
            let udp = self.begin_receiving(cpu)?;
            let datagram = self.arrived.wait_for(|| self.next()).await?;
            Ok(self.recv_now(cpu, &udp, datagram, into))
        })
    }

    fn try_recv_from(&self, cpu: &Cpu, into: Segment) -> Result<(u32, SocketAddrV4), Error> {
        let udp = self.begin_receiving(cpu)?;
        let datagram = self.next().unwrap_or(Err(Error::WouldBlock))?;
        Ok(self.recv_now(cpu, &udp, datagram, into))
    }

    fn readable(&self) -> Async<'_, ()> {
        Box::pin(async {
            let ready = || (self.closed.get() || !self.queue.borrow().is_empty()).then_some(());
            self.arrived.wait_for(ready).await;
            // The datagram stays available: wake the next waiter, too.
            self.arrived.wake_one();
        })
    }

    fn writable(&self) -> Async<'_, ()> {
        Box::pin(self.sent.wait_for(|| (self.closed.get() || self.has_room()).then_some(())))
    }

    fn set_buffers(&self, sizes: BufferSizes) {
        let (send, receive) = self.buffers.get();
        // Linux: SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF, and twice the requested size.
        let send = sizes.send.map_or(send, |bytes| bytes.saturating_mul(2).max(4_608));
        let receive = sizes.receive.map_or(receive, |bytes| bytes.saturating_mul(2).max(2_304));
        self.buffers.set((send, receive));
        self.sent.wake_all();
    }

    fn close(&self, cpu: &Cpu) {
        self.closed.set(true);
        self.arrived.wake_all();
        self.sent.wake_all();
        for (piece, _) in self.queue.borrow_mut().drain(..) {
            piece.release(cpu);
        }
        if let Some(udp) = self.udp.upgrade() {
            udp.sockets.borrow_mut().remove(&self.local.port());
        }
    }
}
