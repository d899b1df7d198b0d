//! IOMMU counters.

use units::Duration;

/// Counters since the reset.
///
/// `lookups = hits + merged + misses + passed + refused_early`: every request counts as exactly one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IommuCounters {
    /// Requests while translation was enabled, including ATS translation requests.
    pub lookups: u64,
    /// IOTLB hits.
    pub hits: u64,
    /// Requests that joined a walk in progress.
    pub merged: u64,
    /// Requests that needed a walk.
    pub misses: u64,
    /// Requests without translation: pass-through, or already translated (ATS).
    pub passed: u64,
    /// Requests refused before the IOTLB lookup: context faults, address width, interrupt range.
    pub refused_early: u64,
    /// Page walks started.
    pub walks: u64,
    /// Page table entries read.
    pub walk_steps: u64,
    /// Walks that started below the top level due to a paging-structure cache hit.
    pub shortened_walks: u64,
    /// Time that walks waited for a walker or a bank.
    pub walker_queueing: Duration,
    /// Time that walkers were walking, or held after a walk.
    pub walker_busy: Duration,
    /// Time that requests waited for a place in the pipeline.
    pub pipeline_queueing: Duration,
    /// Root and context entry hits in the context cache.
    pub context_hits: u64,
    /// Root and context entries read from memory.
    pub context_misses: u64,
    /// Interrupts remapped or passed.
    pub interrupts: u64,
    /// Interrupt entries read from memory.
    pub interrupt_entry_misses: u64,
    /// Faults of all kinds.
    pub faults: u64,
    /// Context-cache invalidations executed.
    pub context_invalidations: u64,
    /// IOTLB invalidations executed.
    pub iotlb_invalidations: u64,
    /// IOTLB entries removed by these.
    pub iotlb_entries_invalidated: u64,
    /// Interrupt entry cache invalidations executed.
    pub interrupt_invalidations: u64,
    /// Device-TLB invalidations sent.
    pub device_tlb_invalidations: u64,
    /// Wait descriptors executed.
    pub waits: u64,
}
