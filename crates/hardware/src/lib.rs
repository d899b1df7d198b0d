//! Hardware models: links, ports, root complexes, IOMMUs, caches, DRAM.
//!
//! The [`Fabric`] is the world of a simulation: hosts with their memory and root ports, devices, and the links between
//! them. It reacts to events; activity starts from device models plugged into it, and from accesses of a host's cores.

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
