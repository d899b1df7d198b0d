//! Sockets that are asked whether they are ready, calls that do not wait, calls that are given up, addresses and sizes that
//! programs choose.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use engine::Seed;
use platform::Error;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::socket::{BufferSizes, TcpStream};
use platform::sync::{Completion, until};
use units::{BitRate, Duration};

use super::{ADDRESSES, PORT, connected, network};
use crate::common::streams::{bytes, receive};
use crate::common::{Pair, Setup};

/// User memory.
fn memory(cpu: &Cpu, kernel: &Rc<dyn Kernel>, length: u64) -> Pages {
    kernel.alloc_pages(cpu, Pages::order_for(length), Policy::Local).unwrap()
}

/// Accepts one connection on host 1.
async fn accept(cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Rc<dyn TcpStream> {
    let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
    let listener = kernel.network().listen(cpu, at, 4).unwrap();
    assert_eq!(listener.try_accept(cpu).err(), Some(Error::WouldBlock));
    listener.readable().await;
    let stream = listener.try_accept(cpu).unwrap();
    listener.close(cpu);
    stream
}

async fn connect(cpu: &Cpu, kernel: &Rc<dyn Kernel>) -> Rc<dyn TcpStream> {
    kernel.network().connect(cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap()
}

fn both<A: 'static, B: 'static>(pair: &Pair, a: Completion<A>, b: Completion<B>) -> (A, B) {
    pair.simulation.block_on(async move { (a.wait().await, b.wait().await) }).expect("both programs end")
}

#[test]
fn a_stream_of_calls_that_do_not_wait() {
    let pair = connected(&Setup::default());
    let data = bytes(400_000, 31);
    let (expected, face) = (data.clone(), pair.hosts[1].kernel.face());
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let stream = accept(&cpu, &face).await;
            let pages = memory(&cpu, &face, 8_192);
            let into = Segment { at: pages.start, length: 5_000 };
            let (mut received, mut waited) = (Vec::new(), 0);
            loop {
                match stream.try_recv(&cpu, into) {
                    Ok(0) => break,
                    Ok(taken) => {
                        let at = received.len();
                        received.resize(at + taken as usize, 0);
                        cpu.load(pages.start, &mut received[at..]);
                        cpu.sync().await;
                    }
                    Err(error) => {
                        assert_eq!(error, Error::WouldBlock);
                        waited += 1;
                        stream.readable().await;
                    }
                }
            }
            // Its end stays readable.
            stream.readable().await;
            assert_eq!(stream.try_recv(&cpu, into), Ok(0));
            stream.close(&cpu);
            (received, waited)
        })
    });
    let face = pair.hosts[0].kernel.face();
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let stream = connect(&cpu, &face).await;
            let pages = memory(&cpu, &face, 16_384);
            let (mut sent, mut waited) = (0, 0);
            while sent < data.len() {
                let part = &data[sent..(sent + 16_384).min(data.len())];
                cpu.store(pages.start, part);
                match stream.try_send(&cpu, Segment { at: pages.start, length: part.len() as u32 }) {
                    Ok(taken) => sent += taken as usize,
                    Err(error) => {
                        assert_eq!(error, Error::WouldBlock);
                        waited += 1;
                        stream.writable().await;
                    }
                }
                assert_eq!(stream.info().written, sent as u64);
            }
            stream.shutdown(&cpu);
            assert_eq!(stream.try_send(&cpu, Segment { at: pages.start, length: 1 }), Err(Error::Ended));
            stream.writable().await;
            waited
        })
    });
    let ((received, waited), waited_to_send) = both(&pair, server, client);
    assert!(received == expected);
    assert!(waited > 3 && waited_to_send > 0, "{waited} {waited_to_send}");
}

