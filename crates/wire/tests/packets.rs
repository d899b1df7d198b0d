//! Frames, packets and captures, in the numbers of their specifications.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use units::Time;
use wire::Malformed;
use wire::ethernet::{Arp, ArpOperation, EtherType, EthernetHeader, MacAddr, VlanTag};
use wire::ip::checksum::{self, Sum};
use wire::ip::dissect::{Dissection, Flow, Verdict};
use wire::ip::tcp::{TcpFlags, TcpHeader};
use wire::ip::{Cutter, Ipv4Header, UdpHeader, protocol};
use wire::pcap::{Contents, Direction, PcapngWriter};

const TCP_HEADER: [u8; 20] =
    [0x03, 0xe8, 0x07, 0xd0, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 2, 0x50, 0x99, 0x10, 0, 0, 0, 0, 0];
const V6: [[u8; 16]; 2] = [
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 2],
];

fn ethernet(ether_type: EtherType) -> Vec<u8> {
    let mut frame = vec![0; 14];
    EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), ether_type).emit(&mut frame);
    frame
}

/// A frame of an IPv4 packet with its checksum, without options.
fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(EtherType::IPV4);
    let total = 20 + payload.len() as u16;
    let [high, low] = total.to_be_bytes();
    frame.extend([0x45, 0, high, low, 0xff, 0xff, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum::of(&frame[14..]).to_be_bytes();
    frame[24..26].copy_from_slice(&sum);
    frame.extend(payload);
    frame
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(EtherType::IPV6);
    let [high, low] = (payload.len() as u16).to_be_bytes();
    frame.extend([0x60, 0, 0, 0, high, low, protocol, 64]);
    frame.extend(V6.as_flattened());
    frame.extend(payload);
    frame
}

#[test]
fn a_header_of_ethernet_has_its_length() {
    let mut frame = ethernet(EtherType::IPV4);
    let (plain, len) = EthernetHeader::parse(&frame).expect("it is complete");
    assert_eq!((plain.len(), len, plain.vlan), (14, 14, None));
    frame.splice(12..12, [0x81, 0x00, 0x20, 0x07]);
    let (tagged, len) = EthernetHeader::parse(&frame).expect("it is complete");
    assert_eq!((tagged.len(), len, tagged.vlan), (18, 18, Some(VlanTag(0x2007))));
    assert!(MacAddr::BROADCAST.is_broadcast() && !MacAddr::local(1).is_broadcast());
    let error = "02:00:00:00:00".parse::<MacAddr>().map_err(|error| error.to_string());
    assert_eq!(error, Err("`02:00:00:00:00` is no Ethernet address, such as 02:00:00:00:00:01".to_owned()));
}

/// RFC 791, section 3.1.
#[test]
fn a_fragment_is_what_has_an_offset_or_more_behind_it() {
    let header = |flags_and_offset: u16| {
        let mut frame = v4(protocol::UDP, &[0; 12]);
        frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
        let (header, len) = Ipv4Header::parse(&frame[14..]).expect("it is complete");
        assert_eq!((len, header.payload_len()), (20, 12));
        let fragment = [header.dont_fragment, header.more_fragments, header.is_fragment()];
        let mut bytes = [0; 20];
        header.emit(&mut bytes);
        assert_eq!((bytes[0], &bytes[6..8]), (0x45, &flags_and_offset.to_be_bytes()[..]));
        (fragment, header.fragment_offset)
    };
    assert_eq!(header(0), ([false; 3], 0));
    assert_eq!(header(0x4000), ([true, false, false], 0));
    assert_eq!(header(0x2000), ([false, true, true], 0));
    assert_eq!(header(0x1fff), ([false, false, true], 0x1fff));
    let (header, _) = Ipv4Header::parse(&v4(protocol::UDP, &[])[14..]).expect("it is complete");
    assert_eq!(header.to_string(), "10.0.0.1 > 10.0.0.2, protocol 17, 20 B");
}

/// RFC 1624: as if all had been summed again.
#[test]
fn a_checksum_of_a_changed_word_is_that_of_all() {
    for (old, new) in [(0, 0xffff), (0xffff, 1), (0x1234, 0x8765), (0x8765, 0x1234), (0x5555, 0xaaaa)] {
        let sum = |word: u16| {
            let [high, low] = word.to_be_bytes();
            checksum::of(&[0x45, 0xfe, high, low, 0xca, 0xfe])
        };
        assert_eq!(checksum::replaced(sum(old), old, new), sum(new), "{old:#x} {new:#x}");
    }
    let sum = Sum::new().with(&[1]).with(&[2, 3]).with(&[]).with(&[4]);
    assert_eq!((sum.partial(), sum.finish()), (0x0406, !0x0406));
}

/// RFC 768 and RFC 826.
#[test]
fn datagrams_and_requests_for_addresses_are_taken_whole() {
    let udp = |len: u8, available| {
        UdpHeader::parse_header(&[0, 1, 0, 2, 0, len, 0, 0], available).map(|udp| udp.len)
    };
    assert_eq!((udp(7, 100), udp(8, 100)), (Err(Malformed::Length), Ok(8)));
    assert_eq!((udp(100, 100), udp(101, 100)), (Ok(100), Err(Malformed::Truncated)));
    let (header, _) = UdpHeader::parse(&[0, 1, 0, 2, 0, 8, 0, 0])
        .map(|udp| (udp.to_string(), udp))
        .expect("it is complete");
    assert_eq!(header, "UDP 1 > 2, 8 B");
    let arp = |operation| Arp {
        operation,
        sender_mac: MacAddr::local(1),
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: MacAddr::local(2),
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };
    for (operation, number) in [(ArpOperation::Request, 1), (ArpOperation::Reply, 2)] {
        let mut bytes = [0xff; 28];
        arp(operation).emit(&mut bytes);
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, number]);
        assert_eq!(bytes[8..], [2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2]);
        assert_eq!(Arp::parse(&bytes), Ok(arp(operation)));
        bytes[7] = 3;
        assert_eq!(Arp::parse(&bytes), Err(Malformed::Unsupported));
    }
}

