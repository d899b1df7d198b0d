//! Cards with a DMA engine.

use devices::dma_engine::DmaEngine;
use hardware::endpoint::EndpointId;
use machine::Part;

use super::Slot;
use crate::topology::{TopologyError, endpoint_params, firmware_params};

pub fn plug(mut slot: Slot<'_>, part: &Part) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&part.link);
    let firmware = firmware_params(part, generation, width);
    let (device, _) = DmaEngine::new(firmware, slot.seed.component("card"))
        .map_err(|error| TopologyError::Card(error.to_string()))?;
    let ps_per_wire_byte = slot.fabric.wires.link(links[0]).wire_time_per_byte_ps();
    let penalty = slot.machine.root_complex.long_header_bytes();
    let core = endpoint_params(part, ps_per_wire_byte, penalty);
    Ok(slot.fabric.add_endpoint(core, &links, Box::new(device)))
}
