//! Frames from one host to the other whose check sequence is right and whose headers are not.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use platform::cpu::CpuId;
use proptest::prelude::*;
use units::Duration;
use wire::ethernet::{Arp, ArpOperation, EtherType, EthernetHeader, HEADER_LEN as ETHERNET, MacAddr};
use wire::ip::dissect::Verdict;
use wire::ip::ipv4::HEADER_LEN as IPV4;
use wire::ip::{
    Dissection, IcmpEcho, Ipv4Header, TcpFlags, TcpHeader, TcpOptions, UdpHeader, checksum, protocol,
};

use super::streams::{bytes, receive, send};
use super::{ADDRESSES, Buffers, Pair};

/// The port of the stream that must not suffer.
const PORT: u16 = 7;
/// A port where datagrams are waited for.
pub const DATAGRAMS: u16 = 53;
/// A port where connections are waited for and nothing is promised.
const VICTIM: u16 = 80;

/// What a frame was before it was spoilt.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A segment of the stream that must not suffer.
    Stream,
    /// A segment of a flow, with others right behind it as large as it: what is joined on receipt.
    Train {
        port: u16,
        segments: u8,
    },
    Syn {
        from: u16,
    },
    Datagram {
        to: u16,
    },
    Echo {
        is_reply: bool,
        identifier: u16,
    },
    Fragment {
        number: u16,
        offset: u16,
        more: bool,
        protocol: u8,
    },
    Arp {
        operation: bool,
        sender: u8,
    },
    Bytes,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Byte { at: u16, with: u8 },
    IpLength(u16),
    IpHeaderLength(u8),
    IpFragment(u16),
    IpProtocol(u8),
    Source(Ipv4Addr),
    Destination(Ipv4Addr),
    TransportOffset(u8),
    TransportFlags(u8),
    TransportOption { at: u8, kind: u8, length: u8 },
    DatagramLength(u16),
    Type(u16),
    Tag(u16),
    CutTo(u16),
    Padding(u8),
}

#[derive(Clone, Debug)]
pub struct Spoilt {
    pub kind: Kind,
    pub length: u16,
    pub sequence: u32,
    pub faults: Vec<Fault>,
    /// Checksums fit what the headers have become.
    pub mended: bool,
    pub piece: usize,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Stream),
        (0u16..12, 1u8..6).prop_map(|(port, segments)| Kind::Train { port: 4_000 + port, segments }),
        (4_100u16..4_110).prop_map(|from| Kind::Syn { from }),
        prop_oneof![Just(DATAGRAMS), Just(54)].prop_map(|to| Kind::Datagram { to }),
        (any::<bool>(), 0u16..3).prop_map(|(is_reply, identifier)| Kind::Echo { is_reply, identifier }),
        (0u16..4, 0u16..40, any::<bool>(), prop::sample::select(vec![1u8, 6, 17, 99]))
            .prop_map(|(number, offset, more, protocol)| Kind::Fragment { number, offset, more, protocol }),
        (any::<bool>(), any::<u8>()).prop_map(|(operation, sender)| Kind::Arp { operation, sender }),
        Just(Kind::Bytes),
    ]
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    prop::sample::select(vec![
        ADDRESSES[1],
        Ipv4Addr::BROADCAST,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::new(224, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 255),
        Ipv4Addr::new(10, 0, 0, 99),
        Ipv4Addr::new(192, 168, 7, 7),
    ])
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0u16..90, any::<u8>()).prop_map(|(at, with)| Fault::Byte { at, with }),
        prop_oneof![0u16..80, any::<u16>()].prop_map(Fault::IpLength),
        (0u8..16).prop_map(Fault::IpHeaderLength),
        any::<u16>().prop_map(Fault::IpFragment),
        any::<u8>().prop_map(Fault::IpProtocol),
        address().prop_map(Fault::Source),
        address().prop_map(Fault::Destination),
        (0u8..16).prop_map(Fault::TransportOffset),
        any::<u8>().prop_map(Fault::TransportFlags),
        (0u8..12, prop::sample::select(vec![0u8, 1, 2, 3, 4, 5, 8, 30]), any::<u8>())
            .prop_map(|(at, kind, length)| Fault::TransportOption { at, kind, length }),
        any::<u16>().prop_map(Fault::DatagramLength),
        prop::sample::select(vec![0u16, 46, 1_500, 0x0600, 0x0806, 0x8100, 0x86dd, 0x88a8, 0xffff])
            .prop_map(Fault::Type),
        prop::sample::select(vec![0u16, 0xe000, 1, 4_095]).prop_map(Fault::Tag),
        (0u16..80).prop_map(Fault::CutTo),
        any::<u8>().prop_map(Fault::Padding),
    ]
}

