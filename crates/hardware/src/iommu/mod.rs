//! An IOMMU modelled on Intel's VT-d: DMA remapping, interrupt remapping, invalidation queue.
//!
//! All tables are real: bytes in simulated memory, in the specification's formats, read by timed walks. There are no
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
//! | `remapper`, `interrupt` | interrupt remapping and its formats |
//! | `queue`, `invalidation` | execution of invalidation descriptors in order, and their formats |
//! | `format` | root, context and page table entries |
//! | `tables` | software's side: building and editing the tables |
//! | `fault` | fault reasons, recording registers, counters |
//! | `memory`, `ids`, `counters` | memory interface, identifiers, counters |

mod cache;
mod contexts;
mod counters;
mod fault;
mod format;
mod ids;
mod interrupt;
mod invalidation;
mod iotlb;
mod memory;
mod pages;
mod params;
mod pipeline;
mod queue;
mod remapper;
mod request;
mod structures;
pub mod tables;
mod translator;
mod unit;
mod walkers;

#[cfg(test)]
mod tests;

pub use counters::{IommuCounters, PageCounters};
pub use fault::{Fault, FaultLog, FaultReason};
pub use format::{ContextEntry, Features, PageEntry, RootEntry, TranslationType};
pub use ids::{Access, DomainId, PageSize, Permissions};
pub use interrupt::{
    Delivery, DeliveryMode, Interrupt, InterruptEntry, MsiMessage, PostedDescriptor, PostedInterrupt,
    SourceCheck,
};
pub use invalidation::{ContextScope, Descriptor, Scope};
pub use memory::{WalkMemory, WalkRead};
pub use params::{
    Geometry, IommuParams, IotlbReplacement, PagingStructureCaches, ParamsError, PipelineOrder,
};
pub use queue::QueueAction;
pub use remapper::{InterruptOutcome, InterruptTable};
pub use request::DmaRequest;
pub use translator::{Translated, Translation};
pub use unit::Iommu;
