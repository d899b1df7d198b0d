//! Guests, and the suites of the drivers, unchanged, in them.

#![expect(clippy::duplicate_mod, reason = "the same suite on two machines")]

#[path = "../../drivers/tests/common/mod.rs"]
mod common;
#[path = "../../drivers/tests/gpu/suite.rs"]
mod gpu;
mod ground;
mod guests;
#[path = "../../drivers/tests/nic/suite/mod.rs"]
mod nic;
#[path = "../../drivers/tests/nvme/suite/mod.rs"]
mod nvme;
mod virtio_blk;
