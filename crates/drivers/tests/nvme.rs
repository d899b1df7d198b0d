//! The suite of the NVMe driver on bare metal.

#[path = "ground/bare.rs"]
mod ground;
#[path = "nvme/mod.rs"]
mod suite;
