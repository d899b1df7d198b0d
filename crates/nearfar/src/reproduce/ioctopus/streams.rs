//! netperf's TCP_STREAM (section 5.1.1, Figures 6 and 7).

use units::Duration;

use super::Values;
use super::rig::{Bench, Organisation, Rates, Rig, Running, Watched};

/// Time of a batch.
const BATCH: Duration = Duration::from_us(25);
/// Batches at most.
const BATCHES: usize = 160;
/// The core of the process and of the interrupts.
const CORE: u16 = 0;
/// Adaptive coalescing, as the paper has it, and everything received at one core.
const DRIVER: &str = "adaptive = true\nrss = 0";

/// A stream that the server receives, in buffers of so many bytes. The client is a host whose NIC is local.
pub fn receive(bench: &Bench, organisation: Organisation, buffer: u32) -> Result<Rates, String> {
    let text = format!(
        "{}{}[[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, DRIVER),
        bench.host("client", Organisation::Local, DRIVER)
    );
    let rig = bench.boot(&text)?;
    rig.start(0, &[CORE], "netserver")?;
    let line = format!("netperf -H 10.0.0.1 -t TCP_STREAM -l 1 -- -m {buffer} -M {buffer}");
    let running = rig.start(1, &[CORE], &line)?;
    settled(&rig, &running)
}

/// A stream that the server sends, with or without segmentation offload. A tester takes it, so that no core of a client limits
/// it.
pub fn send(bench: &Bench, organisation: Organisation, buffer: u32, tso: bool) -> Result<Rates, String> {
    let text = format!(
        "{}[[sink]]\nname = \"client\"\naddress = \"10.0.0.200\"\n\
         [[cable]]\nends = [\"server\", \"client\"]\n",
        bench.host("server", organisation, DRIVER)
    );
    let rig = bench.boot(&text)?;
    if !tso {
        rig.without_tso(0)?;
    }
    let running = rig.start(0, &[CORE], &format!("iperf -c 10.0.0.200 -l {buffer} -t 1"))?;
    settled(&rig, &running)
}

fn settled(rig: &Rig, running: &Running) -> Result<Rates, String> {
    // Connecting, and windows that grow.
    rig.pass(Duration::from_us(500));
    let rates = rig.measure(Watched { cores: &[CORE] }, BATCH, BATCHES);
    match running.try_take() {
        Some(Err(failure)) => Err(failure.to_string()),
        Some(Ok(_)) => Err("the stream ended early".to_owned()),
        None => Ok(rates),
    }
}

/// The values of a run, by the names that claims use.
pub fn values(of: &str, organisation: Organisation, buffer: u32, rates: &Rates) -> Values {
    let place = format!("{}/{buffer}", organisation.name());
    let each = [
        ("gbit", rates.gbit),
        ("gbit-half", rates.gbit_half),
        ("kpps", rates.mpps * 1e3),
        ("cpu", rates.cpu),
        ("memory", rates.memory),
        ("memory-share", 100.0 * rates.memory / rates.gbit),
        ("link-dma", rates.link_dma),
        ("link", rates.link),
        ("batches", rates.batches as f64),
    ];
    each.into_iter().map(|(what, value)| (format!("{of}-{what}/{place}"), value)).collect()
}
