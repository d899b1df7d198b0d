//! Guarantees that a driver relies on, on the platform's back-end without timing and on the fabric.

use devices::nic::{Nic, NicHandle, NicParams};
use platform::device::{Device, FunctionIndex};
use units::Duration;
use wire::ip::{Ipv4Header, TcpHeader, UdpHeader};
use wire::nic::TxDescriptor;
use wire::nic::completion::{FAILED, HASHED, NETWORK_RIGHT, TRANSPORT_RIGHT};
use wire::nic::descriptor::{NETWORK_CHECKSUM, TRANSPORT_CHECKSUM};
use wire::nic::registers::{self as regs, control, counter, feature, queue, rss};
use wire::nic::toeplitz::EXAMPLE_KEY;

use super::driver::{Queue, enable};
use super::{A, B, datagram, frame, mac, segment};
use crate::common::back_end::BackEnd;
use crate::on_both_back_ends;

const F0: FunctionIndex = FunctionIndex(0);

struct Parts {
    handles: [NicHandle; 2],
}

fn pair() -> (Vec<Box<dyn Device>>, Parts) {
    let nics = [1, 2].map(|n| Nic::new(NicParams::modern(mac(n))).unwrap());
    let [(a, handle_a), (b, handle_b)] = nics;
    (vec![Box::new(a), Box::new(b)], Parts { handles: [handle_a, handle_b] })
}

fn write32(host: &mut dyn BackEnd, device: usize, at: u64, value: u32) {
    host.register_write(device, 0, at, &value.to_le_bytes());
}

/// A TX queue of device 0 and an RX queue of device 1, with buffers.
fn queues(host: &mut dyn BackEnd, features: u32, mode: u32) -> (Queue, Queue) {
    enable(host, 0, 0, features);
    enable(host, 1, 0, features);
    let tx = Queue::start(host, (0, 0, 0, true), 6, mode);
    let mut rx = Queue::start(host, (1, 0, 0, false), 6, mode);
    rx.give(host, 64);
    (tx, rx)
}

fn send(host: &mut dyn BackEnd, tx: &mut Queue, frame: &[u8], piece: usize, head: TxDescriptor) {
    tx.send(host, frame, piece, head);
    tx.ring_doorbell(host);
    host.pass(Duration::from_us(30));
}

