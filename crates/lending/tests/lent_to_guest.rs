//! The suites of the drivers, unchanged, in a guest that has borrowed the device from another host.

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod gpu;
#[path = "ground/guest.rs"]
mod ground;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod nic;
#[path = "../../drivers/tests/nvme/suite/mod.rs"]
mod nvme;
