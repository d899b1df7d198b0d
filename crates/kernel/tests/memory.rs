//! Pages by node: policies, what happens when a node has none, and moving them.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Machine, machine};
use kernel::DmaMode;
use platform::Error;
use platform::cpu::{CpuId, Node};
use platform::dma::Direction;
use platform::kernel::TaskParams;
use platform::memory::{PAGE, Pages, Policy};
use units::Bytes;

fn node_of(pages: &Pages) -> u8 {
    // The example machine has node 1 at 4 GiB.
    u8::from(pages.start.0 >= 4 << 30)
}

fn takes(on: u16, policy: Policy, orders: Vec<u8>) -> Vec<Result<u8, Error>> {
    let machine = machine(DmaMode::Off);
    let kernel = machine.kernel.face();
    machine.run(on, move |cpu| {
        Box::pin(async move {
            let take = |&order: &u8| kernel.alloc_pages(&cpu, order, policy).map(|p| node_of(&p));
            orders.iter().map(take).collect()
        })
    })
}

#[test]
fn policies_choose_the_node() {
    assert_eq!(takes(1, Policy::Local, vec![0, 3]), [Ok(0), Ok(0)]);
    assert_eq!(takes(9, Policy::Local, vec![0, 3]), [Ok(1), Ok(1)]);
    assert_eq!(takes(9, Policy::Preferred(Node(0)), vec![0, 9]), [Ok(0), Ok(0)]);
    assert_eq!(takes(0, Policy::Interleave, vec![0, 0, 0, 0]), [Ok(1), Ok(0), Ok(1), Ok(0)]);
    assert_eq!(takes(0, Policy::Bind(Node(7)), vec![0]), [Err(Error::Invalid)]);
}

#[test]
fn a_full_node_falls_back_as_the_policy_allows() {
    // 1 GiB less the first MiB: one block of 512 MiB, then one of 256 MiB, then no 256 MiB more.
    let big = vec![17, 16, 16];
    assert_eq!(takes(0, Policy::Local, big.clone()), [Ok(0), Ok(0), Ok(1)]);
    assert_eq!(takes(0, Policy::Preferred(Node(0)), big.clone()), [Ok(0), Ok(0), Ok(1)]);
    assert_eq!(takes(0, Policy::Bind(Node(0)), big), [Ok(0), Ok(0), Err(Error::NoMemory)]);
    assert_eq!(takes(0, Policy::Local, vec![18, 18]), [Ok(1), Err(Error::NoMemory)]);
}

#[test]
fn all_single_pages_of_a_node_can_be_had_and_come_back() {
    let machine = machine(DmaMode::Off);
    let before = machine.kernel.memory();
    let kernel = machine.kernel.face();
    machine.run(3, move |cpu| {
        Box::pin(async move {
            // Leave 1 MiB of node 0.
            let mut held = Vec::new();
            for order in (8..18).rev() {
                held.extend(kernel.alloc_pages(&cpu, order, Policy::Bind(Node(0))));
            }
            let mut pages = Vec::new();
            while let Ok(page) = kernel.alloc_pages(&cpu, 0, Policy::Bind(Node(0))) {
                assert_eq!(node_of(&page), 0);
                pages.push(page);
            }
            assert_eq!(
                kernel.alloc_pages(&cpu, 0, Policy::Local).map(|p| (node_of(&p), kernel.free_pages(&cpu, p))),
                Ok((1, ()))
            );
            pages.into_iter().chain(held).for_each(|p| kernel.free_pages(&cpu, p));
        })
    });
    assert_eq!(machine.kernel.memory(), before);
    assert_eq!(before[0].total, Bytes::mib(1023));
    assert_eq!(machine.kernel.memory_fallbacks(), 1);
}

#[test]
fn migrated_pages_keep_their_bytes() {
    let machine = Machine::booted(DmaMode::Off);
    let before: Vec<_> = machine.kernel.memory().iter().map(|n| n.free).collect();
    let kernel = machine.kernel.face();
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let pages = kernel.alloc_pages(&cpu, 2, Policy::Bind(Node(0))).unwrap();
            let bytes: Vec<u8> = (0..pages.len()).map(|n| (n * 7) as u8).collect();
            cpu.store(pages.start, &bytes);
            let start = cpu.now();
            let there = kernel.move_pages(&cpu, pages, Node(1)).unwrap();
            // Each page out of its tables and into them, and all cores told: 18,000 cycles of 400 ps, and copying.
            assert!(cpu.now().since(start) > units::Duration::from_ns(7_200), "it takes time");
            let mut found = vec![0; bytes.len()];
            cpu.load(there.start, &mut found);
            assert!(node_of(&there) == 1 && found == bytes && there.start.0 % PAGE == 0);
            assert_eq!(kernel.move_pages(&cpu, there, Node(1)), Ok(there), "they are there");
            assert_eq!(kernel.move_pages(&cpu, there, Node(9)), Err(Error::Invalid));
            kernel.free_pages(&cpu, there);
        })
    });
    assert_eq!(machine.kernel.memory().iter().map(|n| n.free).collect::<Vec<_>>(), before);
}

