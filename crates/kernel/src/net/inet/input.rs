//! IP receive: parses and checks packets, and passes them to their protocol.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::cpu::{Cpu, Part};
use platform::net::{Checksum, Packet};
use wire::Malformed;
use wire::ethernet::{Arp, EtherType, EthernetHeader};
use wire::ip::checksum::Sum;
use wire::ip::{Ipv4Header, TcpHeader, UdpHeader, protocol, udp};

use super::buffers::Piece;
use super::fragments::Fragments;
use super::icmp::Icmp;
use super::interfaces::Interfaces;
use super::means::Means;
use super::resolver::Resolver;
use super::steering::Steering;
use super::tcp::Coalescing;
use super::upward::{Ring, Upward};
use crate::net::NetDevice;

/// Most bytes of all headers: Ethernet with a VLAN tag, IPv4, and TCP with options.
pub(super) const HEADERS: usize = 18 + 60 + 60;

/// Bytes of the usual headers: Ethernet, IPv4, and TCP with a timestamp option. Loading more would touch a cache line of payload.
const USUAL_HEADERS: usize = 14 + 20 + 32;

/// Whether headers may be longer than [`USUAL_HEADERS`] because of a VLAN tag, IP options, or TCP options other than a timestamp.
fn may_be_longer(bytes: &[u8]) -> bool {
    const TCP_LENGTH: usize = 14 + 20 + 12;
    match EthernetHeader::parse(bytes) {
        Ok((ethernet, at)) if ethernet.ether_type == EtherType::IPV4 => {
            let is_tcp = bytes.get(at + 9) == Some(&protocol::TCP);
            ethernet.vlan.is_some()
                || bytes.get(at) != Some(&0x45)
                || is_tcp && bytes.get(TCP_LENGTH).is_none_or(|length| length >> 4 > 8)
        }
        Ok((ethernet, _)) => ethernet.vlan.is_some(),
        Err(_) => false,
    }
}

/// Headers of a packet, as far as parsed.
pub(super) struct Headers {
    pub bytes: [u8; HEADERS],
    pub count: usize,
    /// Offset of the transport header.
    pub transport: usize,
    pub ip: Ipv4Header,
}

impl Headers {
    /// Bytes from the transport header on.
    pub fn above(&self) -> &[u8] {
        &self.bytes[self.transport..self.count]
    }

    /// Length from the transport header to the packet's end.
    pub fn above_len(&self) -> u32 {
        self.ip.payload_len() as u32
    }
}

/// Parses received packets.
pub struct Input {
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    resolver: Rc<Resolver>,
    fragments: Rc<Fragments>,
    coalescing: Coalescing,
    steering: Rc<Steering>,
    icmp: Rc<Icmp>,
}

impl Input {
    pub fn new(
        means: &Rc<Means>,
        interfaces: &Rc<Interfaces>,
        resolver: &Rc<Resolver>,
        fragments: &Rc<Fragments>,
        steering: &Rc<Steering>,
        icmp: &Rc<Icmp>,
    ) -> Self {
        Self {
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            resolver: Rc::clone(resolver),
            fragments: Rc::clone(fragments),
            coalescing: Coalescing::new(Rc::clone(means)),
            steering: Rc::clone(steering),
            icmp: Rc::clone(icmp),
        }
    }

    pub fn clear(&self) {
        self.coalescing.clear();
    }

    /// A poll of a queue ends: passes on coalesced segments.
    pub fn poll_end(&self, cpu: &Cpu, ring: Ring) {
        for up in self.coalescing.flush(ring) {
            self.steering.upward(cpu, Some(ring), up);
        }
    }

    /// A packet arrived at a device's queue, or from this host itself.
    pub fn packet(&self, cpu: &Cpu, from: Option<(&Rc<NetDevice>, u16)>, packet: Packet) {
        let _part = cpu.book(Part::Net);
        self.means.count(|c| c.packets_in += 1);
        let mut bytes = [0; HEADERS];
        let mut count = packet.load(cpu, &mut bytes[..USUAL_HEADERS]);
        if count == USUAL_HEADERS && may_be_longer(&bytes[..count]) {
            count = packet.load(cpu, &mut bytes);
        }
        let (packet, result) = match EthernetHeader::parse(&bytes[..count]) {
            // There are no VLAN interfaces, so tagged frames are dropped. VLAN 0 means untagged (802.1Q, 9.6).
            Ok((ethernet, _)) if ethernet.vlan.is_some_and(|tag| tag.id() != 0) => {
                (Some(packet), Err(Malformed::Unsupported))
            }
            Ok((ethernet, at)) if ethernet.ether_type == EtherType::ARP => (
                Some(packet),
                Arp::parse(&bytes[at..count])
                    .and_then(|arp| self.resolver.input(cpu, from.map(|(device, _)| device), &arp)),
            ),
            Ok((ethernet, at)) if ethernet.ether_type == EtherType::IPV4 => {
                self.ip_input(cpu, from, packet, bytes, count, at)
            }
            Ok(_) => (Some(packet), Err(Malformed::Unsupported)),
            Err(error) => (Some(packet), Err(error)),
        };
        self.taken(cpu, packet, result);
    }

