//! Frames of all sizes and fragmentations, in all completion modes.

use devices::nic::FlowControl;
use platform::device::FunctionIndex;
use platform::ethernet::EthernetPort;
use units::Duration;
use wire::ethernet::{BETWEEN_FRAMES, HEADER_LEN, Pause, fcs_is_right};
use wire::nic::TxDescriptor;
use wire::nic::completion::{FAILED, Kind};
use wire::nic::registers::{counter, queue};

use super::driver::{Queue, enable};
use super::{NicParams, frame, mac, pair, pair_of};

const F0: FunctionIndex = FunctionIndex(0);

#[test]
fn what_is_sent_arrives() {
    for mode in [queue::TO_RING, queue::IN_PLACE] {
        let (mut bench, handles) = pair();
        enable(&mut bench, 0, 0, 0);
        enable(&mut bench, 1, 0, 0);
        let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, mode);
        let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, mode);
        rx.give(&mut bench, 64);
        let mut number = 0;
        for length in (60..1515).step_by(7) {
            for piece in [64, 700, 2000] {
                number += 1;
                let frame = frame(1, mac(2), length, number);
                tx.send(&mut bench, &frame, piece, TxDescriptor::default());
                tx.ring_doorbell(&mut bench);
                bench.run_for(Duration::from_us(20));
                let (received, completion) = rx.receive(&mut bench).expect("a frame arrives");
                assert!(received == frame, "{length} bytes in pieces of {piece}");
                assert_eq!(completion.kind, Kind::Received);
                rx.give(&mut bench, 1);
                while tx.poll(&mut bench).is_some() {}
                assert_eq!(tx.done, tx.tail, "all descriptors are done");
            }
        }
        assert!(bench.world.sent.iter().all(|(_, _, frame)| fcs_is_right(frame) && frame.len() >= 64));
        assert_eq!(handles[0].counter(F0, counter::TX_FRAMES), number.into());
        assert_eq!(handles[1].counter(F0, counter::RX_FRAMES), number.into());
    }
}

#[test]
fn long_frames_fill_several_buffers() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    (tx.buffer, rx.buffer) = (16384, 2048);
    rx.give(&mut bench, 16);
    let frame = frame(1, mac(2), 9000, 1);
    tx.send(&mut bench, &frame, 5000, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(50));
    assert!(rx.receive(&mut bench).is_some_and(|(received, _)| received == frame));
    assert_eq!(rx.seen, 5);
}

#[test]
fn heads_are_told_by_register_and_by_word() {
    for mode in [queue::TO_REGISTER, queue::TO_WORD] {
        let (mut bench, _) = pair();
        enable(&mut bench, 0, 0, 0);
        let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 5, mode);
        for number in 0..20 {
            tx.send(&mut bench, &frame(1, mac(2), 60, number), 64, TxDescriptor::default());
        }
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(50));
        let head = match mode {
            queue::TO_REGISTER => bench.read32(0, 0, tx.register(queue::HEAD)),
            _ => {
                let word = bench.world.bytes(0, 0x1000 + (1 << 20) + 0x8000, 4).unwrap();
                u32::from_le_bytes(word.try_into().unwrap())
            }
        };
        assert_eq!(head, 20);
    }
}

#[test]
fn a_full_ring_moves_at_line_rate() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 8, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, queue::TO_RING);
    rx.give(&mut bench, 256);
    let begin = bench.world.now;
    let frames = 2000;
    let mut number = 0;
    while handles[1].counter(F0, counter::RX_FRAMES) < frames {
        while tx.room() > 0 {
            number += 1;
            tx.send(&mut bench, &frame(1, mac(2), 60, number), 64, TxDescriptor::default());
        }
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_ns(200));
        while tx.poll(&mut bench).is_some() {}
        while rx.receive(&mut bench).is_some() {
            rx.give(&mut bench, 1);
        }
    }
    let took = (bench.world.now - begin).as_ns_f64();
    let line = frames as f64 * ((64 + BETWEEN_FRAMES) * 8) as f64 / 40.0;
    assert!(took < 1.1 * line && took > 0.99 * line, "{took} ns for {line} ns of wire");
    assert_eq!(handles[1].counter(F0, counter::RX_NO_BUFFER), 0);
    let (fetches, sent) =
        (handles[0].counter(F0, counter::FETCHES), handles[0].counter(F0, counter::TX_FRAMES));
    assert!(fetches < sent / 30, "{fetches} reads of descriptors: they come in batches");
}

#[test]
fn a_simple_nic_does_everything_for_every_packet() {
    let (mut bench, handles) = pair_of(NicParams::simple(mac(1)), NicParams::simple(mac(2)));
    enable(&mut bench, 0, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 8, queue::IN_PLACE);
    for number in 0..100 {
        tx.send(&mut bench, &frame(1, mac(2), 60, number), 64, TxDescriptor::default());
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(50));
    let counters = [counter::FETCHES, counter::WRITE_BACKS].map(|c| handles[0].counter(F0, c));
    assert_eq!(counters, [100, 100]);
}

#[test]
fn without_buffers_frames_are_dropped_and_counted() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 5);
    for number in 0..20 {
        tx.send(&mut bench, &frame(1, mac(2), 60, number), 64, TxDescriptor::default());
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(50));
    let numbers: Vec<u8> = std::iter::from_fn(|| rx.receive(&mut bench)).map(|(f, _)| f[14]).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert_eq!(handles[1].counter(F0, counter::RX_NO_BUFFER), 15);
    assert_eq!(bench.read32(1, 0, rx.register(queue::DROPPED)), 15);
}

