//! Devices as a host sees them.

mod common;
mod dma_engine;
mod gpu;
mod nic;
mod nvme;
