//! The protocols as programs see them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::socket::{InetCounters, InterfaceInfo, Network, PingSocket, TcpListener, TcpStream, UdpSocket};

use super::Stack;
use super::tcp::TcpSocket;
use crate::net::Protocols;

/// A connection that a program waits for. If it gives up, nobody has the socket: it is closed by whoever comes next, as a
/// core is needed for that.
struct Opening<'a> {
    stack: &'a Stack,
    socket: Option<Rc<TcpSocket>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.stack.abandoned.borrow_mut().extend(self.socket.take());
    }
}

impl Stack {
    /// Closes connections whose programs gave up while they were being opened.
    pub(super) fn close_abandoned(&self, cpu: &Cpu) {
        if !self.abandoned.borrow().is_empty() {
            let abandoned = core::mem::take(&mut *self.abandoned.borrow_mut());
            abandoned.iter().for_each(|socket| socket.close(cpu));
        }
    }

    fn system_call(&self, cpu: &Cpu) {
        self.close_abandoned(cpu);
        cpu.work(self.costs().syscall);
    }
}

impl Network for Stack {
    fn interfaces(&self) -> Vec<InterfaceInfo> {
        self.interfaces.infos()
    }

    fn configure<'a>(
        &'a self,
        cpu: &'a Cpu,
        device: &'a str,
        address: Ipv4Addr,
        prefix: u8,
    ) -> Async<'a, Result<(), Error>> {
        Box::pin(async move {
            self.system_call(cpu);
            let device = self.net.upgrade().and_then(|net| net.device(device)).ok_or(Error::NoDevice)?;
            if prefix > 32 || address.is_unspecified() || address.is_multicast() {
                return Err(Error::Invalid);
            }
            if let Some(me) = self.me.upgrade() {
                device.move_to(&(me as Rc<dyn Protocols>));
            }
            device.open(cpu).await?;
            self.interfaces.configure(device, address, prefix);
            Ok(())
        })
    }

    fn add_route(&self, route: &platform::socket::Route) -> Result<(), Error> {
        self.interfaces.add_route(route)
    }

    fn connect_from<'a>(
        &'a self,
        cpu: &'a Cpu,
        from: SocketAddrV4,
        to: SocketAddrV4,
    ) -> Async<'a, Result<Rc<dyn TcpStream>, Error>> {
        Box::pin(async move {
            let _part = cpu.book(Part::Net);
            self.system_call(cpu);
            let mut opening = Opening { stack: self, socket: Some(self.open_connection(cpu, from, to)?) };
            cpu.sync().await;
            let Some(socket) = opening.socket.clone() else { return Err(Error::Cancelled) };
            let opened = socket.opened().await;
            opening.socket = None;
            match opened {
                Ok(()) => Ok(super::tcp::stream(socket)),
                Err(error) => {
                    socket.close(cpu);
                    Err(error)
                }
            }
        })
    }

    fn listen(&self, cpu: &Cpu, at: SocketAddrV4, backlog: usize) -> Result<Rc<dyn TcpListener>, Error> {
        self.system_call(cpu);
        self.listen_at(at, backlog)
    }

    fn udp(&self, cpu: &Cpu, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error> {
        self.system_call(cpu);
        self.udp_socket(at)
    }

    fn ping(&self, cpu: &Cpu) -> Result<Rc<dyn PingSocket>, Error> {
        self.system_call(cpu);
        self.ping_socket()
    }

    fn counters(&self) -> InetCounters {
        self.counters.get()
    }
}
