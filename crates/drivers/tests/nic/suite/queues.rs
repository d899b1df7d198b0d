//! Which queue a core sends by, which channel and core a flow comes to, and how long interrupts wait; before and after a reset.

use std::net::Ipv4Addr;
use std::rc::Rc;

use crate::common::{Buffers, Pair, Setup};
use platform::Error;
use platform::cpu::CpuId;
use platform::net::{Coalescing, Rings};
use units::Duration;
use wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN, MacAddr};
use wire::ip::{Ipv4Header, UdpHeader, protocol};

const CHANNELS: u16 = 4;

fn pair() -> Pair {
    let mut setup = Setup::default();
    setup.driver.channels = Some(CHANNELS);
    Pair::up(&setup)
}

/// Core and count of the interrupt of each channel.
fn interrupts(pair: &Pair, host: usize) -> Vec<(CpuId, u64)> {
    let all = pair.hosts[host].kernel.interrupts();
    let of = |n: u16| {
        let line = all.iter().find(|line| line.1.starts_with("nic-") && line.1.ends_with(&format!("-{n}")));
        line.map(|line| (line.2, line.3)).expect("each channel has an interrupt")
    };
    (0..CHANNELS).map(of).collect()
}

/// Channels of a host that interrupt while `act` goes on.
fn woken(pair: &Pair, host: usize, act: impl FnOnce()) -> Vec<u16> {
    pair.run_for(Duration::from_ms(1));
    let before = interrupts(pair, host);
    act();
    pair.run_for(Duration::from_ms(1));
    let after = interrupts(pair, host);
    (0..CHANNELS).filter(|&n| after[usize::from(n)].1 > before[usize::from(n)].1).collect()
}

/// Sends a datagram of each of these flows from a core of host 0.
fn send(pair: &Pair, core: u16, flows: std::ops::Range<u16>) {
    let device = pair.device(0);
    let buffers = Buffers::new(&pair.hosts[0].kernel);
    pair.run(0, core, move |cpu| {
        Box::pin(async move {
            for port in flows {
                let mut frame = vec![0; 100];
                EthernetHeader::new(MacAddr::local(1), MacAddr::local(2), EtherType::IPV4).emit(&mut frame);
                let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
                Ipv4Header::new(from, to, protocol::UDP, 66).emit(&mut frame[HEADER_LEN..]);
                UdpHeader { source: 1000 + port, destination: 9, len: 66, checksum: 0 }
                    .emit(&mut frame[HEADER_LEN + 20..]);
                device.send(&cpu, buffers.packet(&cpu, &frame, 4096), false).unwrap();
                cpu.sync().await;
            }
        })
    });
}

/// Spoils what the NIC of a host writes, so that its driver resets it.
fn reset(pair: &Pair, host: usize) {
    let before = pair.counters(host).resets.get();
    pair.hosts[host].handle.spoil_completions(1);
    send(pair, 0, 0..1);
    pair.run_for(Duration::from_ms(5));
    assert_eq!(pair.counters(host).resets.get(), before + 1);
}

#[test]
fn a_core_sends_by_its_own_queue() {
    let pair = pair();
    let cores: Vec<CpuId> = interrupts(&pair, 0).iter().map(|line| line.0).collect();
    for (n, &core) in (0..).zip(&cores) {
        assert_eq!(woken(&pair, 0, || send(&pair, core.0, 0..1)), [n], "{core:?} of {cores:?}");
    }
    // One without a queue of its own takes one of its node's.
    let other = (0..16).find(|&core| !cores.contains(&CpuId(core))).unwrap();
    assert_eq!(woken(&pair, 0, || send(&pair, other, 0..1)).len(), 1);
}

#[test]
fn flows_are_spread_over_channels_and_cores_as_the_table_says() {
    let pair = pair();
    let mut cores: Vec<CpuId> = interrupts(&pair, 1).iter().map(|line| line.0).collect();
    cores.dedup();
    assert_eq!(cores.len(), usize::from(CHANNELS), "each on a core of its own");
    assert_eq!(woken(&pair, 1, || send(&pair, 0, 0..64)), [0, 1, 2, 3]);
    // A flow stays where it is.
    assert_eq!(woken(&pair, 1, || (0..5).for_each(|_| send(&pair, 0, 7..8))).len(), 1);
    for table in [vec![2], vec![1, 3], vec![0, 0, 3]] {
        let device = pair.device(1);
        let wanted = table.clone();
        let set = pair.run(1, 0, move |cpu| {
            Box::pin(
                async move { (device.set_indirection(&cpu, &wanted), device.set_indirection(&cpu, &[9])) },
            )
        });
        assert_eq!(set, (Ok(()), Err(Error::Invalid)));
        let mut expected = table;
        expected.dedup();
        assert_eq!(woken(&pair, 1, || send(&pair, 0, 0..64)), expected);
        reset(&pair, 1);
        assert_eq!(woken(&pair, 1, || send(&pair, 0, 0..64)), expected, "after a reset");
    }
}

#[test]
fn a_driver_begins_with_the_table_it_is_told() {
    let mut setup = Setup::default();
    setup.driver.channels = Some(CHANNELS);
    setup.driver.rss = vec![3, 1];
    let pair = Pair::up(&setup);
    assert_eq!(woken(&pair, 1, || send(&pair, 0, 0..64)), [1, 3]);
}

#[test]
fn rings_have_the_size_that_was_set_and_after_a_reset() {
    let pair = pair();
    let driver = pair.device(1).driver().unwrap();
    assert!(driver.rx_outstanding(0) > Some(400), "{:?}", driver.rx_outstanding(0));
    let (own, small) = (Rc::clone(&driver), Rings { tx: 64, rx: 128 });
    let set = pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            let none = own.set_rings(&cpu, Rings { tx: 48, ..small }).await;
            let too_large = own.set_rings(&cpu, Rings { rx: 1 << 16, ..small }).await;
            (none, too_large, own.set_rings(&cpu, small).await)
        })
    });
    assert_eq!(set, (Err(Error::Invalid), Err(Error::Invalid), Ok(())));
    assert_eq!((driver.rings(), pair.counters(1).resets.get()), (Some(small), 0));
    for round in 0..2 {
        let held = driver.rx_outstanding(0);
        assert!((Some(100)..=Some(128)).contains(&held), "{held:?} in round {round}");
        assert_eq!(woken(&pair, 1, || send(&pair, 0, 0..64)), [0, 1, 2, 3], "round {round}");
        reset(&pair, 1);
    }
}

#[test]
fn interrupts_wait_as_long_as_was_set_and_after_a_reset() {
    let pair = pair();
    let device = pair.device(1);
    let wanted = Coalescing { time: Duration::from_us(300), packets: 0, adaptive: false };
    let set = pair.run(1, 0, {
        let device = Rc::clone(&device);
        move |cpu| {
            Box::pin(async move {
                let none = device.set_coalescing(&cpu, CHANNELS, wanted);
                ((0..CHANNELS).try_for_each(|n| device.set_coalescing(&cpu, n, wanted)), none)
            })
        }
    });
    assert_eq!(set, (Ok(()), Err(Error::Invalid)));
    for round in 0..2 {
        pair.run_for(Duration::from_ms(1));
        let before = device.counters().rx_packets;
        send(&pair, 0, 0..1);
        pair.run_for(Duration::from_us(250));
        assert_eq!(device.counters().rx_packets, before, "round {round}");
        pair.run_for(Duration::from_us(100));
        assert_eq!(device.counters().rx_packets, before + 1, "round {round}");
        reset(&pair, 1);
        assert_eq!(device.coalescing(2), Some(wanted));
    }
}
