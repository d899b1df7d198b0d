//! A machine boots, finds its devices, and its driver makes one work.

use crate::common::{self, MAGIC, Machine, machine};
use kernel::DmaMode;
use platform::cpu::CpuId;
use platform::irq::Affinity;

const MODES: [DmaMode; 4] = [DmaMode::Off, DmaMode::PassThrough, DmaMode::Strict, DmaMode::Lazy];

#[test]
fn functions_are_found_and_bound() {
    let machine = Machine::booted(DmaMode::Off);
    let text = machine.kernel.pci_text();
    let expected = "\
00:01.0 8086:6f04 class 060400 buses 01-03 window 0x80000000+0x300000 window 0x10000000000+0x4100000 node 0 mps 256 irqs 1
  01:00.0 1af4:00c0 class 088000 bar0 0x80200000+0x4000 bar2 0x10004000000+0x100000 node 0 mps 256 irqs 8 driver copier
";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(machine.kernel.pci().len(), 4);
}

#[test]
fn a_device_copies_and_interrupts_the_chosen_core() {
    for mode in MODES {
        let machine = machine(mode);
        *machine.driver.affinity.borrow_mut() = Affinity::Cpus(vec![CpuId(3), CpuId(9)]);
        machine.boot();
        let copier = machine.copier(1);
        let cores = machine.run(1, move |cpu| {
            Box::pin(async move {
                assert_eq!(copier.magic(&cpu).await, MAGIC);
                let memory = copier.memory;
                let pattern: Vec<u8> = (0..=255).cycle().take(3000).collect();
                cpu.store(memory.cpu, &pattern);
                let target = units::Iova::new(memory.bus.get() + 4096);
                let mut cores = Vec::new();
                for vector in 0..2 {
                    cores.push(copier.copy(&cpu, memory.bus, target, 3000, vector).await);
                }
                let mut copied = vec![0; 3000];
                cpu.load(memory.cpu + 4096, &mut copied);
                assert_eq!(copied, pattern);
                cores
            })
        });
        assert_eq!(cores, [Ok(CpuId(3)), Ok(CpuId(9))], "{mode:?}");
        let counters = machine.kernel.irq_counters();
        assert_eq!((counters.handled, counters.spurious, counters.lost), (2, 0, 0));
    }
}

#[test]
fn the_same_boot_twice_is_the_same() {
    let log = || {
        let machine = Machine::booted(DmaMode::Strict);
        (machine.kernel.log(), machine.simulation.now(), machine.simulation.processed())
    };
    assert_eq!(log(), log());
}

#[test]
fn nothing_outlives_its_machine() {
    let machine = Machine::booted(DmaMode::Lazy);
    assert_eq!(common::ALIVE.get(), 2);
    let copier = machine.copier(0);
    machine.run(3, move |cpu| Box::pin(async move { assert_eq!(copier.magic(&cpu).await, MAGIC) }));
    drop(machine);
    assert_eq!(common::ALIVE.get(), 0);
}