#[test]
fn pages_that_a_device_reaches_stay() {
    for mode in [DmaMode::Off, DmaMode::Strict, DmaMode::Lazy] {
        let machine = Machine::booted(mode);
        let (kernel, copier) = (machine.kernel.face(), machine.copier(0));
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let pages = kernel.alloc_pages(&cpu, 1, Policy::Bind(Node(0))).unwrap();
                let dma = copier.device.dma();
                // A piece of the second page.
                let at = dma.map(&cpu, pages.start + PAGE + 100, 64, Direction::FromDevice).unwrap();
                assert_eq!(kernel.move_pages(&cpu, pages, Node(1)), Err(Error::Busy), "{mode:?}");
                dma.unmap(&cpu, at, 64, Direction::FromDevice);
                let moved = kernel.move_pages(&cpu, pages, Node(1)).unwrap();
                assert_eq!(node_of(&moved), 1);
                let rings = Pages { start: copier.memory.cpu.align_down(PAGE), order: 0 };
                let other = Node(1 - node_of(&rings));
                assert_eq!(kernel.move_pages(&cpu, rings, other), Err(Error::Busy), "{mode:?}");
                kernel.free_pages(&cpu, moved);
            })
        });
    }
}

#[test]
fn a_tasks_memory_comes_from_where_it_was_told() {
    let machine = machine(DmaMode::Off);
    for (policy, nodes) in [
        (Policy::Task, [0, 0]),
        (Policy::Local, [0, 0]),
        (Policy::Bind(Node(1)), [1, 1]),
        (Policy::Preferred(Node(1)), [1, 1]),
        (Policy::Interleave, [1, 0]),
    ] {
        let (kernel, took) = (machine.kernel.face(), Rc::new(Cell::new([9; 2])));
        let told = Rc::clone(&took);
        machine.kernel.spawn(TaskParams { policy, ..TaskParams::named("task").on(CpuId(0)) }, move |cpu| {
            Box::pin(async move {
                let take = || node_of(&kernel.alloc_pages(&cpu, 3, Policy::Task).unwrap());
                told.set([take(), take()]);
                // What is asked for by name is where it was asked for; a thread is as its parent.
                assert_eq!(node_of(&kernel.alloc_pages(&cpu, 3, Policy::Local).unwrap()), 0);
                let thread = TaskParams::named("thread").of(&cpu);
                assert_eq!(thread.policy, if policy == Policy::Task { Policy::Local } else { policy });
            })
        });
        machine.simulation.run();
        assert_eq!(took.get(), nodes, "{policy:?}");
    }
}

#[test]
fn scattered_loads_overlap_as_buffers_allow() {
    let machine = machine(DmaMode::Off);
    let kernel = machine.kernel.face();
    let [one_by_one, gathered] = machine.run(0, move |cpu| {
        Box::pin(async move {
            let pages = kernel.alloc_pages(&cpu, 9, Policy::Bind(Node(0))).unwrap();
            // No two of a page, so that nothing is fetched ahead.
            let places: Vec<_> = (0..300).map(|n| pages.start + n * PAGE).collect();
            places.iter().zip(0u32..).for_each(|(&place, n)| cpu.stream(place, &n.to_le_bytes()));
            let began = cpu.now();
            places[1..101].iter().for_each(|&place| assert!(cpu.load_u32(place) > 0));
            let one_by_one = cpu.now().since(began).as_ns_f64();
            let began = cpu.now();
            let mut into = [0; 4 * 100];
            cpu.gather(&places[101..201], 3, &mut into);
            let gathered = cpu.now().since(began).as_ns_f64();
            assert!(
                (101u32..).zip(into.as_chunks::<4>().0).all(|(n, bytes)| u32::from_le_bytes(*bytes) == n)
            );
            [one_by_one, gathered]
        })
    });
    // Ten buffers; the last ten lines are not waited for.
    assert!((8.0..13.0).contains(&(one_by_one / gathered)), "{one_by_one} and {gathered}");
}
