//! The suite of the NIC's driver, unchanged, in guests that the NICs are passed through to.

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
mod ground;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod suite;
