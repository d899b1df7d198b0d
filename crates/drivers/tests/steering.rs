//! Packets follow the programs that read them, by software and by the device, and none passes another of its flow.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use crate::common::{Pair, Setup};
use kernel::SteeringParams;
use platform::block::Segment;
use platform::cpu::CpuId;
use platform::device::FunctionIndex;
use platform::kernel::{TaskId, TaskParams};
use platform::memory::Policy;
use platform::socket::InetCounters;
use proptest::prelude::*;
use units::{BitRate, Duration};
use wire::nic::registers::counter;

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const READER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FIRST_PORT: u16 = 5000;

/// Which kinds of steering are on.
fn steering(rfs: bool, arfs: bool) -> SteeringParams {
    SteeringParams { entries: 256, rfs, arfs, idle: Duration::from_us(300), scan: Duration::from_us(200) }
}

fn pair(steering: SteeringParams, log2_rx: u8, coalescing: Duration, gbit: u64) -> Pair {
    let mut setup = Setup { rate: BitRate::gbit_per_s(gbit), steering, ..Setup::default() };
    setup.driver.channels = Some(8);
    setup.driver.log2_rx = log2_rx;
    setup.driver.coalescing = coalescing;
    setup.driver.adaptive = false;
    let pair = Pair::new(&setup);
    for (host, address) in [SENDER, READER].into_iter().enumerate() {
        let network = pair.hosts[host].kernel.face().network();
        pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, "eth0", address, 24).await })
        })
        .unwrap();
    }
    pair
}

fn counters(pair: &Pair) -> InetCounters {
    pair.hosts[1].kernel.face().network().counters()
}

/// What a reader has seen: number of the datagram, and the core on which it was read.
type Seen = Rc<RefCell<Vec<(u32, CpuId)>>>;

/// A program that reads the datagrams of a port for ever.
fn reader(pair: &Pair, flow: u16, on: u16) -> (TaskId, Seen) {
    let (seen, face) = (Seen::default(), pair.hosts[1].kernel.face());
    let told = Rc::clone(&seen);
    let task = pair.hosts[1].kernel.spawn(TaskParams::named("reader").on(CpuId(on)), move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(READER, FIRST_PORT + flow);
            let socket = face.network().udp(&cpu, at).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            loop {
                let into = Segment { at: pages.start, length: 1400 };
                let Ok((length, _)) = socket.recv_from(&cpu, into).await else { return };
                assert!(length >= 4);
                told.borrow_mut().push((cpu.load_u32(pages.start), cpu.id()));
                cpu.sync().await;
            }
        })
    });
    (task, seen)
}

/// A program that sends `count` numbered datagrams, `gap` apart on average.
fn sender(pair: &Pair, flow: u16, count: u32, gap: Duration) {
    let face = pair.hosts[0].kernel.face();
    pair.spawn(0, flow, move |cpu| {
        Box::pin(async move {
            let at = SocketAddrV4::new(SENDER, FIRST_PORT + flow);
            let socket = face.network().udp(&cpu, at).unwrap();
            let pages = face.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            cpu.sleep(Duration::from_us(20)).await;
            for number in 0..count {
                cpu.store_u32(pages.start, number);
                let length = 4 + (number * 97 + u32::from(flow)) % 1200;
                let to = SocketAddrV4::new(READER, FIRST_PORT + flow);
                let _ = socket.send_to(&cpu, to, Segment { at: pages.start, length }).await;
                match number % 16 {
                    15 => cpu.sleep(gap * 16).await,
                    _ => cpu.sync().await,
                }
            }
        })
    });
}

fn in_order(seen: &[(u32, CpuId)]) -> Result<(), String> {
    match seen.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        Some(pair) => Err(format!("{} was read before {}", pair[0].0, pair[1].0)),
        None => Ok(()),
    }
}

/// The reader runs where no queue of the device would have sent its packets: they are dealt with on its core.
#[test]
fn packets_are_dealt_with_where_they_are_read() {
    for (rfs, arfs) in [(true, false), (false, true), (true, true)] {
        let pair = pair(steering(rfs, arfs), 8, Duration::from_us(5), 10);
        let (_, seen) = reader(&pair, 0, 6);
        sender(&pair, 0, 400, Duration::from_us(1));
        pair.run_for(Duration::from_us(900));
        in_order(&seen.borrow()).unwrap();
        let counted = counters(&pair);
        assert_eq!(seen.borrow().len(), 400, "{counted:?} {:?}", pair.device(0).counters());
        assert_eq!(counted.steered, u64::from(arfs), "one rule: {counted:?}");
        assert_eq!(counted.to_other_core > 0, rfs, "{counted:?}");
        if arfs {
            // The device has taken over.
            assert!(counted.to_other_core < 100, "{counted:?}");
            let busy = |core| pair.hosts[1].kernel.core_times(CpuId(core)).total();
            let elsewhere = (0..8).filter(|&core| core != 6).map(busy).max().unwrap();
            assert!(busy(6) > elsewhere * 2, "{:?} {elsewhere:?}", busy(6));
        } else {
            assert!(counted.to_other_core > 350, "{counted:?}");
            assert!(pair.hosts[1].kernel.irq_counters().between_cores > 0);
        }
        // A flow that is silent is forgotten, and nothing goes on for its sake.
        pair.run_for(Duration::from_ms(2));
        assert_eq!(counters(&pair).steer_expired, u64::from(arfs));
    }
}

