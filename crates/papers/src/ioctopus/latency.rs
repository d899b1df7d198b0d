//! netperf's TCP_RR (section 5.1.2, Figure 9), with the NIC local or remote on both hosts.

use units::Duration;

use super::server::{COSTS, Organisation, Server, ServerBench};
use crate::runs::{Values, named};

const CORE: u16 = 0;
/// Initial and maximum duration of the transactions.
const FIRST: Duration = Duration::from_ms(4);
const MOST: Duration = Duration::from_ms(128);

/// Round trips (microseconds, and thousands per second) with requests and responses of `bytes`. Interrupts are not coalesced, as in the paper.
pub fn run(bench: &ServerBench, organisation: Organisation, bytes: u32) -> Result<Values, String> {
    let driver = "adaptive = false\ncoalescing = \"0 us\"\ncoalescing_packets = 1";
    // With an octoNIC in the server, the client's NIC is local.
    let client = if organisation == Organisation::Octo { Organisation::Local } else { organisation };
    let hosts = [("server", organisation), ("client", client)].map(|(name, of)| bench.host(name, of, driver));
    let rig = bench.boot(&format!("{}[[cable]]\nends = [\"server\", \"client\"]\n", hosts.concat()))?;
    rig.start(1, &[CORE], "netserver")?;
    let line = |seconds| format!("netperf -H 10.0.0.2 -t TCP_RR -l {seconds} -- -r {bytes},{bytes}");
    let (latency, run) = Server(&rig).round_trips(organisation, (0, CORE), line, (FIRST, MOST))?;
    let (us, half) = latency.mean;
    let rate = ("rate", (1e3 / us, 1e3 * half / us.powi(2)));
    let name = match organisation {
        Organisation::Local => "ll",
        Organisation::Remote => "rr",
        Organisation::DdioOff => "llnd",
        other => other.name(),
    };
    let each = [("us", latency.mean), ("p90", latency.p90), ("p99", latency.p99), rate];
    Ok(named("rr", &format!("{name}/{bytes}"), each.into_iter().chain(run.each(COSTS))))
}
