//! A slow port: what waits before it is marked instead of lost, tails that are lost are found out soon, and peers that have
//! gone are noticed.

use std::net::{Ipv4Addr, SocketAddrV4};

use kernel::EcnMode;
use platform::Error;
use platform::block::Segment;
use platform::memory::Policy;
use platform::socket::{KeepAlive, TcpInfo};
use units::{BitRate, Duration};

use super::{ADDRESSES, PORT, connected};
use crate::common::streams::{bytes, receive, send};
use crate::common::{Pair, Setup};

/// Streams from host 0 to host 1, all at once; what their senders know in the end, and how long it took.
fn streams(pair: &Pair, count: u16, length: usize) -> (Vec<TcpInfo>, Duration) {
    let start = pair.simulation.now();
    let mut ends = Vec::new();
    for n in 0..count {
        let data = bytes(length, n.into());
        let (expected, faces) = (data.clone(), [0, 1].map(|host: usize| pair.hosts[host].kernel.face()));
        let [here, there] = faces;
        let server = pair.spawn(1, n, move |cpu| {
            Box::pin(async move {
                let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT + n);
                let listener = there.network().listen(&cpu, at, 4).unwrap();
                let stream = listener.accept(&cpu).await.unwrap();
                assert!(receive(&cpu, &there, &*stream, 60_000).await == expected);
                stream.info()
            })
        });
        let client = pair.spawn(0, n, move |cpu| {
            Box::pin(async move {
                cpu.sleep(Duration::from_us(50)).await;
                let to = SocketAddrV4::new(ADDRESSES[1], PORT + n);
                let stream = here.network().connect(&cpu, to).await.unwrap();
                send(&cpu, &here, &*stream, &data, 60_000).await;
                stream
            })
        });
        ends.push((server, client));
    }
    let infos = pair.simulation.block_on(async move {
        let mut infos = Vec::new();
        for (server, client) in ends {
            let theirs = server.wait().await;
            let stream = client.wait().await;
            infos.push(TcpInfo { marked: theirs.marked, ..stream.info() });
        }
        infos
    });
    (infos.expect("all streams arrive"), pair.simulation.now().since(start))
}

/// Ports of 40 Gbit/s into one of 10: a switch that marks keeps its queue short, and nothing is lost.
#[test]
fn a_switch_that_marks_loses_nothing() {
    let slow = BitRate::gbit_per_s(10);
    let run = |ecn, mark: u32| {
        let setup = Setup { ecn, marking_switch: Some((mark, slow)), ..Setup::default() };
        let pair = connected(&setup);
        let (infos, _) = streams(&pair, 3, 1_500_000);
        let marked: u64 = infos.iter().map(|info| info.marked).sum();
        let again: u64 = infos.iter().map(|info| info.retransmissions).sum();
        (marked, again, infos)
    };
    // Without ECN the queue of 192 KiB overflows.
    let (marked, again, infos) = run(EcnMode::Accept, 60_000);
    assert!(marked == 0 && again > 0, "{infos:?}");
    let (marked, again, infos) = run(EcnMode::Ask, 60_000);
    assert!(marked > 10 && again == 0, "{infos:?}");
    assert!(infos.iter().all(|info| info.echoes > 0 && info.timeouts == 0), "{infos:?}");
}

/// Streams that overflow the queue of a slow port lose tails, too, and need no timer for them.
#[test]
fn lost_tails_do_not_wait_for_the_timer() {
    let setup = Setup { marking_switch: Some((u32::MAX, BitRate::gbit_per_s(10))), ..Setup::default() };
    let pair = connected(&setup);
    let (infos, took) = streams(&pair, 3, 1_500_000);
    assert!(infos.iter().any(|info| info.retransmissions > 0), "{infos:?}");
    assert_eq!(infos.iter().map(|info| info.timeouts).sum::<u64>(), 0, "{infos:?}");
    // 4.5 MB at 10 Gbit/s take 3.6 ms.
    assert!(took < Duration::from_ms(30), "{took}, {infos:?}");
}

/// A peer whose card was pulled out says nothing: probes find out, and the program hears of it.
#[test]
fn a_peer_that_has_gone_is_noticed() {
    let pair = connected(&Setup::default());
    let faces = [0, 1].map(|host: usize| pair.hosts[host].kernel.face());
    let [here, there] = faces;
    pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            let stream = there.network().listen(&cpu, at, 4).unwrap().accept(&cpu).await.unwrap();
            let pages = there.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let _ = stream.recv(&cpu, Segment { at: pages.start, length: 100 }).await;
        })
    });
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            cpu.sleep(Duration::from_us(50)).await;
            let stream = here.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap();
            let keep = KeepAlive { idle: Duration::from_ms(50), interval: Duration::from_ms(10), probes: 3 };
            stream.set_keep_alive(&cpu, Some(keep));
            let pages = here.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let answer = stream.recv(&cpu, Segment { at: pages.start, length: 100 }).await;
            (answer, cpu.now())
        })
    });
    pair.run_for(Duration::from_ms(120));
    let gone = pair.simulation.now();
    let cable = pair.cable;
    pair.simulation
        .handle()
        .with(|fabric, scheduler| fabric.running(scheduler).set_ethernet_up(cable, false));
    let (answer, at) = pair.simulation.block_on(async move { client.wait().await }).expect("it hears of it");
    assert_eq!(answer, Err(Error::TimedOut));
    assert!(at.since(gone) < Duration::from_ms(100), "{}", at.since(gone));
}
