//! NTB adapters.

use hardware::endpoint::EndpointId;
use machine::Ntb;

use super::Slot;
use crate::topology::{TopologyError, ntb_core, ntb_params};

pub fn plug(mut slot: Slot<'_>, ntb: &Ntb, node: u8) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&ntb.link);
    let params = ntb_params(ntb, node, (generation, width));
    let added = slot.fabric.add_ntb(ntb_core(ntb), params, links[0]);
    added.map_err(|error| TopologyError::Card(error.to_string()))
}
