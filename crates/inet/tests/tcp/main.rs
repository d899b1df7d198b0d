//! Two TCP machines over a network that loses, damages, repeats and reorders.

mod ecn;
mod life;
mod loss;
mod network;
mod scripts;

use inet::tcp::congestion::Algorithm;
use inet::tcp::{Connection, Failure, State, TcpParams};
use network::{Faults, Network, Random, params, stream};
use proptest::prelude::*;
use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

#[test]
fn a_stream_each_way_without_faults_sends_nothing_twice() {
    let mut net = Network::new(params(), Faults::default(), 1, stream(500_000, 2), stream(300_000, 3));
    net.run();
    net.assert_identical();
    for who in 0..2 {
        let counters = net.end(who).tcp.counters();
        assert_eq!(counters.retransmissions, 0, "{counters:?}");
        assert_eq!(counters.refused, 0, "{counters:?}");
        assert_eq!(counters.timeouts, 0, "{counters:?}");
    }
    assert_eq!(net.end(0).tcp.round_trip().map(|t| t.as_ps() / 1_000_000), Some(100));
}

#[test]
fn one_lost_segment_is_sent_again_without_a_timeout() {
    for sack in [true, false] {
        let params = TcpParams { sack, ..params() };
        let mut net = Network::new(params, Faults::default(), 1, stream(400_000, 2), Vec::new());
        net.serve(0);
        let mut lost = false;
        while net.step() {
            let full = net.wire.iter().filter(|(_, (who, bytes))| *who == 1 && bytes.len() > 1400).nth(5);
            if let Some((&key, _)) = full.filter(|_| !lost && net.segments > 40) {
                net.wire.remove(&key);
                lost = true;
            }
        }
        assert!(lost);
        net.assert_identical();
        let counters = net.end(0).tcp.counters();
        assert_eq!(
            (counters.retransmissions, counters.timeouts, counters.recoveries),
            (1, 0, 1),
            "sack {sack}: {counters:?}"
        );
    }
}

#[test]
fn a_reader_that_stops_closes_the_window_and_is_probed() {
    let mut net = Network::new(params(), Faults::default(), 9, stream(400_000, 2), Vec::new());
    net.serve(0);
    for _ in 0..5 {
        net.step();
    }
    net.ends[1].as_mut().unwrap().reads = 0;
    let start = net.now;
    while net.step() && net.now.since(start) < Duration::from_ms(60_000) {}
    assert!(net.end(0).tcp.counters().probes > 3);
    // Its own end waits for room; the other's has come.
    assert_eq!(net.end(0).tcp.state(), State::Closing);
    assert!(net.end(1).tcp.readable() <= 65_536);
    net.ends[1].as_mut().unwrap().reads = 3000;
    net.serve(1);
    for _ in 0..10_000 {
        net.serve(1);
        if !net.step() {
            break;
        }
    }
    net.assert_identical();
}

/// The window that a reader opens may overtake the acknowledgement before it, which must not close it again.
#[test]
fn a_window_is_not_closed_by_an_older_acknowledgement() {
    let params = TcpParams { mss: 61_440, ..params() };
    let mut net = Network::new(params, Faults::default(), 1, stream(200_000, 2), Vec::new());
    net.keep_open = true;
    net.ends[0].as_mut().unwrap().send_buffer = 32_768;
    net.serve(0);
    while net.ends[1].as_ref().is_none_or(|end| end.tcp.readable() == 0) {
        assert!(net.step());
        net.ends[1].iter_mut().for_each(|end| end.reads = 0);
    }
    net.ends[1].as_mut().unwrap().reads = usize::MAX;
    net.serve(1);
    let to_sender = |net: &Network| -> Vec<_> {
        net.wire.iter().filter(|(_, (who, _))| *who == 0).map(|(&key, _)| key).collect()
    };
    let under_way = to_sender(&net);
    let [first, second] = *under_way else { panic!("an acknowledgement and a window: {under_way:?}") };
    let (older, newer) = (net.wire.remove(&first).unwrap(), net.wire.remove(&second).unwrap());
    net.wire.insert(first, newer);
    net.wire.insert(second, older);
    net.ends[0].as_mut().unwrap().send_buffer = 0;
    (0..2).for_each(|_| assert!(net.step()));
    net.ends[0].as_mut().unwrap().send_buffer = 32_768;
    net.run();
    assert_eq!(net.end(1).received, stream(200_000, 2));
    assert_eq!(net.end(0).tcp.counters().probes, 0);
}

