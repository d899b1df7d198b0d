//! What a socket that nobody reads keeps of its host's memory.

use std::net::{Ipv4Addr, SocketAddrV4};

use kernel::DmaMode;
use platform::block::Segment;
use platform::memory::{PAGE, Policy};
use platform::socket::BufferSizes;
use units::Duration;

use super::malformed::free_pages;
use super::{ADDRESSES, PORT, connected, network};
use crate::common::Setup;
use crate::common::streams::{bytes, receive, send};

/// Connections that have sent, and have nothing to send, keep no pages for what they may send next.
#[test]
fn connections_at_rest_keep_no_pages() {
    const COUNT: u64 = 12;
    let pair = connected(&Setup::default());
    let face = pair.hosts[1].kernel.face();
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            let listener = face.network().listen(&cpu, at, 20).unwrap();
            let mut streams = Vec::new();
            for _ in 0..COUNT {
                let stream = listener.accept(&cpu).await.unwrap();
                let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
                let into = Segment { at: pages.start, length: 4096 };
                assert_eq!(stream.recv(&cpu, into).await, Ok(100));
                face.free_pages(&cpu, pages);
                streams.push(stream);
            }
            streams
        })
    });
    let face = pair.hosts[0].kernel.face();
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let from = Segment { at: pages.start, length: 100 };
            let mut streams = Vec::new();
            for _ in 0..COUNT {
                let to = SocketAddrV4::new(ADDRESSES[1], PORT);
                let stream = face.network().connect(&cpu, to).await.unwrap();
                stream.send(&cpu, from).await.unwrap();
                streams.push(stream);
            }
            streams
        })
    });
    let streams =
        pair.simulation.block_on(async move { (client.wait().await, server.wait().await) }).unwrap();
    let free = || free_pages(&pair, 0);
    let begun = free();
    pair.run_for(Duration::from_ms(500));
    assert_eq!(free(), begun, "whoever goes on soon finds them");
    pair.run_for(Duration::from_ms(1_000));
    assert!(free() >= begun + 8 * COUNT, "{} pages came back, 8 of each connection", free() - begun);
    drop(streams);
}

/// Segments of a byte or of a few hundred each occupy a whole buffer of the receiver's card. They are copied together before
/// they occupy more than the socket may, and arrive as they were sent.
#[test]
fn small_segments_keep_no_more_memory_than_the_socket_may() {
    // Half of the memory is reckoned to be payload.
    const RECEIVE: u32 = 16 << 10;
    for (piece, length) in [(1, 1_500), (300, 60_000)] {
        let setup = Setup { mode: DmaMode::Strict, autocorking: false, ..Setup::default() };
        let pair = connected(&setup);
        let before = pair.mapped(1);
        let data = bytes(length, 5);
        let (expected, face) = (data.clone(), pair.hosts[1].kernel.face());
        let server = pair.spawn(1, 1, move |cpu| {
            Box::pin(async move {
                let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
                let listener = face.network().listen(&cpu, at, 4).unwrap();
                let stream = listener.accept(&cpu).await.unwrap();
                stream.set_buffers(BufferSizes { receive: Some(RECEIVE), ..BufferSizes::default() });
                let mut most = 0;
                for _ in 0..400 {
                    cpu.sleep(Duration::from_us(10)).await;
                    most = most.max(stream.info().receive_memory);
                }
                let kept = stream.info();
                let received = receive(&cpu, &face, &*stream, 10_000).await;
                stream.close(&cpu);
                (received, most, kept)
            })
        });
        let face = pair.hosts[0].kernel.face();
        pair.spawn(0, 0, move |cpu| {
            Box::pin(async move {
                let to = SocketAddrV4::new(ADDRESSES[1], PORT);
                let stream = face.network().connect(&cpu, to).await.unwrap();
                stream.set_no_delay(true);
                send(&cpu, &face, &*stream, &data, piece).await;
                stream.close(&cpu);
            })
        });
        pair.run_for(Duration::from_us(3_500));
        let mapped = pair.mapped(1);
        let (received, most, kept) =
            pair.simulation.block_on(async move { server.wait().await }).expect("it ends");
        assert!(received == expected, "{} of {length} bytes", received.len());
        let counters = network(&pair, 1).counters();
        assert!(counters.collapsed > 50, "pieces of {piece}: {counters:?}");
        assert!(most <= u64::from(2 * RECEIVE) && most > u64::from(RECEIVE), "{most} bytes, {kept:?}");
        // Pages of the card's buffers, half a page each.
        let pages = mapped - before;
        assert!(pages * PAGE <= u64::from(2 * RECEIVE) + 32 * PAGE, "pieces of {piece}: {pages} pages more");
    }
}
