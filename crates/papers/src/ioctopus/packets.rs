//! pktgen (section 5.1.1, Figure 8): one core sends the same packet repeatedly.

use units::Duration;

use super::server::{COSTS, Organisation, Server, ServerBench, SteadyRun};
use crate::runs::{Values, named};

/// Duration of a batch: packets are counted by the dozen, when the driver completes them.
const BATCH: Duration = Duration::from_us(200);
const BATCHES: usize = 50;
/// Time for rings of 1024 entries to wrap at three million packets a second.
const WRAPPED: Duration = Duration::from_ms(1);
const CORE: u16 = 0;

/// Options to repeat one packet without touching its data, as in the paper. Linux's pktgen refuses them (`clone_skb`)
/// on a device without `IFF_TX_SKB_SHARING`, which the team driver clears like other stacked devices.
const REPEATED: &str = "-c 100000000";

/// The 64 B case with the rings' completions in memory of a remote NIC's own node (section 2.4).
pub fn ring_at_device(bench: &ServerBench) -> Result<Values, String> {
    let run = sending(bench, Organisation::Remote, ("eth0", 64, REPEATED), "completions = \"device\"")?;
    Ok(values("pktgen", "ring-at-device", 64, &run))
}

/// Results of pktgen with frames of `frame` bytes, check sequence included. With a team, it runs on the member local to
/// its core.
pub fn run(bench: &ServerBench, organisation: Organisation, frame: u32) -> Result<Values, String> {
    let run = sending(bench, organisation, ("eth0", frame, REPEATED), "")?;
    Ok(values("pktgen", organisation.name(), frame, &run))
}

/// Results of pktgen on the device that programs use, a team if there is one. Each packet is new.
pub fn new_each(bench: &ServerBench, organisation: Organisation, frame: u32) -> Result<Values, String> {
    let run = sending(bench, organisation, (organisation.device(), frame, ""), "")?;
    Ok(values("pktgen-new", organisation.name(), frame, &run))
}

fn sending(
    bench: &ServerBench,
    organisation: Organisation,
    (device, frame, options): (&str, u32, &str),
    driver: &str,
) -> Result<SteadyRun, String> {
    let text = format!(
        "{}[[sink]]\nname = \"client\"\naddress = \"10.0.0.200\"\n\
         [[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, driver)
    );
    let rig = bench.boot(&text)?;
    // pktgen's size excludes the check sequence.
    let size = (frame - 4).max(60);
    let line = format!("pktgen -i {device} -s {size} -n 100000000 {options}");
    let running = rig.start(0, &[CORE], &line)?;
    // The rings wrap several times, so that what their clearing left in caches is gone. Caches are not flushed: the
    // repeated packet stays in the one that its core wrote it to, since devices' reads allocate nothing.
    rig.pass(WRAPPED);
    let run = Server(&rig).measure(&[CORE], BATCH, BATCHES);
    running.still_runs().map(|()| run)
}

fn values(of: &str, name: &str, frame: u32, run: &SteadyRun) -> Values {
    let each = run.each([
        ("mpps", |rates| rates.mpps),
        ("ns", |rates| 1e3 / rates.mpps),
        ("misses", |rates| rates.misses),
        ("link-dma", |rates| rates.link_dma),
        ("link-other", |rates| rates.link_io - rates.link_dma),
    ]);
    let gbit = ("gbit", run.of(|rates| rates.mpps * f64::from(frame) * 8.0 / 1e3));
    named(of, &format!("{name}/{frame}"), each.into_iter().chain(run.each(COSTS)).chain([gbit]))
}
