//! How fast one core simulates a TCP stream in segments of 1448 bytes, with real bytes: from a traffic source to a host, which
//! is what receiving costs, and from one host to another, both with kernel, driver, NIC, caches and fabric.
//!
//! The aim is a tenth of real time for receiving at 10 Gbit/s; it is printed, not asserted. Time is that of the processor where
//! the system tells it: a simulation has one thread. `cargo bench -p nearfar --bench receive -- QUICK` takes a fifth of it.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use computers::{Run, forget_peak, peak, run};
use scenario::{HEAD, host_with_nic, program, two_hosts};

/// Bytes of the stream in a full frame of 1518 B: timestamps take 12.
const SEGMENT: f64 = 1448.0;

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    let longest = if quick { 0.02 } else { 0.1 };
    println!("a TCP stream, on one core (aim: receiving at 1/10 of real time at 10 Gbit/s; memory flat)");
    for (what, scenario) in [("from a source", from_a_source()), ("from a host", from_a_host())] {
        for rate in ["10 Gbit/s", "40 Gbit/s"] {
            measure(what, &scenario, rate, longest);
        }
    }
}

fn measure(what: &str, scenario: &str, rate: &str, longest: f64) {
    let text = |length: f64| {
        let in_ns = format!("{:.0} ns", length * 1e9);
        scenario.replace("RATE", rate).replace("SECONDS", &length.to_string()).replace("TIME", &in_ns)
    };
    let time = |length: f64| run(&text(length));
    // The first run of all finds neither memory nor caches ready.
    time(longest / 10.0);
    // What putting the computers together and opening the connection cost is not part of it.
    let begun = time(longest / 10.0);
    for length in [longest / 4.0, longest / 2.0, longest] {
        forget_peak();
        let Run { seconds, simulated, report } = time(length);
        let (seconds, simulated) = (seconds - begun.seconds, simulated.saturating_sub(begun.simulated));
        // As netperf calls it, and as a source.
        let either = |report: &workloads::Report, names: [&str; 2]| {
            names.iter().find_map(|name| report.get(name)).unwrap_or_default()
        };
        let received = |report: &workloads::Report| either(report, ["received", "transfer"]);
        let segments = (received(&report) - received(&begun.report)) / SEGMENT;
        println!(
            "{what:<13} {rate} for {:>3.0} ms {:>6.2} Gbit/s  {:>7.0} segments/s  {:>5.1} µs of host time each  1/{:<4.1} of real time  {} kB",
            length * 1e3,
            either(&report, ["throughput", "bandwidth"]) / 1e3,
            segments / seconds,
            seconds * 1e6 / segments,
            seconds * 1e9 / simulated.as_ns_f64(),
            peak().unwrap_or_default()
        );
    }
}

/// A traffic source and a host that receives.
fn from_a_source() -> String {
    let source = "[[source]]\nname = \"t\"\nto = \"10.0.0.1:5001\"\ntime = \"TIME\"\n";
    let cable = scenario::cable("t", "a", "rate = \"RATE\"");
    [HEAD, &host_with_nic("a"), source, &cable, &program("a", "0", "iperf -s")].concat()
}

/// Two hosts.
fn from_a_host() -> String {
    let client = program("a", "0", "netperf -H 10.0.0.2 -t TCP_STREAM -l SECONDS");
    [two_hosts("rate = \"RATE\""), program("b", "0", "netserver"), client].concat()
}
