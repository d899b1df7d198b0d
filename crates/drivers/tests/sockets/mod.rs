//! Programs of two hosts talk through sockets, kernels, drivers, NICs and a cable.

mod closing;
mod congestion;
mod datagrams;
mod malformed;
mod memory;
mod readiness;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use crate::common::streams::{bytes, receive, send};
use crate::common::{ADDRESSES, Pair, Setup};
use drivers::nic::{KpioParams, NicDriverParams, PacketSelect};
use engine::Seed;
use hardware::ethernet::FaultParams;
use kernel::{DmaMode, SteeringParams};
use platform::Error;
use platform::block::Segment;
use platform::cpu::CpuId;
use platform::device::FunctionIndex;
use platform::kernel::TaskParams;
use platform::memory::Policy;
use platform::net::NetFeatures;
use platform::socket::Network;
use units::Duration;
use wire::nic::registers::counter;

const PORT: u16 = 7;

fn faults() -> FaultParams {
    FaultParams {
        loss: 0.01,
        corruption: 0.01,
        bit_error_rate: 0.0,
        duplication: 0.01,
        reordering: 0.02,
        longest_delay: Duration::from_us(50),
        seed: Seed::new(11),
    }
}

/// Two hosts with addresses.
fn connected(setup: &Setup) -> Pair {
    let pair = Pair::new(setup);
    for (host, address) in ADDRESSES.into_iter().enumerate() {
        let network = network(&pair, host);
        pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, "eth0", address, 24).await })
        })
        .unwrap();
    }
    pair
}

fn network(pair: &Pair, host: usize) -> Rc<dyn Network> {
    pair.hosts[host].kernel.face().network()
}

/// A question from host 0 to host 1 and an answer back; the hosts' pages afterwards are as before.
fn exchange(pair: &Pair, question: Vec<u8>, answer: Vec<u8>, (piece, most): (usize, u32)) {
    let faces = [0, 1].map(|host: usize| pair.hosts[host].kernel.face());
    let (expected_question, expected_answer) = (question.clone(), answer.clone());
    let face = Rc::clone(&faces[1]);
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            let listener = face.network().listen(&cpu, at, 4).unwrap();
            let stream = listener.accept(&cpu).await.unwrap();
            listener.close(&cpu);
            let asked = receive(&cpu, &face, &*stream, most).await;
            send(&cpu, &face, &*stream, &answer, piece).await;
            stream.close(&cpu);
            asked
        })
    });
    let face = Rc::clone(&faces[0]);
    let client = pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let stream = face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap();
            send(&cpu, &face, &*stream, &question, piece).await;
            let answered = receive(&cpu, &face, &*stream, most).await;
            stream.close(&cpu);
            answered
        })
    });
    let (asked, answered) = pair
        .simulation
        .block_on(async move { (server.wait().await, client.wait().await) })
        .expect("both programs end");
    assert!(asked == expected_question, "the question: {} of {} bytes", asked.len(), expected_question.len());
    assert!(answered == expected_answer, "the answer: {} of {} bytes", answered.len(), expected_answer.len());
}

#[test]
fn streams_arrive_identical_over_a_good_wire() {
    for mode in [DmaMode::Off, DmaMode::Strict, DmaMode::Lazy] {
        let pair = connected(&Setup { mode, ..Setup::default() });
        exchange(&pair, bytes(300_000, 1), bytes(100_000, 2), (10_000, 20_000));
        let counters = [0, 1].map(|host| network(&pair, host).counters());
        assert_eq!((counters[0].bad_checksums, counters[1].bad_checksums), (0, 0));
        assert!(counters[1].coalesced > 0, "large packets arrive joined: {counters:?}");
        assert!(counters[0].tcp_packets_out < 150, "and are cut by the NIC: {counters:?}");
    }
}

#[test]
fn streams_arrive_identical_over_a_bad_wire() {
    for seed in 0..3u64 {
        let faults = Some(FaultParams { seed: Seed::new(seed), ..faults() });
        let pair = connected(&Setup { faults, ..Setup::default() });
        exchange(&pair, bytes(200_000, seed), bytes(60_000, seed + 9), (3_000, 5_000));
        let counters = [0, 1].map(|host| network(&pair, host).counters());
        let device = [0, 1].map(|host| pair.device(host).counters());
        assert!(device[0].rx_packets > 0 && device[1].rx_packets > 0, "{counters:?}");
    }
}

#[test]
fn streams_arrive_without_help_from_the_nic() {
    let pair = connected(&Setup::default());
    for host in 0..2 {
        let device = pair.hosts[host].kernel.net().device("eth0").unwrap();
        pair.run(host, 0, move |cpu| {
            Box::pin(async move {
                let left = device.set_features(&cpu, &NetFeatures::default());
                assert!(!left.tso && !left.tx_checksum, "{left:?}");
            })
        });
    }
    exchange(&pair, bytes(50_000, 3), bytes(20_000, 4), (7_777, 3_333));
}

