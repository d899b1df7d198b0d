//! Borrowed functions reach each other, of one lender and of two, and functions of the borrower reach them.

mod common;

use std::rc::Rc;

use common::Cluster;
use common::copiers::CopierBinding;
use kernel::DmaMode;
use platform::dma::Direction;
use platform::mmio::MemoryType;
use units::Iova;

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
            let cluster = Cluster::first_keeps(&[borrower, lender], 1);
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
