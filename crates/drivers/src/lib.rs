//! Device drivers, one folder each. A driver sees [`platform`] and the formats in [`wire`], but not the hardware
//! model, so it cannot tell a lent function from one of its own host.

pub mod card;
mod flows;
pub mod gpu;
mod members;
pub mod nic;
pub mod ntb;
pub mod nvme;
pub mod team;
pub mod vfio;
pub mod virtio_blk;
pub mod virtio_net;
mod virtio_ring;
