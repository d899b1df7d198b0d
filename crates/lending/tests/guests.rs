//! Functions of other hosts in guests: borrowed while the guest uses them, within the guest's memory, and given back whatever ends
//! it.

use std::rc::Rc;

use crate::common::copiers::MAGIC;
use crate::common::{Cluster, Hosts};
use crate::guest::{Guest, MEMORY, guest, guest_with};
use kernel::DmaMode;
use platform::Error;
use platform::cpu::{CpuId, Node};
use platform::dma::Direction;
use platform::memory::PhysAddr;
use platform::mmio::MemoryType;
use proptest::prelude::*;
use units::{Bytes, Duration, Iova};
use virt::Exit;

const BOTH: [DmaMode; 2] = [DmaMode::Strict; 2];

/// What services hold.
fn held(cluster: &Cluster) -> Vec<lending::Counters> {
    let counters = |host| lending::Counters { messages: 0, forwarded: 0, ..cluster.service(host).counters() };
    (0..cluster.hosts.len()).map(counters).collect()
}

/// Two hosts whose services have talked.
fn talked(modes: &[DmaMode], copiers: usize) -> Cluster {
    let cluster = Cluster::new(modes, copiers);
    for (a, b, _) in cluster.cables.clone() {
        for (by, of) in [(a, b), (b, a)] {
            cluster.borrow(by, of, 0).unwrap();
            cluster.give_back(by, of, 0).unwrap();
        }
    }
    cluster
}

#[test]
fn a_guest_has_a_function_from_its_reset_until_its_end() {
    let cluster = talked(&BOTH, 1);
    let before = held(&cluster);
    let guest = guest(&cluster, 0);
    let memory = Rc::clone(guest.vm.memory());
    let service = cluster.service(0);
    let offered = service.mediate(2, cluster.function(1, 0), memory, 400);
    let offered = cluster.simulation.block_on(offered).unwrap().unwrap();
    assert_eq!(held(&cluster), before, "what is offered is not borrowed");
    let added = guest.vm.add(offered);
    cluster.simulation.block_on(added).unwrap().unwrap();
    assert_eq!(cluster.service(1).leases(), [(cluster.function(1, 0), 1)], "what is reset is");
    assert_eq!(guest.vm.memory().pinned(), Bytes::ZERO, "and reaches nothing");
    guest.boot(&cluster);
    assert_eq!(
        guest.vm.memory().pinned(),
        MEMORY,
        "until it is master of its bus: {:?}",
        guest.vm.kernel().log()
    );
    let memory = Rc::clone(guest.vm.memory());
    let moved =
        cluster.run(0, move |cpu| Box::pin(async move { memory.move_page(&cpu, PhysAddr(0), Node(1)) }));
    assert_eq!(moved, Err(Error::Busy), "what a function reaches stays where it is");
    let copier = guest.copier();
    let magic = guest.run(&cluster, move |cpu| Box::pin(async move { copier.magic(&cpu).await }));
    assert_eq!(magic, MAGIC);
    assert!(guest.copies(&cluster, 1));
    let messages = || (0..2).map(|host| cluster.service(host).counters().messages).sum::<u64>();
    let (said, exits) = (messages(), guest.vm.exits());
    let forwarded = || cluster.service(1).counters().forwarded;
    let passed_on = forwarded();
    for value in 2..6 {
        assert!(guest.copies(&cluster, value));
    }
    assert_eq!(messages(), said, "no message belongs to I/O");
    assert_eq!(forwarded() - passed_on, 4, "but interrupts are passed on");
    let now = guest.vm.exits();
    for exit in [Exit::Config, Exit::Mmio, Exit::Unmapped] {
        assert_eq!(now.of(exit), exits.of(exit), "registers cause no exit");
    }
    for host in 0..2 {
        assert_eq!(cluster.hosts[host].kernel.iommu_faults(), []);
    }
    guest.kill(&cluster);
    assert_eq!(held(&cluster), before);
    assert_eq!(cluster.service(1).leases(), []);
    assert_eq!(cluster.isolated(1), 0);
    // The host itself may have it now.
    cluster.borrow(0, 1, 0).unwrap();
    assert!(cluster.copies(0, 9));
}

