//! Frame parsing as in a NIC: header offsets and flow.

use std::net::IpAddr;

use super::checksum::{Sum, udp_on_wire};
use super::{protocol, tcp, udp};
use crate::ethernet::{EtherType, EthernetHeader};

/// Source and destination of a packet, from which flows are identified.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source and destination port; `None` if there are none, as in fragments.
    pub ports: Option<(u16, u16)>,
}

impl Flow {
    /// Hash of addresses and ports that selects a link of an aggregate (Linux's bonding: layer3+4).
    pub fn link_hash(&self) -> u32 {
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => u32::from(address),
            IpAddr::V6(address) => (u128::from(address) % u128::from(u32::MAX)) as u32,
        };
        let (from, to) = self.ports.unwrap_or_default();
        let hash = (u32::from(from) << 16 | u32::from(to)) ^ address(self.source) ^ address(self.destination);
        let hash = hash ^ hash >> 16;
        (hash ^ hash >> 8) >> 1
    }

    /// The flow of an IPv4 packet, from the start of its frame; the rest may be missing.
    pub fn of_headers(headers: &[u8]) -> Option<Self> {
        let (ethernet, network) = EthernetHeader::parse(headers).ok()?;
        let packet = &headers[network..];
        let h: &[u8; 20] = packet.first_chunk()?;
        let length = usize::from(h[0] & 0xf) * 4;
        if ethernet.ether_type != EtherType::IPV4 || h[0] >> 4 != 4 || length < 20 {
            return None;
        }
        let protocol = h[9];
        let is_fragment = u16::from_be_bytes([h[6], h[7]]) & 0x3fff != 0;
        let has_ports = !is_fragment && matches!(protocol, protocol::TCP | protocol::UDP);
        let first = packet.get(length..).and_then(|transport| transport.first_chunk());
        let ports = first
            .filter(|_| has_ports)
            .map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
        let source = [h[12], h[13], h[14], h[15]];
        let destination = [h[16], h[17], h[18], h[19]];
        Some(Self { protocol, source: source.into(), destination: destination.into(), ports })
    }
}

/// Offsets of the parts of an IP packet in its frame. The frame excludes the check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dissection {
    /// Offset of the IP header.
    pub network: usize,
    /// Offset of the transport header, or of whatever else follows IP.
    pub transport: usize,
    /// Offset of the transport's data, if the header is complete and of a known protocol.
    pub data: Option<usize>,
    /// End of the packet; the frame may have padding after it.
    pub end: usize,
    /// Source and destination.
    pub flow: Flow,
}

/// A NIC's result of checking a packet's checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No checksum that it knows.
    Unknown,
    /// Correct.
    Right,
    /// Wrong: the packet was damaged on its way.
    Wrong,
}

