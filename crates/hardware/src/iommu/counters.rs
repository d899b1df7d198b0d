//! IOMMU counters.

use units::Duration;

/// Counters since the reset, while translation was enabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IommuCounters {
    /// Requests that were looked up, and walks.
    pub pages: PageCounters,
    /// Requests without translation: pass-through, or already translated (ATS).
    pub passed: u64,
    /// Requests refused before the IOTLB lookup: context faults, address width, interrupt range.
    pub refused_early: u64,
    /// Time that requests waited for a place in the pipeline.
    pub pipeline_queueing: Duration,
}

/// Counters of lookups and walks. Each lookup is a hit, merged, or a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageCounters {
    /// IOTLB hits.
    pub hits: u64,
    /// Requests that joined a walk in progress.
    pub merged: u64,
    /// Requests that needed a walk.
    pub misses: u64,
    /// Page walks started.
    pub walks: u64,
    /// Page table entries read.
    pub walk_steps: u64,
    /// Walks that started below the top level due to a paging-structure cache hit.
    pub shortened_walks: u64,
    /// Time that walks waited for a walker or a bank.
    pub walker_queueing: Duration,
    /// IOTLB invalidations executed.
    pub invalidations: u64,
    /// IOTLB entries removed by these.
    pub entries_invalidated: u64,
}