/// What the lender's handler takes to pass an interrupt on is what each operation of the guest's takes longer, and no more.
#[test]
fn a_copy_waits_for_the_handler_that_passes_its_interrupt_on() {
    let took = |forward: u64| {
        let shape = Hosts { forward, ..Hosts::default() };
        let cluster = Cluster::of(&BOTH, 1, shape);
        let guest = guest(&cluster, 0);
        guest.lend(&cluster, 1, 0).unwrap();
        guest.boot(&cluster);
        assert!(guest.copies(&cluster, 1));
        let began = cluster.simulation.now();
        (0..20).for_each(|n| assert!(guest.copies(&cluster, n)));
        cluster.simulation.now().since(began).as_ns_f64() / 20.0
    };
    let [none, some, much] = [0, 8_000, 32_000].map(took);
    let (first, second) = (some - none, much - some);
    assert!(first > 1_000.0 && (second / first - 3.0).abs() < 0.15, "{none} {some} {much} ns a copy");
}

#[test]
fn without_both_iommus_nothing_is_lent_to_a_guest() {
    for modes in [[DmaMode::Off, DmaMode::Strict], [DmaMode::Strict, DmaMode::Off]] {
        let cluster = Cluster::new(&modes, 1);
        let guest = guest(&cluster, 0);
        let lent = guest.lend(&cluster, 1, 0);
        guest.boot(&cluster);
        assert!(lent.is_err(), "{modes:?}");
        assert!(guest.driver.bound.borrow().is_empty() || !guest.copies(&cluster, 1));
        assert_eq!(guest.vm.memory().pinned(), Bytes::ZERO);
    }
}

#[test]
fn memory_that_may_not_be_held_keeps_the_function_from_it() {
    let cluster = talked(&BOTH, 1);
    let guest = guest_with(&cluster, 0, Some(Bytes::mib(8)));
    guest.lend(&cluster, 1, 0).unwrap();
    guest.boot(&cluster);
    assert_eq!(guest.vm.memory().pinned(), Bytes::ZERO);
    assert!(guest.driver.bound.borrow().is_empty() || !guest.copies(&cluster, 1));
}

/// What the paper says against it (section 5): the host borrows, and passes on what it has.
#[test]
fn the_naive_way_has_its_three_faults() {
    let cluster = talked(&[DmaMode::Strict, DmaMode::Strict, DmaMode::Off], 1);
    // It is the host's as long as that runs, with or without guests.
    cluster.borrow(0, 1, 0).unwrap();
    let guest = guest(&cluster, 0);
    assert_eq!(cluster.borrow(2, 1, 0), Err(Error::Busy));
    guest.kill(&cluster);
    assert_eq!(cluster.borrow(2, 1, 0), Err(Error::Busy));
    // It shares the domain of all that the host has borrowed, so that it can be in no guest's.
    let kernel = &cluster.hosts[0].kernel;
    let at = kernel.pci().into_iter().find(|f| f.segment.0 > 0).expect("it is in the tree").address();
    let node = kernel.pci().into_iter().find(|f| f.address() == at).expect("it is there").node;
    let weak = Rc::downgrade(kernel);
    let attached = cluster.run(0, move |cpu| {
        Box::pin(async move {
            let domain = weak.upgrade().expect("it runs").iommu().domain(Node(node))?;
            let attached = domain.attach(&cpu, at);
            domain.close(&cpu);
            attached
        })
    });
    assert_eq!(attached, Err(Error::Busy));
    // Which memory guests will have is not known: without an IOMMU here all of it has to be within reach.
    cluster.borrow(2, 0, 0).unwrap();
    let copier = cluster.copier(2);
    let kernel = &cluster.hosts[2].kernel;
    let last = kernel.memory_end().0 - (1 << 20);
    let reached = cluster.run(2, move |cpu| {
        Box::pin(async move {
            let window = copier.memory.bus.get() - copier.memory.cpu.0;
            copier.copy(&cpu, copier.memory.bus, Iova::new(window + last), 64, 3).await.is_ok()
        })
    });
    assert!(reached, "whatever memory it is");
}

/// Numbers that look random.
fn random(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
    .take(count as usize)
}

