//! Functions that fail and come back, tables that are full, and devices that cannot be made.

use platform::Error;
use platform::cpu::CpuId;
use platform::net::{Coalescing, NetFeatures, PacketDevice, Rings};
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
        let refused = pair.hosts[1].kernel.face().network().counters().steer_failed;
        assert!(refused > 0, "{by:?}: six flows, and room for two at each function");
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
            assert_eq!(resets(&pair), 1);
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

/// The network device that is made of the second host's functions.
fn device(pair: &Pair, by: By) -> Rc<dyn PacketDevice> {
    pair.hosts[1].kernel.face().packet_device(by.device()).unwrap()
}

/// Whether one of the second host's functions takes part.
fn is_usable(pair: &Pair, by: By, function: usize) -> bool {
    // Each has 16 queues.
    device(pair, by).driver().unwrap().node_of(function as u16 * 16).is_some()
}

/// How often the second host's functions were reset.
fn resets(pair: &Pair) -> u64 {
    pair.hosts[1].driver.functions().iter().map(|(_, own)| own.resets.get()).sum()
}

/// Runs until something is so.
fn run_until(pair: &Pair, is_so: impl Fn() -> bool) {
    // A stream that has lost much may wait for its timer.
    for _ in 0..1_000_000 {
        if is_so() {
            return;
        }
        pair.run_for(Duration::from_us(1));
    }
    panic!("it never is");
}

/// Resets one of the second host's functions, which all have traffic. Returns in the midst of it.
fn reset(pair: &Pair, by: By, function: usize) {
    let is_usable = |function| is_usable(pair, by, function);
    for _ in 0..100 {
        // The next completion is any function's.
        pair.hosts[1].handle.spoil_completions(1);
        run_until(pair, || !is_usable(0) || !is_usable(1));
        if !is_usable(function) {
            return;
        }
        run_until(pair, || is_usable(1 - function));
        pair.run_for(Duration::from_us(37));
    }
    panic!("only the other function is reset");
}

/// A program moves to a function while that is reset: its flow is there when the function is back.
#[test]
fn a_flow_that_moves_during_a_reset_is_local_after_it() {
    for (by, to) in By::BOTH.into_iter().flat_map(|by| [(by, 0), (by, 1)]) {
        for receives in [true, false] {
            let pair = pair(by);
            let data = bytes(12_000_000, 10);
            let moves = stream(&pair, PORT, data.clone(), receives, CORES[1 - to]);
            let stays = stream(&pair, PORT + 1, data.clone(), receives, CORES[to]);
            [&moves, &stays].into_iter().for_each(|stream| stream.until(&pair, 300_000));
            reset(&pair, by, to);
            pair.hosts[1].kernel.face().set_affinity(moves.task, &[CpuId(CORES[to] + 1)]).unwrap();
            run_until(&pair, || is_usable(&pair, by, to));
            assert!(*moves.so_far.borrow() < 11_000_000, "it moved in the midst of its stream");
            // What waited at the other function is sent before the flow leaves it.
            pair.run_for(Duration::from_us(1000));
            forget_the_beginning(&pair);
            let (before, frames) = (crossed(&pair), [came(&pair), left(&pair)]);
            let so_far = *moves.so_far.borrow();
            moves.until(&pair, so_far + 500_000);
            let after = [came(&pair), left(&pair)];
            let case = format!("{by:?}, function {to}, receives: {receives}");
            assert_eq!(nothing_crossed(&pair, &before), Ok(()), "{case}");
            for (before, after) in frames.iter().zip(&after) {
                assert_eq!(after[1 - to], before[1 - to], "{case}");
            }
            let data_frames = usize::from(!receives);
            assert!(after[data_frames][to] > frames[data_frames][to] + 20, "{case}: {frames:?} {after:?}");
            for stream in [moves, stays] {
                assert!(stream.end(&pair) == data, "{case}");
            }
        }
    }
}

