//! An IOMMU: DMA remapping, invalidation queue and, as Intel's VT-d has it, interrupt remapping.
//!
//! All tables are real: bytes in simulated memory, in the formats of VT-d, AMD's IOMMU or Arm's SMMUv3 ([`wire::iommu`]), read by timed
//! walks. There are no
//! events: every call computes its times at once by reserving walkers and pipeline places. Section numbers refer to the
//! *Intel Virtualization Technology for Directed I/O Architecture Specification*, legacy mode.
//!
//! | file | subject |
//! |---|---|
//! | `params` | IOMMU parameters of a machine file |
//! | `unit` | the IOMMU: its registers, and what passes through it |
//! | `request`, `translator` | DMA requests: `contexts` of functions, then `pages` of domains |
//! | `pipeline`, `walkers` | limits and ordering on that path |
//! | `cache`, `iotlb`, `structures` | caches |
//! | `remapper` | interrupt remapping |
//! | `queue` | execution of invalidation descriptors in order |
//! | `fault` | fault recording registers, counters |
//! | `fixed` | domains of a host without a kernel |
//! | `memory`, `counters` | memory interface, counters |

mod cache;
mod contexts;
mod counters;
mod fault;
mod fixed;
mod iotlb;
mod memory;
mod pages;
mod params;
mod pipeline;
mod queue;
mod remapper;
mod request;
mod structures;
mod translator;
mod unit;
mod walkers;

#[cfg(test)]
mod tests;

pub use counters::{IommuCounters, PageCounters};
pub use fault::{Fault, FaultLog};
pub use fixed::{ConsecutiveFrames, FixedDomains};
pub use memory::{WalkMemory, WalkRead};
pub use params::{
    Geometry, IommuKind, IommuParams, IotlbReplacement, PagingStructureCaches, ParamsError, PipelineOrder,
};
pub use queue::QueueAction;
pub use remapper::InterruptOutcome;
pub use request::DmaRequest;
pub use translator::{Translated, Translation};
pub use unit::Iommu;