#[test]
fn a_small_receive_buffer_and_odd_sizes() {
    let pair = connected(&Setup::default());
    exchange(&pair, bytes(4_097, 5), bytes(1, 6), (1, 7));
}

#[test]
fn nobody_listens_and_nobody_is_there() {
    let pair = connected(&Setup::default());
    let connect = |to: Ipv4Addr| {
        let network = network(&pair, 0);
        pair.run(0, 0, move |cpu| {
            Box::pin(async move { network.connect(&cpu, SocketAddrV4::new(to, 99)).await.err() })
        })
    };
    assert_eq!(connect(ADDRESSES[1]), Some(Error::Refused));
    assert_eq!(connect(Ipv4Addr::new(10, 0, 0, 77)), Some(Error::Unreachable));
    assert_eq!(connect(Ipv4Addr::new(192, 168, 1, 1)), Some(Error::Unreachable));
    assert_eq!(network(&pair, 1).counters().resets, 1);
}

#[test]
fn echoes_come_back_and_strangers_do_not_answer() {
    let pair = connected(&Setup::default());
    let ping = |to: Ipv4Addr, data: u16| {
        let network = network(&pair, 0);
        pair.run(0, 0, move |cpu| {
            Box::pin(async move {
                let socket = network.ping(&cpu).unwrap();
                socket.send(&cpu, to, 1, data)?;
                let deadline = cpu.now() + Duration::from_ms(5_000);
                socket.recv(&cpu, deadline).await
            })
        })
    };
    for data in [0, 56, 1_400] {
        let echo = ping(ADDRESSES[1], data).unwrap();
        assert_eq!((echo.from, echo.bytes, echo.intact), (ADDRESSES[1], u32::from(data) + 8, true));
    }
    assert_eq!(ping(ADDRESSES[0], 100).map(|echo| echo.intact), Ok(true), "this host itself");
    assert_eq!(ping(Ipv4Addr::new(10, 0, 0, 77), 56), Err(Error::Unreachable));
    for data in [1_473, 5_000, 65_507] {
        assert_eq!(ping(ADDRESSES[1], data).map(|echo| echo.intact), Ok(true), "in fragments");
    }
    assert_eq!(ping(ADDRESSES[1], 65_508), Err(Error::TooLong));
}

/// A sender that is moved from core to core all the time: its packets leave by the queue of the first as long as any is
/// under way, so that none passes another.
#[test]
fn a_flow_keeps_its_order_when_its_thread_moves() {
    let setup = Setup {
        driver: NicDriverParams { channels: Some(4), ..NicDriverParams::default() },
        ..Setup::default()
    };
    let pair = connected(&setup);
    let data = bytes(600_000, 8);
    let (expected, face) = (data.clone(), pair.hosts[1].kernel.face());
    let server = pair.spawn(1, 1, move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            let listener = face.network().listen(&cpu, at, 4).unwrap();
            let stream = listener.accept(&cpu).await.unwrap();
            let received = receive(&cpu, &face, &*stream, 30_000).await;
            (received, stream.info().out_of_order)
        })
    });
    let face = pair.hosts[0].kernel.face();
    let queues = Rc::new(RefCell::new(BTreeSet::new()));
    let (sender_face, seen) = (Rc::clone(&face), Rc::clone(&queues));
    let task = pair.hosts[0].kernel.spawn(TaskParams::named("sender"), move |cpu| {
        Box::pin(async move {
            let to = SocketAddrV4::new(ADDRESSES[1], PORT);
            let stream = sender_face.network().connect(&cpu, to).await.unwrap();
            let pages = sender_face.alloc_pages(&cpu, 1, Policy::Local).unwrap();
            for part in data.chunks(4_000) {
                cpu.store(pages.start, part);
                seen.borrow_mut().insert(cpu.id());
                stream.send(&cpu, Segment { at: pages.start, length: part.len() as u32 }).await.unwrap();
                cpu.sleep(Duration::from_us(2)).await;
            }
            stream.shutdown(&cpu);
        })
    });
    let mover = Rc::clone(&face);
    pair.spawn(0, 7, move |cpu| {
        Box::pin(async move {
            for round in 0..60u16 {
                cpu.sleep(Duration::from_us(7)).await;
                if mover.set_affinity(task, &[CpuId(round * 5 % 7)]).is_err() {
                    return;
                }
            }
        })
    });
    let (received, out_of_order) =
        pair.simulation.block_on(async move { server.wait().await }).expect("the server ends");
    assert!(received == expected);
    assert!(queues.borrow().len() >= 4, "it ran on several cores: {:?}", queues.borrow());
    assert_eq!(out_of_order, 0);
}