#[test]
fn flags_of_tcp_are_told_apart() {
    let (syn, ack) = (TcpFlags::SYN, TcpFlags::ACK);
    let both = syn.with(ack);
    assert_eq!([syn, ack, both].map(|flags| flags.0), [2, 0x10, 0x12]);
    assert!(both.contains(syn) && both.contains(both) && !syn.contains(both) && !ack.contains(syn));
    assert_eq!((both.without(ack), both.with(ack), syn.without(ack)), (syn, both, syn));
    assert_eq!(format!("{both:?}"), "[S.]");
    let flags = [TcpFlags::FIN, TcpFlags::RST, TcpFlags::PSH, TcpFlags::ECE, TcpFlags::CWR];
    assert_eq!(flags.map(|flags| flags.0), [1, 4, 8, 0x40, 0x80]);
    let (header, len) = TcpHeader::parse(&TCP_HEADER).expect("it is complete");
    assert_eq!((header.sequence, header.acknowledgement, len), (0xffff_ff00, 2, 20));
    assert!(header.options.is_empty());
    let options = [&[2, 4, 5, 0xb4][..], &TCP_HEADER].concat();
    let mut segment = TCP_HEADER.to_vec();
    segment[12] = 0x60;
    segment.extend(&options[..4]);
    let (header, len) = TcpHeader::parse(&segment).expect("it is complete");
    assert_eq!((header.options.is_empty(), len), (false, 24));
}

