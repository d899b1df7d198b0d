//! netperf's TCP_STREAM (section 5.1.1, Figures 6 and 7).

use units::Duration;

use super::server::{COSTS, Organisation, Server, ServerBench, SteadyRun};
use crate::rig::{Rig, Running};
use crate::runs::{Values, named};

/// Duration of a batch. Packets and their reader alternate with a period of about 250 us.
const BATCH: Duration = Duration::from_us(250);
/// Maximum number of batches: next to other programs, whose simulation takes long, and of a stream alone.
const BATCHES: usize = 50;
const ALONE: usize = 800;
/// The core of the process and of the interrupts.
pub const CORE: u16 = 0;
/// Adaptive coalescing, as in the paper.
pub const DRIVER: &str = "adaptive = true";

/// Server and client with a stream to the server, in buffers of `buffer` bytes. The client's NIC is local.
pub fn receiving(
    bench: &ServerBench,
    organisation: Organisation,
    buffer: u32,
) -> Result<(Rig, Running), String> {
    let text = format!(
        "{}{}{}",
        bench.host("server", organisation, DRIVER),
        bench.host("client", Organisation::Local, DRIVER),
        ServerBench::cable(organisation)
    );
    let rig = bench.boot(&text)?;
    rig.start(0, &[CORE], "netserver")?;
    let line = format!("netperf -H 10.0.0.1 -t TCP_STREAM -l 1 -- -m {buffer} -M {buffer}");
    let running = rig.start(1, &[CORE], &line)?;
    Ok((rig, running))
}

/// Rates of a stream to the server.
pub fn receive(bench: &ServerBench, organisation: Organisation, buffer: u32) -> Result<SteadyRun, String> {
    let (rig, running) = receiving(bench, organisation, buffer)?;
    settled_after(&rig, &running, GROWN, ALONE)
}

/// Rates of a stream from the server, with or without segmentation offload. A tester receives it, so that no client
/// core is the limit.
pub fn send(
    bench: &ServerBench,
    organisation: Organisation,
    buffer: u32,
    tso: bool,
) -> Result<SteadyRun, String> {
    let text = format!(
        "{}[[sink]]\nname = \"client\"\naddress = \"10.0.0.200\"\n\
         [[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, DRIVER)
    );
    let rig = bench.boot(&text)?;
    if !tso {
        Server(&rig).without_tso(0, organisation.device())?;
    }
    let running = rig.start(0, &[CORE], &format!("iperf -c 10.0.0.200 -l {buffer} -t 1"))?;
    settled_after(&rig, &running, SETTLED, ALONE)
}

/// Settling time: windows grow, flows get steering rules, rings and queues wrap. At first a received stream
/// alternates with its reader in short turns, for up to 12 ms, at 19 of its 22 Gbit/s; this looks steady but does not
/// last.
pub const SETTLED: Duration = Duration::from_ms(12);
/// The same for a received stream alone. Its receive buffer grows to what was read in a round trip, which exceeds all
/// before it ever more seldom: with reads of 1500 B the window stays at 130 KB and the rate at 15.3 Gbit/s for up to 60 ms,
/// then both rise, to 225 KB and 16.8; with reads of 1 KiB that is after 20 to 120 ms. Nothing changes from then to 400 ms.
const GROWN: Duration = Duration::from_ms(200);

/// Rates of a stream after settling.
pub fn settled(rig: &Rig, running: &Running) -> Result<SteadyRun, String> {
    settled_after(rig, running, SETTLED, BATCHES)
}

/// Rates of a stream after a time, in up to `most` batches.
fn settled_after(rig: &Rig, running: &Running, time: Duration, most: usize) -> Result<SteadyRun, String> {
    Server(rig).forget_the_beginning();
    rig.pass(time);
    let rates = Server(rig).measure(&[CORE], BATCH, most);
    running.still_runs().map(|()| rates)
}

/// The values of a run, under the names that claims use.
pub fn values(of: &str, organisation: Organisation, buffer: u32, run: &SteadyRun) -> Values {
    let each = run.each([
        ("gbit", |rates| rates.gbit),
        ("kpps", |rates| rates.mpps * 1e3),
        // Bytes of payload per packet.
        ("segment", |rates| rates.gbit / 8e-3 / rates.mpps),
        ("memory-share", |rates| 100.0 * rates.memory / rates.gbit),
        ("missed", |rates| rates.missed),
        ("link-dma", |rates| rates.link_dma),
        ("copying", |rates| rates.copying),
        // CPU time of 10 Gbit/s.
        ("cpu-of-10", |rates| 10.0 * rates.cpu / rates.gbit),
    ]);
    named(of, &format!("{}/{buffer}", organisation.name()), each.into_iter().chain(run.each(COSTS)))
}
