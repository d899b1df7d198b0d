//! Interrupts and their coalescing.

use units::Duration;
use wire::ethernet::append_fcs;
use wire::nic::EventEntry;
use wire::nic::event_entry::LEN;
use wire::nic::registers::{self as regs, event, feature, queue, vector};

use super::bench::Bench;
use super::driver::{Queue, enable};
use super::{NicHandle, frame, mac, pair, pair_of};

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

/// Log2 of the entries of the event queue in these tests.
const LOG2: u8 = 2;
/// Where it is.
const EVENTS: u64 = 0xf0_0000;

fn with_events(features: u32) -> (Bench, Queue) {
    let cards = [1, 2].map(|n| {
        let modern = devices::nic::NicParams::modern(mac(n));
        devices::nic::NicParams { features: modern.features | features, ..modern }
    });
    let [a, b] = cards;
    let (mut bench, _) = pair_of(a, b);
    enable(&mut bench, 1, 0, 0);
    bench.write(1, 0, regs::VECTORS + vector::EVENTS, &EVENTS.to_le_bytes());
    bench.write32(1, 0, regs::VECTORS + vector::EVENTS_SIZE, LOG2.into());
    let mut rx = Queue::start(&mut bench, (1, 0, 0, false), 8, queue::TO_RING | queue::ALWAYS_ARMED);
    rx.give(&mut bench, 256);
    bench.run_for(Duration::from_us(5));
    (bench, rx)
}

fn entry(bench: &mut Bench, number: u16) -> Option<EventEntry> {
    let index = u64::from(number) & ((1 << LOG2) - 1);
    let bytes = bench.world.bytes(1, EVENTS + index * LEN as u64, LEN)?;
    EventEntry::parse(bytes.first_chunk()?, number, LOG2)
}

#[test]
fn an_entry_precedes_each_message_while_there_is_room() {
    let (mut bench, _rx) = with_events(feature::EVENT_QUEUES);
    for number in 0..10 {
        assert_eq!(entry(&mut bench, number), None);
        arrive(&mut bench, 1);
        bench.run_for(Duration::from_us(1));
        assert_eq!(bench.world.interrupts.len(), usize::from(number) + 1);
        assert_eq!(entry(&mut bench, number), Some(EventEntry { vector: 0 }));
        bench.write32(1, 0, regs::VECTORS + vector::EVENTS_READ, u32::from(number) + 1);
    }
    // Unread, they fill the queue. Messages go on.
    arrive(&mut bench, 6);
    bench.run_for(Duration::from_us(1));
    assert_eq!(bench.world.interrupts.len(), 16);
    assert!(entry(&mut bench, 13).is_some());
    assert_eq!(entry(&mut bench, 14), None, "10 to 13 are unread");
    // A queue that is taken away gets nothing more.
    bench.write32(1, 0, regs::VECTORS + vector::EVENTS_SIZE, 0);
    bench.write32(1, 0, regs::VECTORS + vector::EVENTS_READ, 14);
    arrive(&mut bench, 1);
    bench.run_for(Duration::from_us(1));
    assert_eq!((bench.world.interrupts.len(), entry(&mut bench, 14)), (17, None));
}

#[test]
fn a_card_without_event_queues_writes_no_entries() {
    let (mut bench, _rx) = with_events(0);
    assert_eq!(bench.read32(1, 0, regs::VECTORS + vector::EVENTS_SIZE), 0);
    arrive(&mut bench, 1);
    bench.run_for(Duration::from_us(1));
    assert_eq!((bench.world.interrupts.len(), entry(&mut bench, 0)), (1, None));
}