#[test]
fn a_frame_is_taken_apart_or_left() {
    let tcp = [&TCP_HEADER[..], b"data"].concat();
    let frame = v4(protocol::TCP, &tcp);
    let found = Dissection::of(&frame).expect("it is a packet");
    let [source, destination] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
    let flow = Flow { protocol: protocol::TCP, source, destination, ports: Some((1000, 2000)) };
    assert_eq!(found, Dissection { network: 14, transport: 34, data: Some(54), end: 58, flow });
    assert_eq!(Flow::of_headers(&frame), Some(flow));
    assert_eq!(found.network_verdict(&frame), Verdict::Right);
    let wide = v6(protocol::TCP, &tcp);
    let found = Dissection::of(&wide).expect("it is a packet");
    let [source, destination] = V6.map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    let flow = Flow { source, destination, ..flow };
    assert_eq!(found, Dissection { network: 14, transport: 54, data: Some(74), end: 78, flow });
    assert_eq!((found.network_verdict(&wide), Flow::of_headers(&wide)), (Verdict::Unknown, None));
    // Addresses of 128 bits count modulo 2^32 - 1, which is the sum of their words: fold it by hand.
    let words = |octets: [u8; 16]| {
        let sum: u64 =
            octets.chunks(4).map(|w| u64::from(u32::from_be_bytes([w[0], w[1], w[2], w[3]]))).sum();
        (sum % u64::from(u32::MAX)) as u32
    };
    let hash = (1000 << 16 | 2000) ^ words(V6[0]) ^ words(V6[1]);
    let hash = hash ^ hash >> 16;
    assert_eq!(flow.link_hash(), (hash ^ hash >> 8) >> 1);

    // One byte changed: what is no packet any more, and what has no flow.
    let changed = |frame: &[u8], at: usize, to: u8| {
        let mut frame = frame.to_vec();
        frame[at] = to;
        (Dissection::of(&frame).is_some(), Flow::of_headers(&frame).is_some())
    };
    for (at, to, taken, has_flow) in [
        (13, 0x06, false, false),
        (14, 0x55, false, false),
        (14, 0x44, false, false),
        (14, 0x46, true, true),
        (17, 45, false, true),
        (17, 44, true, true),
        (17, 43, true, true),
        (17, 20, true, true),
        (17, 19, false, true),
    ] {
        assert_eq!(changed(&frame, at, to), (taken, has_flow), "{at} {to}");
    }
    let is_taken = |at, to| changed(&wide, at, to).0;
    assert_eq!(
        [is_taken(14, 0x50), is_taken(19, 24), is_taken(19, 23), is_taken(19, 25)],
        [false, true, true, false]
    );
    // Data behind options of TCP, if they are within the packet.
    let data = |at: usize, to: u8| {
        let mut frame = frame.clone();
        frame[at] = to;
        Dissection::of(&frame).and_then(|found| found.data)
    };
    assert_eq!([0x40, 0x50, 0x60, 0x70].map(|offset| data(46, offset)), [None, Some(54), Some(58), None]);
    let udp = v4(protocol::UDP, &[0, 1, 0, 2, 0, 8, 0, 0]);
    assert_eq!(Dissection::of(&udp).map(|found| found.data), Some(Some(42)));
    let ports = |bytes: &[u8], fragment: u8, protocol| {
        let mut frame = v4(protocol, bytes);
        frame[20] = fragment;
        let (all, some) =
            (Dissection::of(&frame).map(|found| found.flow.ports), Flow::of_headers(&frame).map(|f| f.ports));
        assert_eq!(all, some);
        all.flatten()
    };
    assert_eq!(ports(&[0, 1, 0, 2], 0, protocol::UDP), Some((1, 2)));
    assert_eq!(ports(&[0, 1, 0, 2], 0x20, protocol::UDP), None, "a fragment");
    assert_eq!(ports(&[0, 1, 0, 2], 0, protocol::ICMP), None);
    assert_eq!(ports(&[0, 1, 0], 0, protocol::UDP), None);
}

