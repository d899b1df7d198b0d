//! A function of another host is used like one's own, has one user at a time, and leaves nothing behind.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::copiers::MAGIC;
use crate::common::{Cluster, Hosts, Outcome};
use kernel::DmaMode;
use platform::Error;
use platform::device::{Device, DeviceBus, Function, PortIndex, Reset};
use units::Duration;
use wire::pcie::config::caps::id;
use wire::pcie::config::{ConfigSpace, PcieParams, pcie_cap};
use wire::pcie::{Generation, Width};

const MODES: [DmaMode; 4] = [DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy];

/// What services hold while nothing is lent and all have talked.
fn at_rest(cluster: &Cluster) -> Vec<lending::Counters> {
    let counters = |host| lending::Counters { messages: 0, ..cluster.service(host).counters() };
    (0..cluster.hosts.len()).map(counters).collect()
}

#[test]
fn a_borrowed_device_works_under_every_iommu_and_leaves_nothing() {
    for borrower in MODES {
        for lender in [DmaMode::Off, DmaMode::Strict] {
            let what = format!("{borrower:?} of {lender:?}");
            let cluster = Cluster::new(&[borrower, lender], 1);
            let offers = cluster.service(0).offers(2);
            let offers = cluster.simulation.block_on(offers).unwrap();
            assert_eq!(offers, Ok(vec![(cluster.function(1, 0), None)]));
            // The first lease is followed by what is at rest.
            cluster.borrow(0, 1, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(cluster.give_back(0, 1, 0), Ok(()));
            let before = at_rest(&cluster);

            let at = cluster.borrow(0, 1, 0).unwrap();
            let kernel = &cluster.hosts[0].kernel;
            let found = kernel.pci().into_iter().find(|f| f.address() == at).expect("it is in the tree");
            assert_eq!(found.driver, Some("copier"), "{what}: {:?}", kernel.log());
            let copier = cluster.copier(0);
            let magic = cluster.run(0, move |cpu| Box::pin(async move { copier.magic(&cpu).await }));
            assert_eq!(magic, MAGIC, "{what}");
            let said = cluster.service(0).counters().messages + cluster.service(1).counters().messages;
            for value in 0..4u64 {
                assert!(cluster.copies(0, 0x1234_5678_0000 + value), "{what}");
            }
            let now = cluster.service(0).counters().messages + cluster.service(1).counters().messages;
            assert_eq!(now, said, "no message belongs to I/O");
            // Software that forwards an access, as a configuration access, would show.
            let copier = cluster.copier(0);
            cluster.run(0, move |cpu| Box::pin(async move { copier.device.config_read(&cpu, 0).await }));
            let now = cluster.service(0).counters().messages + cluster.service(1).counters().messages;
            assert_eq!(now, said + 2);
            assert_eq!(cluster.service(1).leases(), [(cluster.function(1, 0), 1)]);
            assert_eq!(cluster.isolated(1), usize::from(lender != DmaMode::Off));
            for host in 0..2 {
                let kernel = &cluster.hosts[host].kernel;
                assert_eq!(kernel.iommu_faults(), [], "{what}, host {host}");
            }

            let copier = cluster.copier(0);
            assert_eq!(cluster.give_back(0, 1, 0), Ok(()), "{what}");
            assert!(copier.removed.get() && !copier.gone.get());
            assert_eq!(copier.dma.counters().live(), 0);
            assert_eq!(at_rest(&cluster), before, "{what}");
            assert_eq!((cluster.foreign(0), cluster.isolated(1)), (0, 0), "{what}");
            assert_eq!(cluster.give_back(0, 1, 0), Err(Error::Invalid));
        }
    }
}

#[test]
fn of_two_who_want_it_one_has_it_and_the_other_is_told() {
    let cluster = Cluster::new(&[DmaMode::Strict, DmaMode::Off, DmaMode::Off], 1);
    let function = cluster.function(2, 0);
    let [first, second] = [0, 1].map(|host| cluster.service(host).borrow(3, function));
    let outcomes = cluster.simulation.block_on(async move { [first.await, second.await] }).unwrap();
    let winners: Vec<usize> = (0..2).filter(|&n| outcomes[n].is_ok()).collect();
    let [winner] = winners[..] else { panic!("{outcomes:?}") };
    assert_eq!(outcomes[1 - winner], Err(Error::Busy));
    assert!(cluster.copies(winner, 77));
    assert_eq!(cluster.foreign(1 - winner), 0);
    assert_eq!(cluster.give_back(1 - winner, 2, 0), Err(Error::Invalid));
    assert_eq!(cluster.give_back(winner, 2, 0), Ok(()));
    assert!(cluster.borrow(1 - winner, 2, 0).is_ok());
    assert!(cluster.copies(1 - winner, 78));
}

#[test]
fn many_functions_of_many_hosts_at_once() {
    let cluster = Cluster::new(&[DmaMode::Strict, DmaMode::Strict, DmaMode::Off], 2);
    for (of, n) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
        assert!(cluster.borrow(0, of, n).is_ok());
        assert!(cluster.copies(0, 1000 + of as u64 * 10 + n as u64));
    }
    // They lend at the same time.
    assert!(cluster.borrow(1, 0, 0).is_ok());
    assert!(cluster.copies(1, 5));
    assert_eq!(cluster.foreign(0), 4);
    for (of, n) in [(2, 0), (1, 1), (1, 0), (2, 1)] {
        assert_eq!(cluster.give_back(0, of, n), Ok(()));
    }
    assert!(cluster.copies(1, 6));
    assert_eq!(cluster.hosts[0].kernel.iommu_faults(), []);
}

