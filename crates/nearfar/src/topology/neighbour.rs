//! A second card next to the first, behind its own root port on the same socket.

use std::cell::RefCell;
use std::rc::Rc;

use devices::dma_engine::Journal;
use engine::Seed;
use hardware::endpoint::EndpointId;
use machine::{Machine, Part};

use super::{ALL_LANES, Assembled, TopologyError, add_slot, card};

/// Bus number below the second card's root port.
pub const NEIGHBOUR_BUS: u8 = 2;

/// Adds `part` to an assembled machine, in a copy of slot `slot`: same socket and IOMMU, own link.
///
/// # Errors
/// If the slot does not exist or the card cannot be built.
pub fn add_neighbour(
    assembled: &mut Assembled,
    machine: &Machine,
    part: &Part,
    slot: &str,
    seed: Seed,
) -> Result<(EndpointId, Rc<RefCell<Journal>>), TopologyError> {
    let port = machine.host.port.get(slot).ok_or_else(|| TopologyError::NoSlot {
        machine: machine.name.clone(),
        slot: slot.into(),
        slots: machine.host.port.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    })?;
    let fabric = &mut assembled.fabric;
    let buses = NEIGHBOUR_BUS..=NEIGHBOUR_BUS;
    let slot = add_slot(fabric, assembled.host, &machine.host, (port, ALL_LANES), &part.link, buses);
    let penalty = machine.host.root_complex.long_header_bytes();
    card::plug(fabric, part, slot, penalty, seed.component("neighbour"))
}