#[test]
fn nobody_listens() {
    let mut net = Network::new(params(), Faults::default(), 1, stream(100, 2), Vec::new());
    net.listening = false;
    net.run();
    assert_eq!(net.end(0).tcp.failure(), Some(Failure::Refused));
}

#[test]
fn nobody_answers() {
    let params = TcpParams::linux(1500);
    let faults = Faults { loss: 1000, ..Faults::default() };
    let mut net = Network::new(params, faults, 1, stream(100, 2), Vec::new());
    let start = net.now;
    net.run();
    assert_eq!(net.end(0).tcp.failure(), Some(Failure::TimedOut));
    assert_eq!(net.segments, 7, "a SYN and six more");
    assert_eq!(net.now.since(start), Duration::from_ms(127_000), "1 + 2 + 4 + … + 64 s");
}

#[test]
fn an_abort_reaches_the_peer() {
    let mut net = Network::new(params(), Faults::default(), 1, stream(3_000_000, 2), Vec::new());
    net.serve(0);
    (0..50).for_each(|_| assert!(net.step()));
    net.ends[0].as_mut().unwrap().tcp.abort();
    net.run();
    assert_eq!(net.end(0).tcp.failure(), Some(Failure::Aborted));
    assert_eq!(net.end(1).tcp.failure(), Some(Failure::Reset));
}

#[test]
fn small_writes_wait_for_an_acknowledgement_unless_told_not_to() {
    let count = |no_delay: bool| {
        let params = TcpParams { no_delay, ..params() };
        let mut net = Network::new(params, Faults::default(), 1, Vec::new(), Vec::new());
        net.ends[0].as_mut().unwrap().to_send = vec![1; 10];
        net.ends[0].as_mut().unwrap().send_buffer = 0;
        net.serve(0);
        (0..2).for_each(|_| assert!(net.step()));
        let (now, before) = (net.now, net.segments);
        let tcp = &mut net.ends[0].as_mut().unwrap().tcp;
        let mut sent = 0;
        for _ in 0..10 {
            tcp.write(1);
            sent += u32::from(tcp.transmit_one(now).is_some_and(|s| !s.data.is_empty()));
        }
        assert_eq!(before, 3, "SYN, SYN-ACK, ACK");
        sent
    };
    assert_eq!(count(false), 1);
    assert_eq!(count(true), 10);
}

/// Both ends have filled each other's window and lost something: their acknowledgements stand at the window's edge, and
/// must not be answered by acknowledgements for ever.
#[test]
fn full_windows_both_ways_do_not_make_a_storm() {
    let params = TcpParams { timestamps: false, window_scaling: false, receive_buffer: 3000, ..params() };
    let faults = Faults { loss: 0, damage: 29, repeat: 71, reorder: 102 };
    for seed in (0..40).chain([2_781_895_059_891_774_822]) {
        let mut net = Network::new(params, faults, seed, stream(30_599, seed ^ 1), stream(17_519, seed ^ 2));
        let client = net.ends[0].as_mut().unwrap();
        (client.limit, client.reads) = (0, 10_000);
        net.run();
        net.assert_identical();
    }
}

