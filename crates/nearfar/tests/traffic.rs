//! A traffic source at a cable sends to a computer, from files to figures.

use crate::scenario::{self, HEAD, host_with_nic, load, loaded, program};
use nearfar::computer::{self, FinishedProgram};
use nearfar::progress::Silent;

/// A host with a server and a source with a cable between them, and what the cable has besides.
fn scenario(cable: &str, source: &str) -> String {
    let cable = scenario::cable("t", "a", &format!("rate = \"10 Gbit/s\"\n{cable}"));
    let source = format!("[[source]]\nname = \"t\"\ntime = \"2 ms\"\n{source}\n");
    [HEAD, &host_with_nic("a"), &source, &cable, &program("a", "0", "iperf -s")].concat()
}

fn run(text: &str) -> Vec<FinishedProgram> {
    computer::run(&loaded(text), &Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn readings(done: &[FinishedProgram]) -> [f64; 3] {
    let done = done.iter().find(|done| done.host == "t").expect("the source has ended");
    let report = done.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
    ["transfer", "bandwidth", "sent again"].map(|quantity| report.get(quantity).expect("it is reported"))
}

/// 1448 bytes of 1538 on the wire, but for the beginning, when the window opens.
#[test]
fn a_source_fills_its_cable() {
    let [_, bandwidth, again] = readings(&run(&scenario("", "to = \"10.0.0.1:5001\"")));
    assert!((8_500.0..9_415.0).contains(&bandwidth), "{bandwidth} Mbit/s");
    assert_eq!(again, 0.0);
}

#[test]
fn what_is_lost_is_sent_again() {
    let [bytes, _, again] = readings(&run(&scenario("loss = 0.01", "to = \"10.0.0.1:5001\"")));
    assert!(bytes > 50_000.0 && again >= 1.0, "{bytes} B, {again} again");
}

#[test]
fn who_does_not_receive_is_told() {
    for (to, why) in [("10.0.0.1:7", "refused"), ("10.0.0.9:7", "nobody has the address")] {
        let done = run(&scenario("", &format!("to = \"{to}\"")));
        let failure = done.iter().find(|done| done.host == "t").and_then(|done| done.outcome.as_ref().err());
        let failure = failure.map(ToString::to_string).unwrap_or_default();
        assert!(failure.contains(why), "{to}: {failure:?}");
    }
    // From a network to which the host has no way back.
    let done = run(&scenario("", "to = \"10.0.0.1:5001\"\naddress = \"10.77.0.1\""));
    let failure = done.iter().find(|done| done.host == "t").and_then(|done| done.outcome.as_ref().err());
    assert!(failure.is_some_and(|failure| failure.to_string().contains("nobody answered")), "{failure:?}");
    let wrong = load(&scenario("", "to = \"a:x\"")).unwrap_err().render(false);
    assert!(
        wrong.contains("`a:x` is not an address") && wrong.contains("such as `10.0.0.1:5001`"),
        "{wrong}"
    );
}

/// What two streams sent all arrives, and they end as their peer closes; what is lost on the way is sent again.
#[test]
fn a_sink_takes_every_stream() {
    for (loss, resent) in [("", false), ("loss = 0.002", true)] {
        let cable = scenario::cable("a", "t", loss);
        let run_line = program("a", "0-1", "iperf -c 10.0.254.1 -t 0.001 -P 2");
        let text = [HEAD, &host_with_nic("a"), "[[sink]]\nname = \"t\"\n", &cable, &run_line].concat();
        let done = run(&text);
        let report = done.iter().find(|done| done.run.starts_with("iperf")).expect("it ran");
        let report = report.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure}"));
        let [bytes, again] = ["transfer", "sent again"].map(|what| report.get(what).unwrap_or_default());
        assert!(bytes > 500_000.0, "{bytes} B in 1 ms");
        assert_eq!(again > 0.0, resent, "{again} sent again");
    }
}
