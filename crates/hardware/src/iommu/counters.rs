//! What the IOMMU counts.

use units::Duration;

/// Counts since the beginning.
///
/// `lookups = hits + merged + misses + passed + refused_early`: every request is exactly one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IommuCounters {
    /// Requests seen while translation was enabled, translation requests of ATS included.
    pub lookups: u64,
    /// Found in the IOTLB.
    pub hits: u64,
    /// Found among the walks in progress, and waited for it.
    pub merged: u64,
    /// Needed a walk.
    pub misses: u64,
    /// Needed no translation: pass-through, or translated by the function's own cache.
    pub passed: u64,
    /// Refused before any lookup in the IOTLB: context faults, address width, interrupt range.
    pub refused_early: u64,
    /// Page walks begun.
    pub walks: u64,
    /// Page table entries read.
    pub walk_steps: u64,
    /// Walks that began below the top level, thanks to a paging-structure cache.
    pub shortened_walks: u64,
    /// Time that walks waited for a walker or a bank.
    pub walker_queueing: Duration,
    /// Time that walkers worked, or stayed taken after a walk.
    pub walker_busy: Duration,
    /// Time that requests waited for a place in the pipeline.
    pub pipeline_queueing: Duration,
    /// Root and context entries found in the context cache.
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
    /// Entries that these removed from the IOTLB.
    pub iotlb_entries_invalidated: u64,
    /// Interrupt entry cache invalidations executed.
    pub interrupt_invalidations: u64,
    /// Device-TLB invalidations sent.
    pub device_tlb_invalidations: u64,
    /// Wait descriptors executed.
    pub waits: u64,
}