    /// Releases a packet that was not consumed, and counts its error.
    fn taken(&self, cpu: &Cpu, packet: Option<Packet>, result: Result<(), Malformed>) {
        match result {
            Ok(()) => {}
            Err(Malformed::Checksum) => self.means.count(|c| c.bad_checksums += 1),
            Err(_) => self.means.count(|c| c.refused += 1),
        }
        if let Some(packet) = packet {
            packet.release(cpu);
        }
    }

    /// Whether a packet from a device may have this source (RFC 1122, 3.2.1.3): a unicast address of another host.
    fn is_source(&self, address: Ipv4Addr) -> bool {
        let nobody = address.is_unspecified() || address.is_broadcast() || address.is_multicast();
        !nobody && !self.interfaces.is_own(address)
    }

    /// Handles an IPv4 packet. Returns it if it was not consumed.
    fn ip_input(
        &self,
        cpu: &Cpu,
        from: Option<(&Rc<NetDevice>, u16)>,
        packet: Packet,
        bytes: [u8; HEADERS],
        count: usize,
        at: usize,
    ) -> (Option<Packet>, Result<(), Malformed>) {
        let costs = self.means.costs();
        let ring = from.map(|(device, queue)| (device.number(), queue));
        let coalesces = from.is_none_or(|(device, _)| device.coalesces_segments());
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
            let Some((packet, ip)) = self.fragments.input(cpu, packet, transport as u32, &ip) else {
                return (None, Ok(()));
            };
            let mut bytes = [0; HEADERS];
            let count = packet.load(cpu, &mut bytes);
            return self.transport_input(
                cpu,
                (ring, coalesces),
                packet,
                Headers { bytes, count, transport: 0, ip },
            );
        }
        // Ignore the padding of short frames.
        let end = (at + usize::from(ip.total_len)).min(count);
        self.transport_input(cpu, (ring, coalesces), packet, Headers { bytes, count: end, transport, ip })
    }

    /// Handles a complete packet behind its IP header. Returns it if it was not consumed.
    fn transport_input(
        &self,
        cpu: &Cpu,
        (ring, coalesces): (Option<Ring>, bool),
        packet: Packet,
        headers: Headers,
    ) -> (Option<Packet>, Result<(), Malformed>) {
        let costs = self.means.costs();
        if matches!(headers.ip.protocol, protocol::TCP | protocol::UDP)
            && packet.checksum != Checksum::Good
            && !self.checksum_is_right(cpu, &headers, &packet)
        {
            return (Some(packet), Err(Malformed::Checksum));
        }
        match headers.ip.protocol {
            protocol::TCP => match TcpHeader::parse(headers.above()) {
                Ok((header, own)) => {
                    self.means.count(|c| c.tcp_segments_in += 1);
                    if coalesces {
                        cpu.work(costs.gro);
                    }
                    let held = ring.filter(|_| coalesces);
                    for up in self.coalescing.take(held, packet, &headers, header, own).into_iter().flatten()
                    {
                        self.steering.upward(cpu, ring, up);
                    }
                    (None, Ok(()))
                }
                Err(error) => (Some(packet), Err(error)),
            },
            protocol::UDP => match UdpHeader::parse_header(headers.above(), headers.above_len()) {
                Ok(header) => {
                    self.means.count(|c| c.udp_in += 1);
                    let from = SocketAddrV4::new(headers.ip.source, header.source);
                    let to = SocketAddrV4::new(headers.ip.destination, header.destination);
                    let length = u32::from(header.len) - udp::HEADER_LEN as u32;
                    let piece = Piece::of(packet, (headers.transport + udp::HEADER_LEN) as u32, length);
                    self.steering.upward(cpu, ring, Upward::Udp { from, to, piece });
                    (None, Ok(()))
                }
                Err(error) => (Some(packet), Err(error)),
            },
            protocol::ICMP => {
                let result = self.icmp.input(cpu, &packet, &headers);
                self.means.count(|c| c.icmp_in += u64::from(result.is_ok()));
                (Some(packet), result)
            }
            _ => (Some(packet), Err(Malformed::Unsupported)),
        }
    }

    /// Verifies the checksum of a packet that the device has not checked.
    fn checksum_is_right(&self, cpu: &Cpu, headers: &Headers, packet: &Packet) -> bool {
        let length = headers.above_len();
        let mut bytes = load(cpu, packet, headers.transport as u32, length);
        if headers.ip.protocol == protocol::UDP {
            // Zero means no checksum, and bytes behind the datagram's end do not count (RFC 768).
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