#[test]
fn both_open_at_once() {
    let params = params();
    let mut a = Connection::<Vec<u8>>::connect(params, (1, 2), 100);
    let mut b = Connection::<Vec<u8>>::connect(params, (2, 1), 7000);
    let mut now = Time::from_ps(1_000_000_000);
    for _ in 0..20 {
        now += Duration::from_us(10);
        let (from_a, from_b) = (a.transmit_one(now), b.transmit_one(now));
        if let Some(segment) = from_a {
            b.receive(now, &segment.header, Vec::new(), 1);
        }
        if let Some(segment) = from_b {
            a.receive(now, &segment.header, Vec::new(), 1);
        }
    }
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// What is written arrives, whatever the network does, and both ends close.
    #[test]
    fn streams_arrive_identical(
        seed in any::<u64>(), question in 0usize..120_000, answer in 0usize..60_000,
        loss in 0u16..200, damage in 0u16..60, repeat in 0u16..100, reorder in 0u16..300,
        sack in any::<bool>(), stamps in any::<bool>(), scaling in any::<bool>(), reno in any::<bool>(),
        limit in prop::sample::select(vec![0u32, 4000, 65_000]), buffer in prop::sample::select(vec![3000u32, 20_000, 65_536]),
        reads in prop::sample::select(vec![700usize, 10_000, usize::MAX]), no_delay in any::<bool>(),
    ) {
        let params = TcpParams {
            sack, no_delay, timestamps: stamps, window_scaling: scaling, receive_buffer: buffer,
            congestion: if reno { Algorithm::Reno } else { Algorithm::Cubic },
            ..params()
        };
        let faults = Faults { loss, damage, repeat, reorder };
        let mut net = Network::new(params, faults, seed, stream(question, seed ^ 1), stream(answer, seed ^ 2));
        let client = net.ends[0].as_mut().unwrap();
        (client.limit, client.reads) = (limit, reads);
        net.run();
        // The last acknowledgement may be lost for good: the end that waits for it then gives up or is reset, with all
        // data delivered.
        prop_assert!(net.end(1).received == net.end(0).to_send, "{:?}", net.states());
        prop_assert!(net.end(0).received == net.end(1).to_send, "{:?}", net.states());
    }

    /// Any segments at all, in any state: nothing panics, and what is asked for stays within what was written.
    #[test]
    fn any_segments(
        seed in any::<u64>(), steps in prop::collection::vec((0u8..8, any::<u8>(), 0u32..5000, 0u32..3000, any::<u16>(), 0usize..2000), 1..60),
    ) {
        let params = params();
        let mut random = Random(seed);
        let initial = random.next() as u32;
        let mut now = Time::from_ps(1_000_000_000_000);
        let mut tcp = match seed % 2 {
            0 => Connection::<Vec<u8>>::connect(params, (1, 2), initial),
            _ => {
                let syn = TcpHeader { sequence: initial, flags: TcpFlags::SYN, window: 5000, ..TcpHeader::default() };
                Connection::accept(params, initial, &syn).unwrap()
            }
        };
        let (mut written, mut finished) = (0, false);
        for (what, flags, sequence, ack, window, length) in steps {
            now += Duration::from_us(u64::from(window));
            match what {
                0 if tcp.may_write() => {
                    tcp.write(length as u64);
                    written += length as u64;
                }
                1 => tcp.timer(now),
                2 if length % 7 == 0 => { tcp.finish(); finished = true; }
                3 => { while tcp.read(now).is_some() {} tcp.reading_done(); }
                _ => {
                    let mut header = TcpHeader {
                        sequence: initial.wrapping_add(sequence).wrapping_sub(500),
                        acknowledgement: initial.wrapping_add(ack).wrapping_sub(50),
                        flags: TcpFlags(flags & 0x1f), window, ..TcpHeader::default()
                    };
                    if what == 7 {
                        header.flags = TcpFlags::ACK;
                        header.options.sack = wire::ip::tcp::SackBlocks::new(&[
                            (header.acknowledgement.wrapping_add(100), header.acknowledgement.wrapping_add(u32::from(flags) * 10)),
                        ]);
                    }
                    tcp.receive(now, &header, vec![0; length], 1);
                }
            }
            tcp.discarded().for_each(drop);
            for turn in 0..2000 {
                let Some(segment) = tcp.transmit(now, 10_000) else { break };
                prop_assert!(segment.data.end <= written && segment.data.start <= segment.data.end);
                prop_assert!(turn < 1999, "it sends for ever");
                prop_assert!(!segment.header.flags.contains(TcpFlags::FIN) || finished);
            }
        }
    }
}
