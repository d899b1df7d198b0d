//! Datagrams, with and without fragments.

use std::net::{Ipv4Addr, SocketAddrV4};

use engine::Seed;
use hardware::ethernet::FaultParams;
use kernel::DmaMode;
use platform::Error;
use platform::block::Segment;
use platform::memory::Policy;
use units::Duration;

use super::{ADDRESSES, connected, faults, network};
use crate::common::streams::bytes;
use crate::common::{Pair, Setup};

#[test]
fn datagrams_keep_their_limits() {
    let pair = connected(&Setup::default());
    let at = |host: usize, port| SocketAddrV4::new(ADDRESSES[host], port);
    let face = pair.hosts[1].kernel.face();
    let server = pair.spawn(1, 0, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, at(1, 53)).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let into = Segment { at: pages.start, length: 100 };
            let mut lengths = Vec::new();
            for _ in 0..3 {
                lengths.push(socket.recv_from(&cpu, into).await.unwrap().0);
            }
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
            lengths
        })
    });
    let face = pair.hosts[0].kernel.face();
    let sent = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            // Somebody must be there first: nothing resends a datagram.
            cpu.sleep(Duration::from_us(100)).await;
            for length in [0, 60, 1_000] {
                socket.send_to(&cpu, at(1, 53), Segment { at: pages.start, length }).await.unwrap();
                cpu.sync().await;
            }
            let too_long = socket.send_to(&cpu, at(1, 53), Segment { at: pages.start, length: 65_508 }).await;
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
            too_long
        })
    });
    let (lengths, too_long) = pair
        .simulation
        .block_on(async move { (server.wait().await, sent.wait().await) })
        .expect("both programs end");
    assert_eq!(lengths, [0, 60, 100], "what does not fit is lost");
    assert_eq!(too_long, Err(Error::TooLong));
}

/// Sends datagrams of these sizes from host 0 to host 1; those that arrived within a while.
fn send(pair: &Pair, lengths: &'static [u32]) -> Vec<Vec<u8>> {
    let at = |host: usize, port| SocketAddrV4::new(ADDRESSES[host], port);
    let face = pair.hosts[1].kernel.face();
    let received = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let told = std::rc::Rc::clone(&received);
    pair.spawn(1, 0, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, at(1, 53)).unwrap();
            let pages = face.alloc_pages(&cpu, 4, Policy::Local).unwrap();
            for _ in lengths {
                let into = Segment { at: pages.start, length: 65_536 };
                let Ok((length, _)) = socket.recv_from(&cpu, into).await else { break };
                let mut data = vec![0; length as usize];
                cpu.load(pages.start, &mut data);
                told.borrow_mut().push(data);
            }
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
        })
    });
    let face = pair.hosts[0].kernel.face();
    pair.run(0, 2, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let pages = face.alloc_pages(&cpu, 4, Policy::Local).unwrap();
            cpu.sleep(Duration::from_us(100)).await;
            for (n, &length) in (0..).zip(lengths) {
                cpu.store(pages.start, &bytes(length as usize, n));
                socket.send_to(&cpu, at(1, 53), Segment { at: pages.start, length }).await.unwrap();
                cpu.sleep(Duration::from_us(30)).await;
            }
            socket.close(&cpu);
            face.free_pages(&cpu, pages);
        })
    });
    pair.run_for(Duration::from_ms(1));
    received.take()
}

const LENGTHS: &[u32] = &[1_472, 1_473, 2_953, 9_000, 0, 40_000, 65_507, 1_480, 8_192];

#[test]
fn large_datagrams_arrive_in_fragments() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        let pair = connected(&Setup { mode, ..Setup::default() });
        let received = send(&pair, LENGTHS);
        for (n, (&length, data)) in (0..).zip(LENGTHS.iter().zip(&received)) {
            assert!(*data == bytes(length as usize, n), "datagram {n} of {} bytes", data.len());
        }
        assert_eq!(received.len(), LENGTHS.len());
        let [sent, came] = [0, 1].map(|host| network(&pair, host).counters());
        let fragments =
            |length: u32| if length <= 1_472 { 0 } else { (u64::from(length) + 8).div_ceil(1_480) };
        let expected: u64 = LENGTHS.iter().map(|&length| fragments(length)).sum();
        assert_eq!((sent.fragments_out, came.fragments_in), (expected, expected));
        assert_eq!((came.reassembled, came.reassembly_failed, came.bad_checksums), (7, 0, 0), "{came:?}");
        // The first round has filled the driver's pool.
        let mapped = pair.mapped(1);
        for _ in 0..4 {
            assert_eq!(send(&pair, LENGTHS).len(), LENGTHS.len());
        }
        assert!(pair.mapped(1) < mapped + 16, "{} pages, before {mapped}: buffers go back", pair.mapped(1));
    }
}

/// On a wire that loses, damages, repeats and reorders, a datagram arrives as it was or not at all; what waited in vain is
/// given up after a while.
#[test]
fn fragments_arrive_identical_or_not_at_all() {
    let lengths: &'static [u32] = &[20_000; 40];
    let mut seen = (0, 0);
    for seed in 0..3 {
        let faults = FaultParams { seed: Seed::new(seed), ..faults() };
        let pair = connected(&Setup { faults: Some(faults), ..Setup::default() });
        let received = send(&pair, lengths);
        for data in &received {
            assert!((0..40).any(|n| *data == bytes(20_000, n)), "{} bytes", data.len());
        }
        let before = network(&pair, 1).counters();
        assert_eq!(before.reassembly_failed, 0);
        pair.run_for(Duration::from_ms(31_000));
        let after = network(&pair, 1).counters();
        assert!(after.reassembled >= received.len() as u64, "{after:?}");
        seen = (seen.0 + after.reassembled, seen.1 + after.reassembly_failed);
    }
    assert!(seen.0 > 20 && seen.1 > 5, "{seen:?} came whole and did not");
}
