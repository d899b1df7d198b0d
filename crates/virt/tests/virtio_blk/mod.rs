//! Those parts of the suite that know of no driver, and what a guest and its host do to a virtual disk.

#[path = "../../../drivers/tests/nvme/cache.rs"]
mod cache;
#[path = "../../../drivers/tests/nvme/durability.rs"]
mod durability;
mod faults;
mod machine;
mod rogue;