impl Dissection {
    /// Parses a frame; `None` unless it contains a complete IPv4 or IPv6 packet.
    ///
    /// IPv6 extension headers are not followed: the flow's protocol is the first one's number.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (header, network) = EthernetHeader::parse(frame).ok()?;
        let packet = &frame[network..];
        match header.ether_type {
            EtherType::IPV4 => {
                let h: &[u8; 20] = packet.first_chunk()?;
                let (len, total) =
                    (usize::from(h[0] & 0xf) * 4, usize::from(u16::from_be_bytes([h[2], h[3]])));
                if h[0] >> 4 != 4 || len < 20 || total < len || total > packet.len() {
                    return None;
                }
                let source = [h[12], h[13], h[14], h[15]];
                let destination = [h[16], h[17], h[18], h[19]];
                let is_fragment = u16::from_be_bytes([h[6], h[7]]) & 0x3fff != 0;
                let places = (network, network + len, network + total);
                Some(Self::with_transport(
                    frame,
                    places,
                    h[9],
                    source.into(),
                    destination.into(),
                    is_fragment,
                ))
            }
            EtherType::IPV6 => {
                let h: &[u8; 40] = packet.first_chunk()?;
                let total = 40 + usize::from(u16::from_be_bytes([h[4], h[5]]));
                if h[0] >> 4 != 6 || total > packet.len() {
                    return None;
                }
                let source: [u8; 16] = std::array::from_fn(|i| h[8 + i]);
                let destination: [u8; 16] = std::array::from_fn(|i| h[24 + i]);
                let places = (network, network + 40, network + total);
                Some(Self::with_transport(frame, places, h[6], source.into(), destination.into(), false))
            }
            _ => None,
        }
    }

    fn with_transport(
        frame: &[u8],
        (network, transport, end): (usize, usize, usize),
        protocol: u8,
        source: IpAddr,
        destination: IpAddr,
        is_fragment: bool,
    ) -> Self {
        let payload = &frame[transport..end];
        let (mut ports, mut data) = (None, None);
        if !is_fragment && matches!(protocol, protocol::TCP | protocol::UDP) {
            if let Some(&[a, b, c, d]) = payload.first_chunk() {
                ports = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
            }
            let least = if protocol == protocol::TCP { tcp::HEADER_LEN } else { udp::HEADER_LEN };
            if payload.len() >= least {
                let len = if protocol == protocol::TCP { usize::from(payload[12] >> 4) * 4 } else { least };
                data = (len >= least && len <= payload.len()).then_some(transport + len);
            }
        }
        Self { network, transport, data, end, flow: Flow { protocol, source, destination, ports } }
    }

    /// Checks the IPv4 header checksum; IPv6 has none.
    pub fn network_verdict(&self, frame: &[u8]) -> Verdict {
        match self.flow.source {
            IpAddr::V6(_) => Verdict::Unknown,
            IpAddr::V4(_) if Sum::new().with(&frame[self.network..self.transport]).finish() == 0 => {
                Verdict::Right
            }
            IpAddr::V4(_) => Verdict::Wrong,
        }
    }

    /// Checks the TCP or UDP checksum. A UDP datagram without one is [`Verdict::Unknown`].
    pub fn transport_verdict(&self, frame: &[u8]) -> Verdict {
        let Some(at) = self.checksum_at() else { return Verdict::Unknown };
        if self.flow.protocol == protocol::UDP && frame[at..at + 2] == [0, 0] {
            return Verdict::Unknown;
        }
        if self.transport_sum(frame).finish() == 0 { Verdict::Right } else { Verdict::Wrong }
    }

    /// Fills in the IPv4 header checksum.
    pub fn fill_network_checksum(&self, frame: &mut [u8]) {
        if self.flow.source.is_ipv4() {
            let header = &mut frame[self.network..self.transport];
            header[10..12].fill(0);
            let sum = Sum::new().with(header).finish();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Fills in the TCP or UDP checksum. `false` if the packet is neither.
    pub fn fill_transport_checksum(&self, frame: &mut [u8]) -> bool {
        let Some(at) = self.checksum_at() else { return false };
        frame[at..at + 2].fill(0);
        let mut sum = self.transport_sum(frame).finish();
        if self.flow.protocol == protocol::UDP {
            sum = udp_on_wire(sum);
        }
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        true
    }

    /// Offset of the transport checksum, if the header is complete and of a known protocol.
    fn checksum_at(&self) -> Option<usize> {
        self.data?;
        match self.flow.protocol {
            protocol::TCP => Some(self.transport + tcp::CHECKSUM_AT),
            _ => Some(self.transport + udp::CHECKSUM_AT),
        }
    }

    fn transport_sum(&self, frame: &[u8]) -> Sum {
        let len = self.end - self.transport;
        let addresses = match (self.flow.source, self.flow.destination) {
            (IpAddr::V4(a), IpAddr::V4(b)) => Sum::new().with(&a.octets()).with(&b.octets()),
            (IpAddr::V6(a), IpAddr::V6(b)) => Sum::new().with(&a.octets()).with(&b.octets()),
            _ => Sum::new(),
        };
        // The IPv6 pseudo-header has a 32-bit length (RFC 8200, 8.1); the sum is the same.
        addresses
            .with(&(len as u32).to_be_bytes())
            .with(&[0, self.flow.protocol])
            .with(&frame[self.transport..self.end])
    }
}

#[cfg(test)]
mod tests;
