//! How many packets per second one core simulates: pktgen, driver, NIC, fabric and wire, with real bytes.
//!
//! The aim is 1 million packets of 64 B per second; it is printed, not asserted. Time is that of the processor where the
//! system tells it: a simulation has one thread. `cargo bench -p nearfar --bench packets -- QUICK` takes a tenth of it.

#[path = "clock/mod.rs"]
mod clock;

use clock::seconds_of_work;
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use nearfar::computer;
use nearfar::progress::Silent;

fn main() {
    let quick = std::env::args().any(|argument| argument == "QUICK");
    let count = if quick { 100_000 } else { 1_000_000 };
    println!("packets per second of one core (aim: 1 million at 64 B)");
    measure("64 B into a switch", SENDER, 60, count);
    measure("1518 B into a switch", SENDER, 1514, count / 4);
    measure("64 B to a second host", PAIR, 60, count / 2);
    let before = resident();
    measure("64 B into a switch, again", SENDER, 60, 2 * count);
    if let (Some(before), Some(after)) = (before, resident()) {
        println!("memory: {before} kB, after twice as many packets {after} kB (aim: flat)");
    }
}

const SENDER: &str = r#"
name = "packets"
summary = "pktgen into a switch"
switch = [{ name = "s", ports = 2 }]
cable = [{ ends = ["a", "s"] }]
[[host]]
name = "a"
machine = "dell-t430"
device = [{ nic = "modern" }]
"#;

const PAIR: &str = r#"
name = "packets"
summary = "pktgen to a host that drops what it gets"
cable = [{ ends = ["a", "b"] }]
[[host]]
name = "a"
machine = "dell-t430"
device = [{ nic = "modern" }]
[[host]]
name = "b"
machine = "dell-t430"
device = [{ nic = "modern" }]
"#;

fn measure(label: &str, scenario: &str, size: u16, count: u64) {
    // What putting the computers together costs is not part of it.
    let time = |count: u64| {
        let text = format!(
            "{scenario}\n[[program]]\nhost = \"a\"\ncpus = \"0\"\nrun = \"pktgen -s {size} -n {count} -c 1000 -b 32\"\n"
        );
        let path = std::env::temp_dir().join(format!("nearfar-packets-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder can be written");
        let doc = Doc::<ComputerScenario>::load(&Library::built_in(), &path.to_string_lossy());
        let setup = doc.and_then(|doc| ComputerSetup::load(&Library::built_in(), &doc));
        let setup = setup.unwrap_or_else(|error| panic!("{error}"));
        let began = seconds_of_work();
        let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
        let _ = std::fs::remove_file(&path);
        let report = done.into_iter().next().and_then(|done| done.outcome.ok()).expect("pktgen ends well");
        (seconds_of_work() - began, report.get("rate").unwrap_or_default())
    };
    let (few, many) = (time(count / 10), time(count));
    let seconds = many.0 - few.0;
    println!(
        "{label:<26} {:>6.2} M packets/s  {:>5.0} ns of host time each  {:.2} Mpackets/s simulated",
        (count - count / 10) as f64 / seconds / 1e6,
        seconds * 1e9 / (count - count / 10) as f64,
        many.1
    );
}

/// Memory that the process has now, where Linux tells it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
