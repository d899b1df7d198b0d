//! What is lost is found out soon, and what is only late is not taken for lost.

use inet::tcp::TcpParams;
use inet::tcp::congestion::Algorithm;
use units::{Duration, Time};

use crate::network::{Faults, Network, params, stream};

/// Sends a stream of which the network loses the packets with these numbers, counted among those with data to the server
/// as they are sent. How long it took, and the client's counters.
fn lose(params: TcpParams, length: usize, lost: &[u64]) -> (Duration, inet::tcp::Counters) {
    let (took, net) = disturb(params, length, lost, None);
    (took, net.end(0).tcp.counters())
}

/// Like [`lose`], or these packets are so much later than others.
fn disturb(params: TcpParams, length: usize, which: &[u64], late: Option<Duration>) -> (Duration, Network) {
    let mut net = Network::new(params, Faults::default(), 1, stream(length, 2), Vec::new());
    let start = net.now;
    let mut end = Time::ZERO;
    let (mut seen, mut known) = (0, 0);
    net.serve(0);
    loop {
        let new = net.wire.iter().filter(|((_, n), (to, bytes))| *n > known && *to == 1 && bytes.len() > 60);
        let doomed: Vec<_> = new
            .filter_map(|(&key, _)| {
                seen += 1;
                which.contains(&(seen - 1)).then_some(key)
            })
            .collect();
        known = net.count;
        for (at, number) in doomed {
            let packet = net.wire.remove(&(at, number));
            if let (Some(packet), Some(late)) = (packet, late) {
                net.wire.insert((at + late, number), packet);
            }
        }
        if !net.step() {
            break;
        }
        if net.ends[1].as_ref().is_some_and(|end| end.received.len() == length) && end == Time::ZERO {
            end = net.now;
        }
    }
    net.assert_identical();
    (end.since(start), net)
}

/// The last segments of a burst are lost: nothing behind them can tell of it. A probe does, long before the timer.
#[test]
fn a_lost_tail_is_probed_and_mended_without_a_timeout() {
    let length = 10 * 1448;
    for tail in 1..=4 {
        let lost: Vec<u64> = (10 - tail..10).collect();
        let (took, counters) = lose(params(), length, &lost);
        assert_eq!((counters.timeouts, counters.tail_probes), (0, 1), "{tail} lost: {counters:?}");
        // Two round trips and the slack until the probe, one for the probe, one for what it found out.
        assert!(took < Duration::from_ms(3), "{tail} lost: {took}");
        assert_eq!(counters.retransmissions, tail, "{counters:?}");
    }
    let without = TcpParams { tail_probes: false, ..params() };
    let (took, counters) = lose(without, length, &[8, 9]);
    assert!(took > Duration::from_ms(200) && counters.timeouts == 1, "{took}, {counters:?}");
}

/// The probe is lost too: the timer is what is left.
#[test]
fn a_lost_probe_leaves_it_to_the_timer() {
    let (took, counters) = lose(params(), 10 * 1448, &[8, 9, 10]);
    assert_eq!((counters.timeouts, counters.tail_probes), (1, 1), "{counters:?}");
    assert!(took > Duration::from_ms(200) && took < Duration::from_ms(210), "{took}");
}

/// What was sent again is lost again: what was sent after it tells of it (RFC 8985), and no timer need go off.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    let (_, counters) = lose(params(), 200 * 1448, &[50]);
    assert_eq!((counters.retransmissions, counters.timeouts), (1, 0), "{counters:?}");
    for again in 52..60 {
        let (took, counters) = lose(params(), 200 * 1448, &[50, again]);
        assert_eq!((counters.retransmissions, counters.timeouts), (2, 0), "{again}: {counters:?}");
        assert!(took < Duration::from_ms(10), "{took}");
    }
}

/// What a device will cut is one call, and as many segments as it becomes.
#[test]
fn segments_sent_again_are_counted_by_what_goes_over_the_wire() {
    for segments in [1, 16] {
        let mut net = Network::new(params(), Faults::default(), 1, stream(200 * 1448, 2), Vec::new());
        net.serve(0);
        net.ends[0].as_mut().expect("the client is there").limit = segments * 1448;
        let (mut sent, mut known) = (0, 0);
        loop {
            let is_data =
                |key: &(Time, u64), to: usize, bytes: &[u8]| key.1 > known && to == 1 && bytes.len() > 60;
            let new: Vec<_> = net
                .wire
                .iter()
                .filter(|(key, (to, bytes))| is_data(key, *to, bytes))
                .map(|(key, _)| *key)
                .collect();
            for key in &new {
                if (60..70).contains(&sent) {
                    net.wire.remove(key);
                }
                sent += 1;
            }
            known = net.count;
            if !net.step() {
                break;
            }
        }
        net.assert_identical();
        let counters = net.end(0).tcp.counters();
        assert_eq!((counters.retransmissions, sent), (10, 210), "{segments} at once: {counters:?}");
    }
}

/// A network that reorders and loses nothing: once that was seen, what is late by less than a quarter of a round trip is
/// waited for.
#[test]
fn what_is_only_late_is_not_sent_again() {
    let mut again = 0;
    for seed in 0..10 {
        let faults = Faults { reorder: 100, ..Faults::default() };
        let mut net = Network::new(params(), faults, seed, stream(400_000, 2), Vec::new());
        net.latest = 20;
        net.run();
        net.assert_identical();
        let counters = net.end(0).tcp.counters();
        assert_eq!(counters.timeouts, 0, "{counters:?}");
        again += counters.retransmissions;
    }
    assert!(again <= 20, "{again} segments of 2800 were sent again, about one a connection");
}

/// What was late by more than a round trip was taken for lost: once the peer says that all that was sent again had come
/// before, the window is as large as if nothing had happened. What was lost stays so.
#[test]
fn a_needless_reduction_is_undone() {
    for congestion in [Algorithm::Reno, Algorithm::Cubic] {
        let params = TcpParams { congestion, ..params() };
        let run = |which: &[u64], late| {
            let (_, net) = disturb(params, 300 * 1448, which, late);
            let tcp = &net.end(0).tcp;
            (tcp.congestion_window(), tcp.counters())
        };
        let (calm, _) = run(&[], None);
        let (lost, counters) = run(&[50], None);
        assert_eq!((counters.recoveries, counters.undone), (1, 0), "{counters:?}");
        let (late, counters) = run(&[50], Some(Duration::from_us(150)));
        assert_eq!((counters.recoveries, counters.repetitions, counters.undone), (1, 1, 1), "{counters:?}");
        assert!(lost < late && late <= calm, "{congestion:?}: lost {lost}, late {late}, calm {calm}");
        // One of two was lost indeed.
        let (_, counters) = run(&[50, 51], None);
        assert_eq!(counters.undone, 0, "{counters:?}");
    }
}

/// A network that repeats packets reports what was never sent again: no reduction is undone for that.
#[test]
fn duplicates_of_the_network_undo_nothing() {
    let mut recoveries = 0;
    for seed in 0..5 {
        let faults = Faults { repeat: 300, loss: 10, ..Faults::default() };
        let mut net = Network::new(params(), faults, seed, stream(300_000, 2), Vec::new());
        net.run();
        net.assert_identical();
        let counters = net.end(0).tcp.counters();
        assert!(counters.repetitions > 20 && counters.undone == 0, "{counters:?}");
        recoveries += counters.recoveries;
    }
    assert!(recoveries > 4, "{recoveries}");
}
