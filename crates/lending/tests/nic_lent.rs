//! The suite of the NIC's driver, unchanged, on hosts that have borrowed the NICs.

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
#[path = "ground/lent.rs"]
mod ground;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod suite;
