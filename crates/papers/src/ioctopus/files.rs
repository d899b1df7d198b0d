//! A file whose pages in the page cache are on both nodes, sent without a copy (section 3.3).

use std::rc::Rc;

use platform::memory::Policy;
use units::Duration;

use super::server::{COSTS, Organisation, ServerBench};
use super::streams::{CORE, DRIVER, settled};
use crate::rig;
use crate::runs::{Values, named};

/// Bytes of the file.
const FILE: u32 = 512 << 10;
/// Time for the file to be read from the drive into the page cache.
const READ: Duration = Duration::from_ms(2);

/// netperf's TCP_SENDFILE from one core.
pub fn send(bench: &ServerBench, organisation: Organisation) -> Result<Values, String> {
    let text = format!(
        "{}{}{}{}",
        bench.host("server", organisation, DRIVER),
        bench.drive(),
        bench.host("client", Organisation::Local, DRIVER),
        ServerBench::cable(organisation)
    );
    let rig = bench.boot(&text)?;
    rig.start(1, &[CORE], "netserver")?;
    let line = format!("netperf -H 10.0.0.2 -t TCP_SENDFILE -F nvme0n1 -l 1 -- -m 65536 -f {FILE}");
    let running = rig::start(Rc::clone(&rig.host(0).kernel), &[CORE], Policy::Interleave, &line)?;
    // What the drive writes to the other node leaves a copy in its own socket's cache, which would serve the NIC there;
    // a file that is larger than the cache has none. `settled` flushes them.
    rig.pass(READ);
    let run = settled(&rig, &running)?;
    let each =
        run.each([("gbit", |rates| rates.gbit), ("crossed", |rates| 100.0 * rates.link_dma / rates.gbit)]);
    Ok(named("sendfile", organisation.name(), each.into_iter().chain(run.each(COSTS))))
}
