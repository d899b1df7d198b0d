//! The suite of the NIC's driver, unchanged, in guests that have the NICs of other hosts.

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
#[path = "ground/guest.rs"]
mod ground;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod suite;