/// While a function is reset, the device sends and receives through the other one.
#[test]
fn the_other_function_stands_in_during_a_reset() {
    const FRAMES: u32 = 200;
    for (by, near) in By::BOTH.into_iter().flat_map(|by| [(by, 0), (by, 1)]) {
        let pair = pair(by);
        let devices = [pair.device(0), device(&pair, by)];
        let arrived = devices.each_ref().map(|device| device.listen(Some(TYPE.0), 1_000));
        let sending = [(0, 0), (1, CORES[near])].map(|(host, core)| {
            let (device, buffers) = (Rc::clone(&devices[host]), Buffers::new(&pair.hosts[host].kernel));
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
        // Frames without a flow come through the function that has been running longest; its completion is as likely the spoilt one.
        let reset = counters.iter().position(|own| own.resets.get() == 1).expect("one was reset");
        let [sent_after, received_after] = [left(&pair), came(&pair)];
        assert!(
            near != reset || sent_after[1 - reset] > sent[1 - reset],
            "{by:?}, {near}: {sent:?} {sent_after:?}"
        );
        assert!(
            reset == 1 || received_after[1] > received[1],
            "{by:?}, {near}: {received:?} {received_after:?}"
        );
        // Only what was in the function's rings is lost.
        let lost: u64 = counters.iter().map(|own| own.tx_lost.get()).sum();
        let count = |host: usize| std::iter::from_fn(|| arrived[host].try_take()).count() as u64;
        let (there, here) = (count(0), count(1));
        assert!(there + lost >= u64::from(FRAMES) && lost < 30, "{by:?}, {near}: {there} {lost}");
        assert!(here > u64::from(FRAMES) - 30, "{by:?}, {near}: {here}");
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
        if port == 0 {
            assert_eq!(device.indirection()[..3], [18, 18, 18], "flows without a rule stay there");
        }
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

/// What is set while a function is away holds for it when it is back.
#[test]
fn a_setting_reaches_a_function_that_was_away() {
    let pair = pair(By::Driver);
    set_link(&pair, 0, false);
    pair.run_for(Duration::from_ms(2));
    let slow = Coalescing { time: Duration::from_us(77), packets: 0, adaptive: false };
    let rings = Rings { tx: 64, rx: 128 };
    let set = pair.device(1);
    pair.run(1, 0, move |cpu| {
        Box::pin(async move {
            for queue in 0..32 {
                assert!(set.coalescing(queue).is_some(), "queue {queue}");
                set.set_coalescing(&cpu, queue, slow).unwrap();
            }
            assert_eq!(set.set_coalescing(&cpu, 32, slow), Err(Error::Invalid));
            set.driver().unwrap().set_rings(&cpu, rings).await.unwrap();
        })
    });
    set_link(&pair, 0, true);
    pair.run_for(Duration::from_ms(150));
    let device = pair.device(1);
    (0..32).for_each(|queue| assert_eq!(device.coalescing(queue), Some(slow), "queue {queue}"));
    let entries = pair.hosts[1].handle.rings(pair.simulation.now());
    let first: Vec<u32> =
        entries.iter().filter(|ring| ring.function.0 == 0).map(|ring| ring.entries).collect();
    assert!(first.iter().all(|entries| [64, 128].contains(entries)), "{first:?}");
}

/// Each packet given to the device is counted, also those that were in a function that went.
#[test]
fn counters_keep_what_functions_that_went_have_sent() {
    const FRAMES: u32 = 300;
    for by in By::BOTH {
        let pair = pair(by);
        let (device, buffers) = (device(&pair, by), Buffers::new(&pair.hosts[1].kernel));
        let statistics = |pair: &Pair| {
            let device = Rc::clone(&device);
            pair.run(1, 0, move |cpu| Box::pin(async move { device.statistics(&cpu).await }))
        };
        let sending = [0, 1].map(|near| {
            let (device, buffers) = (Rc::clone(&device), Rc::clone(&buffers));
            pair.spawn(1, CORES[near], move |cpu| {
                Box::pin(async move {
                    for number in 0..FRAMES {
                        let packet = buffers.packet(&cpu, &frame(near as u32 + 1, 300, number), 4096);
                        device.send(&cpu, packet, false).unwrap();
                        cpu.sleep(Duration::from_us(2)).await;
                    }
                })
            })
        });
        let mut last = statistics(&pair);
        let mut went = |pair: &Pair| {
            let now = statistics(pair);
            assert!(now.frames >= last.frames && now.lost >= last.lost, "{by:?}: {last:?} {now:?}");
            last = now;
        };
        for up in [false, true] {
            pair.run_for(Duration::from_us(200));
            went(&pair);
            set_link(&pair, 0, up);
            pair.run_for(Duration::from_us(50));
            went(&pair);
        }
        for sending in sending {
            pair.simulation.block_on(async move { sending.wait().await }).unwrap();
        }
        pair.run_for(Duration::from_ms(150));
        let end = statistics(&pair);
        assert!(end.frames > 500 && end.lost < 40, "{by:?}: {end:?}");
        // A packet that the device has counted is lost as well if the driver did not see its completion.
        let (given, told) = (u64::from(2 * FRAMES), end.frames + end.failed + end.lost);
        assert!((given..=given + end.lost).contains(&told), "{by:?}: {end:?}");
    }
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
    assert_eq!(team(&pair, &["eth7"]).err(), Some(Error::NoDevice));
    assert_eq!(team(&pair, &[]).err(), Some(Error::NoDevice));
    let kept = team(&pair, &["eth0", "eth1"]).unwrap();
    assert_eq!(team(&pair, &["eth1"]).err(), Some(Error::Busy));
    drop(kept);
}
