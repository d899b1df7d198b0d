//! The DMA API: what a device reaches, and what it does not any more.

use std::rc::Rc;

use crate::common::{Machine, machine_with, params};
use kernel::DmaMode;
use platform::dma::{Direction, DmaOps};
use platform::memory::{PAGE, Pages, PhysAddr, Policy};
use platform::mmio::MemoryType;
use platform::{Error, cpu::Cpu};
use proptest::prelude::*;

/// Maps a page, lets the device write into it, unmaps it, lets it write again: whether each write arrived.
fn write_before_and_after(mode: DmaMode) -> (bool, bool) {
    let machine = Machine::booted(mode);
    let copier = machine.copier(0);
    let kernel = machine.kernel.face();
    machine.run(2, move |cpu| {
        Box::pin(async move {
            let page = kernel.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let source = copier.memory;
            let bus = copier.dma.map(&cpu, page.start, PAGE, Direction::FromDevice).unwrap();
            let mut arrived = Vec::new();
            for pattern in [[0x11; 64], [0x22; 64]] {
                cpu.store(source.cpu, &pattern);
                copier.copy(&cpu, source.bus, bus, 64, 0).await.unwrap();
                let mut found = [0; 64];
                cpu.load(page.start, &mut found);
                arrived.push(found == pattern);
                if arrived.len() == 1 {
                    copier.dma.unmap(&cpu, bus, PAGE, Direction::FromDevice);
                }
            }
            kernel.free_pages(&cpu, page);
            assert_eq!(copier.dma.counters().errors, 0);
            (arrived[0], arrived[1])
        })
    })
}

#[test]
fn an_unmapped_page_is_out_of_reach_as_the_mode_says() {
    assert_eq!(write_before_and_after(DmaMode::Off), (true, true));
    assert_eq!(write_before_and_after(DmaMode::PassThrough), (true, true));
    assert_eq!(write_before_and_after(DmaMode::Strict), (true, false));
    // The translation is still cached: lazy means just that.
    assert_eq!(write_before_and_after(DmaMode::Lazy), (true, true));
}

#[test]
fn lazy_flushes_after_its_time() {
    let machine = Machine::booted(DmaMode::Lazy);
    let copier = machine.copier(0);
    let kernel = machine.kernel.face();
    machine.run(2, move |cpu| {
        Box::pin(async move {
            let page = kernel.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let bus = copier.dma.map(&cpu, page.start, PAGE, Direction::FromDevice).unwrap();
            copier.copy(&cpu, copier.memory.bus, bus, 64, 0).await.unwrap();
            copier.dma.unmap(&cpu, bus, PAGE, Direction::FromDevice);
            cpu.sleep(units::Duration::from_ms(11)).await;
            cpu.store(copier.memory.cpu, &[0x33; 64]);
            copier.copy(&cpu, copier.memory.bus, bus, 64, 0).await.unwrap();
            assert_eq!(cpu.load_u64(page.start), 0);
        })
    });
}

#[test]
fn a_device_may_only_do_what_it_was_mapped_for() {
    let machine = Machine::booted(DmaMode::Strict);
    let copier = machine.copier(0);
    let kernel = machine.kernel.face();
    assert_eq!(machine.kernel.iommu_faults(), []);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let page = kernel.alloc_pages(&cpu, 0, Policy::Local).unwrap();
            let bus = copier.dma.map(&cpu, page.start, PAGE, Direction::ToDevice).unwrap();
            cpu.store(copier.memory.cpu, &[0x44; 64]);
            copier.copy(&cpu, copier.memory.bus, bus, 64, 0).await.unwrap();
            assert_eq!(cpu.load_u64(page.start), 0, "the write was blocked");
            let nowhere = units::Iova::new(0x7000_0000);
            assert_eq!(copier.copy(&cpu, nowhere, copier.memory.bus, 64, 0).await, Err(Error::Io));
        })
    });
    assert_eq!(machine.kernel.iommu_faults(), [(wire::pcie::Bdf::new(1, 0, 0), 2)]);
}