#[test]
fn what_is_not_there_or_not_lent_is_refused() {
    let cluster =
        Cluster::of(&[DmaMode::Off, DmaMode::Off], 2, Hosts { requesters: [2; 2], ..Hosts::default() });
    let borrow = |node, bdf| cluster.simulation.block_on(cluster.service(0).borrow(node, bdf)).unwrap();
    assert_eq!(borrow(9, cluster.function(1, 0)), Err(Error::Unreachable));
    assert_eq!(borrow(2, wire::pcie::Bdf::new(77, 0, 0)), Err(Error::NoDevice));
    // The table holds the root port and one function.
    assert!(cluster.borrow(0, 1, 0).is_ok());
    assert_eq!(cluster.borrow(0, 1, 1), Err(Error::NoSpace));
    assert!(cluster.copies(0, 9));
    assert_eq!(cluster.give_back(0, 1, 0), Ok(()));
    assert!(cluster.borrow(0, 1, 1).is_ok());
}

#[test]
fn a_cable_that_is_cut_takes_the_device_and_the_lender_has_it_back() {
    for modes in [[DmaMode::Off; 2], [DmaMode::Strict; 2]] {
        let cluster = Cluster::new(&modes, 1);
        cluster.borrow(0, 1, 0).unwrap();
        cluster.give_back(0, 1, 0).unwrap();
        let before = at_rest(&cluster);
        cluster.borrow(0, 1, 0).unwrap();
        let copier = cluster.copier(0);
        let (seen, cut) = (std::rc::Rc::clone(&copier), cluster.simulation.handle());
        let cable = cluster.cables[0].2;
        // In the middle of a copy.
        let outcome = cluster.run(0, move |cpu| {
            Box::pin(async move {
                seen.start(&cpu, seen.memory.bus, seen.memory.bus, 4096, 3);
                cpu.sync().await;
                cut.with(|fabric, scheduler| fabric.running(scheduler).set_ntb_cable_up(cable, false));
                (seen.magic(&cpu).await, seen.done.wait().await.0)
            })
        });
        assert_eq!(outcome, (u32::MAX, 7), "reads bring ones, and what was under way fails");
        cluster.run_for(Duration::from_ms(400));
        assert!(copier.gone.get() && copier.removed.get());
        assert_eq!((cluster.foreign(0), cluster.isolated(1)), (0, 0));
        assert_eq!(cluster.service(1).leases(), []);
        assert_eq!(cluster.borrow(0, 1, 0), Err(Error::Unreachable));
        cluster.set_cable(0, 1, true);
        cluster.run_for(Duration::from_ms(1));
        cluster.borrow(0, 1, 0).unwrap();
        assert!(cluster.copies(0, 4));
        cluster.give_back(0, 1, 0).unwrap();
        assert_eq!(at_rest(&cluster), before);
    }
}

