//! The kernel on simulated machines.

mod backend;
mod boot;
mod common;
mod containment;
mod crossing;
mod devices;
mod dma;
mod domains;
mod errors;
mod functions;
mod ground;
mod hotplug;
mod intx;
mod irq;
mod memory;
mod placement;
mod sched;
mod stores;
mod switches;
mod tags;
