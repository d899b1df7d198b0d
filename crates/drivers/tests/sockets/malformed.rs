//! Frames whose check sequence is right and whose headers are not reach a host with open sockets: each is counted, nothing
//! of them stays, and a stream beside them arrives as it was sent.

use std::net::{Ipv4Addr, SocketAddrV4};

use platform::block::Segment;
use platform::memory::{Pages, Policy};
use platform::socket::InetCounters;
use proptest::prelude::*;
use units::Duration;

use super::{connected, network};
use crate::common::spoilt::{DATAGRAMS, Fault, Kind, Spoilt, attack, spoilt};
use crate::common::{ADDRESSES, Buffers, Pair, Setup};

/// Each packet is one of those that the protocols count.
fn assert_all_counted(c: &InetCounters) {
    let taken = c.arp_in + c.tcp_segments_in + c.udp_in + c.icmp_in + c.fragments_in;
    assert_eq!(c.packets_in + c.reassembled, c.refused + c.bad_checksums + taken, "{c:?}");
}

/// A datagram and an echo come through.
fn assert_alive(pair: &Pair) {
    let face = pair.hosts[1].kernel.face();
    let to = SocketAddrV4::new(ADDRESSES[1], DATAGRAMS);
    let server = pair.spawn(1, 2, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, to).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let into = Segment { at: pages.start, length: 4_096 };
            let (length, _) = socket.recv_from(&cpu, into).await.unwrap();
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
            length
        })
    });
    let face = pair.hosts[0].kernel.face();
    let echo = pair.run(0, 2, move |cpu| {
        Box::pin(async move {
            let pages = face.alloc_pages(&cpu, Pages::order_for(1_000), Policy::Local).unwrap();
            let socket = face.network().udp(&cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            cpu.sleep(Duration::from_us(50)).await;
            socket.send_to(&cpu, to, Segment { at: pages.start, length: 777 }).await.unwrap();
            let ping = face.network().ping(&cpu).unwrap();
            ping.send(&cpu, ADDRESSES[1], 1, 56).unwrap();
            let echo = ping.recv(&cpu, cpu.now() + Duration::from_ms(5_000)).await;
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
            echo.map(|echo| echo.intact)
        })
    });
    assert_eq!(echo, Ok(true));
    let length = pair.simulation.block_on(async move { server.wait().await });
    assert_eq!(length.expect("the datagram comes"), 777);
}

pub fn free_pages(pair: &Pair, host: usize) -> u64 {
    pair.hosts[host].kernel.memory().iter().map(|node| node.free.get()).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoilt_frames_harm_no_stream_and_leave_nothing(spoilt in prop::collection::vec(spoilt(), 1..120)) {
        let pair = connected(&Setup::default());
        let mut left = Vec::new();
        for _ in 0..4 {
            attack(&pair, &spoilt, &[1]);
            let device = pair.device(1);
            let again = pair.run(1, 5, move |cpu| Box::pin(async move {
                device.stop(&cpu).await;
                device.open(&cpu).await
            }));
            prop_assert_eq!(again, Ok(()));
            left.push(free_pages(&pair, 1));
        }
        for host in 0..2 {
            let counters = network(&pair, host).counters();
            assert_all_counted(&counters);
            prop_assert_eq!(counters.packets_in, pair.device(host).counters().rx_packets, "{:?}", counters);
        }
        // Pages for headers may become more when more packets than ever are under way at once; what leaks does in each round.
        prop_assert!(left.windows(2).any(|two| two[0] == two[1]), "pages do not come back: {:?}", left);
        assert_alive(&pair);
    }
}

/// What no host may send, and what is for nobody here, is refused without an answer.
#[test]
fn packets_of_nobody_and_for_nobody_are_refused() {
    let spoilt = |kind, fault| Spoilt {
        kind,
        length: 40,
        sequence: 1,
        faults: vec![fault],
        mended: true,
        piece: 2_000,
    };
    let (syn, datagram) = (Kind::Syn { from: 4_100 }, Kind::Datagram { to: 99 });
    let refused = [
        spoilt(syn, Fault::Destination(Ipv4Addr::BROADCAST)),
        spoilt(syn, Fault::Destination(Ipv4Addr::LOCALHOST)),
        spoilt(syn, Fault::Source(Ipv4Addr::BROADCAST)),
        spoilt(syn, Fault::Source(Ipv4Addr::UNSPECIFIED)),
        spoilt(syn, Fault::Source(Ipv4Addr::new(224, 0, 0, 1))),
        spoilt(datagram, Fault::Source(ADDRESSES[1])),
        spoilt(datagram, Fault::Source(Ipv4Addr::LOCALHOST)),
        spoilt(datagram, Fault::Tag(1)),
    ];
    let taken = [
        spoilt(datagram, Fault::Padding(0)),
        spoilt(datagram, Fault::Tag(0xe000)),
        spoilt(datagram, Fault::Destination(Ipv4Addr::BROADCAST)),
    ];
    let pair = connected(&Setup::default());
    let before = network(&pair, 1).counters();
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let device = pair.device(0);
    let frames: Vec<_> = refused.iter().chain(&taken).flat_map(|spoilt| spoilt.frames(1)).collect();
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for (frame, piece) in frames {
                device.send(&cpu, buffers.packet(&cpu, &frame, piece), false).unwrap();
            }
        })
    });
    pair.run_for(Duration::from_ms(1));
    let after = network(&pair, 1).counters();
    assert_eq!(after.refused - before.refused, refused.len() as u64, "{after:?}");
    assert_eq!((after.udp_in - before.udp_in, after.bad_checksums), (taken.len() as u64, 0), "{after:?}");
    assert_eq!(after.tcp_packets_out, 0);
    assert_all_counted(&after);
}