#[test]
fn a_borrower_that_crashes_loses_what_it_has() {
    let cluster = Cluster::new(&[DmaMode::Strict, DmaMode::Strict], 1);
    cluster.borrow(0, 1, 0).unwrap();
    cluster.hosts[0].kernel.halt();
    cluster.run_for(Duration::from_ms(1_500));
    assert_eq!(cluster.service(1).leases(), []);
    assert_eq!(cluster.isolated(1), 0);
}

#[test]
fn a_lease_that_is_revoked_ends_as_a_removal() {
    let cluster = Cluster::new(&[DmaMode::Lazy, DmaMode::Strict], 1);
    cluster.borrow(0, 1, 0).unwrap();
    let copier = cluster.copier(0);
    let taken = cluster.service(1).take_back(cluster.function(1, 0));
    assert_eq!(cluster.simulation.block_on(taken), Ok(Ok(())));
    assert!(copier.gone.get() && copier.removed.get());
    assert_eq!((cluster.foreign(0), cluster.service(1).leases().len()), (0, 0));
    cluster.borrow(0, 1, 0).unwrap();
    assert!(cluster.copies(0, 1));
}

#[test]
fn a_device_that_is_pulled_out_of_the_lender_is_gone_for_the_borrower() {
    let cluster = Cluster::new(&[DmaMode::Strict, DmaMode::Strict], 1);
    cluster.borrow(0, 1, 0).unwrap();
    let (copier, device) = (cluster.copier(0), cluster.hosts[1].copiers[0]);
    cluster.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
    cluster.run_for(Duration::from_ms(500));
    assert!(copier.gone.get() && copier.removed.get());
    assert_eq!((cluster.foreign(0), cluster.service(1).leases().len()), (0, 0));
}

/// What a host holds of its adapter's tables, and of leases.
fn holds(cluster: &Cluster, host: usize) -> ([usize; 3], usize, usize) {
    let counters = cluster.service(host).counters();
    (counters.in_use, counters.lent, counters.isolated)
}

/// Whenever a device is pulled out while it is being lent, nothing of the lease is left.
#[test]
fn a_device_that_is_pulled_out_while_it_is_being_lent_leaves_nothing() {
    for modes in [[DmaMode::Off; 2], [DmaMode::Strict; 2]] {
        for lead in (0..60_000).step_by(1_000) {
            let cluster = Cluster::new(&modes, 1);
            cluster.borrow(0, 1, 0).unwrap();
            cluster.give_back(0, 1, 0).unwrap();
            let before = [0, 1].map(|host| holds(&cluster, host));
            let asked = cluster.service(0).borrow(cluster.node(1), cluster.function(1, 0));
            cluster.run_for(Duration::from_ns(lead));
            cluster.set_there(1, 0, false);
            let outcome = cluster.simulation.block_on(asked).unwrap();
            cluster.run_for(Duration::from_ms(3_000));
            let after = [0, 1].map(|host| holds(&cluster, host));
            assert_eq!(after, before, "{modes:?}, pulled out after {lead} ns, {outcome:?}");
        }
    }
}

/// Requests that waited for their turn when the cable was cut fail. Their windows lead to another host by then, which was asked nothing.
#[test]
fn a_request_that_waited_goes_nowhere_else() {
    let cluster = Cluster::new(&[DmaMode::Off; 3], 2);
    let name = cluster.function(1, 1);
    assert_eq!(name, cluster.function(2, 1), "both hosts have one of that name");
    cluster.simulation.block_on(cluster.service(0).offers(cluster.node(1))).unwrap().unwrap();
    let asked = [(); 2].map(|()| cluster.service(0).offers(cluster.node(1)));
    let third = cluster.service(0).borrow(cluster.node(1), name);
    cluster.run_for(Duration::from_ns(300));
    cluster.set_cable(0, 1, false);
    cluster.run_for(Duration::from_ms(5));
    cluster.borrow(0, 2, 0).unwrap();
    let lent = cluster.service(2).leases();
    cluster.run_for(Duration::from_ms(1_000));
    assert_eq!(cluster.service(2).leases(), lent);
    let [first, second] = asked.map(|asked| cluster.simulation.block_on(asked).unwrap());
    assert!(first.is_err() && second.is_err(), "{first:?} {second:?}");
    assert_eq!(cluster.simulation.block_on(third), Ok(Err(Error::Unreachable)));
}

