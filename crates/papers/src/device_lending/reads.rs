//! How a root complex splits a GPU's reads of another GPU (section 7.1): counted on the links of both.

use nearfar::hardware::link::Side;

use super::Values;
use super::topology::Scenario;
use crate::Options;
use crate::rig::Rig;

const BYTES: u64 = 64 << 10;
/// Index of non-posted TLPs in a link's counters.
const NON_POSTED: usize = 1;

/// Requests arriving at the target per request of the reader: through the root, and through a switch alone.
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
        // Only reads reach the target's link from above: nothing accesses its registers meanwhile.
        let arrived = requests(0, Side::Upstream) - at_target;
        let asked = BYTES / 256;
        values.insert(key.into(), arrived as f64 / asked as f64);
    }
    Ok(values)
}
