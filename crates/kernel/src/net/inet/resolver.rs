//! ARP (RFC 826): requests, replies, and packets that wait for an address.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;

use inet::arp::Resolution;
use platform::Error;
use platform::cpu::Cpu;
use platform::memory::PhysAddr;
use platform::net::{Fragment, Packet};
use wire::Malformed;
use wire::ethernet::{Arp, ArpOperation, EtherType, EthernetHeader, HEADER_LEN as ETHERNET, MacAddr};

use super::buffers::{Heads, Made};
use super::interfaces::Interfaces;
use super::means::Means;
use super::timers::{NEIGHBOURS, Timers};
use crate::net::NetDevice;

/// Packets that may wait for one neighbour (Linux: `unres_qlen_bytes`, about a hundred).
const MOST_WAITING: usize = 101;

/// A packet that waits for its next hop's address, and its destination.
type Waiting = (Packet, Ipv4Addr);

/// Resolves neighbours' Ethernet addresses.
pub struct Resolver {
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    heads: Rc<Heads>,
    timers: Rc<Timers>,
    waiting: RefCell<BTreeMap<(usize, Ipv4Addr), Vec<Waiting>>>,
}

impl Resolver {
    pub fn new(
        means: &Rc<Means>,
        interfaces: &Rc<Interfaces>,
        heads: &Rc<Heads>,
        timers: &Rc<Timers>,
    ) -> Rc<Self> {
        Rc::new(Self {
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            heads: Rc::clone(heads),
            timers: Rc::clone(timers),
            waiting: RefCell::default(),
        })
    }

    pub fn clear(&self) {
        self.waiting.borrow_mut().clear();
    }

    /// Handles an ARP message.
    ///
    /// # Errors
    /// If the sender's address is impossible.
    pub fn input(&self, cpu: &Cpu, from: Option<&Rc<NetDevice>>, arp: &Arp) -> Result<(), Malformed> {
        // Group addresses (RFC 1812, 3.3.2) and multicast or broadcast IP addresses belong to no host.
        if arp.sender_mac.is_multicast() || arp.sender_ip.is_multicast() || arp.sender_ip.is_broadcast() {
            return Err(Malformed::Unsupported);
        }
        self.means.count(|c| c.arp_in += 1);
        let Some(device) = from else { return Ok(()) };
        let Some(interface) = self.interfaces.of(device) else { return Ok(()) };
        let (own, mac) = (self.interfaces.address(interface), device.mac());
        let for_us = arp.target_ip == own;
        let asked = for_us && arp.operation == ArpOperation::Request;
        // A probe carries no address (RFC 5227, 1.1). Claims to our own address are ignored.
        let says = !arp.sender_ip.is_unspecified() && arp.sender_ip != own;
        let learnt =
            says && self.interfaces.learn(cpu.now(), interface, (arp.sender_ip, arp.sender_mac), asked);
        if learnt {
            self.known(cpu, interface, arp.sender_ip, arp.sender_mac);
        }
        if asked {
            let answer = Arp {
                operation: ArpOperation::Reply,
                sender_mac: mac,
                sender_ip: own,
                target_mac: arp.sender_mac,
                target_ip: arp.sender_ip,
            };
            self.send(cpu, interface, &answer, arp.sender_mac);
        }
        Ok(())
    }

    /// A neighbour's address, or what to do to get it.
    pub fn resolve(&self, cpu: &Cpu, interface: usize, hop: Ipv4Addr) -> Resolution {
        self.interfaces.resolve(cpu.now(), interface, hop)
    }

    /// Queues a packet until its neighbour's address is known, and asks for the address if nobody has. Drops the
    /// oldest packet if too many wait.
    pub fn wait(
        &self,
        cpu: &Cpu,
        (interface, hop): (usize, Ipv4Addr),
        packet: Packet,
        to: Ipv4Addr,
        ask: bool,
    ) {
        let mut all = self.waiting.borrow_mut();
        let queue = all.entry((interface, hop)).or_default();
        let oldest = (queue.len() >= MOST_WAITING).then(|| queue.remove(0));
        queue.push((packet, to));
        drop(all);
        if let Some((oldest, _)) = oldest {
            self.means.count(|c| c.unreachable += 1);
            oldest.release(cpu);
        }
        if ask {
            self.ask(cpu, interface, hop);
            self.arm(cpu);
        }
    }

    /// Repeats requests. Gives up on neighbours that do not answer: drops their packets, and calls `lost` with the
    /// destinations.
    pub fn timer(&self, cpu: &Cpu, lost: impl Fn(Ipv4Addr)) {
        for interface in 0..self.interfaces.count() {
            let (ask, silent) = self.interfaces.timer(cpu.now(), interface);
            ask.into_iter().for_each(|hop| self.ask(cpu, interface, hop));
            for (packet, to) in silent.into_iter().flat_map(|hop| self.take_waiting(interface, hop)) {
                self.means.count(|c| c.unreachable += 1);
                packet.release(cpu);
                lost(to);
            }
        }
        self.arm(cpu);
    }

    fn arm(&self, cpu: &Cpu) {
        self.timers.arm(cpu, NEIGHBOURS, self.interfaces.deadline());
    }

    fn take_waiting(&self, interface: usize, hop: Ipv4Addr) -> Vec<Waiting> {
        self.waiting.borrow_mut().remove(&(interface, hop)).unwrap_or_default()
    }

    /// Broadcasts an ARP request.
    fn ask(&self, cpu: &Cpu, interface: usize, hop: Ipv4Addr) {
        let Some(device) = self.interfaces.device(interface) else { return };
        let question = Arp {
            operation: ArpOperation::Request,
            sender_mac: device.mac(),
            sender_ip: self.interfaces.address(interface),
            target_mac: MacAddr::default(),
            target_ip: hop,
        };
        self.send(cpu, interface, &question, MacAddr::BROADCAST);
    }

    fn send(&self, cpu: &Cpu, interface: usize, message: &Arp, to: MacAddr) {
        let Some(device) = self.interfaces.device(interface) else { return };
        let Ok(head) = self.heads.take(cpu) else { return self.means.count(|c| c.no_memory += 1) };
        let mut bytes = [0; ETHERNET + wire::ethernet::arp::LEN];
        EthernetHeader::new(device.mac(), to, EtherType::ARP).emit(&mut bytes);
        message.emit(&mut bytes[ETHERNET..]);
        cpu.store(head, &bytes);
        let made = Made { heads: Rc::clone(&self.heads), head, holds: RefCell::default(), socket: None };
        let fragment = Fragment { pages: None, at: head, length: bytes.len() as u32 };
        // A lost request is repeated.
        let _: Result<(), Error> = device.transmit(cpu, Packet::of(fragment, Some(Rc::new(made))), false);
    }

    /// A neighbour's address is known: sends its packets.
    fn known(&self, cpu: &Cpu, interface: usize, hop: Ipv4Addr, mac: MacAddr) {
        let waiting = self.take_waiting(interface, hop);
        let device = self.interfaces.device(interface);
        for (packet, _) in waiting {
            match (&device, packet.fragments.first().map(|f| f.at)) {
                (Some(device), Some(at)) => {
                    set_destination(cpu, at, mac);
                    let _ = device.transmit(cpu, packet, false);
                }
                _ => packet.release(cpu),
            }
        }
    }
}

/// Writes the destination address into a finished frame.
fn set_destination(cpu: &Cpu, frame: PhysAddr, mac: MacAddr) {
    cpu.store(frame, &mac.0);
}
