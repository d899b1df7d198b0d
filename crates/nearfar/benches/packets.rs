//! How many packets per second one core simulates: pktgen, driver, NIC, fabric and wire, with real bytes.
//!
//! The aim is 1 million packets of 64 B per second; it is printed, not asserted. Time is that of the processor where the
//! system tells it: a simulation has one thread. `cargo bench -p nearfar --bench packets -- QUICK` takes a tenth of it;
//! a number says how many packets the first line measures.

#[path = "clock/mod.rs"]
mod clock;
#[path = "computers/mod.rs"]
mod computers;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use computers::{Run, forget_peak, peak, run};
use scenario::{HEAD, host_with_nic, program, two_hosts};

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    let number = std::env::args().find_map(|argument| argument.parse().ok());
    let count = number.unwrap_or(if quick { 100_000 } else { 1_000_000 });
    println!("packets per second of one core (aim: 1 million at 64 B; memory flat)");
    measure("64 B into a switch", &sender(), 60, count);
    measure("64 B into a switch, longer", &sender(), 60, 2 * count);
    measure("1518 B into a switch", &sender(), 1514, count / 4);
    measure("64 B to a second host", &two_hosts(""), 60, count / 2);
}

/// pktgen's host at a switch that drops what it gets.
fn sender() -> String {
    [HEAD, "switch = [{ name = \"s\", ports = 2 }]\n", &host_with_nic("a"), &scenario::cable("a", "s", "")]
        .concat()
}

fn measure(label: &str, scenario: &str, size: u16, count: u64) {
    let time = |count: u64| {
        let pktgen = program("a", "0", &format!("pktgen -s {size} -n {count} -c 1000 -b 32"));
        run(&(scenario.to_owned() + &pktgen))
    };
    // What putting the computers together costs is not part of it.
    let few = time(count / 10);
    forget_peak();
    let many = time(count);
    let Run { seconds, simulated, report } = &many;
    let (seconds, simulated) = (seconds - few.seconds, simulated.saturating_sub(few.simulated));
    let packets = (count - count / 10) as f64;
    println!(
        "{label:<26} {:>6.2} M packets/s  {:>5.0} ns of host time each  1/{:<4.1} of real time at {:.2} M packets/s  {} kB",
        packets / seconds / 1e6,
        seconds * 1e9 / packets,
        seconds * 1e9 / simulated.as_ns_f64(),
        report.get("rate").unwrap_or_default(),
        peak().unwrap_or_default()
    );
}
