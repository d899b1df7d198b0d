//! Functions that fail and come back, tables that are full, and devices that cannot be made.

use platform::Error;
use platform::net::{Coalescing, NetFeatures};
use std::rc::Rc;
use units::Duration;

use super::{
    By, CORES, PORT, Stream, came, crossed, forget_the_beginning, left, nothing_crossed, pair, pair_of,
    set_link, steering, stream, team,
};
use crate::common::streams::bytes;
use crate::common::{Buffers, Pair, Setup, TYPE, frame};
use kernel::SteeringParams;

/// More flows than the card has rules for: those without rule arrive all the same, and rules are used again.
#[test]
fn a_full_table_is_no_harm() {
    for by in By::BOTH {
        let steering =
            SteeringParams { idle: Duration::from_us(300), scan: Duration::from_us(200), ..steering() };
        let nic: fn(&mut devices::nic::NicParams) = |nic| (nic.flow_rules, nic.switch_rules) = (2, 2);
        let pair = pair_of(by, Setup { nic, steering, ..Setup::default() });
        let data = bytes(200_000, 7);
        let streams: Vec<Stream> = (0..6)
            .map(|n| stream(&pair, PORT + n, data.clone(), true, CORES[usize::from(n % 2)] + n / 2))
            .collect();
        for stream in &streams {
            assert!(stream.end(&pair) == data);
        }
        // Silent flows are forgotten, and others can have their places.
        pair.run_for(Duration::from_ms(3));
        let again = stream(&pair, PORT + 9, data.clone(), true, CORES[1]);
        again.until(&pair, 100_000);
        let before = came(&pair);
        again.until(&pair, 180_000);
        let after = came(&pair);
        assert!(after[1] > before[1] && after[0] == before[0], "{by:?}: {before:?} {after:?}");
        assert!(again.end(&pair) == data);
    }
}

/// Either function's link goes away, the first one's included: the other has its traffic.
#[test]
fn a_link_that_fails_ends_no_connection() {
    for by in By::BOTH {
        for (port, on) in
            [(0, 0), (1, 1), (0, 1), (1, 0)].map(|(port, core): (u8, usize)| (port, CORES[core]))
        {
            for receives in [true, false] {
                let pair = pair(by);
                let data = bytes(2_000_000, 8);
                let stream = stream(&pair, PORT, data.clone(), receives, on);
                stream.until(&pair, 500_000);
                set_link(&pair, port, false);
                assert!(stream.end(&pair) == data, "{by:?}, port {port}, core {on}, receives: {receives}");
            }
        }
    }
}

/// A function whose link comes back takes part again, with rules of its own: it has what is near it, and all when the other's
/// link goes.
#[test]
fn a_function_that_comes_back_takes_part_again() {
    for by in By::BOTH {
        for port in [0, 1] {
            let (pair, near) = (pair(by), usize::from(port));
            set_link(&pair, port, false);
            pair.run_for(Duration::from_ms(1));
            set_link(&pair, port, true);
            // A slot waits until what is in it has trained and is ready.
            pair.run_for(Duration::from_ms(150));
            let data = bytes(1_000_000, 8);
            let stream = stream(&pair, PORT, data.clone(), true, CORES[near]);
            stream.until(&pair, 300_000);
            let before = came(&pair);
            stream.until(&pair, 500_000);
            let after = came(&pair);
            let others = (before[1 - near], after[1 - near]);
            assert!(after[near] > before[near] && others.0 == others.1, "{by:?}: {before:?} {after:?}");
            set_link(&pair, 1 - port, false);
            assert!(stream.end(&pair) == data, "{by:?}, port {port}");
        }
    }
}

/// A function is reset while its flow comes and goes: the flow goes on, and is local again afterwards.
#[test]
fn a_function_that_is_reset_gets_its_flows_back() {
    for by in By::BOTH {
        for (near, receives) in [(0, true), (0, false), (1, true), (1, false)] {
            let pair = pair(by);
            let data = bytes(6_000_000, 9);
            let stream = stream(&pair, PORT, data.clone(), receives, CORES[near]);
            stream.until(&pair, 500_000);
            pair.hosts[1].handle.spoil_completions(1);
            stream.until(&pair, 3_000_000);
            let resets: u64 = pair.hosts[1].driver.functions().iter().map(|(_, own)| own.resets.get()).sum();
            assert_eq!(resets, 1);
            pair.run_for(Duration::from_us(100));
            forget_the_beginning(&pair);
            let (before, frames) = (crossed(&pair), came(&pair));
            stream.until(&pair, 5_000_000);
            assert_eq!(
                nothing_crossed(&pair, &before),
                Ok(()),
                "{by:?}, function {near}, receives: {receives}"
            );
            assert!(came(&pair)[near] > frames[near]);
            assert!(stream.end(&pair) == data);
        }
    }
}