/// A borrower that names registers which there are not is told so, and reaches nothing.
#[test]
fn registers_outside_of_configuration_space_are_refused() {
    let cluster = Cluster::new(&[DmaMode::Strict; 2], 1);
    cluster.borrow(0, 1, 0).unwrap();
    let copier = cluster.copier(0);
    let read = cluster.run(0, move |cpu| {
        Box::pin(async move {
            for register in [0x1000, 0x7ffc, 0xfffc] {
                copier.device.config_write(&cpu, register, 0xffff_ffff, 0xf).await;
            }
            copier.device.config_read(&cpu, 0x1000).await
        })
    });
    assert_eq!(read, u32::MAX);
    assert!(cluster.copies(0, 3));
}

/// A device that cannot reset a function alone, and counts its resets.
struct Plain(Rc<Cell<u32>>);

impl Device for Plain {
    fn functions(&self) -> Vec<Function> {
        let pcie = PcieParams::endpoint(Generation::Gen3, Width::X8);
        let pcie = PcieParams { function_level_reset: false, ..pcie };
        let config = ConfigSpace::endpoint(0x1af4, 0x00ca, 0x08_8000).msi(1).bar64(0, 4096, false);
        vec![Function { port: PortIndex(0), config: config.pcie(pcie).build().unwrap() }]
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {
        self.0.set(self.0.get() + 1);
    }
}

/// What cannot reset itself is reset by its bus before somebody else gets it.
#[test]
fn nobody_gets_what_another_left_in_a_device() {
    let resets: Rc<Cell<u32>> = Rc::default();
    let own = Rc::clone(&resets);
    let plain = move |_| vec![Box::new(Plain(Rc::clone(&own))) as Box<dyn Device>];
    let cluster = Cluster::with_devices(&[DmaMode::Strict; 3], plain);
    let before = resets.get();
    cluster.borrow(0, 1, 0).unwrap();
    assert_eq!(cluster.give_back(0, 1, 0), Ok(()));
    assert!(resets.get() > before);
    assert!(cluster.borrow(2, 1, 0).is_ok());
}

/// A device that can interrupt by its pin alone.
struct Legacy;

impl Device for Legacy {
    fn functions(&self) -> Vec<Function> {
        let pcie = PcieParams::endpoint(Generation::Gen3, Width::X8);
        let config = ConfigSpace::endpoint(0x1af4, 0x00c9, 0x08_8000).interrupt_pin(1).bar64(0, 4096, false);
        vec![Function { port: PortIndex(0), config: config.pcie(pcie).build().unwrap() }]
    }
    fn reset(&mut self, _: &mut dyn DeviceBus, _: Reset) {}
}

#[test]
fn legacy_interrupts_are_not_lent() {
    let modes = [DmaMode::Off, DmaMode::Off];
    let cluster = Cluster::with_devices(&modes, |_| vec![Box::new(Legacy)]);
    assert_eq!(cluster.borrow(0, 1, 0), Err(Error::NotSupported));
    assert_eq!(cluster.service(1).leases(), []);
}

/// Two hosts of which the first has an adapter for payloads of at most 128 bytes.
fn unequal() -> Cluster {
    let shape = Hosts { first_payload: 128, ..Hosts::default() };
    Cluster::of(&[DmaMode::Strict, DmaMode::Strict], 1, shape)
}

/// Largest payload and read request of a host's device.
fn sizes(cluster: &Cluster, host: usize) -> (u32, u32) {
    cluster.with_registers(host, 0, |config| (config.max_payload(), config.max_read_request()))
}

#[test]
fn payloads_are_no_larger_than_either_host_takes() {
    let cluster = unequal();
    assert_eq!(sizes(&cluster, 1), (256, 512));
    cluster.borrow(0, 1, 0).unwrap();
    assert_eq!(sizes(&cluster, 1), (128, 512), "what it is sent is small already");
    // A reset of the function does not bring the larger ones back.
    let copier = cluster.copier(0);
    let reset = cluster.run(0, move |cpu| Box::pin(async move { copier.device.reset(&cpu).await }));
    assert_eq!((reset, sizes(&cluster, 1)), (Ok(()), (128, 512)));
    assert_eq!(cluster.give_back(0, 1, 0), Ok(()));
    assert_eq!(sizes(&cluster, 1), (256, 512));
}

#[test]
fn a_function_asks_for_no_more_than_its_lender_takes_at_once() {
    let cluster = unequal();
    cluster.borrow(1, 0, 0).unwrap();
    assert_eq!(sizes(&cluster, 0), (128, 128));
    assert!(cluster.copies(1, 5));
    // A driver that asks for larger ones does not get them, nor does a reset bring them.
    let copier = cluster.copier(1);
    let reset = cluster.run(1, move |cpu| {
        Box::pin(async move {
            let at = copier.device.capability(id::PCI_EXPRESS).unwrap() + pcie_cap::DEVICE_CONTROL;
            let control = copier.device.config_read(&cpu, at).await;
            copier.device.config_write(&cpu, at, control | 5 << 5 | 5 << 12, 3).await;
            copier.device.reset(&cpu).await
        })
    });
    assert_eq!((reset, sizes(&cluster, 0)), (Ok(()), (128, 128)));
    assert_eq!(cluster.give_back(1, 0, 0), Ok(()));
    assert_eq!(sizes(&cluster, 0), (256, 512));
}

/// What ends a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Cut,
    BorrowerCrashes,
    LenderCrashes,
    LenderLosesPower,
    Revoked,
    PulledOut,
    Hangs,
}

