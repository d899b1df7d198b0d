//! The suite of the NVMe driver, unchanged, in a guest that the drive is passed through to.

#[path = "../../../drivers/tests/nvme/cache.rs"]
mod cache;
#[path = "../../../drivers/tests/nvme/durability.rs"]
mod durability;
#[path = "../../../drivers/tests/nvme/faults.rs"]
mod faults;
mod machine;
#[path = "../../../drivers/tests/nvme/probe.rs"]
mod probe;
#[path = "../../../drivers/tests/nvme/reads_back.rs"]
mod reads_back;
