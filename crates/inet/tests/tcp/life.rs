//! Connections that stand still, that nobody answers any more, that have just ended.

use inet::tcp::{Failure, KeepAlive, State};
use units::{Duration, Time};
use wire::ip::{TcpFlags, TcpHeader};

use crate::network::{Faults, Network, params, stream};

/// An open connection on which nothing is under way.
fn idle() -> Network {
    let mut net = Network::new(params(), Faults::default(), 5, stream(1_000, 2), Vec::new());
    net.keep_open = true;
    net.run();
    assert_eq!(net.end(1).received.len(), 1_000);
    net
}

#[test]
fn an_idle_connection_is_kept_alive_and_given_up_when_nobody_answers() {
    let keep =
        KeepAlive { idle: Duration::from_ms(7_200_000), interval: Duration::from_ms(75_000), probes: 9 };
    let mut net = idle();
    let start = net.now;
    net.ends[0].as_mut().unwrap().tcp.set_keep_alive(Some(keep));
    while net.now.since(start) < Duration::from_ms(30_000_000) && net.step() {}
    // The last question's way and its answer's.
    (0..2).for_each(|_| assert!(net.step()));
    let counters = net.end(0).tcp.counters();
    assert_eq!((net.end(0).tcp.state(), counters.keep_alives), (State::Established, 5), "{counters:?}");
    // The peer has gone without a word.
    let heard = net.now;
    net.faults.loss = 1000;
    while net.step() {}
    assert_eq!(net.end(0).tcp.failure(), Some(Failure::TimedOut));
    assert_eq!(net.end(0).tcp.counters().keep_alives, 5 + 9);
    let took = net.now.since(heard);
    assert!(
        took > Duration::from_ms(9 * 75_000) && took <= Duration::from_ms(7_200_000 + 9 * 75_000),
        "{took}"
    );
}

/// Who closes first remembers the connection for two segments' lives, and answers a FIN that comes again (RFC 9293, 3.6).
#[test]
fn a_closed_connection_waits_and_answers_a_late_fin() {
    let mut net = Network::new(params(), Faults::default(), 3, stream(5_000, 2), Vec::new());
    net.serve(0);
    while net.end_state(0) != Some(State::TimeWait) {
        assert!(net.step());
    }
    let since = net.now;
    assert_eq!(net.end(0).tcp.deadline(), Some(since + params().time_wait));
    // The last acknowledgement was lost: the peer says again that it is done, 10 s later.
    let (own, peer) = (net.end(0).tcp.sequence(), net.end(1).tcp.sequence());
    let fin = TcpHeader {
        source: 80,
        destination: 40_000,
        sequence: peer.wrapping_sub(1),
        acknowledgement: own,
        flags: TcpFlags::FIN.with(TcpFlags::ACK),
        window: 1000,
        ..TcpHeader::default()
    };
    let later = since + Duration::from_ms(10_000);
    let end = net.ends[0].as_mut().unwrap();
    end.tcp.receive(later, &fin, Vec::new(), 1);
    let answer = end.tcp.transmit(later, 0).expect("an acknowledgement");
    assert_eq!((answer.header.flags, answer.header.acknowledgement), (TcpFlags::ACK, peer));
    assert_eq!(end.tcp.deadline(), Some(later + params().time_wait), "and it waits anew");
    let over = later + params().time_wait;
    end.tcp.timer(over - Duration::from_ms(1));
    assert_eq!(end.tcp.state(), State::TimeWait);
    end.tcp.timer(over);
    assert_eq!((end.tcp.state(), end.tcp.failure()), (State::Closed, None));
}

