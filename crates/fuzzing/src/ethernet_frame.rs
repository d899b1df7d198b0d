//! Frames from arbitrary bytes: each parser gets the payload of the previous one; checksums that are filled in are
//! correct.

use wire::ethernet::{Arp, EthernetHeader, fcs_is_right};
use wire::ip::dissect::Verdict;
use wire::ip::{Dissection, IcmpEcho, Ipv4Header, TcpHeader, UdpHeader};

/// Tests an input.
pub fn run(bytes: &[u8]) {
    let _ = fcs_is_right(bytes);
    if let Some(seen) = Dissection::of(bytes) {
        let mut frame = bytes.to_vec();
        seen.fill_network_checksum(&mut frame);
        if seen.fill_transport_checksum(&mut frame) {
            assert_eq!(seen.transport_verdict(&frame), Verdict::Right);
        }
        assert_ne!(seen.network_verdict(&frame), Verdict::Wrong);
    }
    let Ok((header, len)) = EthernetHeader::parse(bytes) else { return };
    let _ = header.to_string();
    let _ = Arp::parse(&bytes[len..]);
    // Parsers also get payloads of the wrong type.
    if let Ok((ip, ip_len)) = Ipv4Header::parse(&bytes[len..]) {
        let payload = &bytes[len + ip_len..];
        let _ = (ip.to_string(), IcmpEcho::parse(payload), UdpHeader::parse(payload));
        let _ = UdpHeader::checksum_is_right(payload, ip.source, ip.destination);
        if let Ok((tcp, tcp_len)) = TcpHeader::parse(payload) {
            assert!(tcp_len <= payload.len());
            let mut again = [0; 60];
            let _ = (tcp.to_string(), tcp.emit(&mut again));
        }
    }
}
