//! IP transmit: IP and Ethernet headers, next hops, devices.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::rc::{Rc, Weak};

use inet::arp::Resolution;
use platform::Error;
use platform::cpu::Cpu;
use platform::net::{Checksum, Fragment, Packet, TxFlow};
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN as ETHERNET, MacAddr};
use wire::ip::checksum::{Sum, udp_on_wire};
use wire::ip::ipv4::HEADER_LEN as IPV4;
use wire::ip::{Ipv4Header, ecn, protocol, tcp, udp};

use super::buffers::{Heads, Hold, Made, Sender};
use super::interfaces::{Interfaces, ResolvedRoute};
use super::loopback::Loopback;
use super::means::Means;
use super::resolver::Resolver;

/// MTU of the loopback interface (Linux: 65536; a multiple of a page keeps segments whole).
pub const LOOPBACK_MTU: u16 = 61_480;
/// Most bytes behind an IP header.
pub const MOST_PAYLOAD: usize = 65_535 - IPV4;
/// Most bytes of all headers: Ethernet, IPv4, TCP with options.
const HEADERS: usize = ETHERNET + IPV4 + 60;

/// A packet from a transport protocol.
pub struct Outgoing<'a> {
    pub source: Ipv4Addr,
    pub to: Ipv4Addr,
    pub protocol: u8,
    /// Transport header with a zero checksum; for ICMP the whole message.
    pub transport: &'a [u8],
    /// The data.
    pub payload: Vec<Fragment>,
    /// Keeps the data in memory.
    pub holds: Vec<Hold>,
    /// Segment size if the device has to segment it, or 0.
    pub segment: u16,
    pub flow: Option<&'a Rc<TxFlow>>,
    pub socket: Option<Weak<dyn Sender>>,
    pub more: bool,
    /// ECN-capable: routers may mark it.
    pub ecn: bool,
}

impl<'a> Outgoing<'a> {
    /// A packet with a header and no data.
    pub fn bare(source: Ipv4Addr, to: Ipv4Addr, protocol: u8, transport: &'a [u8]) -> Self {
        Self {
            source,
            to,
            protocol,
            transport,
            payload: Vec::new(),
            holds: Vec::new(),
            segment: 0,
            flow: None,
            socket: None,
            more: false,
            ecn: false,
        }
    }
}

/// A packet without its IP and Ethernet headers.
struct Wrapped<'a> {
    to: Ipv4Addr,
    ip: Ipv4Header,
    transport: &'a [u8],
    payload: Vec<Fragment>,
    holds: Vec<Hold>,
    checksum: Checksum,
    segment: u16,
    flow: Option<&'a Rc<TxFlow>>,
    socket: Option<Weak<dyn Sender>>,
    more: bool,
}

/// Adds headers and passes packets to their devices.
pub struct Output {
    means: Rc<Means>,
    interfaces: Rc<Interfaces>,
    heads: Rc<Heads>,
    resolver: Rc<Resolver>,
    loopback: Loopback,
    identification: Cell<u16>,
}

impl Output {
    pub fn new(
        means: &Rc<Means>,
        interfaces: &Rc<Interfaces>,
        heads: &Rc<Heads>,
        resolver: &Rc<Resolver>,
        loopback: Loopback,
    ) -> Rc<Self> {
        Rc::new(Self {
            means: Rc::clone(means),
            interfaces: Rc::clone(interfaces),
            heads: Rc::clone(heads),
            resolver: Rc::clone(resolver),
            loopback,
            identification: Cell::new(1),
        })
    }

    pub fn clear(&self) {
        self.loopback.clear();
    }

    /// Sends a packet, fragmented if it is larger than the MTU.
    ///
    /// # Errors
    /// If there is no route, no memory or no room. The data has been released.
    pub fn send(&self, cpu: &Cpu, what: Outgoing<'_>) -> Result<(), Error> {
        let Some(way) = self.interfaces.way(what.to) else {
            what.holds.into_iter().for_each(|hold| hold.let_go(cpu));
            self.means.count(|c| c.unreachable += 1);
            return Err(Error::Unreachable);
        };
        let payload: u32 = what.payload.iter().map(|f| f.length).sum();
        let length = IPV4 + what.transport.len() + payload as usize;
        let mut ip = Ipv4Header::new(what.source, what.to, what.protocol, (length - IPV4) as u16);
        ip.identification = self.identification.replace(self.identification.get().wrapping_add(1));
        if what.ecn {
            ip.traffic_class = ecn::CAPABLE;
        }
        let mut transport = [0; HEADERS];
        let transport = &mut transport[..what.transport.len()];
        transport.copy_from_slice(what.transport);
        let device = self.interfaces.device(way.0);
        let mtu = usize::from(device.as_ref().map_or(LOOPBACK_MTU, |device| device.mtu()));
        if what.segment == 0 && length > mtu {
            self.fill_checksum(cpu, &what, transport, payload, false);
            return self.send_fragments(cpu, way, ip, transport, what, mtu);
        }
        let offload = device.is_none_or(|device| device.features().tx_checksum);
        let checksum = match self.fill_checksum(cpu, &what, transport, payload, offload) {
            Some(offset) => Checksum::Offload { start: (ETHERNET + IPV4) as u16, offset },
            None => Checksum::None,
        };
        let Outgoing { to, payload, holds, segment, flow, socket, more, .. } = what;
        let what = Wrapped { to, ip, transport, payload, holds, checksum, segment, flow, socket, more };
        self.send_packet(cpu, way, what)
    }

