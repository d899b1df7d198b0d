//! An IOMMU in the manner of Intel's VT-d: DMA remapping, interrupt remapping, invalidation queue.
//!
//! All tables are real: bytes in simulated memory, in the specification's formats, read by timed walks. There
//! are no events in here: every call computes its times at once by reserving walkers and pipeline places.
//! Section numbers refer to the *Intel Virtualization Technology for Directed I/O Architecture
//! Specification*, legacy mode.
//!
//! | file | subject |
//! |---|---|
//! | `params` | what a machine file has to say about an IOMMU |
//! | `translate` | the path of a DMA request: context, IOTLB, walk |
//! | `pipeline`, `walkers` | what bounds and orders that path |
//! | `cache`, `iotlb`, `structures` | what is cached |
//! | `format` | root, context and page table entries |
//! | `tables` | software's side: building and editing the tables |
//! | `fault` | fault reasons, recording registers, counts |
//! | `invalidation`, `queue` | descriptors, and their execution in order |
//! | `interrupt` | interrupt remapping |
//! | `memory`, `ids`, `counters` | what it needs, names and counts |

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

/// A context entry as cached.
#[derive(Clone, Copy, Debug)]
struct CachedContext {
    entry: ContextEntry,
    /// When it had been read.
    known_from: Time,
}

/// One IOMMU: all functions below the root ports that it serves share it.
#[derive(Debug, Clone)]
pub struct Iommu {
    params: IommuParams,
    features: Features,
    /// The socket it sits in.
    node: NodeId,
    /// Of what its caches throw out.
    seed: Seed,
    enabled: bool,
    root_table: HostPhysical,
    contexts: TaggedCache<CachedContext>,
    /// The context of the request before this one, so that the cache is not searched for every packet.
    recent_context: Option<(Bdf, CachedContext)>,
    iotlb: iotlb::Iotlb,
    structures: structures::StructureCaches,
    walkers: walkers::Walkers,
    walks: walkers::PendingWalks,
    /// When the first of the walks in progress ends.
    next_fill: Time,
    pipeline: pipeline::Pipeline,
    in_use_until: Time,
    faults: FaultLog,
    queue: queue::InvalidationQueue,
    interrupts: interrupt::InterruptRemapper,
    counters: IommuCounters,
}

impl Iommu {
    /// An IOMMU in the socket of `node`, disabled as after a reset. `seed` feeds random replacement.
    ///
    /// # Errors
    /// If `params` cannot be built.
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

    /// A reset: disabled, nothing cached, nothing counted.
    pub fn reset(&mut self) {
        *self = Self::new(self.params, self.node, self.seed).expect("it has been built from this");
    }

    /// What it was built from.
    pub const fn params(&self) -> &IommuParams {
        &self.params
    }

    /// What its capability register says of table formats.
    pub const fn features(&self) -> Features {
        self.features
    }

    /// Enables or disables DMA remapping (global command register, TE). Disabled, every request passes with
    /// its address as it is and costs nothing.
    pub const fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Where the root table is (root table address register). Software must invalidate the context cache
    /// and the IOTLB afterwards.
    pub const fn set_root_table(&mut self, root_table: HostPhysical) {
        self.root_table = root_table.align_down(4096);
    }

    /// The fault recording registers and counts.
    pub const fn faults(&self) -> &FaultLog {
        &self.faults
    }

    /// Counts since the beginning.
    pub const fn counters(&self) -> &IommuCounters {
        &self.counters
    }
}
