//! What a root complex makes of a GPU's reads from another one (section 7.1): counted on the links of both.

use hardware::link::Side;

use super::Values;
use super::topology::Scenario;
use crate::reproduce::Options;
use crate::reproduce::rig::Rig;

const BYTES: u64 = 64 << 10;
/// Class of non-posted TLPs among a link's counters.
const NON_POSTED: usize = 1;

/// Requests at the target for each of the reader's, by the root and by a switch alone.
pub fn run(options: &Options) -> Result<Values, String> {
    let mut values = Values::new();
    for (scenario, key) in [("Loc-P2P-Root", "reads/root"), ("Loc-P2P-SW", "reads/switch")] {
        let rig = Rig::boot(options, "device-lending", &Scenario::named(scenario).text())?;
        let devices = rig.host(0).devices.clone();
        let requests = |device: usize, side: Side| {
            rig.computers.simulation().with(|fabric, _| {
                let link = fabric.endpoint(devices[device]).links().next();
                link.map_or(0, |link| fabric.wires.link(link).counters(side).tlps[NON_POSTED])
            })
        };
        let at_target = requests(0, Side::Upstream);
        rig.run(&format!("gpu-copy --bytes={BYTES} --count=1 --through=read --verify"))?;
        // All that reaches the target's link from above are its own registers, which nobody reads meanwhile, and the reads.
        let arrived = requests(0, Side::Upstream) - at_target;
        let asked = BYTES / 256;
        values.insert(key.into(), arrived as f64 / asked as f64);
    }
    Ok(values)
}