    /// Adds headers to a packet and passes it to its device.
    fn send_packet(&self, cpu: &Cpu, way: ResolvedRoute, what: Wrapped<'_>) -> Result<(), Error> {
        cpu.work(self.means.costs().ip_output);
        let (interface, _, hop) = way;
        let device = self.interfaces.device(interface);
        let head = match self.heads.take(cpu) {
            Ok(head) => head,
            Err(error) => {
                what.holds.into_iter().for_each(|hold| hold.let_go(cpu));
                self.means.count(|c| c.no_memory += 1);
                return Err(error);
            }
        };
        let mut bytes = [0; HEADERS];
        let transport = ETHERNET + what.ip.emit(&mut bytes[ETHERNET..]);
        let end = transport + what.transport.len();
        bytes[transport..end].copy_from_slice(what.transport);
        let mac = device.as_ref().map_or(MacAddr::default(), |device| device.mac());
        let answer = match &device {
            Some(_) => self.resolver.resolve(cpu, interface, hop),
            None => Resolution::Known(mac),
        };
        let to = if let Resolution::Known(mac) = answer { mac } else { MacAddr::default() };
        EthernetHeader::new(mac, to, EtherType::IPV4).emit(&mut bytes);
        cpu.store(head, &bytes[..end]);
        let mut fragments = Vec::with_capacity(1 + what.payload.len());
        fragments.push(Fragment { pages: None, at: head, length: end as u32 });
        fragments.extend(what.payload);
        let made = Made {
            heads: Rc::clone(&self.heads),
            head,
            holds: RefCell::new(what.holds),
            socket: what.socket,
        };
        let mut packet = Packet {
            fragments,
            checksum: what.checksum,
            segment: what.segment,
            headers: if what.segment > 0 { end as u16 } else { 0 },
            owner: Some(Rc::new(made)),
            ..Packet::default()
        };
        if let Some(flow) = what.flow {
            packet.join(flow);
        }
        let Some(device) = device else {
            // Loopback packets cannot be damaged.
            packet.checksum = Checksum::Good;
            self.loopback.put(cpu, packet);
            return Ok(());
        };
        match answer {
            Resolution::Known(_) => device.transmit(cpu, packet, what.more),
            Resolution::Failed => {
                packet.release(cpu);
                self.means.count(|c| c.unreachable += 1);
                Err(Error::Unreachable)
            }
            Resolution::Ask | Resolution::Wait => {
                self.resolver.wait(cpu, (interface, hop), packet, what.to, answer == Resolution::Ask);
                Ok(())
            }
        }
    }

    /// Sends a packet in fragments of at most `mtu` bytes.
    ///
    /// # Errors
    /// The error of the first fragment that cannot be sent; later ones are not sent.
    fn send_fragments(
        &self,
        cpu: &Cpu,
        way: ResolvedRoute,
        ip: Ipv4Header,
        transport: &[u8],
        what: Outgoing<'_>,
        mtu: usize,
    ) -> Result<(), Error> {
        let total = ip.payload_len() as u32;
        let each = ((mtu - IPV4) / 8 * 8) as u32;
        let mut result = Ok(());
        let mut start = 0;
        while start < total && result.is_ok() {
            let end = (start + each).min(total);
            let own = transport.len() as u32;
            let header = &transport[start.min(own) as usize..end.min(own) as usize];
            let payload = part(&what.payload, start.saturating_sub(own)..end.saturating_sub(own));
            let ip = Ipv4Header {
                total_len: (IPV4 as u32 + end - start) as u16,
                dont_fragment: false,
                more_fragments: end < total,
                fragment_offset: (start / 8) as u16,
                ..ip
            };
            self.means.count(|c| c.fragments_out += 1);
            let wrapped = Wrapped {
                to: what.to,
                ip,
                transport: header,
                payload,
                holds: what.holds.clone(),
                checksum: Checksum::None,
                segment: 0,
                flow: what.flow,
                socket: what.socket.clone(),
                more: what.more || end < total,
            };
            result = self.send_packet(cpu, way, wrapped);
            start = end;
        }
        what.holds.into_iter().for_each(|hold: Hold| hold.let_go(cpu));
        result
    }

    /// Fills in a checksum. Returns its position if the device has to finish it.
    fn fill_checksum(
        &self,
        cpu: &Cpu,
        what: &Outgoing<'_>,
        header: &mut [u8],
        payload: u32,
        offload: bool,
    ) -> Option<u16> {
        let at = match what.protocol {
            protocol::TCP => tcp::CHECKSUM_AT,
            protocol::UDP => udp::CHECKSUM_AT,
            _ => return None,
        };
        let length = (header.len() + payload as usize) as u16;
        let mut sum = Sum::new().with_pseudo_header(what.source, what.to, what.protocol, length);
        let value = if offload {
            sum.partial()
        } else {
            sum = sum.with(header);
            for fragment in &what.payload {
                let mut bytes = vec![0; fragment.length as usize];
                cpu.load(fragment.at, &mut bytes);
                sum = sum.with(&bytes);
            }
            let sum = sum.finish();
            if what.protocol == protocol::UDP { udp_on_wire(sum) } else { sum }
        };
        header[at..at + 2].copy_from_slice(&value.to_be_bytes());
        offload.then_some(at as u16)
    }
}

/// The fragments that cover `range` of a list.
fn part(pieces: &[Fragment], range: Range<u32>) -> Vec<Fragment> {
    let mut at = 0;
    let mut found = Vec::new();
    for piece in pieces {
        let (from, to) = (range.start.max(at), range.end.min(at + piece.length));
        if from < to {
            let begin = piece.at + u64::from(from - at);
            found.push(Fragment { pages: None, at: begin, length: to - from });
        }
        at += piece.length;
    }
    found
}
