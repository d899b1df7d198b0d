//! Drivers on simulated devices. The suites of `gpu`, `nic` and `nvme` run in guests and on borrowed devices as well.

mod common;
#[path = "gpu/suite.rs"]
mod gpu;
#[path = "ground/bare.rs"]
mod ground;
mod kpio;
mod kpio_properties;
mod kpio_receive;
mod kpio_recovery;
#[path = "nic/suite/mod.rs"]
mod nic;
#[path = "nvme/suite/mod.rs"]
mod nvme;
mod octo;
mod sockets;
mod sriov;
mod steering;