#[test]
fn strict_costs_more_than_lazy_and_lazy_more_than_none() {
    let cost = |mode| {
        let machine = Machine::booted(mode);
        let copier = machine.copier(0);
        let kernel = machine.kernel.face();
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let page = kernel.alloc_pages(&cpu, 0, Policy::Local).unwrap();
                let start = cpu.now();
                for _ in 0..1000 {
                    let bus = copier.dma.map(&cpu, page.start, PAGE, Direction::FromDevice).unwrap();
                    copier.dma.unmap(&cpu, bus, PAGE, Direction::FromDevice);
                    cpu.sync().await;
                }
                cpu.now().since(start)
            })
        })
    };
    let [off, lazy, strict] = [DmaMode::Off, DmaMode::Lazy, DmaMode::Strict].map(cost);
    assert!(off * 5 < lazy && lazy * 2 < strict, "{off} {lazy} {strict}");
}

#[test]
fn a_peers_bar_can_be_mapped_and_memory_cannot_pass_for_one() {
    let machine = Machine::booted(DmaMode::Strict);
    let (one, other) = (machine.copier(0), machine.copier(1));
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let bar = other.device.bar(2).unwrap();
            let bus = one.dma.map_resource(&cpu, bar.start, bar.length, Direction::Bidirectional).unwrap();
            one.dma.unmap_resource(&cpu, bus, bar.length, Direction::Bidirectional);
            assert_eq!(one.dma.map(&cpu, bar.start, PAGE, Direction::ToDevice), Err(Error::Invalid));
            let memory = one.memory.cpu;
            assert_eq!(one.dma.map_resource(&cpu, memory, PAGE, Direction::ToDevice), Err(Error::Invalid));
        })
    });
}

/// One copier writes into the other's memory and reads that back; after the other has gone it no longer can, and what is put
/// in its place is out of reach where there is an IOMMU.
#[test]
fn a_peer_is_copied_to_and_from_until_it_goes() {
    for mode in [DmaMode::Off, DmaMode::Lazy, DmaMode::Strict] {
        let machine = Machine::booted(mode);
        let (one, other) = (machine.copier(0), machine.copier(1));
        let (peer, copier) = (other.device.bar(2).unwrap(), Rc::clone(&one));
        let bus = machine.run(0, move |cpu| {
            Box::pin(async move {
                let memory = copier.memory;
                let sent: Vec<u8> = (0..1024u32).map(|n| (n * 7 % 251) as u8).collect();
                cpu.store(memory.cpu, &sent);
                let bus = copier.dma.map_resource(&cpu, peer.start + 4096, 8192, Direction::Bidirectional);
                let bus = bus.unwrap();
                copier.copy(&cpu, memory.bus, bus, 1024, 1).await.unwrap();
                copier.copy(&cpu, bus, memory.bus + 4096, 1024, 1).await.unwrap();
                let mut back = vec![0; 1024];
                cpu.load(memory.cpu + 4096, &mut back);
                assert_eq!(back, sent, "{mode:?}");
                // The core sees it in the device, too.
                let map = other.device.ioremap_bar(2, MemoryType::Uncached).unwrap();
                assert_eq!(map.read_u32(&cpu, 4096 + 8).await.to_le_bytes(), sent[8..12]);
                bus
            })
        });
        machine.unplug(machine.copiers[1]);
        machine.plug(machine.copiers[1]);
        assert_eq!(machine.driver.bound.borrow().len(), 3);
        let (copier, new) = (Rc::clone(&one), machine.copier(2));
        assert_eq!(new.device.bar(2).unwrap().start, peer.start, "the same address");
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let read = copier.copy(&cpu, bus, copier.memory.bus + 4096, 64, 1).await;
                assert_eq!(read.is_ok(), mode == DmaMode::Off, "{mode:?}: without an IOMMU nothing stops it");
                // The driver's own unmapping comes late, and is no error. Its memory is left.
                copier.dma.unmap_resource(&cpu, bus, 8192, Direction::Bidirectional);
                assert_eq!((copier.dma.counters().errors, copier.dma.counters().live()), (0, 1));
            })
        });
    }
}

