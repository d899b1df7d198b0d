//! An IOMMU modelled on Intel's VT-d: DMA remapping, interrupt remapping, invalidation queue.
//!
//! All tables are real: bytes in simulated memory, in the specification's formats, read by timed walks. There are no
//! events: every call computes its times at once by reserving walkers and pipeline places. Section numbers refer to the
//! *Intel Virtualization Technology for Directed I/O Architecture Specification*, legacy mode.
//!
//! | file | subject |
//! |---|---|
//! | `params` | IOMMU parameters of a machine file |
//! | `translate` | the path of a DMA request: context, IOTLB, walk |
//! | `pipeline`, `walkers` | limits and ordering on that path |
//! | `cache`, `iotlb`, `structures` | caches |
//! | `format` | root, context and page table entries |
//! | `tables` | software's side: building and editing the tables |
//! | `fault` | fault reasons, recording registers, counters |
//! | `invalidation`, `queue` | descriptors and their execution in order |
//! | `interrupt` | interrupt remapping |
//! | `memory`, `ids`, `counters` | memory interface, identifiers, counters |

mod cache;
mod counters;
mod fault;
mod format;
mod ids;
mod interrupt;
mod invalidation;
mod iotlb;
mod memory;
mod params;
mod pipeline;
mod queue;
mod structures;
pub mod tables;
mod translate;
mod walkers;

#[cfg(test)]
mod tests;

pub use counters::IommuCounters;
pub use fault::{Fault, FaultLog, FaultReason};
pub use format::{ContextEntry, Features, PageEntry, RootEntry, TranslationType};
pub use ids::{Access, AddressType, DomainId, PageSize, Permissions};
pub use interrupt::{
    Delivery, DeliveryMode, Interrupt, InterruptEntry, InterruptOutcome, InterruptTable, MsiMessage,
    PostedDescriptor, PostedInterrupt, SourceCheck,
};
pub use invalidation::{ContextScope, Descriptor, Scope};
pub use memory::{WalkMemory, WalkRead};
pub use params::{Geometry, IommuParams, PagingStructureCaches, ParamsError, PipelineOrder, Replacement};
pub use queue::{QueueAction, QueueError};
pub use translate::{Translated, Translation, is_interrupt_address};

use crate::memory::NodeId;
use cache::TaggedCache;
use engine::Seed;
use units::{HostPhysical, Time};
use wire::pcie::Bdf;

/// A cached context entry.
#[derive(Clone, Copy, Debug)]
struct CachedContext {
    entry: ContextEntry,
    /// When it was read.
    known_from: Time,
}

/// An IOMMU, shared by all functions below its root ports.
#[derive(Debug, Clone)]
pub struct Iommu {
    params: IommuParams,
    features: Features,
    /// Its socket.
    node: NodeId,
    /// Seed of the random replacement policies.
    seed: Seed,
    enabled: bool,
    root_table: HostPhysical,
    contexts: TaggedCache<CachedContext>,
    /// Context of the previous request, which saves a cache lookup for most packets.
    recent_context: Option<(Bdf, CachedContext)>,
    iotlb: iotlb::Iotlb,
    structures: structures::StructureCaches,
    walkers: walkers::Walkers,
    walks: walkers::PendingWalks,
    /// When the first walk in progress ends.
    next_fill: Time,
    pipeline: pipeline::Pipeline,
    in_use_until: Time,
    faults: FaultLog,
    queue: queue::InvalidationQueue,
    interrupts: interrupt::InterruptRemapper,
    counters: IommuCounters,
}

impl Iommu {
    /// Creates an IOMMU in the socket of `node`, disabled as after a reset. `seed` is for random replacement.
    ///
    /// # Errors
    /// If `params` are invalid.
    pub fn new(params: IommuParams, node: NodeId, seed: Seed) -> Result<Self, ParamsError> {
        params.validate()?;
        Ok(Self {
            params,
            features: Features::from(&params),
            node,
            seed,
            enabled: false,
            root_table: HostPhysical::new(0),
            contexts: TaggedCache::new(params.context_cache, seed.component("context cache")),
            recent_context: None,
            iotlb: iotlb::Iotlb::new(
                Geometry { entries: params.iotlb.entries - params.iotlb_reserved, ..params.iotlb },
                seed.component("IOTLB"),
            ),
            structures: structures::StructureCaches::new(params.paging_structure_caches),
            walkers: walkers::Walkers::new(&params),
            walks: walkers::PendingWalks::default(),
            next_fill: Time::NEVER,
            pipeline: pipeline::Pipeline::new(&params),
            in_use_until: Time::ZERO,
            faults: FaultLog::new(params.fault_records),
            queue: queue::InvalidationQueue::default(),
            interrupts: interrupt::InterruptRemapper::new(
                params.interrupt_entry_cache,
                seed.component("interrupt entry cache"),
            ),
            counters: IommuCounters::default(),
        })
    }

    /// Resets the IOMMU: disabled, caches empty, counters zero.
    pub fn reset(&mut self) {
        *self = Self::new(self.params, self.node, self.seed).expect("it has been built from this");
    }

    /// Parameters of the IOMMU.
    pub const fn params(&self) -> &IommuParams {
        &self.params
    }

    /// Table format features in its capability register.
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Enables or disables DMA remapping (global command register, TE). While disabled, addresses pass unchanged
    /// without delay.
    pub const fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Sets the root table (root table address register). Software must then invalidate the context cache and the
    /// IOTLB.
    pub const fn set_root_table(&mut self, root_table: HostPhysical) {
        self.root_table = root_table.align_down(4096);
    }

    /// Fault recording registers and counters.
    pub const fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// Counters since the reset.
    pub const fn counters(&self) -> &IommuCounters {
        &self.counters
    }
}
