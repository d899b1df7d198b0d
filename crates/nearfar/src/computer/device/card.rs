//! Cards with a DMA engine.

use hardware::endpoint::EndpointId;
use machine::Part;

use super::Slot;
use crate::topology::{TopologyError, plug_card};

pub fn plug(mut slot: Slot<'_>, part: &Part) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&part.link);
    let penalty = slot.machine.root_complex.long_header_bytes();
    let (card, _) =
        plug_card(slot.fabric, part, (links[0], generation, width), penalty, slot.seed.component("card"))?;
    Ok(card)
}
