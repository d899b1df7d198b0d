//! The suites of the drivers, unchanged, on a host that has borrowed the device.

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod gpu;
#[path = "ground/lent.rs"]
mod ground;
mod hanging_drive;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod nic;
#[path = "../../drivers/tests/nvme/suite/mod.rs"]
mod nvme;
