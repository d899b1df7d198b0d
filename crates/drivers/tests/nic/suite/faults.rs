//! What the NIC, its slot or its cable does wrong: errors to who asked, counters, and nothing lost without one.

use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use devices::nic::NicHandle;
use platform::Error;
use platform::cpu::Cpu;
use platform::device::FunctionIndex;
use platform::net::{PacketDevice, PacketQueue};
use units::Duration;
use wire::nic::registers::counter;

const SECOND: Duration = Duration::from_ms(1_000);

/// Sends `count` small frames numbered from `first`; gives the errors met.
fn send(pair: &Pair, buffers: &Rc<Buffers>, first: u32, count: u32) -> Vec<Error> {
    let (device, buffers) = (pair.device(0), Rc::clone(buffers));
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            let mut errors = Vec::new();
            for n in first..first + count {
                let packet = buffers.packet(&cpu, &frame(1, 60, n), 4096);
                errors.extend(device.send(&cpu, packet, false).err());
                cpu.sync().await;
            }
            errors
        })
    })
}

fn listen(pair: &Pair) -> Rc<PacketQueue> {
    pair.device(1).listen(Some(TYPE.0), 1 << 16)
}

/// The numbers of the frames that have arrived.
fn received(pair: &Pair, listener: &Rc<PacketQueue>) -> Vec<u32> {
    let listener = Rc::clone(listener);
    pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let take = |cpu: &Cpu| {
                listener.try_take().map(|packet| {
                    let number = check(&bytes_of(cpu, &packet), 1);
                    packet.release(cpu);
                    number
                })
            };
            std::iter::from_fn(|| take(&cpu)).collect()
        })
    })
}

fn numbers(first: u32, count: u32) -> Vec<u32> {
    (first..first + count).collect()
}

#[test]
fn a_full_ring_makes_packets_wait_and_a_full_queue_drops_them() {
    let mut setup = Setup { rate: units::BitRate::gbit_per_s(1), ..Setup::default() };
    setup.driver.log2_tx = 5;
    let pair = Pair::up(&setup);
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    let errors = send(&pair, &buffers, 0, 3000);
    assert!(!errors.is_empty() && errors.iter().all(|&error| error == Error::NoSpace));
    pair.run_for(Duration::from_ms(20));
    let arrived = received(&pair, &listener);
    let counters = pair.device(0).counters();
    assert_eq!(counters.tx_dropped, errors.len() as u64);
    assert!(counters.tx_stopped > 0);
    assert_eq!(arrived.len() + errors.len(), 3000);
    assert!(arrived.is_sorted(), "none passed another");
    assert_eq!(buffers.out.get(), 0);
}

#[test]
fn lost_interrupts_are_made_up_for() {
    let pair = Pair::up(&Setup::default());
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    for host in &pair.hosts {
        host.handle.lose_interrupts(1);
    }
    assert_eq!(send(&pair, &buffers, 0, 20), []);
    pair.run_for(Duration::from_ms(1));
    assert_eq!((received(&pair, &listener), buffers.out.get()), (vec![], 20), "nobody has been told");
    pair.run_for(SECOND * 5);
    assert_eq!(
        (received(&pair, &listener), buffers.out.get()),
        (numbers(0, 20), 0),
        "the service task looked"
    );
}

#[test]
fn interrupts_too_many_do_no_harm() {
    let pair = Pair::up(&Setup::default());
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    for host in &pair.hosts {
        host.handle.add_spurious_interrupts(50);
    }
    assert_eq!(send(&pair, &buffers, 0, 200), []);
    pair.run_for(Duration::from_ms(1));
    assert_eq!(received(&pair, &listener), numbers(0, 200));
    assert_eq!(pair.hosts[1].kernel.irq_counters().unhandled, 0);
    // When nothing is left to do, nothing happens any more.
    pair.settle();
}

/// A completion that the driver cannot use leads to one reset, on either side; what is lost is counted, and it goes on.
fn is_reset_by(spoil: impl Fn(&NicHandle)) {
    for side in 0..2 {
        let pair = Pair::up(&Setup::default());
        let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
        assert_eq!(send(&pair, &buffers, 0, 50), []);
        pair.run_for(Duration::from_ms(1));
        assert_eq!(received(&pair, &listener), numbers(0, 50));
        spoil(&pair.hosts[side].handle);
        assert_eq!(send(&pair, &buffers, 50, 10), []);
        pair.run_for(Duration::from_ms(10));
        let counters = pair.counters(side);
        assert_eq!((counters.malformed.get(), counters.resets.get()), (1, 1), "side {side}");
        assert_eq!(buffers.out.get(), 0, "all buffers came back");
        let arrived = received(&pair, &listener);
        assert!(arrived.len() <= 10 && arrived.is_sorted());
        assert_eq!(send(&pair, &buffers, 100, 50), []);
        pair.run_for(Duration::from_ms(1));
        assert_eq!(received(&pair, &listener), numbers(100, 50), "side {side}");
    }
}

