//! The protocols as programs see them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use inet::arp::Neighbours;
use inet::route::Route;
use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::socket::{InetCounters, InterfaceInfo, Network, PingSocket, TcpListener, TcpStream, UdpSocket};

use super::tcp::TcpSocket;
use super::{Interface, Stack};
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
        if let Some(kernel) = self.kernel.upgrade() {
            cpu.work(kernel.cores.costs.syscall);
        }
    }
}

impl Network for Stack {
    fn interfaces(&self) -> Vec<InterfaceInfo> {
        let interfaces = self.interfaces.borrow();
        let there = interfaces.iter().filter(|i| i.device.is_some());
        there
            .map(|i| InterfaceInfo { device: i.name.clone(), address: i.address, prefix: i.prefix })
            .collect()
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
            let kernel = self.kernel.upgrade().ok_or(Error::NoDevice)?;
            let device = kernel.net.device(device).ok_or(Error::NoDevice)?;
            if prefix > 32 || address.is_unspecified() || address.is_multicast() {
                return Err(Error::Invalid);
            }
            if let Some(me) = self.me.upgrade() {
                device.move_to(&(me as Rc<dyn Protocols>));
            }
            device.open(cpu).await?;
            let number = {
                let mut interfaces = self.interfaces.borrow_mut();
                let (name, neighbours) = (device.name().to_owned(), Neighbours::default());
                let place = interfaces.iter().position(|i| i.name == name).unwrap_or(interfaces.len());
                let interface = Interface { device: Some(device), name, address, prefix, neighbours };
                match interfaces.get_mut(place) {
                    Some(old) => *old = interface,
                    None => interfaces.push(interface),
                }
                place
            };
            self.routes.borrow_mut().remove_interface(number);
            let route = Route { network: address, prefix, gateway: None, interface: number };
            self.routes.borrow_mut().add(route);
            Ok(())
        })
    }

    fn add_route(&self, route: &platform::socket::Route) -> Result<(), Error> {
        let named = match &route.device {
            Some(name) => {
                let interfaces = self.interfaces.borrow();
                Some(interfaces.iter().position(|i| i.name == *name).ok_or(Error::NoDevice)?)
            }
            None => None,
        };
        let (interface, is_near) = match (route.gateway, named) {
            (None, Some(interface)) => (interface, true),
            (None, None) => return Err(Error::Invalid),
            (Some(gateway), named) => {
                let (interface, hop) = self.routes.borrow().lookup(gateway).ok_or(Error::Unreachable)?;
                (interface, hop == gateway && named.is_none_or(|named| named == interface))
            }
        };
        if route.prefix > 32 {
            return Err(Error::Invalid);
        }
        if !is_near {
            return Err(Error::Unreachable);
        }
        let (network, prefix, gateway) = (route.network, route.prefix, route.gateway);
        self.routes.borrow_mut().add(Route { network, prefix, gateway, interface });
        Ok(())
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
