use super::*;
use crate::ethernet::{HEADER_LEN, MacAddr};
use crate::ip::{Ipv4Header, TcpHeader, UdpHeader};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn frame(protocol: u8, transport: &[u8], fragment: bool) -> Vec<u8> {
    let mut frame = vec![0; HEADER_LEN + 20];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
    let header =
        Ipv4Header { more_fragments: fragment, ..Ipv4Header::new(A, B, protocol, transport.len() as u16) };
    header.emit(&mut frame[HEADER_LEN..]);
    frame.extend_from_slice(transport);
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn parts_of_a_padded_datagram() {
    let header = UdpHeader { source: 7, destination: 9, len: 10, checksum: 0 };
    let mut datagram = [1; 10];
    header.emit(&mut datagram);
    let mut frame = frame(protocol::UDP, &datagram, false);
    let seen = Dissection::of(&frame).unwrap();
    assert_eq!((seen.network, seen.transport, seen.data, seen.end), (14, 34, Some(42), 44));
    assert_eq!(seen.flow.ports, Some((7, 9)));
    assert_eq!(seen.network_verdict(&frame), Verdict::Right);
    assert_eq!(seen.transport_verdict(&frame), Verdict::Unknown);
    // Padding is not part of the sum.
    frame[50] = 3;
    assert!(seen.fill_transport_checksum(&mut frame));
    assert_eq!(seen.transport_verdict(&frame), Verdict::Right);
    assert!(UdpHeader::checksum_is_right(&frame[34..44], A, B));
}

#[test]
fn fragments_have_no_ports() {
    let seen = Dissection::of(&frame(protocol::UDP, &[1; 16], true)).unwrap();
    assert_eq!((seen.flow.ports, seen.data), (None, None));
}

proptest! {
    #[test]
    fn sums_agree_with_software(data in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut segment = vec![0; 20];
        TcpHeader { source: 1, destination: 2, ..TcpHeader::default() }.emit(&mut segment);
        segment.extend_from_slice(&data);
        let mut frame = frame(protocol::TCP, &segment, false);
        let seen = Dissection::of(&frame).unwrap();
        prop_assert!(seen.fill_transport_checksum(&mut frame));
        TcpHeader::fill_checksum(&mut segment, A, B);
        prop_assert_eq!(&frame[seen.transport..seen.end], &segment[..]);
    }

    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..4) {
        if bytes.len() > 34 && kind < 3 {
            bytes[12..14].copy_from_slice(if kind == 2 { &[0x86, 0xdd] } else { &[8, 0] });
            bytes[14] = if kind == 2 { 0x60 } else { 0x45 };
            bytes[16] = 0;
            bytes[18] = 0;
            bytes[23] = if kind == 0 { 6 } else { 17 };
        }
        if let Some(seen) = Dissection::of(&bytes) {
            let _ = (seen.network_verdict(&bytes), seen.transport_verdict(&bytes));
            seen.fill_network_checksum(&mut bytes);
            seen.fill_transport_checksum(&mut bytes);
        }
    }
}

#[test]
fn headers_tell_the_flow_as_the_whole_frame_does() {
    let frame = frame(protocol::TCP, &[1; 20], false);
    let whole = Dissection::of(&frame).unwrap().flow;
    assert_eq!(Flow::of_headers(&frame[..40]), Some(whole));
    assert_eq!(Flow::of_headers(&frame[..36]), Some(Flow { ports: None, ..whole }));
    assert_eq!(Flow::of_headers(&frame[..30]), None);
}
