//! pktgen (section 5.1.1, Figure 8): one core sends the same packet repeatedly.

use units::Duration;

use super::server::{Organisation, ServerBench};
use crate::reproduce::runs::{Values, named};

/// Duration of a batch: packets are counted by the dozen, when the driver completes them.
const BATCH: Duration = Duration::from_us(200);
const BATCHES: usize = 50;
const CORE: u16 = 0;

/// The 64 B case with the rings' completions in memory of a remote NIC's own node (section 2.4).
pub fn ring_at_device(bench: &ServerBench) -> Result<Values, String> {
    let values = sending(bench, Organisation::Remote, 64, "completions = \"device\"")?;
    Ok(values.into_iter().map(|(key, value)| (key.replace("/remote/", "/ring-at-device/"), value)).collect())
}

/// Results of pktgen with frames of `frame` bytes, check sequence included.
pub fn run(bench: &ServerBench, organisation: Organisation, frame: u32) -> Result<Values, String> {
    sending(bench, organisation, frame, "")
}

fn sending(
    bench: &ServerBench,
    organisation: Organisation,
    frame: u32,
    driver: &str,
) -> Result<Values, String> {
    let text = format!(
        "{}[[sink]]\nname = \"client\"\naddress = \"10.0.0.200\"\n\
         [[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, driver)
    );
    let rig = bench.boot(&text)?;
    // Linux's pktgen repeats a packet only on devices that allow it (`IFF_TX_SKB_SHARING`). Stacked devices do not,
    // so it runs on the function local to its core. Its size excludes the check sequence. The paper repeats a packet
    // without touching its data.
    let size = (frame - 4).max(60);
    let running = rig.start(0, &[CORE], &format!("pktgen -i eth0 -s {size} -n 100000000 -c 100000000"))?;
    rig.pass(Duration::from_us(50));
    rig.forget_the_beginning();
    rig.pass(Duration::from_us(20));
    let run = rig.measure(&[CORE], BATCH, BATCHES);
    running.still_runs()?;
    let each = run.each([
        ("mpps", |rates| rates.mpps),
        ("ns", |rates| 1e3 / rates.mpps),
        ("cpu", |rates| rates.cpu),
        ("memory", |rates| rates.memory),
        ("misses", |rates| rates.misses),
        ("link-dma", |rates| rates.link_dma),
        ("link-io", |rates| rates.link_io),
        ("link", |rates| rates.link),
    ]);
    let gbit = ("gbit", run.of(|rates| rates.mpps * f64::from(frame) * 8.0 / 1e3));
    Ok(named("pktgen", &format!("{}/{frame}", organisation.name()), each.into_iter().chain([gbit])))
}
