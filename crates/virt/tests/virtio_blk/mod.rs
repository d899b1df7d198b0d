//! Those parts of the suite that know of no driver.

#[path = "../../../drivers/tests/nvme/cache.rs"]
mod cache;
#[path = "../../../drivers/tests/nvme/durability.rs"]
mod durability;
mod machine;
