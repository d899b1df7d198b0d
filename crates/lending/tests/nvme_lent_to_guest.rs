//! The suite of the NVMe driver, unchanged, in a guest that has the drive of another host.

#[path = "ground/guest.rs"]
mod ground;
#[path = "../../drivers/tests/nvme/suite/mod.rs"]
mod suite;
