//! The protocol stack: passes requests of devices, timers and programs to the part in charge.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::{Rc, Weak};

use platform::Error;
use platform::cpu::{Async, Cpu, Part};
use platform::net::Packet;
use platform::socket::{InetCounters, InterfaceInfo, Network, PingSocket, TcpListener, TcpStream, UdpSocket};

use super::InetParams;
use super::buffers::Heads;
use super::fragments::Fragments;
use super::icmp::Icmp;
use super::input::Input;
use super::interfaces::Interfaces;
use super::loopback::{Loopback, Looped};
use super::means::Means;
use super::output::Output;
use super::resolver::Resolver;
use super::steering::Steering;
use super::tcp::Tcp;
use super::timers::{Expired, FRAGMENTS, NEIGHBOURS, Owner, Timers};
use super::udp::Udp;
use super::upward::{Sockets, Upward};
use crate::base::Base;
use crate::irq::Softirqs;
use crate::net::{Net, NetDevice, Protocols};

/// The Internet protocols of a kernel or namespace.
pub(crate) struct Stack {
    me: Weak<Self>,
    params: InetParams,
    softirqs: Rc<Softirqs>,
    /// Registry of devices; weak, since devices hold the stack.
    net: Weak<Net>,
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    resolver: Rc<Resolver>,
    output: Rc<Output>,
    fragments: Rc<Fragments>,
    steering: Rc<Steering>,
    tcp: Rc<Tcp>,
    udp: Rc<Udp>,
    icmp: Rc<Icmp>,
    input: Input,
}

impl Stack {
    /// A stack above these devices.
    pub fn new(base: Base, softirqs: Rc<Softirqs>, net: Weak<Net>, params: InetParams) -> Rc<Self> {
        Rc::new_cyclic(|me: &Weak<Self>| {
            let means = Means::new(base);
            let interfaces = Rc::new(Interfaces::default());
            let heads = Heads::new(Rc::clone(&means));
            let timers = Timers::new(me.clone(), Rc::clone(&means), Rc::clone(&softirqs));
            let resolver = Resolver::new(&means, &interfaces, &heads, &timers);
            let loopback = Loopback::new(me.clone(), Rc::clone(&softirqs));
            let output = Output::new(&means, &interfaces, &heads, &resolver, loopback);
            let steering = Steering::new(me.clone(), &means, &softirqs, &interfaces, params.steering);
            let tcp = Tcp::new(&means, &interfaces, &heads, &timers, &output, &steering, params);
            let udp = Udp::new(&means, &interfaces, &output, &steering);
            let icmp = Icmp::new(&means, &interfaces, &output);
            let fragments = Fragments::new(&means, &timers, params.fragments);
            let input = Input::new(&means, &interfaces, &resolver, &fragments, &steering, &icmp);
            Self {
                me: me.clone(),
                params,
                softirqs,
                net,
                means,
                interfaces,
                resolver,
                output,
                fragments,
                steering,
                tcp,
                udp,
                icmp,
                input,
            }
        })
    }

    /// Another stack with the same settings, for a namespace.
    pub fn another(&self) -> Rc<Self> {
        let base = self.means.base().clone();
        Self::new(base, Rc::clone(&self.softirqs), Weak::clone(&self.net), self.params)
    }

    /// Drops everything that holds a reference to the kernel.
    pub fn clear(&self) {
        self.interfaces.clear();
        self.resolver.clear();
        self.tcp.clear();
        self.udp.clear();
        self.icmp.clear();
        self.output.clear();
        self.input.clear();
        self.steering.clear();
        self.fragments.clear();
    }

    fn system_call(&self, cpu: &Cpu) {
        self.tcp.close_abandoned(cpu);
        cpu.work(self.means.costs().syscall);
    }
}

impl Protocols for Stack {
    fn receive(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, packet: Packet) {
        self.input.packet(cpu, Some((device, queue)), packet);
    }

    fn poll_end(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, emptied: bool) {
        let ring = (device.number(), queue);
        self.input.poll_end(cpu, ring);
        self.tcp.close_abandoned(cpu);
        if emptied {
            self.steering.ring_emptied(cpu, ring);
        }
    }

    fn device_stopped(&self, cpu: &Cpu, device: &Rc<NetDevice>) {
        self.steering.forget_rings(cpu, device);
    }

    fn device_removed(&self, device: &Rc<NetDevice>) {
        self.interfaces.remove(device);
    }
}

impl Network for Stack {
    fn interfaces(&self) -> Vec<InterfaceInfo> {
        self.interfaces.infos()
    }

    fn route_to(&self, to: Ipv4Addr) -> Option<InterfaceInfo> {
        self.interfaces.info_towards(to)
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
            self.tcp.connect(cpu, from, to).await
        })
    }

    fn listen(&self, cpu: &Cpu, at: SocketAddrV4, backlog: usize) -> Result<Rc<dyn TcpListener>, Error> {
        self.system_call(cpu);
        self.tcp.listen(at, backlog)
    }

    fn udp(&self, cpu: &Cpu, at: SocketAddrV4) -> Result<Rc<dyn UdpSocket>, Error> {
        self.system_call(cpu);
        self.udp.socket(at)
    }

    fn ping(&self, cpu: &Cpu) -> Result<Rc<dyn PingSocket>, Error> {
        self.system_call(cpu);
        self.icmp.socket()
    }

    fn counters(&self) -> InetCounters {
        self.means.counters()
    }
}

impl Looped for Stack {
    fn looped(&self, cpu: &Cpu, packet: Packet) {
        self.input.packet(cpu, None, packet);
    }
}

impl Sockets for Stack {
    fn hand_up(&self, cpu: &Cpu, up: Upward) {
        match up {
            Upward::Tcp { ends, header, piece, came } => self.tcp.input(cpu, ends, &header, piece, came),
            Upward::Udp { from, to, piece } => self.udp.input(cpu, from, to, piece),
        }
    }
}

impl Expired for Stack {
    fn expired(&self, cpu: &Cpu, owner: Owner) {
        match owner {
            NEIGHBOURS => self.resolver.timer(cpu, |host| {
                self.tcp.unreachable(cpu, host);
                self.icmp.unreachable(host);
            }),
            FRAGMENTS => self.fragments.timer(cpu),
            socket => self.tcp.timer(cpu, socket),
        }
        self.tcp.close_abandoned(cpu);
    }
}
