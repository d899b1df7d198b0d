//! Borrowed functions reach each other, of one lender and of two, and functions of the borrower reach them.

use std::rc::Rc;

use crate::common::copiers::CopierBinding;
use crate::common::{Cluster, Hosts};
use kernel::DmaMode;
use platform::Error;
use platform::dma::Direction;
use platform::memory::PhysAddr;
use platform::mmio::MemoryType;
use units::{Duration, Iova};

/// The first function copies from memory into the second's BAR, where a core finds it, and back.
fn copies(cluster: &Cluster, [from, to]: [Rc<CopierBinding>; 2], value: u64) -> bool {
    cluster.run(0, move |cpu| {
        Box::pin(async move {
            let there = to.device.ioremap_bar(2, MemoryType::Uncached).expect("it has a second BAR");
            let at = there.address() + 0x1000;
            let Ok(bus) = from.dma.map_resource(&cpu, at, 4096, Direction::Bidirectional) else {
                return false;
            };
            cpu.store_u64(from.memory.cpu, value);
            if from.copy(&cpu, from.memory.bus, bus, 64, 3).await.is_err() {
                return false;
            }
            let seen = there.read_u64(&cpu, 0x1000).await;
            let back = Iova::new(from.memory.bus.get() + 4096);
            let read = from.copy(&cpu, bus, back, 256, 3).await.is_ok();
            let read = read && cpu.load_u64(from.memory.cpu + 4096) == value;
            from.dma.unmap_resource(&cpu, bus, 4096, Direction::Bidirectional);
            seen == value && read
        })
    })
}

#[test]
fn functions_of_one_lender_and_of_two_reach_each_other() {
    for lenders in [DmaMode::Off, DmaMode::Strict] {
        for borrower in [DmaMode::Off, DmaMode::Strict] {
            let what = format!("{borrower:?} of {lenders:?}");
            let cluster = Cluster::new(&[borrower, lenders, lenders], 2);
            let bindings: Vec<_> = [(1, 0), (1, 1), (2, 0)]
                .map(|(of, n)| {
                    cluster.borrow(0, of, n).unwrap();
                    cluster.copier(0)
                })
                .to_vec();
            for (value, (from, to)) in (100..).zip([(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)]) {
                let pair = [from, to].map(|n: usize| Rc::clone(&bindings[n]));
                assert!(copies(&cluster, pair, value), "{what}: {from} to {to}");
            }
            for host in 0..3 {
                assert_eq!(cluster.hosts[host].kernel.iommu_faults(), [], "{what}, host {host}");
            }
            // What is given back reaches nothing, and nothing reaches it.
            cluster.give_back(0, 1, 1).unwrap();
            assert!(copies(&cluster, [0, 2].map(|n: usize| Rc::clone(&bindings[n])), 7), "{what}");
            for (of, n) in [(2, 0), (1, 0)] {
                cluster.give_back(0, of, n).unwrap();
            }
            for host in 0..3 {
                let [segments, local, remote] = cluster.service(host).counters().in_use;
                assert!(segments <= 4 && local == 1 && remote == 2, "{what}, host {host}");
            }
        }
    }
}

#[test]
fn a_function_of_the_borrower_reaches_a_borrowed_one() {
    for lender in [DmaMode::Off, DmaMode::Strict] {
        for borrower in [DmaMode::Off, DmaMode::Strict] {
            let what = format!("{borrower:?} of {lender:?}");
            let shape = Hosts { first_keeps: 1, ..Hosts::default() };
            let cluster = Cluster::of(&[borrower, lender], 1, shape);
            let own = cluster.copier(0);
            for value in [100, 101] {
                cluster.borrow(0, 1, 0).unwrap();
                let borrowed = cluster.copier(0);
                assert!(!Rc::ptr_eq(&own, &borrowed));
                assert!(copies(&cluster, [Rc::clone(&own), borrowed], value), "{what}");
                for host in 0..2 {
                    assert_eq!(cluster.hosts[host].kernel.iommu_faults(), [], "{what}, host {host}");
                }
                cluster.give_back(0, 1, 0).unwrap();
                for host in 0..2 {
                    let [segments, local, remote] = cluster.service(host).counters().in_use;
                    assert!(segments <= 2 && local == 1 && remote == 1, "{what}, host {host}");
                }
            }
        }
    }
}

/// The cable to a second lender is cut while one of its functions is being borrowed, at any moment: the first lender's lets go of it.
#[test]
fn a_borrow_that_fails_leaves_no_way_to_it() {
    for mode in [DmaMode::Off, DmaMode::Strict] {
        for lead in (0..120_000).step_by(3_000) {
            let cluster = Cluster::new(&[mode; 3], 1);
            cluster.borrow(0, 2, 0).unwrap();
            cluster.give_back(0, 2, 0).unwrap();
            cluster.borrow(0, 1, 0).unwrap();
            let in_use = || cluster.service(1).counters().in_use;
            let before = in_use();
            let asked = cluster.service(0).borrow(cluster.node(2), cluster.function(2, 0));
            cluster.run_for(Duration::from_ns(lead));
            cluster.set_cable(0, 2, false);
            let outcome = cluster.simulation.block_on(asked).unwrap();
            cluster.run_for(Duration::from_ms(3_000));
            cluster.set_cable(0, 2, true);
            cluster.run_for(Duration::from_ms(1_000));
            if outcome.is_err() {
                assert_eq!(in_use(), before, "{mode:?}, cut after {lead} ns: {outcome:?}");
            }
        }
    }
}

/// Where cores find a function's second BAR.
fn place(copier: &CopierBinding) -> PhysAddr {
    copier.device.ioremap_bar(2, MemoryType::Uncached).expect("it has a second BAR").address()
}

