//! Loopback between two subnets: on the way, the lowest bit of the third byte of both IPv4 addresses is flipped and the
//! checksums are adjusted, as in the `snull` example of *Linux Device Drivers* (3rd edition, chapter 17).
//!
//! ```text
//! 10.0.0.1, which sends to 10.0.0.2 by port 0   ->   is 10.0.1.1, which sends to 10.0.1.2, at port 1
//! ```
//! A host with 10.0.0.1/24 and 10.0.1.2/24 at the two ports thus talks to itself through the device: in its routing
//! table, each port has a neighbour in its own subnet.

use wire::ethernet::{FCS_LEN, HEADER_LEN, append_fcs};
use wire::ip::checksum::replaced;
use wire::ip::{protocol, tcp, udp};

/// The bit in which the subnets differ, within the last 16-bit word of the address.
const BIT: u16 = 0x0100;
/// Offset of that word in an address.
const WORD: usize = 2;

/// Offsets of source address, destination address and checksum in an IPv4 header.
const ADDRESSES: [usize; 2] = [12, 16];
const CHECKSUM: usize = 10;
/// Offsets of sender and target address in an ARP message over Ethernet.
const ARP_ADDRESSES: [usize; 2] = [14, 24];

/// Moves a frame with check sequence to the other subnet. Frames of other protocols are unchanged.
pub fn swap(frame: &mut Vec<u8>) {
    let end = frame.len().saturating_sub(FCS_LEN);
    let Some((ethernet, packet)) = frame[..end].split_at_mut_checked(HEADER_LEN) else { return };
    let is_moved = match ethernet[12..] {
        [0x08, 0x06] => arp(packet),
        [0x08, 0x00] => ipv4(packet),
        _ => false,
    };
    if is_moved {
        frame.truncate(end);
        append_fcs(frame);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn set(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn arp(message: &mut [u8]) -> bool {
    for at in ARP_ADDRESSES.map(|address| address + WORD) {
        let Some(old) = word(message, at) else { return false };
        set(message, at, old ^ BIT);
    }
    true
}

fn ipv4(packet: &mut [u8]) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    if header < 20 || packet.len() < header {
        return false;
    }
    // Only the first fragment has a transport header, and other protocols do not include addresses in their checksum.
    let is_first = word(packet, 6).is_some_and(|fragment| fragment & 0x1fff == 0);
    let next = match packet[9] {
        protocol::TCP => Some(header + tcp::CHECKSUM_AT),
        protocol::UDP => Some(header + udp::CHECKSUM_AT),
        _ => None,
    };
    let next = next.filter(|&at| is_first && word(packet, at).is_some());
    // A UDP checksum of zero means none.
    let next = next.filter(|&at| packet[9] != protocol::UDP || word(packet, at) != Some(0));
    for at in ADDRESSES.map(|address| address + WORD) {
        let Some(old) = word(packet, at) else { return false };
        for sum in [Some(CHECKSUM), next].into_iter().flatten() {
            let was = word(packet, sum).unwrap_or_default();
            set(packet, sum, replaced(was, old, old ^ BIT));
        }
        set(packet, at, old ^ BIT);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::ethernet::{Arp, ArpOperation, EtherType, EthernetHeader, MacAddr};
    use wire::ip::{Dissection, Ipv4Header, Verdict};

    fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_LEN + 20];
        EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
        let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Ipv4Header::new(a, b, next, payload.len() as u16).emit(&mut frame[HEADER_LEN..]);
        frame.extend_from_slice(payload);
        if let Some(parts) = Dissection::of(&frame) {
            parts.fill_network_checksum(&mut frame);
            parts.fill_transport_checksum(&mut frame);
        }
        append_fcs(&mut frame);
        frame
    }

    proptest! {
        #[test]
        fn checksums_stay_right_and_twice_is_nothing(
            next in prop::sample::select(vec![protocol::TCP, protocol::UDP, protocol::ICMP]),
            payload in prop::collection::vec(any::<u8>(), 40..200),
        ) {
            let mut payload = payload;
            // Valid headers: TCP's of 20 bytes, and a UDP length that covers all that follows.
            if next == protocol::TCP {
                payload[12] = 5 << 4;
            } else if next == protocol::UDP {
                let length = payload.len() as u16;
                payload[4..6].copy_from_slice(&length.to_be_bytes());
            }
            let frame = packet(next, &payload);
            let mut moved = frame.clone();
            swap(&mut moved);
            let body = &moved[..moved.len() - FCS_LEN];
            let parts = Dissection::of(body).unwrap();
            prop_assert_eq!(parts.flow.source, std::net::IpAddr::from([10, 0, 1, 1]));
            prop_assert_eq!(parts.flow.destination, std::net::IpAddr::from([10, 0, 1, 2]));
            prop_assert_eq!(parts.network_verdict(body), Verdict::Right);
            prop_assert_ne!(parts.transport_verdict(body), Verdict::Wrong);
            swap(&mut moved);
            prop_assert_eq!(moved, frame);
        }

        #[test]
        fn no_frame_upsets_it(mut frame in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..3) {
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&[8, [0, 6, 9][usize::from(kind)]]);
            }
            let length = frame.len();
            swap(&mut frame);
            prop_assert_eq!(frame.len(), length);
        }
    }

    #[test]
    fn questions_for_addresses_move_too() {
        let question = Arp {
            operation: ArpOperation::Request,
            sender_mac: MacAddr::local(1),
            sender_ip: [10, 0, 0, 1].into(),
            target_mac: MacAddr::default(),
            target_ip: [10, 0, 0, 2].into(),
        };
        let mut frame = vec![0; HEADER_LEN + wire::ethernet::arp::LEN];
        EthernetHeader::new(MacAddr::local(1), MacAddr::BROADCAST, EtherType::ARP).emit(&mut frame);
        question.emit(&mut frame[HEADER_LEN..]);
        append_fcs(&mut frame);
        swap(&mut frame);
        let moved = Arp::parse(&frame[HEADER_LEN..]).unwrap();
        assert_eq!((moved.sender_ip, moved.target_ip), ([10, 0, 1, 1].into(), [10, 0, 1, 2].into()));
    }
}