/// The lender has its device back clean, no table holds anything of the lease, and no copy is said to be done which is not.
#[track_caller]
fn ends_in_the_middle_of_a_copy(end: End) {
    for modes in [[DmaMode::Off; 2], [DmaMode::Strict; 2]] {
        // While it reads, and while it writes.
        for lead in [400, 1_500] {
            let what = format!("{end:?} {modes:?} after {lead} ns");
            let mut cluster = Cluster::new(&modes, 1);
            cluster.borrow(0, 1, 0).unwrap();
            cluster.give_back(0, 1, 0).unwrap();
            let before = at_rest(&cluster);
            cluster.borrow(0, 1, 0).unwrap();
            let copier = cluster.copier(0);
            // One that nothing disturbs takes longer than that.
            let whole = cluster.begin(0, &copier, 1);
            cluster.run_for(Duration::from_ns(lead));
            assert_eq!(whole.outcome(), Outcome::UnderWay, "{what}");
            cluster.run_for(Duration::from_us(50));
            assert_eq!(whole.outcome(), Outcome::Copied, "{what}");

            let flight = cluster.begin(0, &copier, 2);
            cluster.run_for(Duration::from_ns(lead));
            let function = cluster.function(1, 0);
            match end {
                End::Cut => cluster.set_cable(0, 1, false),
                End::BorrowerCrashes => cluster.hosts[0].kernel.halt(),
                End::LenderCrashes => cluster.hosts[1].kernel.halt(),
                End::LenderLosesPower => cluster.reboot(1),
                End::Revoked => {
                    let taken = cluster.service(1).take_back(function);
                    assert_eq!(cluster.simulation.block_on(taken), Ok(Ok(())), "{what}");
                }
                End::PulledOut => cluster.set_there(1, 0, false),
                End::Hangs => {
                    cluster.hang(1, 0);
                    cluster.run_for(Duration::from_ms(100));
                    assert_eq!(flight.outcome(), Outcome::Failed, "{what}: the driver waits no longer");
                    assert_eq!(cluster.give_back(0, 1, 0), Ok(()), "{what}");
                }
            }
            cluster.run_for(Duration::from_ms(2_000));
            let seen = flight.outcome();
            match end {
                // Its device goes on until somebody notices.
                End::LenderCrashes => {
                    assert!([Outcome::Failed, Outcome::Copied].contains(&seen), "{what}: {seen:?}")
                }
                End::BorrowerCrashes => assert_eq!(seen, Outcome::UnderWay, "{what}"),
                _ => assert_eq!(seen, Outcome::Failed, "{what}"),
            }
            if end != End::BorrowerCrashes {
                assert!(copier.removed.get() && copier.gone.get() == (end != End::Hangs), "{what}");
                assert_eq!(cluster.foreign(0), 0, "{what}");
                assert_eq!(copier.dma.counters().live(), 0, "{what}");
            }
            if end != End::LenderCrashes {
                assert_eq!((cluster.service(1).leases(), cluster.isolated(1)), (vec![], 0), "{what}");
                let is_master = cluster.with_registers(1, 0, |config| config.bus_master_enabled());
                assert!(!is_master, "{what}: it could still send");
            }

            match end {
                End::Cut => cluster.set_cable(0, 1, true),
                End::BorrowerCrashes => cluster.reboot(0),
                End::LenderCrashes => cluster.reboot(1),
                End::PulledOut => cluster.set_there(1, 0, true),
                _ => {}
            }
            cluster.run_for(Duration::from_ms(300));
            drop((flight, whole, copier));
            cluster.borrow(0, 1, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(cluster.copies(0, 3), "{what}");
            cluster.give_back(0, 1, 0).unwrap();
            assert_eq!(at_rest(&cluster), before, "{what}");
        }
    }
}

#[test]
fn a_cable_is_cut_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::Cut);
}

