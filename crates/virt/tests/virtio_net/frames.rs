//! Frames in all directions, as they were sent.

use platform::net::MacAddr;
use units::Duration;

use super::machine::{Machine, Place};

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

#[test]
fn a_guest_gets_no_frames_of_another() {
    let machine = Machine::up(2);
    let other = machine.listen(Place::Guest(1));
    machine.send(Place::Outside, Place::Guest(0).mac(), 0, 100, &LENGTHS);
    machine.run_for(MS * 5);
    assert!(other.try_take().is_none());
    assert_eq!(machine.guests[1].vnic.counters().received, 0);
}
