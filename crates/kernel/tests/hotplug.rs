//! Devices that go without notice, and come back.

mod common;

use common::{MAGIC, Machine};
use kernel::DmaMode;
use platform::Error;
use units::Duration;

#[test]
fn surprise_removal_reads_ones_and_tells_the_driver() {
    let machine = Machine::booted(DmaMode::Strict);
    let copier = machine.copier(0);
    assert_eq!(machine.kernel.pci().len(), 4);
    // In the middle of a program that polls the device.
    let (seen, device) = (copier.clone(), machine.copiers[0]);
    let hw = machine.simulation.handle();
    let (before, after) = machine.run(0, move |cpu| {
        Box::pin(async move {
            let before = seen.magic(&cpu).await;
            hw.with(|fabric, scheduler| fabric.remove_device(scheduler, device));
            (before, seen.magic(&cpu).await)
        })
    });
    assert_eq!((before, after), (MAGIC, u32::MAX));
    machine.simulation.run();
    assert!(copier.gone.get() && copier.removed.get());
    assert!(!copier.device.is_present());
    assert_eq!(copier.dma.counters().live(), 0);
    assert_eq!(machine.kernel.pci().len(), 3);
    assert_eq!(machine.kernel.interrupts().iter().filter(|i| i.1 == "copier").count(), 8, "the other's");
    // The other goes on.
    let other = machine.copier(1);
    assert_eq!(machine.run(1, move |cpu| Box::pin(async move { other.magic(&cpu).await })), MAGIC);
}

#[test]
fn a_request_under_way_fails_when_its_device_goes() {
    let machine = Machine::booted(DmaMode::Off);
    let copier = machine.copier(0);
    let device = machine.copiers[0];
    let hw = machine.simulation.handle();
    hw.clone().with(|_, _| ());
    let timer = hw.clone();
    machine.simulation.spawn(async move {
        timer.sleep(Duration::from_us(3)).await;
        timer.with(|fabric, scheduler| fabric.remove_device(scheduler, device));
    });
    let outcome = machine.run(0, move |cpu| {
        Box::pin(async move {
            loop {
                let memory = copier.memory;
                if let Err(error) = copier.copy(&cpu, memory.bus, memory.bus, 4096, 0).await {
                    return error;
                }
            }
        })
    });
    assert_eq!(outcome, Error::Io);
}

#[test]
fn what_comes_back_is_set_up_as_before() {
    let machine = Machine::booted(DmaMode::Strict);
    let text = machine.kernel.pci_text();
    let device = machine.copiers[0];
    for _ in 0..3 {
        machine.unplug(device);
        assert_ne!(machine.kernel.pci_text(), text);
        machine.plug(device);
        assert_eq!(machine.kernel.pci_text(), text);
    }
    let copier = machine.driver.bound.borrow().last().cloned().unwrap();
    let copied = machine.run(5, move |cpu| {
        Box::pin(async move {
            cpu.store_u64(copier.memory.cpu, 0x0123_4567);
            let to = units::Iova::new(copier.memory.bus.get() + 4096);
            copier.copy(&cpu, copier.memory.bus, to, 64, 2).await.unwrap();
            cpu.load_u64(copier.memory.cpu + 4096)
        })
    });
    assert_eq!(copied, 0x0123_4567);
}

#[test]
fn a_slot_that_changes_often_ends_in_the_state_it_is_in() {
    let machine = Machine::booted(DmaMode::Off);
    let device = machine.copiers[1];
    let hw = machine.simulation.handle();
    machine.simulation.spawn(async move {
        for _ in 0..5 {
            hw.with(|fabric, scheduler| fabric.remove_device(scheduler, device));
            hw.sleep(Duration::from_us(7)).await;
            hw.with(|fabric, scheduler| fabric.insert_device(scheduler, device));
            hw.sleep(Duration::from_us(11)).await;
        }
    });
    machine.simulation.run();
    let functions = machine.kernel.pci();
    assert_eq!(
        functions.iter().filter(|f| f.driver == Some("copier")).count(),
        2,
        "{}",
        machine.kernel.pci_text()
    );
    let copier = machine.driver.bound.borrow().last().cloned().unwrap();
    assert_eq!(machine.run(0, move |cpu| Box::pin(async move { copier.magic(&cpu).await })), MAGIC);
}
