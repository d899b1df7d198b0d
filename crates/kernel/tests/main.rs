//! The kernel on simulated machines.

mod backend;
mod boot;
mod common;
mod crossing;
mod devices;
mod dma;
mod domains;
mod errors;
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
