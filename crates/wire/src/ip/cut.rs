//! TCP segmentation (TSO) for devices and drivers.

use std::fmt;

use super::tcp::{FLAGS_AT, HEADER_LEN, SEQUENCE_AT};
use super::{TcpFlags, protocol};
use crate::ethernet::{EtherType, EthernetHeader};

/// Reason why a frame cannot be segmented as its descriptor requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotCuttable;

impl fmt::Display for NotCuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the headers are not those of TCP over IPv4 or IPv6, of the length that the descriptor says",
        )
    }
}

/// Segmentation of a frame, derived from its headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cutter {
    network: usize,
    is_ipv4: bool,
    transport: usize,
    /// Bytes of all headers.
    headers: usize,
    /// Payload bytes per segment.
    segment: usize,
    /// Bytes of the whole frame.
    total: usize,
    identification: u16,
    sequence: u32,
    flags: TcpFlags,
}

impl Cutter {
    /// Parses the headers of a frame of `total` bytes.
    ///
    /// # Errors
    /// If they do not match the descriptor.
    pub fn new(headers: &[u8], segment: u16, total: usize) -> Result<Self, NotCuttable> {
        let (ethernet, network) = EthernetHeader::parse(headers).map_err(|_| NotCuttable)?;
        let ip = headers.get(network..).ok_or(NotCuttable)?;
        let version = ip.first().ok_or(NotCuttable)? >> 4;
        let (is_ipv4, ip_len, carried) = match (ethernet.ether_type, version) {
            (EtherType::IPV4, 4) => (true, usize::from(ip[0] & 0xf) * 4, ip.get(9)),
            (EtherType::IPV6, 6) => (false, 40, ip.get(6)),
            _ => return Err(NotCuttable),
        };
        let least = if is_ipv4 { 20 } else { 40 };
        let transport = network + ip_len;
        let tcp = headers.get(transport..).filter(|tcp| tcp.len() >= HEADER_LEN).ok_or(NotCuttable)?;
        let tcp_len = usize::from(tcp[12] >> 4) * 4;
        let fits = ip_len >= least
            && tcp_len >= HEADER_LEN
            && transport + tcp_len == headers.len()
            && headers.len() < total
            && segment > 0;
        if carried != Some(&protocol::TCP) || !fits {
            return Err(NotCuttable);
        }
        let sequence = &tcp[SEQUENCE_AT..SEQUENCE_AT + 4];
        Ok(Self {
            network,
            is_ipv4,
            transport,
            headers: headers.len(),
            segment: segment.into(),
            total,
            identification: if is_ipv4 { u16::from_be_bytes([ip[4], ip[5]]) } else { 0 },
            sequence: u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]),
            flags: TcpFlags(tcp[FLAGS_AT]),
        })
    }

    /// Range of the payload of segment `number` in the frame; `None` beyond the last segment.
    pub fn place(&self, number: usize) -> Option<(usize, usize)> {
        let begin = self.headers + number * self.segment;
        (begin < self.total).then(|| (begin, (begin + self.segment).min(self.total)))
    }

    /// Writes segment `number` to `out`: the adjusted headers and its payload. Checksums are not filled in.
    pub fn cut(&self, headers: &[u8], data: &[u8], number: usize, out: &mut Vec<u8>) {
        let Some((begin, end)) = self.place(number) else { return };
        out.clear();
        out.extend_from_slice(&headers[..self.headers]);
        out.extend_from_slice(data);
        let ip = &mut out[self.network..];
        let length = (ip.len() as u16).to_be_bytes();
        if self.is_ipv4 {
            ip[2..4].copy_from_slice(&length);
            let identification = self.identification.wrapping_add(number as u16);
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
        } else {
            let length = (ip.len() as u16 - 40).to_be_bytes();
            ip[4..6].copy_from_slice(&length);
        }
        let mut flags = self.flags;
        if end < self.total {
            flags = flags.without(TcpFlags::FIN.with(TcpFlags::PSH));
        }
        if number > 0 {
            flags = flags.without(TcpFlags::CWR);
        }
        let sequence = self.sequence.wrapping_add((begin - self.headers) as u32);
        let tcp = &mut out[self.transport..];
        tcp[SEQUENCE_AT..SEQUENCE_AT + 4].copy_from_slice(&sequence.to_be_bytes());
        tcp[FLAGS_AT] = flags.0;
    }
}