#[test]
fn checksums_are_filled_in_and_checked() {
    for (mut frame, at) in [
        (v4(protocol::TCP, &[&TCP_HEADER[..], b"odd"].concat()), 34 + 16),
        (v6(protocol::TCP, &[&TCP_HEADER[..], b"odd"].concat()), 54 + 16),
        (v4(protocol::UDP, &[0, 1, 0, 2, 0, 9, 0xff, 0xff, 7]), 34 + 6),
        (v6(protocol::UDP, &[0, 1, 0, 2, 0, 9, 0xff, 0xff, 7]), 54 + 6),
    ] {
        let found = Dissection::of(&frame).expect("it is a packet");
        assert_eq!(found.transport_verdict(&frame), Verdict::Wrong);
        assert!(found.fill_transport_checksum(&mut frame));
        assert_eq!(found.transport_verdict(&frame), Verdict::Right);
        // The pseudo-header of RFC 9293, 3.1, and RFC 8200, 8.1.
        let mut pseudo = match (found.flow.source, found.flow.destination) {
            (IpAddr::V4(a), IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
            (IpAddr::V6(a), IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
            _ => Vec::new(),
        };
        pseudo.extend(((found.end - found.transport) as u32).to_be_bytes());
        pseudo.extend([0, 0, 0, found.flow.protocol]);
        pseudo.extend(&frame[found.transport..]);
        assert!(checksum::is_right(&pseudo));
        frame[at..at + 2].fill(0);
        let without = if found.flow.protocol == protocol::UDP { Verdict::Unknown } else { Verdict::Wrong };
        assert_eq!(found.transport_verdict(&frame), without);
        let before = frame.clone();
        found.fill_network_checksum(&mut frame);
        assert_eq!(frame, before, "right already, or none");
        if found.flow.source.is_ipv4() {
            frame[22] -= 1;
            assert_eq!(found.network_verdict(&frame), Verdict::Wrong);
            found.fill_network_checksum(&mut frame);
            assert_eq!(found.network_verdict(&frame), Verdict::Right);
        }
    }
    let mut other = v4(protocol::ICMP, &[8, 0, 0, 0, 0, 0, 0, 0]);
    let found = Dissection::of(&other).expect("it is a packet");
    assert!(!found.fill_transport_checksum(&mut other));
    assert_eq!(found.transport_verdict(&other), Verdict::Unknown);
}

proptest! {
    /// Each segment is a packet like the whole, with its part of the data.
    #[test]
    fn segments_are_the_data_of_the_whole(
        is_wide: bool,
        data in proptest::collection::vec(any::<u8>(), 1..200),
        segment in 1u16..100,
    ) {
        let tcp = [&TCP_HEADER[..], &data[..]].concat();
        let (frame, headers) =
            if is_wide { (v6(protocol::TCP, &tcp), 74) } else { (v4(protocol::TCP, &tcp), 54) };
        let cutter = Cutter::new(&frame[..headers], segment, frame.len()).expect("it has headers of TCP");
        let count = data.len().div_ceil(usize::from(segment));
        prop_assert_eq!(cutter.place(count), None);
        let (mut all, mut out) = (Vec::new(), vec![1, 2, 3]);
        for n in 0..count {
            let (begin, end) = cutter.place(n).expect("there is a segment");
            prop_assert_eq!(begin, headers + n * usize::from(segment));
            cutter.cut(&frame[..headers], &frame[begin..end], n, &mut out);
            let found = Dissection::of(&out).expect("it is a packet");
            prop_assert_eq!((found.end, found.data), (out.len(), Some(headers)));
            if !is_wide {
                prop_assert_eq!(u16::from_be_bytes([out[18], out[19]]), 0xffff_u16.wrapping_add(n as u16));
            }
            let (tcp, _) = TcpHeader::parse(&out[found.transport..]).expect("it has a header");
            prop_assert_eq!(tcp.sequence, 0xffff_ff00_u32.wrapping_add((begin - headers) as u32));
            // CWR in the first; PSH and FIN in the last; ACK in all.
            let (first, last) = (u8::from(n == 0) << 7, if n + 1 == count { 0x09 } else { 0 });
            prop_assert_eq!(tcp.flags.0, first | 0x10 | last);
            all.extend_from_slice(&out[headers..]);
        }
        prop_assert_eq!(all, data);
        let before = out.clone();
        cutter.cut(&frame[..headers], &[], count, &mut out);
        prop_assert_eq!(out, before);
    }
}

#[test]
fn only_headers_of_tcp_are_repeated() {
    let frame = v4(protocol::TCP, &[&TCP_HEADER[..], b"data"].concat());
    let cut = |frame: &[u8], headers: usize, segment, total| {
        Cutter::new(&frame[..headers], segment, total).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(cut(&frame, 54, 1, 55), Ok(()));
    for (headers, segment, total) in [(54, 0, 58), (54, 1, 54), (53, 1, 58), (55, 1, 58), (10, 1, 58)] {
        assert!(cut(&frame, headers, segment, total).is_err_and(|told| !told.is_empty()));
    }
    for (at, byte) in [(13, 0xdd), (14, 0x55), (14, 0x44), (23, protocol::UDP), (46, 0x40), (46, 0x60)] {
        let mut frame = frame.clone();
        frame[at] = byte;
        assert!(cut(&frame, 54, 1, 58).is_err(), "{at} {byte:#x}");
    }
}

/// draft-ietf-opsawg-pcapng, sections 4.1 to 4.3.
#[test]
fn a_capture_is_read_as_its_format_says() {
    let mut writer = PcapngWriter::new(Vec::new(), "").expect("memory takes it");
    let links = [Contents::Ethernet, Contents::Pcie].map(|contents| writer.interface("x", 9, contents));
    let [ethernet, pcie] = links.map(|link| link.expect("memory takes it"));
    let time = Time::from_ps((5 << 32 | 6) * 1000 + 7);
    writer.packet(ethernet, time, Direction::Out, &[1, 2, 3, 4, 5]).expect("memory takes it");
    writer
        .packet(pcie, Time::from_ps((8 << 32 | 9) * 100 + 7), Direction::In, &[6])
        .expect("memory takes it");
    let bytes = writer.finish().expect("memory takes it");
    let (mut blocks, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((kind_and_len, _)) = rest.split_first_chunk::<8>() {
        let len = u32::from_le_bytes([kind_and_len[4], kind_and_len[5], kind_and_len[6], kind_and_len[7]]);
        let (block, behind) = rest.split_at(len as usize);
        blocks.push((kind_and_len[0], &block[8..block.len() - 4]));
        rest = behind;
    }
    assert_eq!(blocks.iter().map(|block| block.0).collect::<Vec<_>>(), [0x0a, 1, 1, 6, 6]);
    // Link types: Ethernet, and the first for private use.
    assert_eq!((blocks[1].1[0], blocks[2].1[0]), (1, 147));
    // Interface, time, lengths, data; flags of two bytes: direction, and a check sequence of four bytes at bit 5.
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let expected =
        [words(&[0, 5, 6, 5, 5]), vec![1, 2, 3, 4, 5, 0, 0, 0], words(&[4 << 16 | 2, 4 << 5 | 2, 0])];
    assert_eq!(blocks[3].1, expected.concat());
    let expected = [words(&[1, 8, 9, 1, 1]), vec![6, 0, 0, 0], words(&[4 << 16 | 2, 1, 0])];
    assert_eq!(blocks[4].1, expected.concat());
}
