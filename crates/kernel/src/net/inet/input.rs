//! The way up: what a packet is, whether it is whole, and who gets it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::cpu::{Cpu, Part};
use platform::net::{Checksum, Packet};
use wire::Malformed;
use wire::ethernet::{Arp, ArpOperation, EtherType, EthernetHeader};
use wire::ip::checksum::Sum;
use wire::ip::{Ipv4Header, TcpHeader, UdpHeader, protocol, udp};

use super::Stack;
use super::buffers::Piece;
use super::steering::{Ring, Upward};
use crate::net::{NetDevice, Protocols};

/// Most bytes of all headers: Ethernet with a tag, IPv4 and TCP with options.
pub(super) const HEADERS: usize = 18 + 60 + 60;

/// A packet's headers, found so far.
pub(super) struct Headers {
    pub bytes: [u8; HEADERS],
    pub count: usize,
    /// Where the header above IP begins.
    pub transport: usize,
    pub ip: Ipv4Header,
}

impl Headers {
    /// The bytes from the header above IP on.
    pub fn above(&self) -> &[u8] {
        &self.bytes[self.transport..self.count]
    }

    /// Bytes from the header above IP to the packet's end.
    pub fn above_len(&self) -> u32 {
        self.ip.payload_len() as u32
    }
}

impl Protocols for Stack {
    fn receive(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, packet: Packet) {
        self.input(cpu, Some((device, queue)), packet);
    }

    fn poll_end(&self, cpu: &Cpu, device: &Rc<NetDevice>, queue: u16, emptied: bool) {
        let ring = (device.number(), queue);
        self.flush_coalesced(cpu, ring);
        self.close_abandoned(cpu);
        if emptied {
            self.ring_emptied(cpu, ring);
        }
    }

    fn device_stopped(&self, cpu: &Cpu, device: &Rc<NetDevice>) {
        self.forget_rings(cpu, device);
    }

    fn device_removed(&self, device: &Rc<NetDevice>) {
        self.interfaces.remove(device);
    }
}

impl Stack {
    /// A packet arrived at a device's queue, or from this host itself.
    pub(super) fn input(&self, cpu: &Cpu, from: Option<(&Rc<NetDevice>, u16)>, packet: Packet) {
        let _part = cpu.book(Part::Net);
        self.count(|c| c.packets_in += 1);
        let mut bytes = [0; HEADERS];
        let count = packet.load(cpu, &mut bytes);
        let (packet, result) = match EthernetHeader::parse(&bytes[..count]) {
            // A frame of a VLAN is for interfaces of that VLAN, of which there are none; VLAN 0 is none (802.1Q, 9.6).
            Ok((ethernet, _)) if ethernet.vlan.is_some_and(|tag| tag.id() != 0) => {
                (Some(packet), Err(Malformed::Unsupported))
            }
            Ok((ethernet, at)) if ethernet.ether_type == EtherType::ARP => {
                (Some(packet), Arp::parse(&bytes[at..count]).and_then(|arp| self.arp_input(cpu, from, &arp)))
            }
            Ok((ethernet, at)) if ethernet.ether_type == EtherType::IPV4 => {
                self.ip_input(cpu, from, packet, bytes, count, at)
            }
            Ok(_) => (Some(packet), Err(Malformed::Unsupported)),
            Err(error) => (Some(packet), Err(error)),
        };
        self.taken(cpu, packet, result);
    }

    /// A packet was used up or not, for a reason.
    pub(super) fn taken(&self, cpu: &Cpu, packet: Option<Packet>, result: Result<(), Malformed>) {
        match result {
            Ok(()) => {}
            Err(Malformed::Checksum) => self.count(|c| c.bad_checksums += 1),
            Err(_) => self.count(|c| c.refused += 1),
        }
        if let Some(packet) = packet {
            packet.release(cpu);
        }
    }

    fn arp_input(&self, cpu: &Cpu, from: Option<(&Rc<NetDevice>, u16)>, arp: &Arp) -> Result<(), Malformed> {
        // Nobody has a group's address (RFC 1812, 3.3.2), nor one of these.
        if arp.sender_mac.is_multicast() || arp.sender_ip.is_multicast() || arp.sender_ip.is_broadcast() {
            return Err(Malformed::Unsupported);
        }
        self.count(|c| c.arp_in += 1);
        let Some((device, _)) = from else { return Ok(()) };
        let Some(interface) = self.interfaces.of(device) else { return Ok(()) };
        let (own, mac) = (self.interfaces.address(interface), device.mac());
        let for_us = arp.target_ip == own;
        let asked = for_us && arp.operation == ArpOperation::Request;
        // A probe says no address (RFC 5227, 1.1), and whoever says ours is not believed.
        let says = !arp.sender_ip.is_unspecified() && arp.sender_ip != own;
        let learnt =
            says && self.interfaces.learn(cpu.now(), interface, (arp.sender_ip, arp.sender_mac), asked);
        if learnt {
            self.neighbour_known(cpu, interface, arp.sender_ip, arp.sender_mac);
        }
        if asked {
            let answer = Arp {
                operation: ArpOperation::Reply,
                sender_mac: mac,
                sender_ip: own,
                target_mac: arp.sender_mac,
                target_ip: arp.sender_ip,
            };
            self.send_arp(cpu, interface, &answer, arp.sender_mac);
        }
        Ok(())
    }