#[test]
fn a_borrower_crashes_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::BorrowerCrashes);
}

#[test]
fn a_lender_crashes_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::LenderCrashes);
}

#[test]
fn a_lender_loses_its_power_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::LenderLosesPower);
}

#[test]
fn a_lease_is_revoked_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::Revoked);
}

#[test]
fn a_device_is_pulled_out_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::PulledOut);
}

#[test]
fn a_device_hangs_in_the_middle_of_a_copy() {
    ends_in_the_middle_of_a_copy(End::Hangs);
}

/// Functions of the borrower that reach what is borrowed leave half of each table to functions that are lent.
#[test]
fn own_functions_take_no_more_than_half_of_a_table() {
    // Host 0 keeps six of eight. Its table is the small one, or those of the others.
    for requesters in [[8, 32], [32, 8]] {
        let shape = Hosts { requesters, first_keeps: 6, ..Hosts::default() };
        let cluster = Cluster::of(&[DmaMode::Strict; 3], 8, shape);
        cluster.borrow(0, 1, 0).unwrap();
        let (own, remote) =
            (cluster.service(0).counters().in_use[1], cluster.service(1).counters().in_use[2]);
        let log = cluster.hosts[0].kernel.log();
        // The root port and three; the others' root ports and two.
        match requesters[0] {
            8 => assert_eq!((own, remote), (4, 5), "{log:?}"),
            _ => assert_eq!((own, remote), (3, 4), "{log:?}"),
        }
        assert!(
            log.iter().any(|(_, line)| line.contains("gets no entry") || line.contains("cannot access")),
            "{log:?}"
        );
        // Those that are lent find a place.
        for (by, of, n) in [(1, 0, 6), (1, 0, 7), (1, 2, 0), (1, 2, 1)] {
            cluster.borrow(by, of, n).unwrap_or_else(|error| panic!("{requesters:?}, {n} of {of}: {error}"));
            assert!(cluster.copies(by, 50 + n as u64));
        }
    }
}

/// A cable that was loose before either host knew the other is found when it is in.
#[test]
fn a_neighbour_behind_a_loose_cable_is_found() {
    let mut cluster = Cluster::new(&[DmaMode::Strict; 2], 1);
    cluster.set_cable(0, 1, false);
    (0..2).for_each(|host| cluster.reboot(host));
    cluster.set_cable(0, 1, true);
    cluster.set_cable(0, 1, false);
    cluster.run_for(Duration::from_ms(5));
    assert_eq!(cluster.borrow(0, 1, 0), Err(Error::Unreachable));
    cluster.set_cable(0, 1, true);
    cluster.run_for(Duration::from_ms(5));
    assert_eq!(cluster.borrow(0, 1, 0).map(drop), Ok(()));
    assert!(cluster.copies(0, 3));
}

/// Whoever lends crashes while a function is being added: its registers read as all ones from then on, without waiting for each.
#[test]
fn a_lender_that_crashes_while_it_lends_is_not_waited_for_at_each_register() {
    for lead in [20, 40, 80, 160].map(Duration::from_us) {
        let cluster = Cluster::new(&[DmaMode::Strict; 2], 1);
        let before = holds(&cluster, 0);
        let asked =
            cluster.simulation.spawn(cluster.service(0).borrow(cluster.node(1), cluster.function(1, 0)));
        cluster.run_for(lead);
        cluster.hosts[1].kernel.halt();
        // Two of its patience: for an answer, and for whether there is somebody.
        cluster.run_for(Duration::from_ms(700));
        assert!(asked.is_finished(), "the lender crashed after {lead}");
        assert_eq!((cluster.foreign(0), holds(&cluster, 0).1), (0, before.1), "after {lead}");
    }
}
