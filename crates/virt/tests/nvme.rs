//! The suite of the NVMe driver, unchanged, in a guest that the drive is passed through to.

mod ground;
#[path = "../../drivers/tests/nvme/suite/mod.rs"]
mod suite;
