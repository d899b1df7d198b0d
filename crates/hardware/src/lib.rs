//! Hardware that reacts: links, ports, root complexes, IOMMUs, caches, DRAM.

pub mod iommu;
pub mod memory;
