//! The suite of the NVMe driver, unchanged, on a host that has borrowed the drive.

#[path = "ground/lent.rs"]
mod ground;
#[path = "../../drivers/tests/nvme/mod.rs"]
mod suite;
