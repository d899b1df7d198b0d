//! pktgen (section 5.1.1, Figure 8): one core sends the same packet over and over.

use units::Duration;

use super::Values;
use super::rig::{Bench, Organisation, Watched};

const BATCH: Duration = Duration::from_us(10);
const BATCHES: usize = 160;
const CORE: u16 = 0;

/// Values of pktgen with frames of so many bytes, check sequence included.
pub fn run(bench: &Bench, organisation: Organisation, frame: u32) -> Result<Values, String> {
    let text = format!(
        "{}[[sink]]\nname = \"client\"\naddress = \"10.0.0.200\"\n\
         [[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, "")
    );
    let rig = bench.boot(&text)?;
    // pktgen's size is without the check sequence. The paper repeats a packet without touching its data.
    let size = (frame - 4).max(60);
    let running = rig.start(0, &[CORE], &format!("pktgen -i eth0 -s {size} -n 100000000 -c 100000000"))?;
    rig.pass(Duration::from_us(50));
    let rates = rig.measure(Watched { cores: &[CORE] }, BATCH, BATCHES);
    if let Some(Err(failure)) = running.try_take() {
        return Err(failure.to_string());
    }
    let each = [
        ("mpps", rates.mpps),
        ("gbit", rates.mpps * f64::from(frame) * 8.0 / 1e3),
        ("interval", 100.0 * rates.gbit_half / rates.gbit),
        ("ns", 1e3 / rates.mpps),
        ("cpu", rates.cpu),
        ("memory", rates.memory),
        ("misses", rates.misses),
        ("link-dma", rates.link_dma),
        ("link", rates.link),
    ];
    let place = format!("{}/{frame}", organisation.name());
    Ok(each.into_iter().map(|(what, value)| (format!("pktgen-{what}/{place}"), value)).collect())
}
