//! Hardware models: links, ports, root complexes, IOMMUs, caches, DRAM.
//!
//! The [`Fabric`] is the world of a simulation: hosts with their memory and root ports, devices, and the links between
//! them. It reacts to events; activity starts from device models plugged into it, and from accesses of a host's cores.
//!
//! | module | subject |
//! |---|---|
//! | `fabric` | passes events to hosts, devices and switches, and pulls, plugs and resets them |
//! | `wires`, `packet`, `table` | all links, TLPs in flight, records found by number |
//! | `link` | a PCIe link: two directions |
//! | `endpoint` | a device: its PCIe core around the model of its registers and firmware |
//! | `switch`, `bridge`, `containment` | PCIe switches, and what their ports and root ports share |
//! | `root` | root complex: ports, requests of devices and of cores, interrupts |
//! | `iommu` | DMA and interrupt remapping |
//! | `memory` | caches, DDIO, coherence, interconnect, DRAM |
//! | `core` | a core's stores to devices |
//! | `ntb` | non-transparent bridges, and switches between their cables |
//! | `ethernet` | cables, switches, captures |
//! | `firmware` | configuration of devices on a host without a kernel |
//!
//! A part owns its state, and gets what it needs of others (links, clock, event queue, memory) with each call. What was
//! sent or scheduled before a link was lost, a tag was used again, or a device, port, function or queue was reset
//! carries an older [`Epoch`](engine::Epoch) and is dropped.

pub mod bridge;
mod containment;
pub mod core;
mod detected;
mod enables;
pub mod endpoint;
pub mod ethernet;
mod event;
mod fabric;
mod firmware;
mod growth;
pub mod iommu;
pub mod link;
pub mod memory;
pub mod ntb;
pub mod packet;
pub mod root;
pub mod switch;
mod table;
pub mod wires;
pub use detected::Detected;
pub use event::Event;
pub use fabric::{Fabric, HostEnds, RequestEnd, RequestEnds, RequestStop, Running};
pub use firmware::HostFirmware;
