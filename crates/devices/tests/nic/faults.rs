//! Resets, hangs, invalid doorbells and frames.

use platform::device::{FunctionIndex, Reset};
use units::Duration;
use wire::ethernet::append_fcs;
use wire::nic::TxDescriptor;
use wire::nic::registers::{self as regs, control, counter, event, queue};

use super::driver::{Queue, enable};
use super::{frame, mac, pair};

const F0: FunctionIndex = FunctionIndex(0);

#[test]
fn a_stopped_or_reset_queue_begins_anew() {
    for how in 0..4 {
        let (mut bench, handles) = pair();
        let begin = |bench: &mut super::Bench| {
            enable(bench, 0, 0, 0);
            let mut tx = Queue::start(bench, (0, 0, 0, true), 6, queue::TO_RING);
            for number in 0..40 {
                tx.send(bench, &frame(1, mac(2), 200, number), 64, TxDescriptor::default());
                if tx.room() < 8 {
                    break;
                }
            }
            tx.ring_doorbell(bench);
            tx
        };
        let tx = begin(&mut bench);
        // Descriptors have been fetched, and data is in flight.
        bench.run_for(Duration::from_ns(700));
        match how {
            0 => bench.reset(0, Reset::Fundamental),
            1 => bench.reset(0, Reset::Function(F0)),
            2 => bench.write32(0, 0, regs::CONTROL, control::RESET),
            _ => tx.set(&mut bench, queue::CONTROL, 0),
        }
        let sent = bench.world.sent.len();
        bench.run_for(Duration::from_us(20));
        assert_eq!(bench.world.sent.len(), sent, "nothing leaves afterwards");
        let mut tx = begin(&mut bench);
        bench.run_for(Duration::from_us(50));
        while tx.poll(&mut bench).is_some() {}
        assert_eq!(tx.done, tx.tail);
        assert_eq!(bench.world.sent.len() - sent, usize::from(tx.tail) / 4);
        assert_eq!(handles[0].counter(F0, counter::TX_ERRORS), 0);
    }
}

#[test]
fn doorbells_that_make_no_sense_stop_the_queue_alone() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    bench.write32(0, 0, regs::EVENT_VECTOR, 3);
    let bad = Queue::start(&mut bench, (0, 0, 0, true), 4, queue::TO_RING);
    let mut good = Queue::start(&mut bench, (0, 0, 1, true), 4, queue::TO_RING);
    bad.set(&mut bench, queue::TAIL, 17);
    assert_eq!(bench.read32(0, 0, bad.register(queue::STATUS)), queue::ERROR);
    assert_eq!(bench.read32(0, 0, regs::EVENTS), event::QUEUE_ERROR);
    assert_eq!(bench.world.interrupts, [(0, 0, 3)]);
    good.send(&mut bench, &frame(1, mac(2), 60, 0), 64, TxDescriptor::default());
    good.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(20));
    assert!(good.poll(&mut bench).is_some());
    // Stopping clears the error.
    bad.set(&mut bench, queue::CONTROL, 0);
    bad.set(&mut bench, queue::CONTROL, queue::ENABLE);
    assert_eq!(bench.read32(0, 0, bad.register(queue::STATUS)), queue::RUNNING);
}

#[test]
fn a_packet_without_end_stops_the_queue() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 8, queue::TO_RING);
    for _ in 0..60 {
        let part = TxDescriptor { address: 0, length: 10, ..TxDescriptor::default() };
        tx.put_descriptor(&mut bench, part.emit());
    }
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(20));
    assert_eq!(bench.read32(0, 0, tx.register(queue::STATUS)), queue::ERROR);
    assert_eq!(bench.world.sent.len(), 0);
}

#[test]
fn a_ring_outside_of_memory_stops_the_queue() {
    let (mut bench, _) = pair();
    enable(&mut bench, 0, 0, 0);
    let tx = Queue::start(&mut bench, (0, 0, 0, true), 8, queue::TO_RING);
    tx.set(&mut bench, queue::CONTROL, 0);
    bench.write(0, 0, tx.register(queue::RING), &(1u64 << 40).to_le_bytes());
    tx.set(&mut bench, queue::CONTROL, queue::ENABLE);
    tx.set(&mut bench, queue::TAIL, 1);
    bench.run_for(Duration::from_us(20));
    assert_eq!(bench.read32(0, 0, tx.register(queue::STATUS)), queue::ERROR);
}

#[test]
fn a_hung_device_does_nothing() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    handles[0].set_hung(true);
    tx.send(&mut bench, &frame(1, mac(2), 60, 0), 64, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(50));
    assert!(tx.poll(&mut bench).is_none() && bench.world.sent.is_empty());
}

#[test]
fn damaged_frames_are_counted() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 1, 0, 0);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 6, queue::TO_RING);
    rx.give(&mut bench, 8);
    bench.run_for(Duration::from_us(5));
    let with_fcs = |length| {
        let mut bytes = frame(1, mac(2), length, 0);
        append_fcs(&mut bytes);
        bytes
    };
    let mut damaged = with_fcs(60);
    damaged[30] ^= 4;
    for bytes in [damaged, with_fcs(40), with_fcs(9019), with_fcs(60)] {
        bench.inject(1, 0, &bytes);
    }
    bench.run_for(Duration::from_us(5));
    let counters = [counter::RX_FCS_ERRORS, counter::RX_LENGTH_ERRORS, counter::RX_FRAMES];
    assert_eq!(counters.map(|c| handles[1].counter(F0, c)), [1, 2, 1]);
}

#[test]
fn without_carrier_frames_are_counted_and_completed() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    bench.set_carrier(false);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    tx.send(&mut bench, &frame(1, mac(2), 60, 0), 64, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(20));
    assert!(tx.poll(&mut bench).is_some());
    assert_eq!(handles[0].counter(F0, counter::TX_NO_CARRIER), 1);
}

#[test]
fn completions_can_be_spoiled() {
    let (mut bench, handles) = pair();
    enable(&mut bench, 0, 0, 0);
    handles[0].spoil_completions(1);
    let mut tx = Queue::start(&mut bench, (0, 0, 0, true), 6, queue::TO_RING);
    tx.send(&mut bench, &frame(1, mac(2), 60, 0), 64, TxDescriptor::default());
    tx.ring_doorbell(&mut bench);
    bench.run_for(Duration::from_us(20));
    assert_eq!(tx.poll(&mut bench).map(|c| c.kind), Some(wire::nic::completion::Kind::Unknown(0xa5)));
}