/// Where a function finds another's.
fn found(cluster: &Cluster, host: usize, [from, to]: [Rc<CopierBinding>; 2]) -> Result<Iova, Error> {
    cluster.run(host, move |cpu| {
        Box::pin(async move {
            let at = place(&to);
            from.dma.map_resource(&cpu, at, 4096, Direction::Bidirectional)
        })
    })
}

/// Two that are borrowed at the same time reach each other as if one had come after the other.
#[test]
fn those_that_are_borrowed_at_once_reach_each_other() {
    let cluster = Cluster::new(&[DmaMode::Strict; 3], 1);
    let asked = [1, 2].map(|of| cluster.service(0).borrow(cluster.node(of), cluster.function(of, 0)));
    for asked in asked {
        cluster.simulation.block_on(asked).unwrap().unwrap();
    }
    let both = [0, 1].map(|n| Rc::clone(&cluster.hosts[0].driver.bound.borrow()[n]));
    let [one, other] = both;
    assert!(found(&cluster, 0, [Rc::clone(&one), Rc::clone(&other)]).is_ok());
    assert!(found(&cluster, 0, [other, one]).is_ok());
}

/// A function that sends payloads of 256 bytes does not get to one behind an adapter that passes 128, but that one to it. Nothing cuts TLPs
/// on their way.
#[test]
fn a_function_does_not_reach_one_that_takes_less_than_it_sends() {
    let shape = Hosts { first_payload: 128, ..Hosts::default() };
    let cluster = Cluster::of(&[DmaMode::Strict; 3], 1, shape);
    let [small, large] = [0, 2].map(|of| {
        cluster.borrow(1, of, 0).unwrap();
        cluster.copier(1)
    });
    let joined = || [0, 1, 2].map(|host| cluster.service(host).counters().joined);
    let refused = found(&cluster, 1, [Rc::clone(&large), Rc::clone(&small)]);
    assert_eq!((refused, joined()), (Err(Error::NotSupported), [0; 3]));
    assert!(found(&cluster, 1, [small, large]).is_ok());
}

/// The first word of the second BAR of the last function that a host's driver was given.
fn word(cluster: &Cluster, host: usize) -> u64 {
    let copier = cluster.copier(host);
    cluster.run(host, move |cpu| {
        Box::pin(async move {
            let bar = copier.device.ioremap_bar(2, MemoryType::Uncached).expect("it has a second BAR");
            bar.write_u64(&cpu, 8, 1);
            bar.read_u64(&cpu, 0).await
        })
    })
}

/// A host that has two of a lender's functions crashes. The lender takes one back, and lends it to another host before it has found
/// out: the other function, still the crashed host's, does not reach it.
#[test]
fn what_a_crashed_host_still_has_does_not_reach_what_is_somebody_elses() {
    let cluster = Cluster::new(&[DmaMode::Strict; 3], 2);
    let both = [0, 1].map(|n| {
        cluster.borrow(0, 1, n).unwrap();
        cluster.copier(0)
    });
    let there = found(&cluster, 0, both).unwrap();
    cluster.reaches_for(1, there.get(), true);
    cluster.run_for(Duration::from_us(10));
    assert_eq!(word(&cluster, 0), 0xeeee_eeee_eeee_eeee, "it does reach it");
    assert_eq!(cluster.service(1).counters().joined, 2);

    cluster.hosts[0].kernel.halt();
    let taken = cluster.service(1).take_back(cluster.function(1, 1));
    assert_eq!(cluster.simulation.block_on(taken), Ok(Ok(())));
    assert_eq!(cluster.service(1).leases(), [(cluster.function(1, 0), 1)], "not noticed yet");
    assert_eq!(cluster.service(1).counters().joined, 0);
    cluster.borrow(2, 1, 1).unwrap();
    assert_eq!(cluster.service(1).leases().len(), 2, "not noticed yet");
    cluster.reaches_for(1, there.get(), true);
    cluster.run_for(Duration::from_us(10));
    assert_eq!(word(&cluster, 2), 0);
    assert!(!cluster.hosts[1].kernel.iommu_faults().is_empty());
}

/// The driver of a function of the borrower keeps the address of a borrowed one beyond the lease: what is found in its place
/// afterwards is out of reach where there is an IOMMU.
#[test]
fn an_address_does_not_outlive_its_lease() {
    let shape = Hosts { first_keeps: 1, ..Hosts::default() };
    let cluster = Cluster::of(&[DmaMode::Strict; 2], 2, shape);
    let own = cluster.copier(0);
    cluster.borrow(0, 1, 0).unwrap();
    let borrowed = cluster.copier(0);
    let before = place(&borrowed);
    let there = found(&cluster, 0, [Rc::clone(&own), borrowed]).unwrap();
    cluster.reaches_for(0, there.get(), true);
    cluster.run_for(Duration::from_us(10));
    assert_eq!(word(&cluster, 0), 0xeeee_eeee_eeee_eeee, "it does reach it");
    cluster.give_back(0, 1, 0).unwrap();
    cluster.borrow(0, 1, 1).unwrap();
    assert_eq!(place(&cluster.copier(0)), before, "another is there");
    let faults = cluster.hosts[0].kernel.iommu_faults().len();
    cluster.reaches_for(0, there.get(), true);
    cluster.run_for(Duration::from_us(10));
    assert_eq!(word(&cluster, 0), 0);
    assert!(cluster.hosts[0].kernel.iommu_faults().len() > faults);
    // The late end of the mapping is no error.
    let dma = Rc::clone(&own);
    cluster.run(0, move |cpu| {
        Box::pin(async move { dma.dma.unmap_resource(&cpu, there, 4096, Direction::Bidirectional) })
    });
    assert_eq!(own.dma.counters().errors, 0);
}
