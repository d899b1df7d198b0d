//! Wire formats: bytes in, bytes out, no time.
//!
//! Each format file has the field ranges of its specification, a validated representation with `parse` and `emit`, a
//! `Display` as in a protocol analyser, and tests. Nothing here knows about queues, clocks or devices.
//!
//! * [`pcie`]: transaction and data link layer packets, framing, ordering, and configuration space;
//! * [`nvme`]: registers, queue entries, data pointers, identify data and logs of NVM Express;
//! * [`ethernet`], [`ip`]: frames and packets of networks; [`pcap`]: captures of them;
//! * [`gpu`]: registers, rings and commands of the GPU;
//! * [`virtio`]: rings that guests share with their hypervisor;
//! * [`iommu`]: tables and queue entries of IOMMUs, in the formats of [`vtd`], [`amdvi`] and [`smmu`];
//! * [`nic`]: registers, descriptors and completions of the NIC; [`kpio`]: frames in its programmed-I/O queues.

#![forbid(unsafe_code)]

pub mod amdvi;
pub mod dma_engine;
pub mod ethernet;
pub mod gpu;
pub mod iommu;
pub mod ip;
pub mod kpio;
mod malformed;
pub mod nic;
pub mod ntb;
pub mod nvme;
pub mod pcap;
pub mod pcie;
pub mod smmu;
pub mod virtio;
pub mod vtd;

pub use malformed::Malformed;

/// Bytes of a line: a write-combining buffer of x86 cores.
pub const LINE: usize = 64;