#[test]
fn a_malformed_completion_leads_to_a_reset_and_no_frame_is_lost_uncounted() {
    is_reset_by(|nic| nic.spoil_completions(1));
}

/// A completion with the wrong owner bit is invisible, and hides those behind it: interrupts keep coming for it, and the
/// driver finds out.
#[test]
fn a_wrong_owner_bit_leads_to_a_reset_and_no_frame_is_lost_uncounted() {
    is_reset_by(|nic| nic.flip_owners(1));
}

#[test]
fn a_hung_device_is_reset_and_given_up_if_that_does_not_help() {
    let pair = Pair::up(&Setup::default());
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    pair.hosts[0].handle.set_hung(true);
    let errors = send(&pair, &buffers, 0, 600);
    assert_eq!(errors, [], "they wait");
    assert_eq!(buffers.out.get(), 600);
    pair.run_for(SECOND * 11);
    let (counters, device) = (pair.counters(0), pair.device(0));
    assert!(device.counters().tx_timeouts >= 1);
    assert_eq!(counters.resets.get(), 1);
    assert!(counters.tx_lost.get() >= 512, "{:?}", counters.tx_lost);
    // It does not come back: no carrier, and who sends is told.
    assert!(!device.has_carrier());
    assert_eq!(send(&pair, &buffers, 700, 1), [Error::Io]);
    // Opened again once it listens.
    pair.hosts[0].handle.set_hung(false);
    let again = Rc::clone(&device);
    let opened = pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            again.stop(&cpu).await;
            again.open(&cpu).await
        })
    });
    assert_eq!((opened, buffers.out.get()), (Ok(()), 0));
    assert_eq!(send(&pair, &buffers, 800, 10), []);
    pair.run_for(Duration::from_ms(1));
    assert_eq!(received(&pair, &listener), numbers(800, 10));
}

/// Its ring has room, but as many bytes are with the driver as may be: what waits is noticed all the same.
#[test]
fn a_device_that_hangs_below_a_full_ring_is_reset() {
    let pair = Pair::up(&Setup::default());
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.hosts[0].handle.set_hung(true);
    let (device, mine) = (pair.device(0), Rc::clone(&buffers));
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for number in 0..200 {
                device.send(&cpu, mine.packet(&cpu, &frame(1, 1500, number), 4096), false).expect("it waits");
            }
        })
    });
    let counters = pair.device(0).counters();
    assert_eq!(counters.tx_stopped, 0, "the ring has room");
    assert!(counters.tx_limited > 0, "but bytes are limited");
    pair.run_for(SECOND * 11);
    assert!(pair.device(0).counters().tx_timeouts >= 1);
    assert_eq!(pair.counters(0).resets.get(), 1);
    assert!(!pair.device(0).has_carrier());
}

#[test]
fn a_hung_device_that_cannot_be_reset_has_no_carrier() {
    let nic = |nic: &mut devices::nic::NicParams| nic.pcie.function_level_reset = false;
    let pair = Pair::up(&Setup { nic, ..Setup::default() });
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.hosts[0].handle.set_hung(true);
    assert_eq!(send(&pair, &buffers, 0, 600), [], "they wait");
    pair.run_for(SECOND * 11);
    assert_eq!(pair.counters(0).resets.get(), 1);
    assert!(!pair.device(0).has_carrier());
    assert_eq!(send(&pair, &buffers, 700, 1), [Error::Io], "who sends is told");
    let device = pair.device(0);
    pair.run(0, 0, move |cpu| Box::pin(async move { device.stop(&cpu).await }));
    assert_eq!(buffers.out.get(), 0);
}

#[test]
fn a_device_taken_out_under_load_leaves_nothing_behind() {
    let setup = Setup { mode: kernel::DmaMode::Strict, ..Setup::default() };
    let pair = Pair::up(&setup);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let (device, mine) = (pair.device(0), Rc::clone(&buffers));
    let sender = pair.spawn(0, 1, move |cpu| {
        Box::pin(async move {
            let mut number = 0;
            loop {
                let packet = mine.packet(&cpu, &frame(1, 1000, number), 300);
                if let Err(error) = device.send(&cpu, packet, false) {
                    if error != Error::NoSpace {
                        return (number, error);
                    }
                    cpu.sleep(Duration::from_us(5)).await;
                }
                number += 1;
                cpu.sync().await;
            }
        })
    });
    pair.run_for(Duration::from_us(300));
    let nic = pair.hosts[0].nic;
    pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).remove_device(nic));
    pair.run_for(SECOND);
    let (number, error) = sender.try_take().expect("the sender is told");
    assert!(number > 50 && matches!(error, Error::NoDevice | Error::Io), "{number} {error:?}");
    assert_eq!(buffers.out.get(), 0);
    assert_eq!(pair.mapped(0), 0);
    let log: Vec<String> = pair.hosts[0].kernel.log().into_iter().map(|(_, line)| line).collect();
    assert!(!log.iter().any(|line| line.contains("left") || line.contains("not mapped")), "{log:?}");
    assert!(pair.hosts[0].kernel.face().packet_device("eth0").is_none());
    // Put back, it is a new device.
    pair.plug(0);
    pair.run_for(SECOND);
    let device: Rc<dyn PacketDevice> =
        pair.hosts[0].kernel.face().packet_device("eth0").expect("found again, under the name that is free");
    pair.run(0, 0, move |cpu| Box::pin(async move { device.open(&cpu).await })).unwrap();
}

