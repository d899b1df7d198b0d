//! How fast one core simulates a TCP stream in segments of 1448 bytes from one host to another, both with kernel, driver,
//! NIC, caches and fabric, and real bytes.
//!
//! The aim is a tenth of real time at 10 Gbit/s; it is printed, not asserted. Time is that of the processor where the
//! system tells it: a simulation has one thread. `cargo bench -p nearfar --bench receive -- QUICK` takes a fifth of it.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;

use computers::{Run, forget_peak, peak, run};

/// Bytes of the stream in a full frame of 1518 B: timestamps take 12.
const SEGMENT: f64 = 1448.0;

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    let longest = if quick { 0.02 } else { 0.1 };
    println!(
        "a TCP stream between two simulated hosts, on one core (aim: 1/10 of real time at 10 Gbit/s; memory flat)"
    );
    for rate in ["10 Gbit/s", "40 Gbit/s"] {
        measure(rate, longest);
    }
}

fn measure(rate: &str, longest: f64) {
    let time = |length: f64| run(&HOSTS.replace("RATE", rate).replace("LENGTH", &length.to_string()));
    // What putting the computers together and opening the connection cost is not part of it.
    let begun = time(longest / 10.0);
    for length in [longest / 4.0, longest / 2.0, longest] {
        forget_peak();
        let Run { seconds, simulated, report } = time(length);
        let (seconds, simulated) = (seconds - begun.seconds, simulated.saturating_sub(begun.simulated));
        let received = |report: &workloads::Report| report.get("received").unwrap_or_default();
        let segments = (received(&report) - received(&begun.report)) / SEGMENT;
        println!(
            "{rate} for {:>3.0} ms {:>6.2} Gbit/s  {:>7.0} segments/s  {:>5.1} us of host time each  1/{:<4.1} of real time  {} kB",
            length * 1e3,
            report.get("throughput").unwrap_or_default() / 1e3,
            segments / seconds,
            seconds * 1e6 / segments,
            seconds * 1e9 / simulated.as_ns_f64(),
            peak().unwrap_or_default()
        );
    }
}

const HOSTS: &str = r#"
name = "receive"
summary = "a TCP stream"
cable = [{ ends = ["a", "b"], rate = "RATE" }]
[[host]]
name = "a"
machine = "dell-t430"
device = [{ nic = "modern" }]
[[host]]
name = "b"
machine = "dell-t430"
device = [{ nic = "modern" }]
[[program]]
host = "b"
cpus = "0"
run = "netserver"
[[program]]
host = "a"
cpus = "0"
run = "netperf -H 10.0.0.2 -t TCP_STREAM -l LENGTH"
"#;
