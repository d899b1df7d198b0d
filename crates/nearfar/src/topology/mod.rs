//! Builds hardware from files.
//!
//! A file's struct (`machine`) has figures with sources; a part's parameters (`hardware`, `devices`) are plain values, so that
//! a part is of use without files. Choices that both need are one type of `settings`; `plain!` copies figures of the same
//! name.

mod card;
mod iommu;
mod memory;
mod neighbour;
mod ntb;
mod power;
mod root;
mod switch;

use std::cell::RefCell;
use std::rc::Rc;

use devices::dma_engine::Journal;
use engine::Seed;
use hardware::Fabric;
use hardware::endpoint::EndpointId;
use hardware::link::LinkId;
use hardware::memory::{CacheState, MemoryParams, MemorySystem, NodeId};
use hardware::root::{HostId, Power};
use machine::{Host, LinkCapability, Machine, Part, RootPort};
use thiserror::Error;
use wire::pcie::{Generation, Width};

pub use card::{
    CARD_IDS, attributes, card_params, completion_timeout, endpoint_params, endpoint_port, negotiate,
    plug as plug_card, sends_at_wire_speed,
};
pub use iommu::iommu_params;
pub use memory::{memory_params, memory_ranges};
pub use neighbour::{NEIGHBOUR_BUS, add_neighbour};
pub use ntb::{cluster_switch_params, ntb_cable_params, ntb_core, ntb_params};
pub use power::power_params;
pub use root::{link_params, root_port_params, store_params};
pub use switch::{add_switch_slot, switch_params};

use crate::plain::narrow;

/// Why a machine cannot be assembled.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// The machine has no such slot.
    #[error("`{machine}` has no slot `{slot}`; its slots are {slots}")]
    NoSlot {
        /// The machine's name.
        machine: String,
        /// The requested slot.
        slot: String,
        /// The existing slots.
        slots: String,
    },
    /// The card's capabilities do not fit into configuration space.
    #[error("the card cannot be built: {0}")]
    Card(String),
    /// The IOMMU's parameters are inconsistent.
    #[error("the IOMMU of `{machine}` cannot be built: {problem}")]
    Iommu {
        /// The machine's name.
        machine: String,
        /// What does not fit, as a sentence.
        problem: String,
    },
}

/// A machine with a DMA-engine card.
pub struct Assembled {
    /// All hardware.
    pub fabric: Fabric,
    /// The machine.
    pub host: HostId,
    /// The card with the DMA engine.
    pub card: EndpointId,
    /// The link between them.
    pub link: LinkId,
    /// Socket that the card is attached to.
    pub node: NodeId,
    /// The card's measurements.
    pub journal: Rc<RefCell<Journal>>,
}

/// All lanes of device and slot.
pub const ALL_LANES: u32 = 32;

/// Plugs `part` into `slot` of `machine`, with the IOMMU on or off and the caches in state `caches`.
///
/// # Errors
/// If the slot does not exist, or the description is inconsistent.
pub fn assemble(
    machine: &Machine,
    part: &Part,
    slot: &str,
    iommu_on: bool,
    caches: CacheState,
    seed: Seed,
) -> Result<Assembled, TopologyError> {
    let port = machine.host.port.get(slot).ok_or_else(|| TopologyError::NoSlot {
        machine: machine.name.clone(),
        slot: slot.into(),
        slots: machine.host.port.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    })?;
    let mut fabric = Fabric::new();
    let memory = MemorySystem::with_caches(&host_memory(machine, seed), caches);
    let host = add_host_with(&mut fabric, machine, memory, iommu_on, seed)?;
    let slot = add_slot(&mut fabric, host, &machine.host, (port, ALL_LANES), &part.link, 1..=1);
    let penalty = machine.host.root_complex.long_header_bytes();
    let (card, journal) = card::plug(&mut fabric, part, slot, penalty, seed.component("card"))?;
    Ok(Assembled { fabric, host, card, link: slot.0, node: NodeId(narrow(port.socket.value)), journal })
}

/// Adds `machine` without its slots, with the IOMMU on or off.
///
/// # Errors
/// If the description is inconsistent.
pub fn add_host(
    fabric: &mut Fabric,
    machine: &Machine,
    iommu_on: bool,
    seed: Seed,
) -> Result<HostId, TopologyError> {
    let memory = MemorySystem::new(&host_memory(machine, seed));
    add_host_with(fabric, machine, memory, iommu_on, seed)
}

/// Parameters of `machine`'s memory.
fn host_memory(machine: &Machine, seed: Seed) -> MemoryParams {
    memory_params(&machine.host, seed.component("memory").u64())
}

/// Adds `machine` with the given memory, without its slots, with the IOMMU on or off.
fn add_host_with(
    fabric: &mut Fabric,
    machine: &Machine,
    memory: MemorySystem,
    iommu_on: bool,
    seed: Seed,
) -> Result<HostId, TopologyError> {
    let iommus = match (&machine.host.iommu, iommu_on) {
        (Some(params), true) => (0..machine.host.sockets.value.get())
            .map(|node| iommu::iommu(params, NodeId(narrow(node)), seed.part(&format!("iommu{node}"))))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| TopologyError::Iommu { machine: machine.name.clone(), problem: e.to_string() })?,
        _ => Vec::new(),
    };
    let host = fabric.add_host(memory, iommus);
    fabric.host_mut(host).set_store_params(&root::store_params(&machine.host));
    if let Some(power) = &machine.host.power {
        let power = Power::new(power::power_params(power), seed.component("power"));
        fabric.host_mut(host).manage_power(power);
    }
    Ok(host)
}

/// Adds the root port and the link of a slot of `host`, with at most `lanes` lanes, for a device of capability
/// `device`. The port leads to `buses`.
pub fn add_slot(
    fabric: &mut Fabric,
    host: HostId,
    machine: &Host,
    (port, lanes): (&RootPort, u32),
    device: &LinkCapability,
    buses: std::ops::RangeInclusive<u8>,
) -> (LinkId, Generation, Width) {
    let (generation, width) = card::negotiate(device, port, lanes);
    let max_payload = port.mps_bytes.value.get().min(device.mps_bytes.value.get());
    let params = root::root_port_params(machine, port, max_payload);
    let link = root::link_params(port, device, generation, width);
    (fabric.add_root_port(host, params, link, buses), generation, width)
}