/// A function of another host that reads and writes where it likes reaches its guest's memory and nothing else, of neither host.
#[test]
fn a_rogue_function_reaches_its_guest_alone() {
    /// Half of them reads.
    const ATTEMPTS: u64 = 200_000;
    let cluster = talked(&BOTH, 1);
    let guest = guest(&cluster, 0);
    guest.lend(&cluster, 1, 0).unwrap();
    guest.boot(&cluster);
    // What is the guest's it does reach. Not afterwards: its driver would be told of what it has not asked for.
    assert!(guest.copies(&cluster, 1));
    let own = guest.vm.memory().ranges().concat();
    let before = (cluster.read(), cluster.written());
    let mut attempts = 0;
    for at in random(ATTEMPTS) {
        // Half of them where memory could be.
        let at = at >> if attempts % 2 == 0 { 16 } else { 30 } & !63;
        if own.iter().any(|&(from, length)| (from.0..from.0 + length).contains(&at)) {
            continue;
        }
        attempts += 1;
        cluster.reaches_for(1, at, attempts / 2 % 2 == 0);
        cluster.run_for(Duration::from_us(1));
    }
    assert!(attempts > ATTEMPTS * 9 / 10);
    assert_eq!((cluster.read(), cluster.written()), before, "no byte of memory was read or written");
    let faults: u64 = cluster.hosts[1].kernel.iommu_faults().iter().map(|(_, count)| count).sum();
    assert!(faults >= attempts * 9 / 10, "{faults} of {attempts} are counted");
    assert_eq!(guest.vm.dma_faults(), 0, "those of functions of the host");
}

#[test]
fn functions_of_a_guest_reach_each_other_where_it_sees_them() {
    for (of, lenders) in [([1, 1], "one lender"), ([1, 2], "two lenders")] {
        let cluster = talked(&[DmaMode::Strict; 3], 2);
        let guest = guest(&cluster, 0);
        guest.lend(&cluster, of[0], 0).unwrap();
        guest.lend(&cluster, of[1], 1).unwrap();
        guest.boot(&cluster);
        // The service joins them behind the guest's back.
        cluster.run_for(Duration::from_ms(5));
        let all = guest.driver.bound.borrow().clone();
        assert_eq!(all.len(), 2, "{lenders}");
        for (value, [from, to]) in (100u64..).zip([[0, 1], [1, 0]]) {
            let [from, to] = [from, to].map(|n: usize| Rc::clone(&all[n]));
            let seen = guest.run(&cluster, move |cpu| {
                Box::pin(async move {
                    let there = to.device.ioremap_bar(2, MemoryType::Uncached).expect("it has a second BAR");
                    let at = there.address() + 0x1000;
                    let bus = from.dma.map_resource(&cpu, at, 4096, Direction::Bidirectional)?;
                    cpu.store_u64(from.memory.cpu, value);
                    if from.copy(&cpu, from.memory.bus, bus, 64, 1).await.is_err() {
                        return Err(Error::Io);
                    }
                    Ok(there.read_u64(&cpu, 0x1000).await)
                })
            });
            assert_eq!(seen, Ok(value), "{lenders}");
        }
        for host in 0..3 {
            assert_eq!(cluster.hosts[host].kernel.iommu_faults(), [], "{lenders}, host {host}");
        }
        guest.kill(&cluster);
        for host in 0..3 {
            let counters = cluster.service(host).counters();
            assert_eq!((counters.lent, counters.borrowed, counters.isolated), (0, 0, 0), "{lenders}");
        }
    }
}

/// Ends that nobody asked for, in the middle of a copy.
#[derive(Clone, Copy, Debug)]
enum Misfortune {
    Cut,
    LenderGone,
    Revoked,
    Removed,
    Killed,
}

#[test]
fn misfortunes_leave_nothing_mapped() {
    use Misfortune::*;
    for what in [Cut, LenderGone, Revoked, Removed, Killed] {
        let cluster = talked(&BOTH, 1);
        let before = held(&cluster);
        let guest = guest(&cluster, 0);
        guest.lend(&cluster, 1, 0).unwrap();
        guest.boot(&cluster);
        assert!(guest.copies(&cluster, 1));
        let copier = guest.copier();
        // It is under way, and nobody waits for it.
        let seen = Rc::clone(&copier);
        guest.run(&cluster, move |cpu| {
            Box::pin(async move {
                seen.start(&cpu, seen.memory.bus, Iova::new(seen.memory.bus.get() + 4096), 4096, 1);
                cpu.sync().await;
            })
        });
        match what {
            Cut => cluster.set_cable(0, 1, false),
            LenderGone => cluster.hosts[1].kernel.halt(),
            Revoked => {
                let taken = cluster.service(1).take_back(cluster.function(1, 0));
                assert_eq!(cluster.simulation.block_on(taken), Ok(Ok(())));
            }
            Removed => {
                let device = cluster.hosts[1].copiers[0];
                cluster.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
            }
            Killed => guest.kill(&cluster),
        }
        cluster.run_for(Duration::from_ms(1_500));
        assert_eq!(guest.vm.memory().pinned(), Bytes::ZERO, "{what:?}: nothing is held");
        if !matches!(what, Killed) {
            let read = guest.run(&cluster, move |cpu| Box::pin(async move { copier.magic(&cpu).await }));
            assert_eq!(read, u32::MAX, "{what:?}: its registers read as ones");
            guest.kill(&cluster);
        }
        if !matches!(what, LenderGone) {
            assert_eq!(cluster.service(1).leases(), [], "{what:?}");
            assert_eq!(cluster.isolated(1), 0, "{what:?}");
            if matches!(what, Cut) {
                cluster.set_cable(0, 1, true);
                cluster.run_for(Duration::from_ms(1));
                cluster.borrow(0, 1, 0).unwrap();
                cluster.give_back(0, 1, 0).unwrap();
            }
            assert_eq!(held(&cluster), before, "{what:?}");
        }
        let [_, _, remote] = cluster.service(0).counters().in_use;
        assert!(remote <= 1, "{what:?}: no requester is left");
    }
}