#[test]
fn a_slow_host_overflows_the_devices_memory() {
    let mut slow = NicParams::modern(mac(2));
    slow.rx.memory = 8 << 10;
    let (mut bench, handles) = pair_of(NicParams::modern(mac(1)), slow);
    // A tenth of the wire's speed.
    bench.world.write_ps_per_byte = 2_000;
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_REGISTER);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 64);
    for number in 0..60 {
        tx.send(&mut bench, &frame(1, mac(2), 1000, number), 2000, TxDescriptor::default());
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(500));
    let received = std::iter::from_fn(|| rx.receive(&mut bench)).count() as u64;
    let dropped = handles[1].counter(F0, counter::RX_OVERFLOW);
    assert!(dropped > 10 && received + dropped == 60, "{received} received, {dropped} dropped");
}

/// Sends 400 frames to a host that takes a tenth of the wire's speed. Returns what arrived, what was dropped, and the
/// pause requests.
fn to_a_slow_host(flow_control: Option<FlowControl>) -> (Vec<u32>, u64, u64) {
    let params = |n| NicParams { flow_control, ..NicParams::modern(mac(n)) };
    let mut slow = params(2);
    slow.rx.memory = 128 << 10;
    let (mut bench, handles) = pair_of(params(1), slow);
    bench.world.write_ps_per_byte = 2_000;
    enable(&mut bench, 0, 0, 0);
    enable(&mut bench, 1, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, queue::TO_RING);
    rx.give(&mut bench, 255);
    let (mut next, mut arrived) = (0, Vec::new());
    for _ in 0..1_000 {
        while next < 400 && tx.room() > 0 {
            tx.send(&mut bench, &frame(1, mac(2), 1000, next), 2000, TxDescriptor::default());
            next += 1;
        }
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(1));
        while tx.poll(&mut bench).is_some() {}
        while let Some((frame, _)) = rx.receive(&mut bench) {
            arrived.push(u32::from_le_bytes(*frame[HEADER_LEN..].first_chunk().unwrap()));
        }
        rx.give(&mut bench, rx.room());
    }
    let [sender, receiver] = handles;
    let pauses = sender.counter(F0, counter::RX_PAUSES);
    assert_eq!(receiver.counter(F0, counter::TX_PAUSES), pauses);
    (arrived, receiver.counter(F0, counter::RX_OVERFLOW), pauses)
}

#[test]
fn with_flow_control_a_slow_host_loses_nothing() {
    let (arrived, dropped, pauses) = to_a_slow_host(None);
    assert!(dropped > 100 && pauses == 0, "{dropped} dropped");
    assert_eq!(arrived.len() as u64 + dropped, 400);

    let (arrived, dropped, pauses) = to_a_slow_host(Some(FlowControl { stop: 32 << 10, go_on: 16 << 10 }));
    assert_eq!((arrived, dropped), ((0..400).collect(), 0));
    assert!(pauses >= 4 && pauses % 2 == 0, "each is taken back: {pauses}");
}

#[test]
fn a_pause_stops_a_sender_for_its_time() {
    let on = NicParams {
        flow_control: Some(FlowControl { stop: 32 << 10, go_on: 16 << 10 }),
        ..NicParams::modern(mac(1))
    };
    for (params, sends) in [(on, false), (NicParams::modern(mac(1)), true)] {
        let (mut bench, _) = pair_of(params, NicParams::modern(mac(2)));
        enable(&mut bench, 0, 0, 0);
        let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
        // 1000 quanta of 512 bits last 12.8 us at 40 Gbit/s.
        let pause = Pause { quanta: 1000 }.frame(mac(2));
        bench.with(0, |nic, bus| nic.frame_received(bus, EthernetPort(0), &pause));
        tx.send(&mut bench, &frame(1, mac(2), 1000, 0), 2000, TxDescriptor::default());
        tx.ring_doorbell(&mut bench);
        bench.run_for(Duration::from_us(12));
        assert_eq!(bench.world.sent.len(), usize::from(sends));
        bench.run_for(Duration::from_us(2));
        assert_eq!(bench.world.sent.len(), 1);
    }
}

#[test]
fn bad_descriptors_fail_their_packets_alone() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    let good = frame(1, mac(2), 100, 1);
    tx.send(&mut bench, &good, 2000, TxDescriptor::default());
    let flags = wire::nic::descriptor::END | wire::nic::descriptor::REPORT;
    let bad = [
        TxDescriptor { address: 0, length: 0, flags, ..TxDescriptor::default() },
        TxDescriptor { address: u64::MAX - 4, length: 100, flags, ..TxDescriptor::default() },
        TxDescriptor { address: 0, length: 13, flags, ..TxDescriptor::default() },
        TxDescriptor { address: 0, length: 60_000, flags, ..TxDescriptor::default() },
        TxDescriptor {
            address: 0,
            length: 1000,
            segment: 100,
            headers: 20,
            flags,
            ..TxDescriptor::default()
        },
    ];
    for descriptor in bad {
        tx.put_descriptor(&mut bench, descriptor.emit());
    }
    tx.send(&mut bench, &good, 2000, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(50));
    let failed: Vec<bool> = std::iter::from_fn(|| tx.poll(&mut bench)).map(|c| c.has(FAILED)).collect();
    assert_eq!(failed, [false, true, true, true, true, true, false]);
    assert_eq!(bench.world.sent.len(), 2);
    assert_eq!(handles[0].counter(F0, counter::TX_ERRORS), 5);
}
