//! Pages by node: policies, what happens when a node has none, and moving them.

mod common;

use common::{Machine, machine};
use kernel::DmaMode;
use platform::Error;
use platform::cpu::Node;
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
    let kernel = machine.kernel.face();
    let before: Vec<_> = machine.kernel.memory().iter().map(|n| n.free).collect();
    let (inner, moved) = (std::rc::Rc::new(machine.kernel), std::rc::Rc::new(std::cell::Cell::new(false)));
    let (mover, done) = (std::rc::Rc::clone(&inner), std::rc::Rc::clone(&moved));
    inner.spawn(platform::kernel::TaskParams::named("mover"), move |cpu| {
        Box::pin(async move {
            let pages = kernel.alloc_pages(&cpu, 2, Policy::Bind(Node(0))).unwrap();
            let bytes: Vec<u8> = (0..pages.len()).map(|n| (n * 7) as u8).collect();
            cpu.store(pages.start, &bytes);
            let start = cpu.now();
            let there = mover.migrate(&cpu, pages, Node(1)).unwrap();
            assert!(cpu.now().since(start) > units::Duration::from_us(1), "copying takes time");
            let mut found = vec![0; bytes.len()];
            cpu.load(there.start, &mut found);
            assert!(node_of(&there) == 1 && found == bytes && there.start.0 % PAGE == 0);
            kernel.free_pages(&cpu, there);
            done.set(true);
        })
    });
    machine.simulation.run();
    assert!(moved.get());
    assert_eq!(inner.memory().iter().map(|n| n.free).collect::<Vec<_>>(), before);
}