    /// Whether a packet from a device may have this source (RFC 1122, 3.2.1.3): one host, and not this one.
    fn is_source(&self, address: Ipv4Addr) -> bool {
        let nobody = address.is_unspecified() || address.is_broadcast() || address.is_multicast();
        !nobody && !self.interfaces.is_own(address)
    }

    /// An IPv4 packet. It comes back if it was not used up.
    fn ip_input(
        &self,
        cpu: &Cpu,
        from: Option<(&Rc<NetDevice>, u16)>,
        packet: Packet,
        bytes: [u8; HEADERS],
        count: usize,
        at: usize,
    ) -> (Option<Packet>, Result<(), Malformed>) {
        let costs = self.costs();
        let ring = from.map(|(device, queue)| (device.number(), queue));
        cpu.work(costs.ip_input);
        let (ip, length) =
            match Ipv4Header::parse_checked_header(&bytes[at..count], packet.length() as usize - at) {
                Ok(parsed) => parsed,
                Err(error) => return (Some(packet), Err(error)),
            };
        let for_us = match from {
            Some(_) => {
                self.interfaces.is_own(ip.destination)
                    && !ip.destination.is_loopback()
                    && self.is_source(ip.source)
            }
            None => self.interfaces.is_own(ip.destination),
        };
        let to_all =
            ip.destination.is_broadcast() && ip.protocol != protocol::TCP && self.is_source(ip.source);
        if !(for_us || to_all) {
            return (Some(packet), Err(Malformed::Unsupported));
        }
        let transport = at + length;
        if ip.is_fragment() {
            self.fragment_input(cpu, ring, packet, transport as u32, &ip);
            return (None, Ok(()));
        }
        // What the padding of a short frame adds is none of the packet's.
        let end = (at + usize::from(ip.total_len)).min(count);
        self.transport_input(cpu, ring, packet, Headers { bytes, count: end, transport, ip })
    }

    /// A whole packet, behind its IP header. It comes back if it was not used up.
    pub(super) fn transport_input(
        &self,
        cpu: &Cpu,
        ring: Option<Ring>,
        packet: Packet,
        headers: Headers,
    ) -> (Option<Packet>, Result<(), Malformed>) {
        let costs = self.costs();
        if matches!(headers.ip.protocol, protocol::TCP | protocol::UDP)
            && packet.checksum != Checksum::Good
            && !self.checksum_is_right(cpu, &headers, &packet)
        {
            return (Some(packet), Err(Malformed::Checksum));
        }
        match headers.ip.protocol {
            protocol::TCP => match TcpHeader::parse(headers.above()) {
                Ok((header, own)) => {
                    self.count(|c| c.tcp_segments_in += 1);
                    cpu.work(costs.gro);
                    self.coalesce(cpu, ring, packet, &headers, header, own);
                    (None, Ok(()))
                }
                Err(error) => (Some(packet), Err(error)),
            },
            protocol::UDP => match UdpHeader::parse_header(headers.above(), headers.above_len()) {
                Ok(header) => {
                    self.count(|c| c.udp_in += 1);
                    let from = SocketAddrV4::new(headers.ip.source, header.source);
                    let to = SocketAddrV4::new(headers.ip.destination, header.destination);
                    let length = u32::from(header.len) - udp::HEADER_LEN as u32;
                    let piece = Piece::of(packet, (headers.transport + udp::HEADER_LEN) as u32, length);
                    self.upward(cpu, ring, Upward::Udp { from, to, piece });
                    (None, Ok(()))
                }
                Err(error) => (Some(packet), Err(error)),
            },
            protocol::ICMP => {
                let result = self.icmp_input(cpu, &packet, &headers);
                self.count(|c| c.icmp_in += u64::from(result.is_ok()));
                (Some(packet), result)
            }
            _ => (Some(packet), Err(Malformed::Unsupported)),
        }
    }

    /// Sums a packet up that no device has.
    fn checksum_is_right(&self, cpu: &Cpu, headers: &Headers, packet: &Packet) -> bool {
        let length = headers.above_len();
        let mut bytes = load(cpu, packet, headers.transport as u32, length);
        if headers.ip.protocol == protocol::UDP {
            // A checksum of zero is none, and what lies behind a datagram's end is none of its (RFC 768).
            let Ok(udp) = UdpHeader::parse(&bytes) else { return true };
            if udp.checksum == 0 {
                return true;
            }
            bytes.truncate(udp.len.into());
        }
        let length = bytes.len();
        let Ipv4Header { source, destination, protocol, .. } = headers.ip;
        Sum::new().with_pseudo_header(source, destination, protocol, length as u16).with(&bytes).finish() == 0
    }

    /// Whether packets for an address come to a socket that is bound to another.
    pub(super) fn matches(bound: Ipv4Addr, address: Ipv4Addr) -> bool {
        bound.is_unspecified() || bound == address
    }
}

/// Loads bytes of a packet through the caches.
pub(super) fn load(cpu: &Cpu, packet: &Packet, skip: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![0; (skip + length) as usize];
    let mut at = 0;
    for fragment in &packet.fragments {
        let end = (at + fragment.length).min(skip + length);
        let from = at.max(skip);
        if from < end {
            cpu.load(fragment.at + u64::from(from - at), &mut bytes[from as usize..end as usize]);
        }
        at += fragment.length;
        if at >= skip + length {
            break;
        }
    }
    bytes.drain(..skip as usize);
    bytes
}
