//! A tester's Ethernet port: parses frames addressed to it and builds frames.

use std::net::Ipv4Addr;

use wire::ethernet::{self, Arp, ArpOperation, EtherType, EthernetHeader, LEAST_FRAME, MacAddr};
use wire::ip::{Ipv4Header, TcpHeader, protocol};

/// A received packet for this port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// An ARP request or reply.
    Arp(Arp),
    /// A TCP segment: sender, header and data.
    Tcp(Ipv4Addr, TcpHeader, &'a [u8]),
}

/// A port with its addresses.
#[derive(Clone, Debug)]
pub struct Port {
    pub mac: MacAddr,
    pub address: Ipv4Addr,
    /// Reused to avoid an allocation per frame.
    frame: Vec<u8>,
}

impl Port {
    pub fn new(mac: MacAddr, address: Ipv4Addr) -> Self {
        Self { mac, address, frame: Vec::new() }
    }

    /// Parses a frame; `None` if it is damaged, for another port, or of an unknown protocol.
    pub fn read<'a>(&self, frame: &'a [u8]) -> Option<Arrived<'a>> {
        let (header, at) = EthernetHeader::parse(frame).ok()?;
        let for_us = header.destination == self.mac || header.destination.is_broadcast();
        if !for_us || header.vlan.is_some() || !ethernet::fcs_is_right(frame) {
            return None;
        }
        let packet = &frame[at..frame.len() - ethernet::FCS_LEN];
        match header.ether_type {
            EtherType::ARP => Some(Arrived::Arp(Arp::parse(packet).ok()?)),
            EtherType::IPV4 => self.read_ip(packet),
            _ => None,
        }
    }

    fn read_ip<'a>(&self, packet: &'a [u8]) -> Option<Arrived<'a>> {
        let (ip, at) = Ipv4Header::parse_checked(packet).ok()?;
        if ip.destination != self.address || ip.protocol != protocol::TCP || ip.is_fragment() {
            return None;
        }
        let segment = &packet[at..usize::from(ip.total_len)];
        if !TcpHeader::checksum_is_right(segment, ip.source, ip.destination) {
            return None;
        }
        let (tcp, at) = TcpHeader::parse(segment).ok()?;
        Some(Arrived::Tcp(ip.source, tcp, &segment[at..]))
    }

    /// Builds an ARP request for an address.
    pub fn question(&mut self, target: Ipv4Addr) -> &[u8] {
        self.arp(ArpOperation::Request, MacAddr::BROADCAST, MacAddr([0; 6]), target)
    }

    /// Whether an ARP message asks for this port's address.
    pub fn is_asked(&self, arp: &Arp) -> bool {
        arp.operation == ArpOperation::Request && arp.target_ip == self.address
    }

    /// Builds the ARP reply to a request.
    pub fn answer(&mut self, question: &Arp) -> &[u8] {
        self.arp(ArpOperation::Reply, question.sender_mac, question.sender_mac, question.sender_ip)
    }

    fn arp(&mut self, operation: ArpOperation, to: MacAddr, target_mac: MacAddr, target: Ipv4Addr) -> &[u8] {
        let (sender_mac, sender_ip) = (self.mac, self.address);
        let arp = Arp { operation, sender_mac, sender_ip, target_mac, target_ip: target };
        let at = self.begin(to, EtherType::ARP, ethernet::arp::LEN);
        arp.emit(&mut self.frame[at..]);
        self.end()
    }

    /// Builds a TCP segment; `fill` writes its `length` bytes of data.
    pub fn segment(
        &mut self,
        (to, peer): (MacAddr, Ipv4Addr),
        header: &TcpHeader,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> &[u8] {
        let own = self.address;
        let bytes = header.len() + length;
        let ip = Ipv4Header::new(own, peer, protocol::TCP, bytes as u16);
        let at = self.begin(to, EtherType::IPV4, ip.len() + bytes);
        let behind = at + ip.emit(&mut self.frame[at..]);
        let segment = &mut self.frame[behind..behind + bytes];
        let data = header.emit(segment);
        fill(&mut segment[data..]);
        TcpHeader::fill_checksum(segment, own, peer);
        self.end()
    }

    /// Starts a frame with `length` bytes of payload; returns the payload's offset.
    fn begin(&mut self, to: MacAddr, kind: EtherType, length: usize) -> usize {
        let header = EthernetHeader::new(self.mac, to, kind);
        let bytes = (header.len() + length).max(LEAST_FRAME - ethernet::FCS_LEN);
        self.frame.clear();
        self.frame.resize(bytes, 0);
        header.emit(&mut self.frame)
    }

    fn end(&mut self) -> &[u8] {
        ethernet::append_fcs(&mut self.frame);
        &self.frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ip::TcpFlags;

    fn ports() -> [Port; 2] {
        [1, 2].map(|n| Port::new(MacAddr::local(n.into()), Ipv4Addr::new(10, 0, 0, n)))
    }

    #[test]
    fn a_question_and_its_answer() {
        let [mut asks, mut has] = ports();
        let frame = asks.question(has.address).to_vec();
        assert_eq!(frame.len(), LEAST_FRAME);
        let Some(Arrived::Arp(question)) = has.read(&frame) else { panic!("a question") };
        assert_eq!((question.operation, question.target_ip), (ArpOperation::Request, has.address));
        let frame = has.answer(&question).to_vec();
        let Some(Arrived::Arp(answer)) = asks.read(&frame) else { panic!("an answer") };
        assert_eq!((answer.operation, answer.sender_mac), (ArpOperation::Reply, has.mac));
        assert_eq!(has.read(&frame), None, "it is for the other one");
    }

    #[test]
    fn a_segment_arrives_whole_or_not_at_all() {
        let [mut from, to] = ports();
        let header = TcpHeader {
            source: 1,
            destination: 2,
            sequence: 7,
            flags: TcpFlags::ACK,
            ..TcpHeader::default()
        };
        for length in [0, 1, 700] {
            let fill = |data: &mut [u8]| data.iter_mut().zip(0..).for_each(|(byte, n)| *byte = n as u8);
            let mut frame = from.segment((to.mac, to.address), &header, length, fill).to_vec();
            let Some(Arrived::Tcp(whose, tcp, data)) = to.read(&frame) else { panic!("a segment") };
            assert_eq!((whose, tcp), (from.address, header));
            assert!(data.len() == length && data.iter().enumerate().all(|(n, &byte)| byte == n as u8));
            for place in [20, 40, frame.len() - 1] {
                frame[place] ^= 1;
                assert_eq!(to.read(&frame), None, "byte {place} is damaged");
                frame[place] ^= 1;
            }
        }
    }
}
