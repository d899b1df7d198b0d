//! The hash by which a channel's transmitter distributes packets over its members, as Linux's bonding computes it
//! (`xmit_hash_policy`, Documentation/networking/bonding.rst).
//!
//! Linux takes addresses and ports as words in network byte order, on a little-endian machine here.

use settings::HashPolicy;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ip::protocol;

/// The hash of a frame that starts with these bytes; the rest may be missing.
pub(super) fn transmit_hash(policy: HashPolicy, frame: &[u8]) -> u32 {
    let Ok((ethernet, network)) = EthernetHeader::parse(frame) else { return 0 };
    let (to, from) = (ethernet.destination.0, ethernet.source.0);
    let stations = u32::from(to[5] ^ from[5]) ^ u32::from(ethernet.ether_type.0);
    if policy == HashPolicy::VlanSrcmac {
        let [vendor, device] = [[from[0], from[1], from[2]], [from[3], from[4], from[5]]];
        let [vendor, device] = [vendor, device].map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]));
        return ethernet.vlan.map_or(0, |tag| u32::from(tag.0)) ^ vendor ^ device;
    }
    let packet = match policy {
        HashPolicy::Layer2 => None,
        _ => addresses(ethernet.ether_type, &frame[network..]),
    };
    let Some(HashedPacket { hash: addresses, protocol, transport }) = packet else { return stations };
    let is_l34 = matches!(policy, HashPolicy::Layer34 | HashPolicy::Encap34);
    let hash = if is_l34 { transport.map_or(0, |rest| ports(protocol, rest)) } else { stations };
    let hash = hash ^ addresses;
    let hash = hash ^ hash >> 16;
    let hash = hash ^ hash >> 8;
    // Ports are often all even.
    if is_l34 { hash >> 1 } else { hash }
}

/// What the hash takes of an IP packet.
struct HashedPacket<'a> {
    /// Both addresses.
    hash: u32,
    protocol: u8,
    /// The transport header; `None` in a fragment.
    transport: Option<&'a [u8]>,
}

fn addresses(ether_type: EtherType, packet: &[u8]) -> Option<HashedPacket<'_>> {
    let words = |bytes: &[u8]| bytes.chunks_exact(4).fold(0, |hash, word| hash ^ word_of(word));
    match ether_type {
        EtherType::IPV4 => {
            let header: &[u8; 20] = packet.first_chunk()?;
            let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
            let transport = packet.get(usize::from(header[0] & 0xf) * 4..).filter(|_| !is_fragment);
            Some(HashedPacket { hash: words(&header[12..20]), protocol: header[9], transport })
        }
        EtherType::IPV6 => {
            let header: &[u8; 40] = packet.first_chunk()?;
            Some(HashedPacket {
                hash: words(&header[8..40]),
                protocol: header[6],
                transport: packet.get(40..),
            })
        }
        _ => None,
    }
}

/// Source and destination port; of an echo its type, code and identifier.
fn ports(protocol: u8, transport: &[u8]) -> u32 {
    match (protocol, transport) {
        (protocol::TCP | protocol::UDP, [_, _, _, _, ..]) => word_of(&transport[..4]),
        // Requests and replies.
        (protocol::ICMP, &[kind @ (0 | 8), code, _, _, a, b, ..]) => {
            let id = if [a, b] == [0, 0] { 1u16.to_le_bytes() } else { [a, b] };
            word_of(&[kind, code, id[0], id[1]])
        }
        _ => 0,
    }
}

fn word_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP segment's headers from 10.0.0.1 to 10.0.0.2, stations 02:..:01 and 02:..:04.
    fn frame(source: u16, destination: u16) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 8, 0];
        // The packet is longer than what is here.
        frame.extend([0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([source.to_be_bytes(), destination.to_be_bytes()].concat());
        frame.resize(64, 0);
        frame
    }

    #[test]
    fn hashes_are_those_of_linux() {
        let hash = |policy| transmit_hash(policy, &frame(0x1234, 0x5678));
        // 04 ^ 01 ^ 0x0800.
        assert_eq!(hash(HashPolicy::Layer2), 0x0805);
        // HashedPacket as words: 0x0100000a ^ 0x0200000a = 0x03000000.
        let l23 = 0x0805u32 ^ 0x0300_0000;
        let l23 = l23 ^ l23 >> 16;
        assert_eq!(hash(HashPolicy::Layer23), l23 ^ l23 >> 8);
        let l34 = 0x7856_3412u32 ^ 0x0300_0000;
        let l34 = l34 ^ l34 >> 16;
        assert_eq!(hash(HashPolicy::Layer34), (l34 ^ l34 >> 8) >> 1);
        assert_eq!(hash(HashPolicy::Encap23), hash(HashPolicy::Layer23), "nothing is encapsulated");
        assert_eq!(hash(HashPolicy::Encap34), hash(HashPolicy::Layer34));
        assert_eq!(hash(HashPolicy::VlanSrcmac), 0x02_0000 ^ 1);
    }

    /// Neighbouring ports of one pair of hosts share two members about equally.
    #[test]
    fn ports_count_in_layer_4_alone() {
        let member = |policy, n: u16| transmit_hash(policy, &frame(40_000 + n, 5001)) % 2;
        let second = |policy| (0..1000).map(|n| member(policy, n)).sum::<u32>();
        for policy in [HashPolicy::Layer2, HashPolicy::Layer23, HashPolicy::VlanSrcmac] {
            assert!([0, 1000].contains(&second(policy)), "{policy:?}");
        }
        for policy in [HashPolicy::Layer34, HashPolicy::Encap34] {
            assert!((400..600).contains(&second(policy)), "{policy:?}: {}", second(policy));
        }
    }

    /// Fragments have no ports, and all go one way.
    #[test]
    fn fragments_stay_together() {
        let mut first = frame(1, 2);
        first[20] = 0x20;
        let mut other = frame(3, 4);
        other[20..22].copy_from_slice(&[0x20, 0xb9]);
        let hash = |frame: &[u8]| transmit_hash(HashPolicy::Layer34, frame);
        assert_eq!(hash(&first), hash(&other));
        assert_ne!(hash(&frame(1, 2)), hash(&frame(3, 4)));
    }
}
