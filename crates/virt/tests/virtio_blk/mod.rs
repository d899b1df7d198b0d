//! The NVMe driver's suite as far as it is about blocks and their cache, unchanged, in a guest whose virtual disk is a drive of its host;
//! and guests that do to its ring what they like, stand still, move, are reset and killed.

#[path = "../../../drivers/tests/nvme/suite/cache.rs"]
mod cache;
#[path = "../../../drivers/tests/nvme/suite/durability.rs"]
mod durability;
mod faults;
mod machine;
#[path = "../../../drivers/tests/nvme/suite/programs.rs"]
mod programs;
mod rogue;
