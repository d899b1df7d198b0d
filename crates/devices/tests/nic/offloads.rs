//! Checksum offload and segmentation, compared with software.

use units::Duration;
use wire::ip::{Dissection, Ipv4Header, TcpFlags, TcpHeader, UdpHeader, dissect::Verdict};
use wire::nic::TxDescriptor;
use wire::nic::completion::{NETWORK_RIGHT, NETWORK_WRONG, TRANSPORT_RIGHT, TRANSPORT_WRONG};
use wire::nic::descriptor::{NETWORK_CHECKSUM, TRANSPORT_CHECKSUM};
use wire::nic::registers::{feature, queue};

use super::driver::{Queue, enable};
use super::{A, B, datagram, pair, segment};

const ALL: u32 = feature::RX_CHECKSUM | feature::TX_CHECKSUM | feature::TSO;

#[test]
fn checksums_are_filled_in_as_software_would() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, ALL);
    enable(&mut bench, 1, 0, ALL);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 64);
    let head = TxDescriptor { flags: NETWORK_CHECKSUM | TRANSPORT_CHECKSUM, ..TxDescriptor::default() };
    for length in 18..40 {
        let expected = datagram((7, 9), &vec![length; length.into()]);
        let mut frame = expected.clone();
        frame[24..26].fill(0xee);
        frame[40..42].fill(0xee);
        tx.send(&mut bench, &frame, 33, head);
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(20));
        let (received, completion) = rx.receive(&mut bench).unwrap();
        assert_eq!(&received[..expected.len()], &expected[..]);
        assert!(completion.has(NETWORK_RIGHT | TRANSPORT_RIGHT));
        assert!(UdpHeader::checksum_is_right(&received[34..], A, B));
    }
}

#[test]
fn wrong_checksums_are_told() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, ALL);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 8);
    let right = datagram((7, 9), &[1; 30]);
    let told = |flags| {
        [NETWORK_RIGHT, NETWORK_WRONG, TRANSPORT_RIGHT, TRANSPORT_WRONG].map(|bit: u16| flags & bit != 0)
    };
    for (at, expected) in
        [(0, [true, false, true, false]), (22, [false, true, true, false]), (50, [true, false, false, true])]
    {
        let mut frame = right.clone();
        if at > 0 {
            frame[at] ^= 1;
        }
        tx.send(&mut bench, &frame, 2000, TxDescriptor::default());
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(20));
        let (_, completion) = rx.receive(&mut bench).unwrap();
        assert_eq!(told(completion.flags), expected, "byte {at}");
    }
}

#[test]
fn segments_are_cut_as_software_would() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, ALL);
    enable(&mut bench, 1, 0, ALL);
    for (length, mss, piece) in [(65_000, 1448, 4096), (3000, 1000, 200), (1, 1448, 70), (2896, 1448, 60_000)]
    {
        let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
        let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, queue::TO_RING);
        tx.buffer = 1 << 14;
        rx.give(&mut bench, 256);
        let data: Vec<u8> = (0..length).map(|i: u32| ((i * 7) >> 3) as u8).collect();
        let headers = 14 + 20 + 32;
        let head = TxDescriptor { segment: mss, headers, ..TxDescriptor::default() };
        let sequence = u32::MAX - 5000;
        tx.send(&mut bench, &segment(sequence, &data), piece, head);
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(100));
        let mut done = Vec::new();
        let number = data.len().div_ceil(mss.into());
        for n in 0..number {
            let (frame, _) = rx.receive(&mut bench).expect("a segment");
            let (ip, ip_len) = Ipv4Header::parse_checked(&frame[14..]).unwrap();
            let payload = &frame[14 + ip_len..14 + usize::from(ip.total_len)];
            assert!(TcpHeader::checksum_is_right(payload, A, B));
            let (tcp, tcp_len) = TcpHeader::parse(payload).unwrap();
            assert_eq!(tcp.sequence, sequence.wrapping_add(done.len() as u32));
            assert_eq!(usize::from(ip.identification), n);
            let (is_first, is_last) = (n == 0, n + 1 == number);
            let flags =
                [TcpFlags::ACK, TcpFlags::CWR, TcpFlags::PSH, TcpFlags::FIN].map(|f| tcp.flags.contains(f));
            assert_eq!(flags, [true, is_first, is_last, is_last]);
            assert_eq!(tcp.options.timestamps, Some((1, 2)));
            let parts = Dissection::of(&frame).unwrap();
            assert_eq!(parts.transport_verdict(&frame), Verdict::Right);
            done.extend_from_slice(&payload[tcp_len..]);
        }
        assert!(done == data && rx.receive(&mut bench).is_none(), "{length} bytes");
        assert!(tx.poll(&mut bench).is_some() && tx.done == tx.tail);
    }
}
