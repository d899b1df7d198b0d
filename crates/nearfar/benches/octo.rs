//! How many seconds the simulator takes for one second of IOctopus's server that receives TCP streams, with its NIC as
//! two network devices and as an octoNIC, on one core and on all. `cargo bench -p nearfar --bench octo -- QUICK` takes a
//! quarter of the time.

#[path = "clock/mod.rs"]
mod clock;
#[path = "../tests/scenario/mod.rs"]
mod scenario;

use clock::seconds_of_work;
use nearfar::computer;
use nearfar::progress::Silent;
use scenario::{HEAD, host, loaded, program};

/// Cores per socket of the machine.
const CORES: u16 = 14;

fn main() {
    let times = if std::env::args().any(|argument| argument == "QUICK") { 1 } else { 4 };
    println!("a server that receives TCP streams, by one core of ours; a second of it takes");
    for (what, cores, ms) in [("one core", 1, 10), ("all cores", 2 * CORES, 2)] {
        for is_octo in [false, true] {
            measure(what, is_octo, cores, ms * times);
        }
    }
}

/// A run of the server.
struct Run {
    /// Processor time that it took.
    seconds: f64,
    /// Bytes that all programs received.
    bytes: f64,
}

fn run(scenario: &str) -> Run {
    let setup = loaded(scenario);
    let began = seconds_of_work();
    let done = computer::run(&setup, &Silent).unwrap_or_else(|error| panic!("{error}"));
    let seconds = seconds_of_work() - began;
    let reports = done.iter().filter_map(|done| done.outcome.as_ref().ok());
    Run { seconds, bytes: reports.filter_map(|report| report.get("transfer")).sum() }
}

fn measure(what: &str, is_octo: bool, cores: u16, ms: u64) {
    // What putting the computers together and opening the connections cost is not part of it.
    let [begun, done] = [ms, 3 * ms].map(|ms| run(&receiving(is_octo, cores, ms)));
    // For how much longer the sources send. A lost segment at the end would delay the end by a timeout.
    let ns = 2e6 * ms as f64;
    println!(
        "{what:<9} {:<8} {:>6.1} Gbit/s  {:>6.1} s",
        if is_octo { "octoNIC" } else { "NIC" },
        8.0 * (done.bytes - begun.bytes) / ns,
        (done.seconds - begun.seconds) * 1e9 / ns
    );
}

/// The server, and a source for each of its cores, through the function at the core's socket.
fn receiving(is_octo: bool, cores: u16, ms: u64) -> String {
    let (nic, team) = match is_octo {
        true => (
            "connectx4-octo",
            "[[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"nic:0\", \"nic:1\"]\n",
        ),
        false => ("connectx4", ""),
    };
    let server = format!(
        "change_kernel.steering = {{ rfs = true, arfs = true }}\n[host.nic_driver]\nadaptive = true\n\
         [[host.device]]\nname = \"nic\"\nnic = \"{nic}\"\n\
         links = [{{ slot = \"slot\", lanes = 8 }}, {{ slot = \"slot-socket1\", lanes = 8 }}]\n{team}"
    );
    let mut text = [
        HEAD,
        &host("a", "dell-r730", &server),
        "[[switch]]\nname = \"s\"\nqueue = \"4 MiB\"\n",
        &scenario::cable("a", "s", ""),
    ]
    .concat();
    for core in 0..cores {
        let device = if is_octo { 0 } else { core / CORES };
        let port = 5001 + core;
        text += &format!(
            "[[source]]\nname = \"t{core}\"\nto = \"10.0.{device}.1:{port}\"\naddress = \"10.0.{device}.{}\"\n\
             time = \"{ms} ms\"\n{}{}",
            100 + core,
            scenario::cable(&format!("t{core}"), "s", ""),
            program("a", &core.to_string(), &format!("iperf -s -p {port} -l 65536"))
        );
    }
    text
}