/// Calls are dropped at random times, and begun again: nothing is lost or doubled.
#[test]
fn calls_that_are_given_up_take_no_bytes() {
    let mut given_up = [0, 0];
    for seed in 0..4u64 {
        // Slow, so that calls of both sides have to wait.
        let pair = connected(&Setup { rate: BitRate::gbit_per_s(1), ..Setup::default() });
        let data = bytes(300_000, seed);
        let (expected, face) = (data.clone(), pair.hosts[1].kernel.face());
        let server = pair.spawn(1, 1, move |cpu| {
            Box::pin(async move {
                let mut rng = Seed::new(seed).component("reader");
                let stream = accept(&cpu, &face).await;
                let pages = memory(&cpu, &face, 8_192);
                let (mut received, mut given_up) = (Vec::new(), 0);
                loop {
                    let into = Segment { at: pages.start, length: 1 + rng.below(8_000) as u32 };
                    let deadline = cpu.now() + Duration::from_ns(rng.below(30_000));
                    let Some(taken) = until(&cpu, deadline, stream.recv(&cpu, into)).await else {
                        given_up += 1;
                        continue;
                    };
                    let (at, taken) = (received.len(), taken.unwrap() as usize);
                    if taken == 0 {
                        break;
                    }
                    received.resize(at + taken, 0);
                    cpu.load(pages.start, &mut received[at..]);
                }
                (received, given_up)
            })
        });
        let face = pair.hosts[0].kernel.face();
        let client = pair.spawn(0, 0, move |cpu| {
            Box::pin(async move {
                let mut rng = Seed::new(seed).component("writer");
                let stream = connect(&cpu, &face).await;
                let pages = memory(&cpu, &face, 65_536);
                let (mut sent, mut given_up) = (0, 0);
                while sent < data.len() {
                    let part = &data[sent..(sent + 1 + rng.below(60_000) as usize).min(data.len())];
                    cpu.store(pages.start, part);
                    let from = Segment { at: pages.start, length: part.len() as u32 };
                    let deadline = cpu.now() + Duration::from_ns(rng.below(30_000));
                    let whole = rng.below(2) == 0;
                    let took = match whole {
                        true => until(&cpu, deadline, stream.send(&cpu, from))
                            .await
                            .map(|r| r.map(|()| from.length)),
                        false => until(&cpu, deadline, stream.send_some(&cpu, from)).await,
                    };
                    match took {
                        Some(taken) => sent += taken.unwrap() as usize,
                        // Only of what was to be sent as a whole a part may have gone.
                        None if whole => sent = stream.info().written as usize,
                        None => {}
                    }
                    assert_eq!(stream.info().written, sent as u64);
                    given_up += u64::from(took.is_none());
                }
                stream.shutdown(&cpu);
                given_up
            })
        });
        let ((received, reader), writer) = both(&pair, server, client);
        assert!(received == expected, "{seed}: {} bytes of {}", received.len(), expected.len());
        given_up = [given_up[0] + reader, given_up[1] + writer];
    }
    assert!(given_up.iter().all(|&times| times > 10), "{given_up:?}");
}

/// Datagrams wait for the wire rather than being dropped before it.
#[test]
fn a_full_socket_waits_or_says_so() {
    const COUNT: u32 = 1_000;
    let pair = connected(&Setup { rate: BitRate::gbit_per_s(1), ..Setup::default() });
    let at = SocketAddrV4::new(ADDRESSES[1], 53);
    let face = pair.hosts[1].kernel.face();
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let socket = face.network().udp(&cpu, at).unwrap();
            let pages = memory(&cpu, &face, 4_096);
            let into = Segment { at: pages.start, length: 4_096 };
            assert_eq!(socket.try_recv_from(&cpu, into), Err(Error::WouldBlock));
            let mut numbers = Vec::new();
            while numbers.len() < COUNT as usize {
                socket.readable().await;
                while socket.try_recv_from(&cpu, into).is_ok() {
                    let mut number = [0; 4];
                    cpu.load(pages.start, &mut number);
                    numbers.push(u32::from_le_bytes(number));
                    cpu.sync().await;
                }
            }
            socket.close(&cpu);
            numbers
        })
    });
    let face = pair.hosts[0].kernel.face();
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            let socket = face.network().udp(&cpu, any).unwrap();
            let pages = memory(&cpu, &face, 4_096);
            let from = Segment { at: pages.start, length: 1_000 };
            // The neighbour's address must be known: no more than 101 packets wait for it.
            socket.send_to(&cpu, SocketAddrV4::new(ADDRESSES[1], 54), from).await.unwrap();
            cpu.sleep(Duration::from_us(100)).await;
            let mut would_block = None;
            for number in 0..COUNT {
                cpu.store(pages.start, &number.to_le_bytes());
                match number {
                    500.. => socket.send_to(&cpu, at, from).await.unwrap(),
                    _ => {
                        while let Err(error) = socket.try_send_to(&cpu, at, from) {
                            assert_eq!(error, Error::WouldBlock);
                            would_block.get_or_insert(number);
                            socket.writable().await;
                        }
                    }
                }
                cpu.sync().await;
            }
            socket.close(&cpu);
            assert_eq!(socket.send_to(&cpu, at, from).await, Err(Error::Ended));
            would_block
        })
    });
    let (numbers, would_block) = both(&pair, server, client);
    assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
    // 212,992 bytes hold 117 datagrams of 1,042 bytes, each with 768 for its structure.
    assert!(would_block.is_some_and(|first| first >= 117), "{would_block:?}");
    assert_eq!(pair.device(0).counters().tx_dropped, 0);
}

