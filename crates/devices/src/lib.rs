//! Devices: registers and firmware, one folder each.
//!
//! A model sees its configuration space, accesses to its BARs, DMA, interrupts and time through the traits in
//! [`platform::device`], and nothing else of the simulator.

pub mod dma_engine;
pub mod firmware;
pub mod gpu;
pub mod nic;
pub mod nvme;
pub mod rogue;
