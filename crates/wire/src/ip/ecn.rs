//! The two ECN bits of the traffic class, by which routers signal congestion (RFC 3168, section 5).

use super::ipv4::HEADER_LEN;
use super::{Ipv4Header, checksum};

/// Mask of the ECN bits.
pub const MASK: u8 = 3;
/// Not ECN-capable: congestion is signalled by loss.
pub const NOT_CAPABLE: u8 = 0;
/// ECN-capable: the packet may be marked.
pub const CAPABLE: u8 = 2;
/// Congestion experienced.
pub const CONGESTED: u8 = 3;

/// Marks an IPv4 packet if its sender is ECN-capable. Returns whether the packet is marked.
pub fn mark(packet: &mut [u8]) -> bool {
    let Ok((header, length)) = Ipv4Header::parse(packet) else { return false };
    if header.traffic_class & MASK == NOT_CAPABLE {
        return false;
    }
    packet[1] |= CONGESTED;
    packet[HEADER_LEN / 2..HEADER_LEN / 2 + 2].fill(0);
    let sum = checksum::of(&packet[..length]);
    packet[HEADER_LEN / 2..HEADER_LEN / 2 + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_be_marked_is_and_its_checksum_stays_right() {
        for class in 0..8 {
            let mut packet = vec![7; 60];
            let own = std::net::Ipv4Addr::new(10, 0, 0, 1);
            Ipv4Header { traffic_class: class, ..Ipv4Header::new(own, own, 6, 40) }.emit(&mut packet);
            let before = packet.clone();
            assert_eq!(mark(&mut packet), class & MASK != NOT_CAPABLE);
            assert_eq!((&packet[2..10], &packet[12..]), (&before[2..10], &before[12..]));
            let (header, _) = Ipv4Header::parse_checked(&packet).unwrap();
            let expected = if class & MASK == NOT_CAPABLE { class } else { class | CONGESTED };
            assert_eq!(header.traffic_class, expected);
            assert_eq!(packet[20..], before[20..]);
        }
        assert!(!mark(&mut [0; 10]));
    }
}