/// A window of zero is probed at the timeout, then at twice it and so on, for as long as the peer answers (RFC 9293,
/// 3.8.6.1); an update that opens it is enough to go on.
#[test]
fn probes_of_a_closed_window_come_ever_more_seldom() {
    let mut net = Network::new(params(), Faults::default(), 9, stream(300_000, 2), Vec::new());
    net.serve(0);
    (0..5).for_each(|_| assert!(net.step()));
    net.ends[1].as_mut().unwrap().reads = 0;
    let mut probes: Vec<Time> = Vec::new();
    while probes.len() < 6 {
        let before = net.end(0).tcp.counters().probes;
        assert!(net.step());
        if net.end(0).tcp.counters().probes > before {
            probes.push(net.now);
        }
    }
    let gaps: Vec<u64> = probes.windows(2).map(|w| w[1].since(w[0]).as_ps() / 1_000_000_000).collect();
    assert!(gaps.windows(2).all(|w| w[1] >= 2 * w[0] - 1 || w[1] >= 1_999), "{gaps:?} ms");
    assert!(net.end(0).tcp.failure().is_none());
    net.ends[1].as_mut().unwrap().reads = usize::MAX;
    net.run();
    net.assert_identical();
    let counters = net.end(0).tcp.counters();
    assert_eq!((counters.timeouts, counters.probes), (0, 6), "{counters:?}");
}

/// A segment of a peer that has heard of the first byte after 500.
fn segment(sequence: u32, flags: TcpFlags) -> TcpHeader {
    TcpHeader {
        source: 40_000,
        destination: 80,
        sequence,
        acknowledgement: 501,
        flags,
        window: 1000,
        ..TcpHeader::default()
    }
}

/// What a peer said to lie behind the end of its stream is given back with the end (found by fuzzing).
#[test]
fn nothing_behind_the_end_of_a_stream_is_kept() {
    let mut tcp = inet::tcp::Connection::accept(params(), 500, &segment(7, TcpFlags::SYN)).unwrap();
    assert!(tcp.transmit(Time::ZERO, 0).is_some());
    tcp.receive(Time::ZERO, &segment(8, TcpFlags::ACK), Vec::new(), 1);
    tcp.receive(Time::ZERO, &segment(108, TcpFlags::ACK), vec![1; 50], 1);
    assert_eq!((tcp.state(), tcp.held()), (State::Established, 50));
    tcp.receive(Time::ZERO, &segment(8, TcpFlags::ACK.with(TcpFlags::FIN)), vec![2; 10], 1);
    assert_eq!((tcp.state(), tcp.held(), tcp.readable()), (State::CloseWait, 10, 10));
    assert_eq!(tcp.discarded().filter(|piece| piece.len() == 50).count(), 1);
}

/// A peer hears once, and first of all, of what came again (RFC 2883), behind the acknowledgement or beyond it.
#[test]
fn what_came_again_is_told_once() {
    let mut syn = segment(7, TcpFlags::SYN);
    syn.options.sack_permitted = true;
    let mut tcp = inet::tcp::Connection::accept(params(), 500, &syn).unwrap();
    assert!(tcp.transmit(Time::ZERO, 0).is_some());
    tcp.receive(Time::ZERO, &segment(8, TcpFlags::ACK), Vec::new(), 1);
    let mut told = |sequence: u32, length: usize| {
        tcp.receive(Time::ZERO, &segment(sequence, TcpFlags::ACK), vec![1; length], 1);
        let answer = tcp.transmit(Time::ZERO, 0).map(|answer| answer.header.options.sack.as_slice().to_vec());
        tcp.discarded().for_each(drop);
        answer.unwrap_or_default()
    };
    assert_eq!(told(8, 100), []);
    assert_eq!(told(8, 100), [(8, 108)], "before the acknowledgement");
    assert_eq!(told(208, 100), [(208, 308)]);
    assert_eq!(told(208, 100), [(208, 308), (208, 308)], "beyond it");
    assert_eq!(told(408, 10), [(408, 418), (208, 308)], "and no longer");
    assert_eq!(told(58, 100), [(58, 108), (408, 418), (208, 308)], "a part of it");
}