/// Without, nothing is steered, and no core interrupts another.
#[test]
fn it_is_off_unless_asked_for() {
    let pair = pair(SteeringParams::linux(), 8, Duration::from_us(5), 10);
    let (_, seen) = reader(&pair, 0, 6);
    sender(&pair, 0, 50, Duration::from_us(1));
    pair.run_for(Duration::from_us(300));
    assert_eq!(seen.borrow().len(), 50);
    let counted = counters(&pair);
    assert_eq!((counted.steered, counted.to_other_core, counted.steer_held), (0, 0, 0));
    assert_eq!(pair.hosts[1].kernel.irq_counters().between_cores, 0);
}

/// More flows than the device has rules for: those without go by their hash, and the table is used again when flows end.
#[test]
fn a_full_table_is_no_harm() {
    let mut setup =
        Setup { steering: steering(true, true), nic: |nic| nic.flow_rules = 2, ..Setup::default() };
    setup.driver.channels = Some(8);
    let pair = Pair::new(&setup);
    for (host, address) in [SENDER, READER].into_iter().enumerate() {
        let network = pair.hosts[host].kernel.face().network();
        let up = pair.run(host, 0, move |cpu| {
            Box::pin(async move { network.configure(&cpu, "eth0", address, 24).await })
        });
        up.unwrap();
    }
    let seen: Vec<Seen> = (0..6).map(|flow| reader(&pair, flow, 7 - flow).1).collect();
    (0..6).for_each(|flow| sender(&pair, flow, 60, Duration::from_us(3)));
    pair.run_for(Duration::from_us(900));
    for seen in &seen {
        in_order(&seen.borrow()).unwrap();
        assert_eq!(seen.borrow().len(), 60);
    }
    let counted = counters(&pair);
    assert!(counted.steered >= 2 && counted.steer_failed > 0, "{counted:?}");
    pair.run_for(Duration::from_ms(3));
    assert_eq!(counters(&pair).steer_expired, counters(&pair).steered);
}

/// The device stops while flows are steered: nothing stays behind, and afterwards they are steered again.
#[test]
fn steering_outlives_the_device_going_down_and_up() {
    let pair = pair(steering(true, true), 7, Duration::from_us(20), 10);
    let (task, seen) = reader(&pair, 0, 6);
    sender(&pair, 0, 600, Duration::from_us(1));
    for round in 0..4u16 {
        pair.run_for(Duration::from_us(60));
        pair.hosts[1].kernel.face().set_affinity(task, &[CpuId(round % 8)]).unwrap();
        let device = pair.device(1);
        pair.run(1, 5, move |cpu| {
            Box::pin(async move {
                device.stop(&cpu).await;
                device.open(&cpu).await
            })
        })
        .unwrap();
    }
    pair.run_for(Duration::from_ms(4));
    in_order(&seen.borrow()).unwrap();
    assert!(counters(&pair).steered >= 2);
    let device = pair.device(1);
    pair.run(1, 5, move |cpu| Box::pin(async move { device.stop(&cpu).await }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Readers that move between cores while packets are everywhere: no packet passes another of its flow, whatever
    /// steers, and each is read once or was dropped and counted.
    #[test]
    fn no_packet_passes_another_when_its_reader_moves(
        moves in prop::collection::vec((200u64..20_000, 0u16..8), 1..40),
        flows in 1u16..4,
        count in 50u32..300,
        log2_rx in 5u8..9,
        coalescing_us in prop::sample::select(vec![0u64, 3, 40]),
        gap_ns in 50u64..900,
        (rfs, arfs) in prop::sample::select(vec![(true, false), (false, true), (true, true)]),
        resets in prop::collection::vec(0usize..40, 0..2),
    ) {
        let pair = pair(steering(rfs, arfs), log2_rx, Duration::from_us(coalescing_us), 40);
        let readers: Vec<_> = (0..flows).map(|flow| reader(&pair, flow, flow)).collect();
        for flow in 0..flows {
            sender(&pair, flow, count, Duration::from_ns(gap_ns));
        }
        let face = pair.hosts[1].kernel.face();
        for (n, &(after_ns, core)) in moves.iter().enumerate() {
            pair.run_for(Duration::from_ns(after_ns));
            face.set_affinity(readers[n % usize::from(flows)].0, &[CpuId(core)]).unwrap();
            if resets.contains(&n) {
                // What the rings held is lost; what is read afterwards is in order all the same.
                let device = pair.device(1);
                pair.run(1, 7, move |cpu| Box::pin(async move {
                    device.stop(&cpu).await;
                    device.open(&cpu).await
                })).unwrap();
            }
        }
        pair.run_for(Duration::from_ms(4));
        let counted = counters(&pair);
        let mut read = 0;
        for (_, seen) in &readers {
            let order = in_order(&seen.borrow());
            prop_assert!(order.is_ok(), "{}: {counted:?}", order.unwrap_err());
            read += seen.borrow().len() as u64;
        }
        if resets.is_empty() {
            let rx = |which| pair.hosts[1].handle.counter(FunctionIndex(0), which);
            // While the reader's address is asked for, a hundred packets may wait for it.
            let unsent = pair.hosts[0].kernel.face().network().counters().unreachable;
            let lost = rx(counter::RX_NO_BUFFER) + rx(counter::RX_OVERFLOW) + counted.backlog_full
                + counted.socket_full + counted.unwanted + unsent;
            prop_assert_eq!(read + lost, u64::from(flows) * u64::from(count), "{:?}", counted);
        }
        prop_assert!(arfs || counted.steered == 0);
    }
}