#[test]
fn what_no_bar_holds_or_no_way_leads_to_is_not_mapped() {
    for mode in [DmaMode::Off, DmaMode::Lazy, DmaMode::Strict] {
        let machine = Machine::booted(mode);
        let (one, other) = (machine.copier(0), machine.copier(1));
        machine.run(0, move |cpu| {
            Box::pin(async move {
                let bar = other.device.bar(2).unwrap();
                let map = |at, length| one.dma.map_resource(&cpu, at, length, Direction::ToDevice);
                assert_eq!(map(bar.start, bar.length + 1), Err(Error::Invalid));
                assert_eq!(map(bar.start + (bar.length - 64), 128), Err(Error::Invalid));
                assert_eq!(map(bar.start, u64::MAX), Err(Error::Invalid));
                assert_eq!(map(bar.start, 0), Err(Error::Invalid));
                // Root ports send nothing back by the link on which it came.
                let own = one.device.bar(2).unwrap();
                assert_eq!(map(own.start, own.length), Err(Error::NotSupported));
            })
        });
    }
}

/// The second copier is at node 1, whose memory is above 4 GiB.
#[test]
fn memory_for_a_device_that_addresses_32_bits_is_below_4_gib() {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(1);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            for length in [64, PAGE, 5 * PAGE] {
                copier.dma.set_mask(64).unwrap();
                let far = copier.dma.alloc_coherent(&cpu, 5 * PAGE, None).unwrap();
                assert!(far.bus.get() >= 1 << 32);
                copier.dma.set_mask(32).unwrap();
                let near = copier.dma.alloc_coherent(&cpu, length, None).unwrap();
                assert!(near.bus.get() + length <= 1 << 32, "{near:?}");
                copier.dma.free_coherent(&cpu, near);
                copier.dma.free_coherent(&cpu, far);
            }
        })
    });
}

#[test]
fn a_device_that_addresses_32_bits_gets_such_addresses_from_the_iommu_only() {
    for (mode, works) in [(DmaMode::Off, false), (DmaMode::Lazy, true)] {
        let machine = Machine::booted(mode);
        let copier = machine.copier(0);
        let kernel = machine.kernel.face();
        let mapped = machine.run(0, move |cpu| {
            Box::pin(async move {
                let far = kernel.alloc_pages(&cpu, 0, Policy::Bind(platform::cpu::Node(1))).unwrap();
                copier.dma.set_mask(32).unwrap();
                copier.dma.map(&cpu, far.start, PAGE, Direction::ToDevice)
            })
        });
        assert_eq!(
            mapped.map(|iova| iova.get() < 1 << 32),
            if works { Ok(true) } else { Err(Error::NotSupported) }
        );
    }
}

/// One step of a random use of the API.
#[derive(Clone, Copy, Debug)]
enum Step {
    Map(u64, u64, Direction),
    Unmap(usize),
    Coherent(u64),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let direction =
        prop::sample::select(vec![Direction::ToDevice, Direction::FromDevice, Direction::Bidirectional]);
    let step = prop_oneof![
        3 => (0..60_000u64, 1..20_000u64, direction).prop_map(|(at, length, d)| Step::Map(at, length, d)),
        2 => (0..100usize).prop_map(Step::Unmap),
        1 => (1..9000u64).prop_map(Step::Coherent),
        1 => (0..100usize).prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..60)
}

