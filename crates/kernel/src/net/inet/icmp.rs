//! ICMP echo: requests and replies (RFC 792).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::net::Packet;
use platform::socket::{Echo, PingSocket};
use platform::sync::WaitQueue;
use units::Time;
use wire::Malformed;
use wire::ip::icmp::HEADER_LEN;
use wire::ip::{IcmpEcho, protocol};

use super::buffers::Hold;
use super::input::{Headers, load};
use super::interfaces::Interfaces;
use super::means::Means;
use super::output::{MOST_PAYLOAD, Outgoing, Output};
use platform::memory::Pages;
use platform::net::Fragment;

/// Bytes of a message stored with the headers; the rest gets pages.
const IN_HEAD: usize = 56;
/// Replies that may wait for a program. Linux limits their memory (`net.core.rmem_default`), which is at least 768
/// bytes per packet; here replies are kept without their packets.
const MOST_ANSWERS: usize = 212_992 / 768;

/// All echo sockets, by identifier.
pub struct Icmp {
    me: Weak<Self>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    output: Rc<Output>,
    sockets: RefCell<BTreeMap<u16, Weak<EchoSocket>>>,
}

impl Icmp {
    pub fn new(means: &Rc<Means>, interfaces: &Rc<Interfaces>, output: &Rc<Output>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            output: Rc::clone(output),
            sockets: RefCell::default(),
        })
    }

    pub fn clear(&self) {
        self.sockets.borrow_mut().clear();
    }

    /// Tells the sockets that a host is unreachable.
    pub fn unreachable(&self, host: Ipv4Addr) {
        for socket in self.sockets.borrow().values().filter_map(Weak::upgrade) {
            if *socket.asked.borrow() == Some(host) {
                socket.answers.borrow_mut().push_back(Err(Error::Unreachable));
                socket.arrived.wake_one();
            }
        }
    }
}

struct EchoSocket {
    icmp: Weak<Icmp>,
    identifier: u16,
    asked: RefCell<Option<Ipv4Addr>>,
    answers: RefCell<VecDeque<Result<Echo, Error>>>,
    arrived: WaitQueue,
}

impl Drop for EchoSocket {
    fn drop(&mut self) {
        if let Some(icmp) = self.icmp.upgrade() {
            icmp.sockets.borrow_mut().remove(&self.identifier);
        }
    }
}

/// Payload of a request: a pattern, as ping sends.
fn pattern(length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(|n| n as u8)
}

impl Icmp {
    /// Creates an echo socket.
    pub fn socket(&self) -> Result<Rc<dyn PingSocket>, Error> {
        let mut sockets = self.sockets.borrow_mut();
        let identifier = (1..u16::MAX).find(|id| !sockets.contains_key(id)).ok_or(Error::NoSpace)?;
        let socket = Rc::new(EchoSocket {
            icmp: self.me.clone(),
            identifier,
            asked: RefCell::default(),
            answers: RefCell::default(),
            arrived: WaitQueue::new(),
        });
        sockets.insert(identifier, Rc::downgrade(&socket));
        Ok(socket)
    }

    /// Handles a message.
    pub fn input(&self, cpu: &Cpu, packet: &Packet, headers: &Headers) -> Result<(), Malformed> {
        cpu.work(self.means.costs().icmp);
        let message = load(cpu, packet, headers.transport as u32, headers.above_len());
        let echo = IcmpEcho::parse(&message)?;
        if !echo.is_reply {
            let answer = IcmpEcho { is_reply: true, ..echo };
            // Replies to a broadcast would flood the sender.
            if self.interfaces.is_own(headers.ip.destination) {
                let _ = self.send_echo(cpu, headers.ip.destination, headers.ip.source, answer, message);
            }
            return Ok(());
        }
        let socket = self.sockets.borrow().get(&echo.identifier).and_then(Weak::upgrade);
        let Some(socket) = socket else {
            self.means.count(|c| c.unwanted += 1);
            return Ok(());
        };
        if socket.answers.borrow().len() >= MOST_ANSWERS {
            self.means.count(|c| c.socket_full += 1);
            return Ok(());
        }
        let data = &message[HEADER_LEN..];
        socket.answers.borrow_mut().push_back(Ok(Echo {
            sequence: echo.sequence,
            from: headers.ip.source,
            bytes: message.len() as u32,
            ttl: headers.ip.ttl,
            intact: data.iter().copied().eq(pattern(data.len())),
        }));
        cpu.work(self.means.costs().wake_up);
        socket.arrived.wake_one();
        Ok(())
    }

    /// Sends a message: its start with the headers, the rest from pages.
    fn send_echo(
        &self,
        cpu: &Cpu,
        source: Ipv4Addr,
        to: Ipv4Addr,
        echo: IcmpEcho,
        mut message: Vec<u8>,
    ) -> Result<(), Error> {
        echo.emit(&mut message);
        let (head, rest) = message.split_at(message.len().min(IN_HEAD));
        let mut outgoing = Outgoing::bare(source, to, protocol::ICMP, head);
        if !rest.is_empty() {
            let order = Pages::order_for(rest.len() as u64);
            let hold = Hold::pages(self.means.memory(), cpu, order)?;
            if hold.pages.len() < rest.len() as u64 {
                Hold::Pages(hold).let_go(cpu);
                return Err(Error::NoMemory);
            }
            cpu.store(hold.pages.start, rest);
            outgoing.payload =
                vec![Fragment { pages: None, at: hold.pages.start, length: rest.len() as u32 }];
            outgoing.holds = vec![Hold::Pages(hold)];
        }
        self.output.send(cpu, outgoing)
    }
}

impl PingSocket for EchoSocket {
    fn send(&self, cpu: &Cpu, to: Ipv4Addr, sequence: u16, data: u16) -> Result<(), Error> {
        let icmp = self.icmp.upgrade().ok_or(Error::NoDevice)?;
        let _part = cpu.book(Part::Net);
        cpu.work(icmp.means.costs().syscall + icmp.means.costs().icmp);
        let (_, source, _) = icmp.interfaces.way(to).ok_or(Error::Unreachable)?;
        if usize::from(data) + HEADER_LEN > MOST_PAYLOAD {
            return Err(Error::TooLong);
        }
        *self.asked.borrow_mut() = Some(to);
        let mut message = vec![0; HEADER_LEN];
        message.extend(pattern(data.into()));
        let echo = IcmpEcho { is_reply: false, identifier: self.identifier, sequence };
        icmp.send_echo(cpu, source, to, echo, message)
    }

    fn recv<'a>(&'a self, cpu: &'a Cpu, deadline: Time) -> Async<'a, Result<Echo, Error>> {
        Box::pin(async move {
            if let Some(icmp) = self.icmp.upgrade() {
                cpu.work(icmp.means.costs().syscall);
            }
            let mut sleep = pin!(cpu.sleep_until(deadline));
            let mut arrived = pin!(self.arrived.wait_for(|| self.answers.borrow_mut().pop_front()));
            poll_fn(|context| match arrived.as_mut().poll(context) {
                Poll::Ready(answer) => Poll::Ready(answer),
                Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Error::TimedOut)),
            })
            .await
        })
    }
}
