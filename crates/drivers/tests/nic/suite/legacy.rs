//! A NIC without interrupt messages, or one whose driver is not to use them: its legacy interrupt tells of packets and of the link.

use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup, TYPE, bytes_of, check, frame};
use crate::ground::Computer;
use kernel::DmaMode;
use platform::cpu::Cpu;
use units::Duration;

fn setups() -> impl Iterator<Item = Setup> {
    let (mut without, mut unused) = (Setup::default(), Setup::default());
    without.nic = |nic| nic.messages = false;
    unused.driver.legacy_interrupt = true;
    // A translating IOMMU remaps the line's messages, too.
    [without, unused].into_iter().flat_map(|setup| {
        [DmaMode::Off, DmaMode::Strict].map(|mode| Setup {
            mode,
            driver: setup.driver.clone(),
            nic: setup.nic,
            ..Setup::default()
        })
    })
}

/// Sends so many frames, numbered from `first`, some at once; gives the numbers of those that have come.
fn exchange(pair: &Pair, first: u32, count: u32) -> Vec<u32> {
    let (device, listener) = (pair.device(0), pair.device(1).listen(Some(TYPE.0), 1 << 16));
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    let own = Rc::clone(&buffers);
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            for n in first..first + count {
                let packet = own.packet(&cpu, &frame(1, 60 + n as usize % 1000, n), 4096);
                assert_eq!(device.send(&cpu, packet, false), Ok(()));
                // One after the other, then several before the next interrupt.
                if n % 7 < 3 {
                    cpu.sleep(Duration::from_us(100)).await;
                }
            }
        })
    });
    pair.run_for(Duration::from_ms(1));
    assert_eq!(buffers.out.get(), 0, "the sender has been told of all");
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

#[test]
fn no_frame_waits_with_one_legacy_interrupt_for_everything() {
    for (n, setup) in setups().enumerate() {
        if !Computer::HAS_LINES {
            // Windows pass writes, and a line is none.
            let pair = Pair::new(&setup);
            assert!(pair.hosts[0].driver.functions().is_empty(), "{n}");
            continue;
        }
        let pair = Pair::up(&setup);
        for host in &pair.hosts {
            let all = host.kernel.pci();
            let irqs = all.iter().find(|function| function.driver == Some("nic")).map(|f| f.irqs.len());
            assert_eq!(irqs, Some(1), "{n}");
        }
        assert_eq!(exchange(&pair, 0, 200), (0..200).collect::<Vec<_>>(), "{n}");
        let kept = pair.hosts.each_ref().map(|host| host.kernel.irq_counters().unhandled);
        assert_eq!(kept, [0, 0], "{n}");
        pair.settle();
    }
}

#[test]
fn the_line_tells_of_the_link_and_works_after_a_reset_and_a_new_start() {
    if !Computer::HAS_LINES {
        return;
    }
    let pair = Pair::up(&setups().next().expect("there are some"));
    let set_link = |up: bool| {
        pair.simulation.with(|fabric, scheduler| fabric.running(scheduler).set_ethernet_up(pair.cable, up));
        pair.run_for(Duration::from_ms(1));
    };
    for up in [false, true] {
        set_link(up);
        assert_eq!(pair.device(0).has_carrier(), up);
    }
    assert_eq!(exchange(&pair, 0, 50), (0..50).collect::<Vec<_>>());
    // Nonsense in a completion makes the driver reset the device, which then has no cause any more.
    pair.hosts[0].handle.spoil_completions(1);
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.run(0, 0, move |cpu| {
        Box::pin(async move {
            let packet = buffers.packet(&cpu, &frame(1, 60, 0), 4096);
            assert_eq!(device.send(&cpu, packet, false), Ok(()));
        })
    });
    pair.run_for(Duration::from_ms(20));
    assert_eq!(pair.counters(0).resets.get(), 1);
    assert_eq!(exchange(&pair, 50, 50), (50..100).collect::<Vec<_>>());
    pair.settle();
}
