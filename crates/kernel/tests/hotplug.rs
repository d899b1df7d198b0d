//! Devices that go without notice, and come back.

use crate::common::{DEVICE, MAGIC, Machine, Model};
use kernel::DmaMode;
use platform::Error;
use units::Duration;
use wire::pcie::Bdf;

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
            hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
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
        timer.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
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
            hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(device));
            hw.sleep(Duration::from_us(7)).await;
            hw.with(|fabric, scheduler| fabric.running(scheduler).insert_device(device));
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

#[test]
fn another_device_put_in_before_the_kernel_looks_is_not_taken_for_the_old_one() {
    let machine = Machine::booted(DmaMode::Strict);
    let first = machine.copier(0);
    let strange = machine.spare(Model { device: DEVICE + 1, ..Model::default() });
    machine.exchange(machine.copiers[0], strange);
    assert!(first.gone.get() && first.removed.get(), "{:?}", machine.kernel.log());
    let found = machine.kernel.pci().into_iter().find(|f| f.bdf == Bdf::new(1, 0, 0)).unwrap();
    assert_eq!((found.identity.device, found.driver), (DEVICE + 1, None));
    // A third, of the first one's kind, is a new device to its driver.
    let same = machine.spare(Model::default());
    machine.exchange(strange, same);
    let bound = machine.driver.bound.borrow().len();
    assert_eq!(bound, 3);
    let third = machine.copier(2);
    let magic = machine
        .run(0, move |cpu| Box::pin(async move { (first.magic(&cpu).await, third.magic(&cpu).await) }));
    assert_eq!(magic, (u32::MAX, MAGIC));
}

#[test]
fn a_device_that_is_exchanged_for_its_like_is_set_up_anew() {
    let machine = Machine::booted(DmaMode::Off);
    let like = machine.spare(Model::default());
    machine.exchange(machine.copiers[0], like);
    let last = machine.copier(2);
    assert_eq!(machine.run(0, move |cpu| Box::pin(async move { last.magic(&cpu).await })), MAGIC);
}

/// Space for a slot of 64 MiB and what its first device had, exchanged a hundred times for others that need up to half of it.
#[test]
fn address_space_of_what_was_taken_out_is_used_again() {
    let machine = Machine::booted(DmaMode::Off);
    let sizes = [32 << 20, 1 << 16, 16 << 20, 1 << 20, 8 << 20];
    let mut inside = machine.copiers[0];
    for round in 0..100 {
        let next = machine.spare(Model { bar: sizes[round % sizes.len()], ..Model::default() });
        machine.exchange(inside, next);
        inside = next;
        let functions = machine.kernel.pci();
        let found = functions.iter().find(|f| f.bdf == Bdf::new(1, 0, 0)).unwrap();
        assert_eq!(found.bars.len(), 2, "round {round}: {:?}", machine.kernel.log());
        let (start, length) = functions[0].windows[1].unwrap();
        let bar = found.bars[1].1;
        assert!(start <= bar.address && bar.address + bar.size <= start + length, "round {round}");
    }
}