/// A reader that is moved every 50 us, with packets following it by software and by the device: none passes another.
#[test]
fn a_stream_keeps_its_order_when_its_reader_moves() {
    let steering = SteeringParams { rfs: true, arfs: true, ..SteeringParams::linux() };
    let setup = Setup {
        driver: NicDriverParams { channels: Some(8), ..NicDriverParams::default() },
        steering,
        ..Setup::default()
    };
    let pair = connected(&setup);
    let data = bytes(2_000_000, 9);
    let (expected, faces) = (data.clone(), [0, 1].map(|host: usize| pair.hosts[host].kernel.face()));
    let received = Rc::new(RefCell::new(None));
    let (told, face) = (Rc::clone(&received), Rc::clone(&faces[1]));
    let reader = pair.hosts[1].kernel.spawn(TaskParams::named("reader"), move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
            let listener = face.network().listen(&cpu, at, 4).unwrap();
            let stream = listener.accept(&cpu).await.unwrap();
            let data = receive(&cpu, &face, &*stream, 30_000).await;
            *told.borrow_mut() = Some((data, stream.info().out_of_order));
        })
    });
    let face = Rc::clone(&faces[0]);
    pair.spawn(0, 0, move |cpu| {
        Box::pin(async move {
            let stream = face.network().connect(&cpu, SocketAddrV4::new(ADDRESSES[1], PORT)).await.unwrap();
            send(&cpu, &face, &*stream, &data, 10_000).await;
        })
    });
    for round in 0..100u16 {
        pair.run_for(Duration::from_us(50));
        let core = CpuId(round * 7 % 16);
        if faces[1].set_affinity(reader, &[core]).is_err() || received.borrow().is_some() {
            break;
        }
    }
    pair.run_for(Duration::from_ms(20));
    let (data, out_of_order) = received.take().expect("the reader ends");
    assert!(data == expected);
    let counted = network(&pair, 1).counters();
    assert!(counted.steered >= 5 && counted.to_other_core > 0 && counted.steer_held > 0, "{counted:?}");
    assert_eq!(out_of_order, 0, "{counted:?}");
}

/// A host 0 that sends by lines.
fn by_lines(kpio: KpioParams) -> Setup {
    let driver = NicDriverParams { channels: Some(2), kpio: Some(kpio), ..NicDriverParams::default() };
    Setup { driver, nic: |nic| nic.kpio = Some(devices::nic::KpioParams::example()), ..Setup::default() }
}

#[test]
fn large_segments_are_cut_on_their_way_into_lines() {
    for kpio in [
        KpioParams::default(),
        KpioParams::papers(),
        KpioParams { shared: true, ..KpioParams::default() },
        KpioParams { select: PacketSelect::TcpPorts { first: PORT, last: PORT }, ..KpioParams::default() },
    ] {
        let pair = connected(&by_lines(kpio));
        exchange(&pair, bytes(300_000, 21), bytes(100_000, 22), (10_000, 20_000));
        let counters = [0, 1].map(|host| network(&pair, host).counters());
        assert_eq!((counters[0].bad_checksums, counters[1].bad_checksums), (0, 0));
        assert!(counters[0].tcp_packets_out < 150, "the stack sends large segments: {counters:?}");
        let frames = pair.hosts[0].handle.counter(FunctionIndex(0), counter::KPIO_FRAMES);
        assert!(frames > 300_000 / 1460, "{frames} frames by lines");
    }
}

/// Another core writes into the queues without anybody's leave, as a broken driver would: what it spoils is dropped by the
/// card and counted, and TCP sends it again.
#[test]
fn tcp_recovers_what_a_second_writer_spoils() {
    let mut dropped = 0;
    for seed in 0..3 {
        let pair = connected(&by_lines(KpioParams::default()));
        let window = pair.hosts[0].beside.window().unwrap();
        pair.spawn(0, 3, move |cpu| {
            Box::pin(async move {
                let mut rng = Seed::new(seed).component("second writer");
                for _ in 0..60 {
                    cpu.sleep(Duration::from_ns(500 + rng.below(2_000))).await;
                    let at = rng.below(window.length() / 64) * 64;
                    window.stream(&cpu, at, &[0xee; 64]);
                    cpu.sync().await;
                }
            })
        });
        exchange(&pair, bytes(400_000, seed), bytes(20_000, seed + 9), (30_000, 20_000));
        let nic = &pair.hosts[0].handle;
        let count = |which| nic.counter(FunctionIndex(0), which);
        dropped += count(counter::KPIO_DROPPED).max(count(counter::KPIO_MISSING));
        let damaged = network(&pair, 1).counters().bad_checksums;
        assert_eq!(damaged, 0, "nothing was sent that was not meant");
    }
    assert!(dropped > 0);
}