#[test]
fn a_guest_that_moves_keeps_its_function() {
    let cluster = talked(&[DmaMode::Strict; 3], 1);
    // Cold: it ends here and begins there.
    let first = guest(&cluster, 0);
    first.lend(&cluster, 1, 0).unwrap();
    first.boot(&cluster);
    assert!(first.copies(&cluster, 1));
    first.kill(&cluster);
    let second = guest(&cluster, 2);
    second.lend(&cluster, 1, 0).unwrap();
    second.boot(&cluster);
    assert!(second.copies(&cluster, 2));
    assert_eq!(cluster.service(1).leases(), [(cluster.function(1, 0), 3)]);
    // Running: its function is taken from it and comes to a guest that runs already.
    let third = guest(&cluster, 0);
    third.boot(&cluster);
    let slot = 0;
    cluster.simulation.block_on(second.vm.remove(slot)).unwrap().unwrap();
    cluster.run_for(Duration::from_ms(200));
    assert!(second.copier().removed.get(), "its guest was told");
    third.lend(&cluster, 1, 0).unwrap();
    cluster.run_for(Duration::from_ms(500));
    assert!(third.copies(&cluster, 3), "{:?}", third.vm.kernel().log());
    assert!(!second.copier().device.is_present());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Start(usize),
    Kill(usize),
    Lend(usize, usize),
    Borrow(usize, usize),
    Return(usize, usize),
    Cable(usize, bool),
    Copy(usize),
    Pause(u64),
    /// To cores and memory of a node of the same host, running.
    Move(usize, u8),
    /// To another host, cold: with what it has.
    Migrate(usize, usize),
    /// What is in a slot goes.
    Unplug(usize, u8),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0usize..3).prop_map(Step::Start),
        1 => (0usize..3).prop_map(Step::Kill),
        4 => (0usize..3, 0usize..3).prop_map(|(by, of)| Step::Lend(by, of)),
        1 => (0usize..3, 0usize..3).prop_map(|(by, of)| Step::Borrow(by, of)),
        1 => (0usize..3, 0usize..3).prop_map(|(by, of)| Step::Return(by, of)),
        1 => (0usize..3, any::<bool>()).prop_map(|(cable, up)| Step::Cable(cable, up)),
        3 => (0usize..3).prop_map(Step::Copy),
        1 => (1u64..80).prop_map(Step::Pause),
        2 => (0usize..3, 0u8..2).prop_map(|(host, node)| Step::Move(host, node)),
        1 => (0usize..3, 0usize..3).prop_map(|(from, to)| Step::Migrate(from, to)),
        1 => (0usize..3, 0u8..2).prop_map(|(host, slot)| Step::Unplug(host, slot)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 100, ..ProptestConfig::default() })]
    /// Guests start, end and move, borrow, lose and pass on, while hosts do and cables come and go: each function has one user, and in the end
    /// nothing is held.
    #[test]
    fn whatever_happens_nothing_is_left(all in prop::collection::vec(steps(), 1..12)) {
        let cluster = talked(&[DmaMode::Strict; 3], 1);
        let before = held(&cluster);
        let mut guests: [Option<Guest>; 3] = [None, None, None];
        let mut value = 1;
        for step in all {
            match step {
                Step::Start(host) if guests[host].is_none() => {
                    let new = guest(&cluster, host);
                    new.boot(&cluster);
                    guests[host] = Some(new);
                }
                Step::Kill(host) => {
                    if let Some(old) = guests[host].take() {
                        old.kill(&cluster);
                        prop_assert_eq!(old.vm.memory().pinned(), Bytes::ZERO);
                    }
                }
                Step::Lend(by, of) if by != of => {
                    let lent = cluster.service(of).leases().len();
                    if let Some(guest) = &guests[by] {
                        let outcome = guest.lend(&cluster, of, 0);
                        prop_assert!(lent == 0 || outcome.is_err(), "one user each");
                        cluster.run_for(Duration::from_ms(200));
                    }
                }
                Step::Borrow(by, of) if by != of => {
                    let lent = cluster.service(of).leases().len();
                    prop_assert!(cluster.borrow(by, of, 0).is_err() || lent == 0);
                }
                Step::Return(by, of) => drop(cluster.give_back(by, of, 0)),
                Step::Cable(cable, up) => {
                    let (a, b, _) = cluster.cables[cable];
                    cluster.set_cable(a, b, up);
                }
                Step::Copy(host) => {
                    if let Some(guest) = &guests[host] {
                        let last = guest.driver.bound.borrow().last().cloned();
                        if last.is_some_and(|last| !last.removed.get() && last.device.is_present()) {
                            value += 1;
                            // Whoever's lease holds is served.
                            let leased = (0..3).any(|of| cluster.service(of).leases().iter().any(|(_, to)| *to == cluster.node(host)));
                            let copied = guest.copies(&cluster, value);
                            prop_assert!(copied || !leased || cluster.cables.len() == 3);
                        }
                    }
                }
                Step::Pause(ms) => cluster.run_for(Duration::from_ms(ms)),
                Step::Move(host, node) => {
                    if let Some(guest) = &guests[host] {
                        let held = guest.vm.memory().pinned() > Bytes::ZERO;
                        let vm = Rc::clone(&guest.vm);
                        let moved = cluster.run(host, move |cpu| {
                            let cores = [0, 1].map(|n| CpuId(8 * u16::from(node) + n));
                            Box::pin(async move { vm.move_to(&cpu, &cores, Node(node)).await })
                        });
                        // Pages that a device reaches stay where they are.
                        prop_assert_eq!(moved, if held { Err(Error::Busy) } else { Ok(()) });
                    }
                }
                Step::Migrate(from, to) if guests[to].is_none() => {
                    if let Some(old) = guests[from].take() {
                        let node = cluster.node(from);
                        let has = |of: &usize| cluster.service(*of).leases().iter().any(|(_, by)| *by == node);
                        let had: Vec<usize> = (0..3).filter(|of| *of != to && has(of)).collect();
                        old.kill(&cluster);
                        prop_assert_eq!(old.vm.memory().pinned(), Bytes::ZERO);
                        let new = guest(&cluster, to);
                        // What the host itself has, or a cable does not lead to, it does not get.
                        for of in had {
                            let _ = new.lend(&cluster, of, 0);
                        }
                        new.boot(&cluster);
                        guests[to] = Some(new);
                    }
                }
                Step::Unplug(host, slot) => {
                    if let Some(guest) = &guests[host] {
                        let gone = cluster.simulation.block_on(guest.vm.remove(slot)).expect("it ends");
                        prop_assert!(matches!(gone, Ok(()) | Err(Error::NoDevice)));
                        cluster.run_for(Duration::from_ms(200));
                    }
                }
                _ => {}
            }
            for of in 0..3 {
                prop_assert!(cluster.service(of).leases().len() <= 1);
            }
        }
        for guest in guests.iter().flatten() {
            guest.kill(&cluster);
            prop_assert_eq!(guest.vm.memory().pinned(), Bytes::ZERO);
        }
        for (a, b, _) in cluster.cables.clone() {
            cluster.set_cable(a, b, true);
        }
        cluster.run_for(Duration::from_ms(1_500));
        for (by, of) in (0..3).flat_map(|by| (0..3).map(move |of| (by, of))).filter(|(by, of)| by != of) {
            let _ = cluster.give_back(by, of, 0);
        }
        for (a, b, _) in cluster.cables.clone() {
            for (by, of) in [(a, b), (b, a)] {
                prop_assert!(cluster.borrow(by, of, 0).is_ok(), "it can be had again");
                prop_assert_eq!(cluster.give_back(by, of, 0), Ok(()));
            }
        }
        prop_assert_eq!(held(&cluster), before);
    }
}
