//! The NIC on back-ends without PCIe, with the most important tests on the fabric too: frames arrive where they should,
//! as they were sent.

mod bench;
mod conformance;
mod driver;
mod faults;
mod inline;
mod interrupts;
mod kpio;
mod kpio_faults;
mod moving;
mod offloads;
mod properties;
mod stations;
mod steering;
mod through;
mod virtual_functions;

use std::net::Ipv4Addr;

use bench::Bench;
use devices::nic::{Nic, NicHandle, NicParams};
use platform::device::Device;
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, TcpFlags, TcpHeader, UdpHeader, ipv4, protocol, udp};

fn mac(n: u32) -> MacAddr {
    MacAddr::local(n)
}

/// Two NICs back to back, with addresses 1 and 2.
fn pair() -> (Bench, [NicHandle; 2]) {
    let (a, b) = (NicParams::modern(mac(1)), NicParams::modern(mac(2)));
    pair_of(a, b)
}

fn pair_of(a: NicParams, b: NicParams) -> (Bench, [NicHandle; 2]) {
    let (a, handle_a) = Nic::new(a).unwrap();
    let (b, handle_b) = Nic::new(b).unwrap();
    let devices: Vec<Box<dyn Device>> = vec![Box::new(a), Box::new(b)];
    let mut bench = Bench::new(devices);
    bench.connect(0, 1);
    (bench, [handle_a, handle_b])
}

/// A frame of `length` bytes without check sequence, whose content identifies it.
fn frame(from: u32, to: MacAddr, length: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> =
        (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(number as u8)).collect();
    EthernetHeader::new(mac(from), to, EtherType::EXPERIMENTAL).emit(&mut frame);
    frame[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&number.to_le_bytes());
    frame
}

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn ip_frame(header: Ipv4Header, to: MacAddr, transport: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_LEN + ipv4::HEADER_LEN];
    EthernetHeader::new(mac(1), to, EtherType::IPV4).emit(&mut frame);
    header.emit(&mut frame[HEADER_LEN..]);
    frame.extend_from_slice(transport);
    frame
}

/// A UDP datagram from a port of A to a port of B, with checksum.
fn datagram(ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; udp::HEADER_LEN];
    let len = (udp::HEADER_LEN + data.len()) as u16;
    UdpHeader { source: ports.0, destination: ports.1, len, checksum: 0 }.emit(&mut datagram);
    datagram.extend_from_slice(data);
    UdpHeader::fill_checksum(&mut datagram, A, B);
    ip_frame(Ipv4Header::new(A, B, protocol::UDP, len), mac(2), &datagram)
}

/// A TCP segment from A to B without checksum, of any length.
fn segment(sequence: u32, data: &[u8]) -> Vec<u8> {
    let header = TcpHeader {
        source: 1000,
        destination: 80,
        sequence,
        flags: TcpFlags::ACK.with(TcpFlags::PSH).with(TcpFlags::FIN).with(TcpFlags::CWR),
        options: wire::ip::TcpOptions { timestamps: Some((1, 2)), ..Default::default() },
        ..TcpHeader::default()
    };
    let mut segment = vec![0; header.len()];
    header.emit(&mut segment);
    segment.extend_from_slice(data);
    // The length of a packet to be segmented does not fit in the header, and is ignored.
    ip_frame(Ipv4Header::new(A, B, protocol::TCP, segment.len() as u16 & 0x3fff), mac(2), &segment)
}