#[test]
fn a_connection_comes_from_where_it_was_bound() {
    let pair = connected(&Setup::default());
    let face = pair.hosts[1].kernel.face();
    let server = pair.spawn(1, 1, move |cpu| Box::pin(async move { accept(&cpu, &face).await.peer() }));
    let network = network(&pair, 0);
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let (from, to) = (SocketAddrV4::new(ADDRESSES[0], 5_555), SocketAddrV4::new(ADDRESSES[1], PORT));
            let stream = network.connect_from(&cpu, from, to).await.unwrap();
            let again = network.connect_from(&cpu, from, to).await.err();
            let foreign = SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 0);
            (stream.local(), again, network.connect_from(&cpu, foreign, to).await.err())
        })
    });
    let (peer, (local, again, foreign)) = both(&pair, server, client);
    assert_eq!((peer, local), (SocketAddrV4::new(ADDRESSES[0], 5_555), peer));
    assert_eq!((again, foreign), (Some(Error::AddressInUse), Some(Error::Invalid)));
}

/// Whoever gives up while a connection opens leaves none open.
#[test]
fn a_connection_that_nobody_waits_for_is_closed() {
    for us in [0, 3, 6, 10, 14, 20] {
        let pair = connected(&Setup::default());
        let face = pair.hosts[1].kernel.face();
        let server = pair.spawn(1, 1, move |cpu| {
            Box::pin(async move {
                let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
                let listener = face.network().listen(&cpu, at, 4).unwrap();
                let deadline = cpu.now() + Duration::from_ms(5_000);
                let Some(stream) = until(&cpu, deadline, listener.accept(&cpu)).await else { return };
                let stream = stream.unwrap();
                let pages = memory(&cpu, &face, 4_096);
                let end = stream.recv(&cpu, Segment { at: pages.start, length: 4_096 });
                let end = until(&cpu, deadline, end).await;
                assert!(matches!(end, Some(Ok(0) | Err(Error::Reset))), "{us} µs: {end:?}");
            })
        });
        let network = network(&pair, 0);
        let client = pair.spawn(0, 0, move |cpu| {
            Box::pin(async move {
                let to = SocketAddrV4::new(ADDRESSES[1], PORT);
                let deadline = cpu.now() + Duration::from_us(us);
                until(&cpu, deadline, network.connect(&cpu, to)).await.is_none()
            })
        });
        let ((), given_up) = both(&pair, server, client);
        assert!(given_up, "{us} µs is too long for this test");
    }
}

#[test]
fn buffers_hold_what_they_were_told() {
    let pair = connected(&Setup::default());
    let data = bytes(60_000, 5);
    let (expected, face) = (data.clone(), pair.hosts[1].kernel.face());
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let stream = accept(&cpu, &face).await;
            stream.set_buffers(BufferSizes { receive: Some(4_096), send: None });
            // What was offered before counts: 64 KiB less.
            cpu.sleep(Duration::from_us(300)).await;
            receive(&cpu, &face, &*stream, 10_000).await
        })
    });
    let face = pair.hosts[0].kernel.face();
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let stream = connect(&cpu, &face).await;
            stream.set_buffers(BufferSizes { send: Some(6_000), receive: None });
            let pages = memory(&cpu, &face, 65_536);
            cpu.store(pages.start, &data);
            let all = Segment { at: pages.start, length: data.len() as u32 };
            let first = stream.try_send(&cpu, all).unwrap();
            let rest = Segment { at: pages.start + u64::from(first), length: all.length - first };
            stream.send(&cpu, rest).await.unwrap();
            stream.shutdown(&cpu);
            first
        })
    });
    let (received, first) = both(&pair, server, client);
    assert!(received == expected);
    assert_eq!(first, 6_000);
}