pub fn spoilt() -> impl Strategy<Value = Spoilt> {
    (
        kind(),
        0u16..1_400,
        any::<u32>(),
        prop::collection::vec(fault(), 0..4),
        prop::bool::weighted(0.8),
        20usize..2_000,
    )
        .prop_map(|(kind, length, sequence, faults, mended, piece)| Spoilt {
            kind,
            length,
            sequence,
            faults,
            mended,
            piece,
        })
}

/// An Ethernet frame with an IPv4 packet from host 0 to host 1.
fn ip(protocol: u8, fragment: (u16, u16, bool), payload: &[u8]) -> Vec<u8> {
    let mut header = Ipv4Header::new(ADDRESSES[0], ADDRESSES[1], protocol, payload.len() as u16);
    (header.identification, header.fragment_offset, header.more_fragments) = fragment;
    header.dont_fragment = false;
    let mut frame = vec![0; ETHERNET + IPV4];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
    header.emit(&mut frame[ETHERNET..]);
    frame.extend(payload);
    frame
}

fn tcp(ports: (u16, u16), sequence: u32, flags: TcpFlags, data: usize) -> Vec<u8> {
    let header = TcpHeader {
        source: ports.0,
        destination: ports.1,
        sequence,
        acknowledgement: sequence ^ 0x1234,
        flags,
        window: 500,
        options: TcpOptions { timestamps: Some((sequence, 0)), ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    let mut segment = vec![0; 60];
    let length = header.emit(&mut segment);
    segment.resize(length + data, 0xd1);
    TcpHeader::fill_checksum(&mut segment, ADDRESSES[0], ADDRESSES[1]);
    ip(protocol::TCP, (0, 0, false), &segment)
}

impl Spoilt {
    /// The frames, before they are spoilt.
    fn sound(&self, stream: u16) -> Vec<Vec<u8>> {
        let length = usize::from(self.length);
        let one = match self.kind {
            Kind::Stream => tcp((stream, PORT), self.sequence, TcpFlags::ACK, length),
            Kind::Train { port, segments } => {
                let next = |n: u8| self.sequence.wrapping_add(u32::from(n) * u32::from(self.length));
                let segment = |n| tcp((port, VICTIM), next(n), TcpFlags::ACK, length);
                return (0..segments).map(segment).collect();
            }
            Kind::Syn { from } => tcp((from, VICTIM), self.sequence, TcpFlags::SYN, length % 5),
            Kind::Datagram { to } => {
                let len = (8 + length) as u16;
                let mut datagram = vec![0xdd; 8 + length];
                UdpHeader { source: 999, destination: to, len, checksum: 0 }.emit(&mut datagram);
                UdpHeader::fill_checksum(&mut datagram, ADDRESSES[0], ADDRESSES[1]);
                ip(protocol::UDP, (0, 0, false), &datagram)
            }
            Kind::Echo { is_reply, identifier } => {
                let mut message = vec![7; 8 + length];
                IcmpEcho { is_reply, identifier, sequence: self.sequence as u16 }.emit(&mut message);
                ip(protocol::ICMP, (0, 0, false), &message)
            }
            Kind::Fragment { number, offset, more, protocol } => {
                let length = if more { length / 8 * 8 } else { length };
                ip(protocol, (number, offset * 8, more), &vec![0xf0; length])
            }
            Kind::Arp { operation, sender } => {
                let operation = if operation { ArpOperation::Request } else { ArpOperation::Reply };
                // Whoever says host 0's address here would be believed, as on any Ethernet.
                let sender_ip = Ipv4Addr::new(10, 0, 0, sender.max(2));
                let message = Arp {
                    operation,
                    sender_mac: MacAddr::local(u32::from(sender) << 20 | 9),
                    sender_ip,
                    target_mac: MacAddr::default(),
                    target_ip: ADDRESSES[1],
                };
                let mut frame = vec![0; 60];
                EthernetHeader::new(MacAddr::local(1), MacAddr::BROADCAST, EtherType::ARP).emit(&mut frame);
                message.emit(&mut frame[ETHERNET..]);
                frame
            }
            Kind::Bytes => {
                let mut frame = bytes(ETHERNET + length, self.sequence.into());
                EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
                frame
            }
        };
        vec![one]
    }

    fn spoil(&self, frame: &mut Vec<u8>, stream: u16) {
        let network = ETHERNET;
        let transport = ETHERNET + IPV4;
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = frame.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        let arp = matches!(self.kind, Kind::Arp { .. });
        let mut tag = None;
        let mut cut = None;
        let mut padding = 0;
        for fault in &self.faults {
            match *fault {
                // Not the addresses of Ethernet, which the NIC filters by, nor who ARP says to be.
                Fault::Byte { at, with } if !arp || at < 12 => put(12 + usize::from(at), &[with]),
                Fault::IpLength(length) => put(network + 2, &length.to_be_bytes()),
                Fault::IpHeaderLength(words) => put(network, &[0x40 | words]),
                Fault::IpFragment(field) => put(network + 6, &field.to_be_bytes()),
                Fault::IpProtocol(protocol) => put(network + 9, &[protocol]),
                Fault::Source(address) if !arp => put(network + 12, &address.octets()),
                Fault::Destination(address) if !arp => put(network + 16, &address.octets()),
                Fault::TransportOffset(words) => put(transport + 12, &[words << 4]),
                Fault::TransportFlags(flags) => put(transport + 13, &[flags]),
                Fault::TransportOption { at, kind, length } => {
                    put(transport + 20 + usize::from(at), &[kind, length]);
                }
                Fault::DatagramLength(length) => put(transport + 4, &length.to_be_bytes()),
                Fault::Type(ether_type) => put(12, &ether_type.to_be_bytes()),
                Fault::Tag(value) => tag = Some(value),
                Fault::CutTo(length) => cut = Some(usize::from(length)),
                Fault::Padding(length) => padding = usize::from(length),
                Fault::Byte { .. } | Fault::Source(_) | Fault::Destination(_) => {}
            }
        }
        if let Some(cut) = cut {
            frame.truncate(ETHERNET + cut);
        }
        frame.resize(frame.len() + padding, 0);
        if self.mended {
            let header = usize::from(frame.get(network).map_or(0, |first| first & 0xf)) * 4;
            if let Some(header) = frame.get_mut(network..network + header).filter(|h| h.len() >= IPV4) {
                header[10..12].fill(0);
                let sum = checksum::of(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            if let Some(seen) = Dissection::of(frame) {
                seen.fill_transport_checksum(frame);
            }
        }
        // What would be believed as a part of the stream is none of it.
        if let Some(seen) = Dissection::of(frame)
            && seen.flow.protocol == protocol::TCP
            && seen.flow.ports == Some((stream, PORT))
            && seen.transport_verdict(frame) == Verdict::Right
        {
            frame[seen.transport + 16] ^= 0x55;
        }
        if let Some(tag) = tag {
            let bytes = [EtherType::VLAN.0.to_be_bytes(), tag.to_be_bytes()].concat();
            frame.splice(12..12, bytes);
        }
    }

    pub fn frames(&self, stream: u16) -> Vec<(Vec<u8>, usize)> {
        let mut frames = self.sound(stream);
        // Of a train one segment in the middle is spoilt, between sound neighbours.
        let victim = frames.len() / 2;
        self.spoil(&mut frames[victim], stream);
        frames.into_iter().map(|frame| (frame, self.piece)).collect()
    }
}

/// A stream of random bytes with spoilt frames between its segments, and sockets of all kinds open meanwhile. Its reader goes from
/// core to core of `cores`.
pub fn attack(pair: &Pair, spoilt: &[Spoilt], cores: &[u16]) {
    let data = bytes(60_000, 77);
    let (expected, port, over) = (data.clone(), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let faces = [0, 1].map(|host: usize| pair.hosts[host].kernel.face());
    let any = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let face = Rc::clone(&faces[1]);
    let server = pair.spawn(1, cores[0], move |cpu| {
        Box::pin(async move {
            let network = face.network();
            let (datagrams, ping) = (network.udp(&cpu, any(DATAGRAMS)).unwrap(), network.ping(&cpu).unwrap());
            let victim = network.listen(&cpu, any(VICTIM), 4).unwrap();
            let listener = network.listen(&cpu, any(PORT), 4).unwrap();
            let stream = listener.accept(&cpu).await.unwrap();
            let received = receive(&cpu, &face, &*stream, 10_000).await;
            // The frames may end after the stream.
            cpu.sleep(Duration::from_ms(3)).await;
            stream.close(&cpu);
            listener.close(&cpu);
            victim.close(&cpu);
            datagrams.close(&cpu);
            drop(ping);
            received
        })
    });
    if let [_, _, ..] = cores {
        let (face, cores, over) = (Rc::clone(&faces[1]), cores.to_vec(), Rc::clone(&over));
        let reader = face.tasks().into_iter().rfind(|task| !task.ended && task.name == "test");
        let reader = reader.expect("it was just started").id;
        pair.spawn(1, 2, move |cpu| {
            Box::pin(async move {
                for &core in cores.iter().cycle() {
                    cpu.sleep(Duration::from_us(50)).await;
                    if over.get() || face.set_affinity(reader, &[CpuId(core)]).is_err() {
                        return;
                    }
                }
            })
        });
    }
    let (face, told, end) = (Rc::clone(&faces[0]), Rc::clone(&port), Rc::clone(&over));
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let stream = face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap();
            told.set(stream.local().port());
            send(&cpu, &face, &*stream, &data, 3_000).await;
            while !end.get() {
                cpu.sleep(Duration::from_us(100)).await;
            }
            stream.close(&cpu);
        })
    });
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let (device, mine, spoilt) = (pair.device(0), Rc::clone(&buffers), spoilt.to_vec());
    let attacker = pair.spawn(0, 3, move |cpu| {
        Box::pin(async move {
            while port.get() == 0 {
                cpu.sleep(Duration::from_us(1)).await;
            }
            for spoilt in &spoilt {
                for (frame, piece) in spoilt.frames(port.get()) {
                    let packet = mine.packet(&cpu, &frame, piece);
                    let _ = device.send(&cpu, packet, false);
                }
                cpu.sync().await;
            }
            over.set(true);
        })
    });
    let received = pair.simulation.block_on(async move {
        attacker.wait().await;
        client.wait().await;
        server.wait().await
    });
    assert!(received.expect("the programs end") == expected, "the stream arrives as it was sent");
    // Whatever waits for the rest of something gives up: fragments, half-open connections, those that linger.
    pair.run_for(Duration::from_ms(400_000));
    assert_eq!(buffers.out.get(), 0);
}
