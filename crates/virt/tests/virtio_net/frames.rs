//! Frames in all directions, as they were sent.

use std::rc::Rc;

use platform::net::{Checksum, MacAddr};
use units::Duration;

use super::machine::{Machine, Place, frame};
use crate::common::bytes_of;

const LENGTHS: [usize; 5] = [60, 64, 333, 1499, 1514];
const MS: Duration = Duration::from_ms(1);

#[test]
fn frames_cross_in_order_and_unchanged() {
    let machine = Machine::up(2);
    let pairs = [
        (Place::Outside, Place::Guest(0)),
        (Place::Guest(0), Place::Outside),
        (Place::Guest(0), Place::Guest(1)),
    ];
    for (from, to) in pairs {
        let listener = machine.listen(to);
        machine.send(from, to.mac(), 0, 600, &LENGTHS);
        machine.run_for(MS * 20);
        let received = machine.received(to, from, to.mac(), &listener);
        assert_eq!(received, (0..600).collect::<Vec<_>>(), "{from:?} to {to:?}");
    }
    let [first, second] = [0, 1].map(|n| machine.guests[n].vnic.counters());
    assert_eq!((first.sent, first.received), (1200, 600), "{first:?}");
    assert_eq!((second.sent, second.received), (0, 600), "{second:?}");
    for counters in [first, second] {
        assert_eq!((counters.malformed, counters.dropped), (0, 0), "{counters:?}");
    }
}

#[test]
fn both_directions_at_once() {
    let machine = Machine::up(1);
    let (inside, outside) = (Place::Guest(0), Place::Outside);
    let listeners = [inside, outside].map(|at| machine.listen(at));
    machine.send(inside, outside.mac(), 0, 1000, &LENGTHS);
    machine.send(outside, inside.mac(), 0, 1000, &LENGTHS);
    machine.run_for(MS * 40);
    let all: Vec<u32> = (0..1000).collect();
    assert_eq!(machine.received(outside, inside, outside.mac(), &listeners[1]), all);
    // Its core is busy with sending: what it has no buffers for is counted.
    let received = machine.received(inside, outside, inside.mac(), &listeners[0]);
    assert!(received.is_sorted() && received.len() > 300, "{received:?}");
    let dropped = machine.guests[0].vnic.counters().dropped + machine.dropped_by_uplink();
    assert_eq!(received.len() as u64 + dropped, 1000);
}

#[test]
fn a_broadcast_comes_to_all_but_its_sender() {
    let machine = Machine::up(3);
    let all = [Place::Guest(0), Place::Guest(1), Place::Guest(2), Place::Outside];
    let listeners = all.map(|at| machine.listen(at));
    machine.send(Place::Guest(0), MacAddr::BROADCAST, 0, 10, &LENGTHS);
    machine.run_for(MS * 2);
    for (at, listener) in all.into_iter().zip(&listeners) {
        let received = machine.received(at, Place::Guest(0), MacAddr::BROADCAST, listener);
        let expected: Vec<u32> = if at == Place::Guest(0) { Vec::new() } else { (0..10).collect() };
        assert_eq!(received, expected, "{at:?}");
    }
}

/// A packet that is to be cut and summed goes to another guest whole, into as many buffers as it takes, as on no wire it can be damaged.
#[test]
fn a_large_packet_reaches_another_guest_whole() {
    const LENGTH: usize = 40_000;
    let machine = Machine::up(2);
    let (from, to) = (Place::Guest(0), Place::Guest(1));
    let listener = machine.listen(to);
    let (device, buffers) = (machine.device(from), machine.buffers(from));
    machine.run(from, 0, move |cpu| {
        Box::pin(async move {
            for number in 0..5 {
                let mut packet = buffers.packet(&cpu, &frame(from, to.mac(), LENGTH, number), 4096);
                packet.checksum = Checksum::Offload { start: 34, offset: 16 };
                (packet.segment, packet.headers) = (1460, 54);
                device.send(&cpu, packet, false).unwrap();
                cpu.sync().await;
            }
        })
    });
    machine.run_for(MS * 2);
    let taken = Rc::clone(&listener);
    let received = machine.run(to, 1, move |cpu| {
        Box::pin(async move {
            let mut received = Vec::new();
            while let Some(packet) = taken.try_take() {
                assert_eq!((packet.checksum, packet.segment), (Checksum::Good, 1460));
                received.push(bytes_of(&cpu, &packet));
                packet.release(&cpu);
            }
            received
        })
    });
    assert_eq!(received.len(), 5);
    for (number, bytes) in (0..).zip(received) {
        assert!(bytes == frame(from, to.mac(), LENGTH, number), "packet {number} is damaged");
    }
    // Its buffers are given to the ring again.
    machine.send(from, to.mac(), 0, 1000, &[1514]);
    machine.run_for(MS * 40);
    let all: Vec<u32> = (0..1000).collect();
    assert_eq!(machine.received(to, from, to.mac(), &listener), all);
}

#[test]
fn a_guest_gets_no_frames_of_another() {
    let machine = Machine::up(2);
    let other = machine.listen(Place::Guest(1));
    machine.send(Place::Outside, Place::Guest(0).mac(), 0, 100, &LENGTHS);
    machine.run_for(MS * 5);
    assert!(other.try_take().is_none());
    assert_eq!(machine.guests[1].vnic.counters().received, 0);
}
