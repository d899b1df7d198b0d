//! Drivers, one folder each. They see [`platform`] and the formats in [`wire`], and nothing of the hardware model: a
//! driver here cannot tell whose function it drives.

pub mod gpu;
pub mod nic;
pub mod ntb;
pub mod nvme;
pub mod team;
pub mod vfio;
pub mod virtio_blk;
pub mod virtio_net;
mod virtio_ring;
