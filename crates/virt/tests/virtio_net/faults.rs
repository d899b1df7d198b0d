//! Full rings, guests that stand still, move, are reset and killed: what is lost is counted, and nothing is left.

use std::rc::Rc;

use kernel::Kernel;
use platform::Error;
use platform::cpu::{Cpu, CpuId, Node};
use platform::kernel::TaskParams;
use platform::memory::PhysAddr;
use platform::sync::Completion;
use units::Duration;
use virt::placement::IoThreads;

use super::machine::{HOST, Machine, Place};

const MS: Duration = Duration::from_ms(1);
const INSIDE: Place = Place::Guest(0);
/// Buffers that the driver gives a ring.
const RING: u32 = 256;

fn host(machine: &Machine) -> Rc<Kernel> {
    Rc::clone(&machine.pair.hosts[HOST].kernel)
}

/// What a task of the host gives.
fn in_host<T: 'static>(machine: &Machine, work: impl AsyncFnOnce(&Cpu) -> T + 'static) -> T {
    let (done, kernel) = (Completion::new(), host(machine));
    let told = done.clone();
    kernel.spawn(TaskParams::named("test").on(CpuId(0)), move |cpu| {
        Box::pin(async move {
            let value = work(&cpu).await;
            cpu.sync().await;
            told.complete(value);
        })
    });
    machine.wait(async move { done.wait().await })
}

/// A guest that stands still takes what its ring has room for; the rest is dropped and counted, and the other guest gets all of its own.
#[test]
fn a_full_ring_drops_and_counts() {
    let machine = Machine::up(2);
    let listeners = [0, 1].map(|n| machine.listen(Place::Guest(n)));
    machine.guests[0].vm.pause();
    machine.send(Place::Outside, INSIDE.mac(), 0, 1000, &[60]);
    machine.run_for(MS * 10);
    let early = machine.dropped_by_uplink();
    for first in (0..1000).step_by(100) {
        machine.send(Place::Outside, Place::Guest(1).mac(), first, 100, &[60]);
        machine.run_for(MS);
    }
    let counters = machine.guests[0].vnic.counters();
    assert_eq!(counters.received, u64::from(RING));
    assert!(counters.dropped > 600, "{counters:?}");
    assert_eq!(counters.received + counters.dropped + early, 1000, "{counters:?}");
    machine.guests[0].vm.resume();
    machine.run_for(MS * 2);
    for (n, most) in [(0, RING), (1, 1000)] {
        let at = Place::Guest(n);
        let received = machine.received(at, Place::Outside, at.mac(), &listeners[n]);
        assert_eq!(received, (0..most).collect::<Vec<_>>());
    }
    // It goes on where it was.
    machine.send(Place::Outside, INSIDE.mac(), 5000, 10, &[60]);
    machine.run_for(MS);
    let received = machine.received(INSIDE, Place::Outside, INSIDE.mac(), &listeners[0]);
    assert_eq!(received, (5000..5010).collect::<Vec<_>>());
}

/// A guest sends faster than its worker takes: its packets wait, and those for which there is no room are its own kernel's to count.
#[test]
fn a_full_ring_of_sending_waits() {
    let machine = Machine::up(1);
    let listener = machine.listen(Place::Outside);
    let (worker, _) = machine.network.threads()[0];
    // The worker shares its core with somebody who computes.
    in_host(&machine, {
        let face = host(&machine).face();
        async move |_| face.set_affinity(worker, &[CpuId(1)])
    })
    .unwrap();
    host(&machine).spawn(TaskParams::named("busy").on(CpuId(1)), |cpu| {
        Box::pin(async move {
            for _ in 0..20_000 {
                cpu.stall(Duration::from_us(1));
                cpu.sync().await;
            }
        })
    });
    machine.send(INSIDE, Place::Outside.mac(), 0, 2000, &[1514]);
    machine.run_for(MS * 5);
    let early = machine.guests[0].vnic.counters().sent;
    assert!(early < 2000, "the worker has had {early} already");
    machine.run_for(MS * 80);
    let received = machine.received(Place::Outside, INSIDE, Place::Outside.mac(), &listener);
    let dropped = machine.device(INSIDE).counters().tx_dropped;
    assert_eq!(received.len() as u64 + dropped, 2000);
    // More than the ring has waited, and went in order.
    assert!(received.is_sorted() && received.len() > 600, "{}", received.len());
}

