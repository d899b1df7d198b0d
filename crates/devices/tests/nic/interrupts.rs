//! Interrupts and their coalescing.

use units::Duration;
use wire::ethernet::append_fcs;
use wire::nic::registers::{self as regs, event, queue, vector};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::{NicHandle, frame, mac, pair};

fn receiver(mode: u32) -> (Bench, Queue, NicHandle) {
    let (mut bench, [_, handle]) = pair();
    enable(&mut bench, 1, 0, 0);
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, mode);
    rx.give(&mut bench, 256);
    bench.run_for(Duration::from_us(5));
    (bench, rx, handle)
}

fn arrive(bench: &mut Bench, number: u32) {
    for n in 0..number {
        let mut bytes = frame(1, mac(2), 60, n);
        append_fcs(&mut bytes);
        bench.inject(1, 0, &bytes);
        bench.run_for(Duration::from_ns(100));
    }
}

fn coalesce(bench: &mut Bench, delay_ns: u32, packets: u32) {
    bench.write32(1, 0, regs::VECTORS + vector::DELAY_NS, delay_ns);
    bench.write32(1, 0, regs::VECTORS + vector::PACKETS, packets);
}

#[test]
fn only_who_is_armed_is_told_and_once() {
    let (mut bench, mut rx, _) = receiver(queue::TO_RING);
    arrive(&mut bench, 3);
    assert_eq!(bench.world.interrupts, [], "not armed");
    // Earlier completions count: none is lost between the last poll and arming.
    rx.arm(&mut bench);
    assert_eq!(bench.world.interrupts, [(1, 0, 0)]);
    arrive(&mut bench, 3);
    assert_eq!(bench.world.interrupts.len(), 1, "disarmed by the first");
    while rx.receive(&mut bench).is_some() {}
    rx.arm(&mut bench);
    assert_eq!(bench.world.interrupts.len(), 1, "all has been seen");
    arrive(&mut bench, 1);
    assert_eq!(bench.world.interrupts.len(), 2);
}

#[test]
fn packets_and_time_end_the_wait() {
    let (mut bench, rx, _) = receiver(queue::TO_RING | queue::ALWAYS_ARMED);
    coalesce(&mut bench, 10_000, 8);
    arrive(&mut bench, 7);
    assert_eq!(bench.world.interrupts.len(), 0);
    arrive(&mut bench, 1);
    assert_eq!(bench.world.interrupts.len(), 1, "eight packets");
    arrive(&mut bench, 1);
    bench.run_for(Duration::from_ns(9_800));
    assert_eq!(bench.world.interrupts.len(), 1);
    bench.run_for(Duration::from_ns(200));
    assert_eq!(bench.world.interrupts.len(), 2, "ten microseconds");
    bench.run_for(Duration::from_us(100));
    assert_eq!((bench.world.interrupts.len(), rx.seen), (2, 0));
}

#[test]
fn adaptive_delays_follow_the_load() {
    let (mut bench, _, _) = receiver(queue::TO_RING | queue::ALWAYS_ARMED);
    coalesce(&mut bench, 16_000, 0);
    bench.write32(1, 0, regs::VECTORS + vector::ADAPTIVE, 1);
    // Single packets: the delay falls to a sixteenth.
    for _ in 0..6 {
        arrive(&mut bench, 1);
        bench.run_for(Duration::from_us(20));
    }
    assert_eq!(bench.world.interrupts.len(), 6);
    arrive(&mut bench, 1);
    bench.run_for(Duration::from_ns(1_000));
    assert_eq!(bench.world.interrupts.len(), 7);
}

#[test]
fn adaptive_delays_grow_again_when_many_packets_come() {
    let (mut bench, mut rx, _) = receiver(queue::TO_RING | queue::ALWAYS_ARMED);
    coalesce(&mut bench, 64_000, 0);
    bench.write32(1, 0, regs::VECTORS + vector::ADAPTIVE, 1);
    // Single packets: the delay falls to 4 us.
    for _ in 0..6 {
        arrive(&mut bench, 1);
        bench.run_for(Duration::from_us(70));
    }
    let before = bench.world.interrupts.len();
    assert_eq!(before, 6);
    // A packet each 100 ns: 40 in the first wait, and twice as many in each that follows, to the 64 us that were set.
    let mut at = Vec::new();
    for n in 0..3200 {
        arrive(&mut bench, 1);
        if bench.world.interrupts.len() > before + at.len() {
            at.push(n);
        }
        if n % 32 == 0 {
            let received = std::iter::from_fn(|| rx.receive(&mut bench)).count();
            rx.give(&mut bench, received as u16);
        }
    }
    let waits: Vec<i32> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((38..=42).contains(&at[0]), "{at:?}");
    for (wait, expected) in waits.iter().zip([80, 160, 320, 640, 640, 640]) {
        assert!((wait - expected).abs() <= 3, "{at:?}");
    }
    assert!(waits.len() >= 6, "{at:?}");
}

#[test]
fn interrupts_can_be_lost_and_be_too_many() {
    let (mut bench, _, handle) = receiver(queue::TO_RING | queue::ALWAYS_ARMED);
    handle.lose_interrupts(2);
    arrive(&mut bench, 3);
    assert_eq!(bench.world.interrupts.len(), 1);
    handle.add_spurious_interrupts(1);
    arrive(&mut bench, 1);
    assert_eq!(bench.world.interrupts.len(), 3);
}

#[test]
fn the_link_is_told_of() {
    let (mut bench, _, _) = receiver(queue::TO_RING);
    bench.write32(1, 0, regs::EVENT_VECTOR, 7);
    assert_eq!(bench.read32(1, 0, regs::STATUS), 3);
    bench.set_carrier(false);
    assert_eq!(bench.world.interrupts, [(1, 0, 7)]);
    assert_eq!((bench.read32(1, 0, regs::STATUS), bench.read32(1, 0, regs::EVENTS)), (1, event::LINK));
    assert_eq!(bench.read32(1, 0, regs::EVENTS), 0, "read clears");
}
