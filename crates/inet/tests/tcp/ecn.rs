//! Marks of routers reach the sender, which slows down once a round trip and loses nothing.

use inet::tcp::{EcnMode, TcpParams};
use units::Time;
use wire::ip::TcpFlags;

use crate::network::{Faults, Network, params, stream};

const BOTH: TcpFlags = TcpFlags::ECE.with(TcpFlags::CWR);

/// Sends a stream over a network that marks; the flags of the SYN and its answer.
fn run(modes: [EcnMode; 2], marks: u16) -> (Network, [TcpFlags; 2]) {
    let ask = TcpParams { ecn: modes[0], ..params() };
    let mut net = Network::new(ask, Faults::default(), 4, stream(600_000, 2), Vec::new());
    net.params.ecn = modes[1];
    net.marks = marks;
    net.serve(0);
    let flags = |net: &Network| TcpFlags(net.wire.first_key_value().unwrap().1.1[13]);
    let asked = flags(&net);
    assert!(net.step());
    let answered = flags(&net);
    net.run();
    net.assert_identical();
    (net, [asked, answered])
}

/// Table 1 of what both ends want: it is used if the first asks and the second agrees.
#[test]
fn it_is_used_if_both_want_it() {
    use EcnMode::{Accept, Ask, Off};
    for (modes, asks, agrees) in [
        ([Ask, Accept], true, true),
        ([Ask, Ask], true, true),
        ([Ask, Off], true, false),
        ([Accept, Ask], false, false),
    ] {
        let (net, [asked, answered]) = run(modes, 1000);
        assert_eq!((asked.contains(BOTH), answered.contains(TcpFlags::ECE)), (asks, agrees), "{modes:?}");
        assert!(!answered.contains(TcpFlags::CWR));
        assert_eq!(net.marked > 0, agrees, "only then may anything be marked");
        assert_eq!(net.end(0).tcp.counters().echoes > 0, agrees);
    }
}

#[test]
fn a_marked_stream_slows_down_without_loss() {
    let (fast, _) = run([EcnMode::Ask, EcnMode::Accept], 0);
    let (slow, _) = run([EcnMode::Ask, EcnMode::Accept], 100);
    let counters = [&fast, &slow].map(|net| net.end(0).tcp.counters());
    assert_eq!(counters.map(|c| c.retransmissions), [0, 0]);
    assert_eq!(counters[0].echoes, 0);
    assert_eq!(slow.end(1).tcp.counters().marked, slow.marked);
    assert!(counters[1].echoes >= 3 && counters[1].echoes <= slow.marked, "{counters:?}");
    let windows = [&fast, &slow].map(|net| net.end(0).tcp.congestion_window());
    assert!(windows[1] < windows[0], "{windows:?}, {counters:?}");
    let took = [&fast, &slow].map(|net| net.now.since(Time::ZERO));
    assert!(took[1] > took[0], "{took:?}");
}

/// However many marks a window's worth of segments carries, it is halved once.
#[test]
fn a_window_is_reduced_once_for_all_its_marks() {
    let (net, _) = run([EcnMode::Ask, EcnMode::Accept], 1000);
    let counters = net.end(0).tcp.counters();
    let trips = net
        .end(0)
        .tcp
        .round_trip()
        .map(|rtt| net.now.since(Time::from_ps(1_000_000_000_000)).as_ps() / rtt.as_ps());
    // TIME_WAIT is not part of it, but no bound is hurt by it.
    assert!(counters.echoes > 10 && Some(counters.echoes) < trips, "{counters:?}, {trips:?}");
    assert!(net.marked > counters.echoes + 8, "ten in the first round trip alone");
}