#[test]
fn a_paused_guest_that_sends_loses_nothing() {
    let machine = Machine::up(1);
    let listener = machine.listen(Place::Outside);
    machine.send(INSIDE, Place::Outside.mac(), 0, 2000, &[60, 1514]);
    for _ in 0..20 {
        machine.run_for(Duration::from_us(137));
        machine.guests[0].vm.pause();
        machine.run_for(Duration::from_us(211));
        machine.guests[0].vm.resume();
    }
    machine.run_for(MS * 40);
    let received = machine.received(Place::Outside, INSIDE, Place::Outside.mac(), &listener);
    assert_eq!(received, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_guest_killed_while_frames_come_and_go_leaves_nothing() {
    let mut machine = Machine::up(2);
    let listener = machine.listen(Place::Guest(1));
    let free = machine.free();
    machine.send(INSIDE, Place::Outside.mac(), 0, 100_000, &[1514]);
    machine.send(INSIDE, Place::Guest(1).mac(), 0, 100_000, &[60]);
    machine.send(Place::Outside, INSIDE.mac(), 0, 500, &[1514]);
    machine.run_for(Duration::from_us(1503));
    let killed = machine.guests[0].vm.kill();
    machine.wait(killed);
    let counters = machine.guests[0].vnic.counters();
    assert!(counters.sent > 100 && counters.received > 100, "{counters:?}");
    machine.run_for(MS * 10);
    assert_eq!(machine.guests[0].vnic.counters(), counters, "nothing passes it any more");
    machine.guests.remove(0);
    // The guest's memory is the host's again, but for buffers that the worker keeps for others.
    assert!(machine.free() > free + (31 << 20), "{} after {free}", machine.free());
    drop(listener);
}

#[test]
fn a_guest_that_is_reset_has_its_nic_again() {
    let machine = Machine::up(1);
    machine.send(INSIDE, Place::Outside.mac(), 0, 100_000, &[1514]);
    machine.send(Place::Outside, INSIDE.mac(), 0, 500, &[1514]);
    machine.run_for(Duration::from_us(1203));
    let vm = Rc::clone(&machine.guests[0].vm);
    machine.wait(vm.reset());
    let stood = machine.guests[0].vnic.counters();
    machine.run_for(MS * 5);
    assert_eq!(machine.guests[0].vnic.counters(), stood);
    machine.wait({
        let booted = vm.kernel();
        async move { booted.boot().await }
    });
    machine.open(0);
    let (there, here) = (machine.listen(Place::Outside), machine.listen(INSIDE));
    machine.send(INSIDE, Place::Outside.mac(), 0, 50, &[60, 1514]);
    machine.send(Place::Outside, INSIDE.mac(), 0, 50, &[60, 1514]);
    machine.run_for(MS * 3);
    let all: Vec<u32> = (0..50).collect();
    assert_eq!(machine.received(Place::Outside, INSIDE, Place::Outside.mac(), &there), all);
    assert_eq!(machine.received(INSIDE, Place::Outside, INSIDE.mac(), &here), all);
}

/// Each page of a guest goes from node to node three times while it sends and receives.
#[test]
fn pages_move_while_frames_come_and_go() {
    let machine = Machine::up(1);
    let listeners = [INSIDE, Place::Outside].map(|at| machine.listen(at));
    machine.send(INSIDE, Place::Outside.mac(), 0, 3000, &[60, 1514]);
    // So slowly that its ring is never full.
    for n in 0..15 {
        machine.send(Place::Outside, INSIDE.mac(), n * 200, 200, &[60, 1514]);
        let memory = Rc::clone(machine.guests[0].vm.memory());
        in_host(&machine, async move |cpu| {
            for page in (0..16).filter(|page| page % 5 == n % 5) {
                let page = PhysAddr(u64::from(page) << 21);
                let to = if memory.node_of(page) == Some(Node(0)) { Node(1) } else { Node(0) };
                let old = memory.place(page).unwrap().0;
                memory.move_page(cpu, page, to).unwrap();
                // Whoever has the old page now writes something else there.
                (0..512).for_each(|n| cpu.store_u64(old + n * 4096, u64::MAX));
                cpu.sync().await;
            }
        });
        machine.run_for(MS);
    }
    machine.run_for(MS * 20);
    assert_eq!(machine.guests[0].vm.memory().moved(), 3 * 16);
    let all: Vec<u32> = (0..3000).collect();
    let [here, there] = &listeners;
    assert_eq!(machine.received(Place::Outside, INSIDE, Place::Outside.mac(), there), all);
    assert_eq!(machine.received(INSIDE, Place::Outside, INSIDE.mac(), here), all);
}

/// A guest's NIC goes from one worker to another while frames come and go: none is lost, and none passes another.
#[test]
fn another_worker_takes_over() {
    let machine = Machine::up(1);
    let listeners = [INSIDE, Place::Outside].map(|at| machine.listen(at));
    machine.send(INSIDE, Place::Outside.mac(), 0, 3000, &[60, 1514]);
    let mut moves = 0;
    for n in 0..15 {
        machine.send(Place::Outside, INSIDE.mac(), n * 200, 200, &[60, 1514]);
        let (network, vnic) = (Rc::clone(&machine.network), Rc::clone(&machine.guests[0].vnic));
        let moved = in_host(&machine, async move |cpu| network.assign(cpu, &vnic, 1 - n as usize % 2));
        assert!(matches!(moved, Ok(()) | Err(Error::Busy)), "{moved:?}");
        moves += u32::from(moved.is_ok());
        machine.run_for(MS);
    }
    assert!(moves > 5, "{moves}");
    machine.run_for(MS * 20);
    let all: Vec<u32> = (0..3000).collect();
    let [here, there] = &listeners;
    assert_eq!(machine.received(Place::Outside, INSIDE, Place::Outside.mac(), there), all);
    assert_eq!(machine.received(INSIDE, Place::Outside, INSIDE.mac(), here), all);
}

/// The host's NIC is taken out below its guests: they find out by what does not come, and nothing else happens to them.
#[test]
fn the_uplink_goes_away() {
    let machine = Machine::up(2);
    let listener = machine.listen(Place::Guest(1));
    machine.send(INSIDE, Place::Outside.mac(), 0, 2000, &[1514]);
    machine.run_for(MS);
    let nic = machine.pair.hosts[HOST].nic;
    machine.pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(nic));
    machine.run_for(MS * 20);
    machine.send(INSIDE, Place::Guest(1).mac(), 0, 100, &[60]);
    machine.run_for(MS * 20);
    let received = machine.received(Place::Guest(1), INSIDE, Place::Guest(1).mac(), &listener);
    assert_eq!(received, (0..100).collect::<Vec<_>>());
}

/// Eight guests with two vCPUs each share three cores, and each sends to the next one: all of it arrives or is counted.
#[test]
fn eight_guests_on_three_cores() {
    const GUESTS: usize = 8;
    let machine = Machine::crowded(GUESTS, 3);
    let listeners: Vec<_> = (0..GUESTS).map(|n| machine.listen(Place::Guest(n))).collect();
    let next = |n: usize| Place::Guest((n + 1) % GUESTS);
    for n in 0..GUESTS {
        machine.send(Place::Guest(n), next(n).mac(), 0, 200, &[60, 1514]);
    }
    machine.run_for(MS * 300);
    for n in 0..GUESTS {
        let received =
            machine.received(next(n), Place::Guest(n), next(n).mac(), &listeners[(n + 1) % GUESTS]);
        let dropped = machine.guests[(n + 1) % GUESTS].vnic.counters().dropped;
        assert!(received.is_sorted() && received.len() > 100, "{}", received.len());
        assert_eq!(received.len() as u64 + dropped, 200);
        assert!(machine.guests[n].vm.stolen() > Duration::ZERO);
    }
}