/// While a function is reset, the driver's device sends and receives through the other one.
#[test]
fn the_other_function_stands_in_during_a_reset() {
    const FRAMES: u32 = 200;
    for near in [0, 1] {
        let pair = pair(By::Driver);
        let arrived = [0, 1].map(|host: usize| pair.device(host).listen(Some(TYPE.0), 1_000));
        let sending = [(0, 0), (1, CORES[near])].map(|(host, core)| {
            let (device, buffers) = (pair.device(host), Buffers::new(&pair.hosts[host].kernel));
            pair.spawn(host, core, move |cpu| {
                Box::pin(async move {
                    for number in 0..FRAMES {
                        let packet = buffers.packet(&cpu, &frame(host as u32 + 1, 300, number), 4096);
                        device.send(&cpu, packet, false).unwrap();
                        cpu.sleep(Duration::from_us(2)).await;
                    }
                })
            })
        });
        pair.run_for(Duration::from_us(100));
        let [sent, received] = [left(&pair), came(&pair)];
        pair.hosts[1].handle.spoil_completions(1);
        for sending in sending {
            pair.simulation.block_on(async move { sending.wait().await }).unwrap();
        }
        pair.run_for(Duration::from_ms(1));
        let counters: Vec<_> = pair.hosts[1].driver.functions().into_iter().map(|(_, own)| own).collect();
        // Frames without a flow come through the first function that runs; its completion is as likely the spoilt one.
        let reset = counters.iter().position(|own| own.resets.get() == 1).expect("one was reset");
        let [sent_after, received_after] = [left(&pair), came(&pair)];
        assert!(near != reset || sent_after[1 - reset] > sent[1 - reset], "{near}: {sent:?} {sent_after:?}");
        assert!(reset == 1 || received_after[1] > received[1], "{near}: {received:?} {received_after:?}");
        // Only what was in the function's rings is lost.
        let lost: u64 = counters.iter().map(|own| own.tx_lost.get()).sum();
        let count = |host: usize| std::iter::from_fn(|| arrived[host].try_take()).count() as u64;
        let (there, here) = (count(0), count(1));
        assert!(there + lost >= u64::from(FRAMES) && lost < 30, "{near}: {there} {lost}");
        assert!(here > u64::from(FRAMES) - 30, "{near}: {here}");
    }
}

fn devices(pair: &Pair) -> Vec<String> {
    pair.hosts[1].kernel.net().devices().iter().map(|device| device.name().to_owned()).collect()
}

/// The driver's network device is the only one, from the first function to the last one. What was set survives the functions.
#[test]
fn one_device_hides_the_functions() {
    let pair = pair(By::Driver);
    assert_eq!(devices(&pair), ["eth0"]);
    let device = pair.device(1);
    let limits = device.limits();
    assert_eq!((limits.tx_queues, limits.rx_queues), (32, 32));
    let nodes = [0, 15, 16, 31].map(|queue| device.driver().unwrap().node_of(queue).map(|node| node.0));
    assert_eq!(nodes, [Some(0), Some(0), Some(1), Some(1)]);
    let slow = Coalescing { time: Duration::from_us(33), packets: 5, adaptive: false };
    let set = Rc::clone(&device);
    pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            set.set_coalescing(&cpu, 17, slow).unwrap();
            set.set_indirection(&cpu, &[1, 2, 18]).unwrap();
            let features = NetFeatures { tso: false, ..set.limits().features };
            assert!(!set.driver().unwrap().set_features(&cpu, &features).tso);
            assert_eq!(set.set_indirection(&cpu, &[32]), Err(Error::Invalid));
        })
    });
    assert_eq!(device.indirection()[..3], [1, 2, 1]);
    for port in [0, 1] {
        set_link(&pair, port, false);
        pair.run_for(Duration::from_ms(2));
        assert_eq!(devices(&pair), ["eth0"]);
        assert!(device.has_carrier());
        if port == 0 {
            assert_eq!(device.indirection()[..3], [18, 18, 18], "the other function's");
        }
        set_link(&pair, port, true);
        pair.run_for(Duration::from_ms(150));
    }
    assert_eq!(device.coalescing(17), Some(slow));
    assert_eq!(device.indirection()[..3], [1, 2, 1]);
    (0..2).for_each(|port| set_link(&pair, port, false));
    pair.run_for(Duration::from_ms(2));
    assert_eq!(devices(&pair), Vec::<String>::new());
    // The second function comes alone: it has the device.
    set_link(&pair, 1, true);
    pair.run_for(Duration::from_ms(150));
    assert_eq!(devices(&pair), ["eth0"]);
    let device = pair.device(1);
    assert!(device.has_carrier());
}

/// Counters are those of all functions.
#[test]
fn counters_are_sums() {
    let pair = pair(By::Driver);
    let data = bytes(200_000, 3);
    let streams = CORES.map(|on| stream(&pair, PORT + on, data.clone(), false, on));
    streams.iter().for_each(|stream| assert!(stream.end(&pair) == data));
    let (device, by_function) = (pair.device(1), left(&pair));
    let sent = pair.run(1, 0, move |cpu| Box::pin(async move { device.statistics(&cpu).await.frames }));
    assert!(by_function.iter().all(|&frames| frames > 0), "{by_function:?}");
    assert_eq!(sent, by_function.iter().sum::<u64>());
}

#[test]
fn impossible_teams_are_refused() {
    let setup = Setup { links: 2, ..Setup::default() };
    let pair = Pair::new(&setup);
    assert_eq!(team(&pair, &["eth0", "eth7"]).err(), Some(Error::NoDevice));
    assert_eq!(team(&pair, &[]).err(), Some(Error::Invalid));
    let kept = team(&pair, &["eth0", "eth1"]).unwrap();
    assert_eq!(team(&pair, &["eth1"]).err(), Some(Error::Busy));
    drop(kept);
}