on_both_back_ends! { pair;
    fn registers_say_what_there_is(host, _) {
        assert_eq!(host.register_read(0, 0, regs::IDENTITY), regs::IDENTITY_VALUE);
        for (device, n) in [(0, 1), (1, 2)] {
            let words = [0, 4].map(|at| host.register_read(device, 0, regs::MAC + at).to_le_bytes());
            assert_eq!(words.concat()[..6], mac(n).0);
        }
        assert_eq!(host.register_read(0, 0, regs::FUNCTION) & 0xff, 0);
        let features = host.register_read(0, 0, regs::FEATURES);
        enable(host, 0, 0, u32::MAX);
        assert_eq!(host.register_read(0, 0, regs::ENABLED), features, "no more than there is");
    }

    fn frames_arrive_as_they_were_sent(host, parts) {
        for mode in [queue::TO_RING, queue::IN_PLACE] {
            let (mut tx, mut rx) = queues(host, 0, mode);
            let mut number = 0;
            // More than the ring's 64 entries, so that owner bits are inverted.
            for length in (60..1515).step_by(45) {
                for piece in [64, 700, 2000] {
                    number += 1;
                    let frame = frame(1, mac(2), length, number);
                    send(host, &mut tx, &frame, piece, TxDescriptor::default());
                    let (received, _) = rx.receive(host).expect("a frame arrives");
                    assert!(received == frame, "{length} bytes in pieces of {piece}");
                    rx.give(host, 1);
                    while tx.poll(host).is_some() {}
                    assert_eq!(tx.done, tx.tail, "all descriptors are done");
                }
            }
        }
        let counts = [counter::TX_FRAMES, counter::RX_FRAMES].map(|c| (0..2).map(move |n| (n, c)));
        let counts: Vec<u64> = counts.into_iter().flatten().map(|(n, c)| parts.handles[n].counter(F0, c)).collect();
        assert_eq!(counts, [198, 0, 0, 198]);
    }

    fn strangers_frames_are_not_received(host, parts) {
        let (mut tx, mut rx) = queues(host, 0, queue::TO_RING);
        send(host, &mut tx, &frame(1, mac(7), 100, 1), 2000, TxDescriptor::default());
        assert!(rx.receive(host).is_none());
        send(host, &mut tx, &frame(1, wire::ethernet::MacAddr::BROADCAST, 100, 2), 2000, TxDescriptor::default());
        assert_eq!(rx.receive(host).map(|(frame, _)| frame[14]), Some(2));
        assert_eq!(parts.handles[1].counter(F0, counter::RX_FRAMES), 1);
    }

    fn checksums_are_filled_in_and_checked(host, _) {
        let (mut tx, mut rx) = queues(host, feature::RX_CHECKSUM | feature::TX_CHECKSUM, queue::TO_RING);
        let head = TxDescriptor { flags: NETWORK_CHECKSUM | TRANSPORT_CHECKSUM, ..TxDescriptor::default() };
        for length in [18, 19, 700] {
            let expected = datagram((7, 9), &vec![5; length]);
            let mut frame = expected.clone();
            frame[24..26].fill(0xee);
            frame[40..42].fill(0xee);
            send(host, &mut tx, &frame, 33, head);
            let (received, completion) = rx.receive(host).unwrap();
            assert_eq!(received[..expected.len()], expected[..]);
            assert!(completion.has(NETWORK_RIGHT | TRANSPORT_RIGHT));
            assert!(UdpHeader::checksum_is_right(&received[34..expected.len()], A, B));
        }
    }

    fn large_segments_are_cut(host, _) {
        let all = feature::RX_CHECKSUM | feature::TX_CHECKSUM | feature::TSO;
        let (mut tx, mut rx) = queues(host, all, queue::TO_RING);
        tx.buffer = 1 << 14;
        let data: Vec<u8> = (0..20_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let head = TxDescriptor { segment: 1448, headers: 14 + 20 + 32, ..TxDescriptor::default() };
        send(host, &mut tx, &segment(1000, &data), 4096, head);
        let mut done = Vec::new();
        while let Some((frame, _)) = rx.receive(host) {
            let (ip, length) = Ipv4Header::parse_checked(&frame[14..]).unwrap();
            let payload = &frame[14 + length..14 + usize::from(ip.total_len)];
            assert!(TcpHeader::checksum_is_right(payload, A, B));
            let (tcp, length) = TcpHeader::parse(payload).unwrap();
            assert_eq!(tcp.sequence, 1000 + done.len() as u32);
            done.extend_from_slice(&payload[length..]);
        }
        assert!(done == data);
    }

    fn a_flow_keeps_its_queue(host, _) {
        let (mut tx, rx) = queues(host, feature::RSS, queue::TO_RING);
        let mut second = Queue::start(host, (1, 0, 1, false), 6, queue::TO_RING);
        second.give(host, 64);
        write32(host, 1, regs::RSS_TYPES, rss::ADDRESSES | rss::UDP);
for (n, part) in (0..).zip(EXAMPLE_KEY.chunks(8)) {
            host.register_write(1, 0, regs::RSS_KEY + 8 * n, part);
        }
        let entries = host.register_read(1, 0, regs::TABLES) >> 16;
        (0..entries).for_each(|n| write32(host, 1, regs::RSS_TABLE + 4 * u64::from(n), n % 2));
        let mut queues = [rx, second];
        let mut seen = [0; 2];
        for port in 0..12 {
            let mut of_port = Vec::new();
            for _ in 0..2 {
                send(host, &mut tx, &datagram((port, 9), &[1; 40]), 2000, TxDescriptor::default());
                for (n, rx) in queues.iter_mut().enumerate() {
                    while let Some((_, completion)) = rx.receive(host) {
                        assert!(completion.has(HASHED));
                        of_port.push(n);
                    }
                }
            }
            assert!(of_port.len() == 2 && of_port[0] == of_port[1], "port {port}: {of_port:?}");
            seen[of_port[0]] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }

    fn who_is_armed_is_interrupted_once(host, _) {
        let (mut tx, mut rx) = queues(host, 0, queue::TO_RING);
        rx.set(host, queue::VECTOR, 3);
        let arrive = |host: &mut dyn BackEnd, tx: &mut Queue| send(host, tx, &frame(1, mac(2), 60, 1), 64, TxDescriptor::default());
        arrive(host, &mut tx);
        assert_eq!(host.take_interrupts(), [], "not armed");
        rx.arm(host);
        host.pass(Duration::from_us(5));
        assert_eq!(host.take_interrupts(), [(1, 3)], "what came before counts");
        arrive(host, &mut tx);
        assert_eq!(host.take_interrupts(), [], "disarmed by the first");
        // The interrupt follows the completion that it signals.
        while rx.receive(host).is_some() {}
        rx.arm(host);
        arrive(host, &mut tx);
        assert_eq!(host.take_interrupts(), [(1, 3)]);
        assert!(rx.receive(host).is_some());
    }

    fn without_buffers_frames_are_dropped_and_counted(host, parts) {
        enable(host, 0, 0, 0);
        enable(host, 1, 0, 0);
        let mut tx = Queue::start(host, (0, 0, 0, true), 6, queue::TO_RING);
        let mut rx = Queue::start(host, (1, 0, 0, false), 6, queue::TO_RING);
        rx.give(host, 5);
        for number in 0..20 {
            tx.send(host, &frame(1, mac(2), 60, number), 64, TxDescriptor::default());
        }
        tx.ring_doorbell(host);
        host.pass(Duration::from_us(50));
        let numbers: Vec<u8> = std::iter::from_fn(|| rx.receive(host)).map(|(f, _)| f[14]).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!(parts.handles[1].counter(F0, counter::RX_NO_BUFFER), 15);
        assert_eq!(host.register_read(1, 0, rx.register(queue::DROPPED)), 15);
    }

    fn what_makes_no_sense_fails_alone(host, _) {
        let (mut tx, mut rx) = queues(host, 0, queue::TO_RING);
        let good = frame(1, mac(2), 100, 1);
        tx.send(host, &good, 2000, TxDescriptor::default());
        let flags = wire::nic::descriptor::END | wire::nic::descriptor::REPORT;
        for (address, length) in [(0, 0), (1 << 45, 100), (0, 13), (0, 60_000)] {
            tx.put_descriptor(host, TxDescriptor { address, length, flags, ..TxDescriptor::default() }.emit());
        }
        tx.send(host, &good, 2000, TxDescriptor::default());
        tx.ring_doorbell(host);
        host.pass(Duration::from_us(50));
        let failed: Vec<bool> = std::iter::from_fn(|| tx.poll(host)).map(|c| c.has(FAILED)).collect();
        assert_eq!(failed, [false, true, true, true, true, false]);
        assert_eq!(std::iter::from_fn(|| rx.receive(host)).count(), 2);
        // A doorbell beyond the ring stops this queue, but no other.
        let mut other = Queue::start(host, (0, 0, 1, true), 4, queue::TO_RING);
        tx.set(host, queue::TAIL, u32::from(tx.tail.wrapping_add(100)));
        host.pass(Duration::from_us(5));
        assert_eq!(host.register_read(0, 0, tx.register(queue::STATUS)), queue::ERROR);
        send(host, &mut other, &good, 2000, TxDescriptor::default());
        assert!(other.poll(host).is_some());
    }

    fn a_ring_out_of_reach_stops_the_queue(host, _) {
        enable(host, 0, 0, 0);
        let tx = Queue::start(host, (0, 0, 0, true), 8, queue::TO_RING);
        tx.set(host, queue::CONTROL, 0);
        host.register_write(0, 0, tx.register(queue::RING), &(1u64 << 45).to_le_bytes());
        tx.set(host, queue::CONTROL, queue::ENABLE);
        tx.set(host, queue::TAIL, 1);
        host.pass(Duration::from_us(50));
        assert_eq!(host.register_read(0, 0, tx.register(queue::STATUS)), queue::ERROR);
    }

    fn resets_begin_anew(host, parts) {
        for how in 0..3 {
            let (mut tx, _) = queues(host, 0, queue::TO_RING);
            for number in 0..40 {
                tx.send(host, &frame(1, mac(2), 1000, number), 2000, TxDescriptor::default());
            }
            tx.ring_doorbell(host);
            match how {
                0 => host.restart(0),
                1 => write32(host, 0, regs::CONTROL, control::RESET),
                _ => tx.set(host, queue::CONTROL, 0),
            }
            host.pass(Duration::from_us(30));
            let (mut tx, mut rx) = queues(host, 0, queue::TO_RING);
            let before = parts.handles[1].counter(F0, counter::RX_FRAMES);
            send(host, &mut tx, &frame(1, mac(2), 333, 77), 100, TxDescriptor::default());
            assert!(rx.receive(host).is_some_and(|(received, _)| received == frame(1, mac(2), 333, 77)));
            assert_eq!(parts.handles[1].counter(F0, counter::RX_FRAMES), before + 1, "nothing late came");
        }
    }
}
