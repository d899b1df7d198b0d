//! Cards with a DMA engine.

use hardware::endpoint::EndpointId;
use machine::Part;

use super::Slot;
use crate::counters::Kind;
use crate::tenth::{larger, more};
use crate::topology::{TopologyError, plug_card};

pub fn plug(mut slot: Slot<'_>, part: &Part) -> Result<EndpointId, TopologyError> {
    let (links, generation, width) = slot.links(&part.link);
    let penalty = slot.machine.root_complex.long_header_bytes();
    let (card, _) =
        plug_card(slot.fabric, part, (links[0], generation, width), penalty, slot.seed.component("card"))?;
    Ok(card)
}

/// Raises tags or the read buffer by a tenth.
pub fn raise(part: &mut Part, kind: Kind) -> Option<()> {
    match kind {
        Kind::Tags => more(&mut part.dma_engine.tags.value),
        Kind::Buffer => larger(&mut part.dma_engine.read_buffer.value),
        _ => return None,
    }
    Some(())
}
