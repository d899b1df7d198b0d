//! netperf's TCP_RR (section 5.1.2, Figure 9): both hosts use their NIC locally or remotely.

use units::Duration;

use super::server::{Bench, Organisation};
use crate::reproduce::rig;
use crate::reproduce::runs::{Values, named};

const CORE: u16 = 0;
const BATCHES: usize = 60;

/// Round trips with requests and responses of so many bytes. Interrupts come at once, as the paper has them here.
pub fn run(bench: &Bench, organisation: Organisation, bytes: u32) -> Result<Values, String> {
    let driver = "adaptive = false\ncoalescing = \"0 us\"\ncoalescing_packets = 1";
    let hosts = ["server", "client"].map(|name| bench.host(name, organisation, driver)).concat();
    let rig = bench.boot(&format!("{hosts}[[cable]]\nends = [\"server\", \"client\"]\n"))?;
    rig.start(1, &[CORE], "netserver")?;
    // Long messages take longer, and a batch has to hold several.
    let batch = Duration::from_us(if bytes > 8192 { 200 } else { 50 });
    let seconds = (batch * (BATCHES as u64 + 20)).as_s_f64();
    let line = format!("netperf -H 10.0.0.2 -t TCP_RR -l {seconds} -- -r {bytes},{bytes}");
    let running = rig.start(0, &[CORE], &line)?;
    rig.pass(Duration::from_us(200));
    let rates = rig.measure(&[CORE], batch, BATCHES);
    let report = rig.report(&running)?;
    let of = |name: &str| rig::of(&report, name);
    let tails = [("p90", of("latency p90")?), ("p99", of("latency p99")?)];
    let name = match organisation {
        Organisation::Remote => "rr",
        Organisation::DdioOff => "llnd",
        Organisation::Octo => "octo",
        _ => "ll",
    };
    let place = format!("{name}/{bytes}");
    Ok(named("rr", &place, rates.interval, &[("us", of("latency mean")?)], &tails))
}