async fn use_api(cpu: &Cpu, dma: &dyn DmaOps, memory: Pages, steps: Vec<Step>) {
    let mut mapped: Vec<(units::Iova, u64, Direction)> = Vec::new();
    let mut coherent: Vec<platform::dma::Coherent> = Vec::new();
    for step in steps {
        match step {
            Step::Map(at, length, direction) => {
                let bus = dma.map(cpu, memory.start + at, length, direction).unwrap();
                assert_eq!(bus.get() % PAGE, (memory.start + at).offset_in(PAGE));
                let first = bus.get() / PAGE;
                let last = (bus.get() + length - 1) / PAGE;
                for &(other, its, _) in &mapped {
                    assert!(
                        last < other.get() / PAGE || first > (other.get() + its - 1) / PAGE,
                        "two mappings share a page"
                    );
                }
                mapped.push((bus, length, direction));
            }
            Step::Unmap(n) if !mapped.is_empty() => {
                let (bus, length, direction) = mapped.swap_remove(n % mapped.len());
                dma.unmap(cpu, bus, length, direction);
            }
            Step::Coherent(length) => {
                let piece = dma.alloc_coherent(cpu, length, None).unwrap();
                for other in &coherent {
                    let apart =
                        piece.cpu + piece.length <= other.cpu || other.cpu + other.length <= piece.cpu;
                    assert!(apart, "two allocations overlap");
                }
                let mut bytes = vec![1; length as usize];
                cpu.load(piece.cpu, &mut bytes);
                assert!(bytes.iter().all(|&b| b == 0));
                cpu.store(piece.cpu, &vec![0xee; length as usize]);
                coherent.push(piece);
            }
            Step::Free(n) if !coherent.is_empty() => {
                dma.free_coherent(cpu, coherent.swap_remove(n % coherent.len()));
            }
            _ => {}
        }
        cpu.sync().await;
    }
    for (bus, length, direction) in mapped {
        dma.unmap(cpu, bus, length, direction);
    }
    for piece in coherent {
        dma.free_coherent(cpu, piece);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nothing_overlaps_and_nothing_leaks(
        steps in steps(),
        mode in prop::sample::select(vec![DmaMode::Strict, DmaMode::Lazy]),
    ) {
        let machine = Machine::booted(mode);
        let free = |machine: &Machine| machine.kernel.memory();
        let copier = machine.copier(0);
        let kernel = machine.kernel.face();
        let before = copier.dma.counters();
        let dma = copier.dma.clone();
        machine.run(0, move |cpu| Box::pin(async move {
            let memory = kernel.alloc_pages(&cpu, 5, Policy::Local).unwrap();
            use_api(&cpu, &*dma, memory, steps).await;
            kernel.free_pages(&cpu, memory);
        }));
        let after = copier.dma.counters();
        prop_assert_eq!(after.live(), before.live());
        prop_assert_eq!(after.errors, 0);
        // When the driver goes, all memory comes back.
        machine.unplug_all();
        let whole: Vec<_> = free(&machine).iter().map(|n| n.free).collect();
        prop_assert_eq!(whole, machine.memory_before_drivers(mode));
    }
}

#[test]
fn memory_that_is_none_is_refused() {
    let machine = machine_with(params(DmaMode::Strict));
    machine.boot();
    let copier = machine.copier(0);
    machine.run(0, move |cpu| {
        Box::pin(async move {
            let hole = PhysAddr(3 << 30);
            assert_eq!(copier.dma.map(&cpu, hole, 64, Direction::ToDevice), Err(Error::Invalid));
            assert_eq!(copier.dma.map(&cpu, copier.memory.cpu, 0, Direction::ToDevice), Err(Error::Invalid));
            copier.dma.unmap(&cpu, units::Iova::new(0x5000), 64, Direction::ToDevice);
            assert_eq!(copier.dma.counters().errors, 3);
        })
    });
}

#[test]
fn a_domain_s_number_is_used_again_when_its_function_has_gone() {
    for mode in [DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy] {
        let machine = Machine::booted(mode);
        let domains = |machine: &Machine| {
            let mut all: Vec<_> =
                machine.kernel.pci().iter().filter_map(|function| function.domain).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(domains(&machine), [1, 2], "{mode:?}");
        for n in 0..6 {
            machine.unplug(machine.copiers[n % 2]);
            machine.plug(machine.copiers[n % 2]);
            assert_eq!(domains(&machine), [1, 2], "{mode:?}");
        }
    }
}