#[test]
fn a_device_taken_out_while_it_is_probed_is_bound_to_nobody() {
    let setup = Setup { mode: kernel::DmaMode::Strict, ..Setup::default() };
    let whole = Pair::off(&setup);
    let off = whole.simulation.now();
    whole.boot(0);
    let step = Duration::from_ps(whole.simulation.now().since(off).as_ps() / 60);
    for n in 1..=60 {
        let pair = Pair::off(&setup);
        let (hw, nic) = (pair.simulation.handle(), pair.hosts[0].nic);
        pair.simulation.spawn(async move {
            hw.sleep(step * n).await;
            hw.with(|fabric, scheduler| fabric.running(scheduler).remove_device(nic));
        });
        pair.boot(0);
        pair.run_for(SECOND);
        let kernel = &pair.hosts[0].kernel;
        assert!(
            !kernel.pci().iter().any(|function| function.driver == Some("nic")),
            "{n} {:?}",
            kernel.log()
        );
        assert!(kernel.face().packet_device("eth0").is_none(), "{n}");
        assert_eq!((pair.mapped(0), pair.hosts[0].driver.functions().len()), (0, 0), "{n}");
        pair.plug(0);
        pair.run_for(SECOND);
        let device = ["eth0", "eth1"].into_iter().find_map(|name| kernel.face().packet_device(name));
        let device = device.unwrap_or_else(|| panic!("{n} {:?}", kernel.log()));
        pair.run(0, 0, move |cpu| Box::pin(async move { device.open(&cpu).await })).unwrap();
    }
}

#[test]
fn a_cable_that_goes_down_and_up_is_noticed() {
    let pair = Pair::up(&Setup::default());
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    let cable = |up| {
        pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).set_ethernet_up(pair.cable, up))
    };
    cable(false);
    pair.run_for(Duration::from_ms(1));
    assert!(!pair.device(0).has_carrier() && !pair.device(1).has_carrier());
    assert_eq!(send(&pair, &buffers, 0, 1), [Error::Io]);
    assert_eq!(pair.device(0).counters().tx_no_link, 1);
    cable(true);
    pair.run_for(Duration::from_ms(1));
    assert_eq!(send(&pair, &buffers, 1, 5), []);
    pair.run_for(Duration::from_ms(1));
    assert_eq!(received(&pair, &listener), numbers(1, 5));
}

#[test]
fn a_receiver_without_memory_drops_counts_and_recovers() {
    use platform::memory::Policy;
    let mut setup = Setup::default();
    setup.driver.log2_rx = 6;
    setup.driver.refill = 8;
    let pair = Pair::up(&setup);
    let (listener, buffers) = (listen(&pair), Buffers::new(&pair.hosts[0].kernel));
    let kernel = pair.hosts[1].kernel.face();
    // All memory of the receiver is taken.
    let face = Rc::clone(&kernel);
    let taken = pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let mut taken = Vec::new();
            for order in (0..=18).rev() {
                while let Ok(pages) = face.alloc_pages(&cpu, order, Policy::Local) {
                    taken.push(pages);
                }
            }
            taken
        })
    });
    assert_eq!(send(&pair, &buffers, 0, 500), []);
    pair.run_for(Duration::from_ms(5));
    let dropped = pair.hosts[1].handle.counter(FunctionIndex(0), counter::RX_NO_BUFFER);
    assert!(pair.counters(1).rx_no_memory.get() > 0 && dropped > 0);
    pair.run(1, 0, move |cpu| {
        Box::pin(async move { taken.into_iter().for_each(|pages| kernel.free_pages(&cpu, pages)) })
    });
    pair.run_for(Duration::from_ms(5));
    let arrived = received(&pair, &listener);
    let lost = pair.hosts[1].handle.counter(FunctionIndex(0), counter::RX_NO_BUFFER);
    let overflowed = pair.hosts[1].handle.counter(FunctionIndex(0), counter::RX_OVERFLOW);
    assert_eq!(arrived.len() as u64 + lost + overflowed, 500);
    assert_eq!(send(&pair, &buffers, 1000, 50), []);
    pair.run_for(Duration::from_ms(2));
    assert_eq!(received(&pair, &listener), numbers(1000, 50));
}
