//! What a controller counts.

/// Event counters of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NvmeCounters {
    /// Interrupts handled, of all vectors.
    pub interrupts: u64,
    /// Interrupts without any completion.
    pub idle_interrupts: u64,
    /// Commands completed.
    pub completions: u64,
    /// Completions whose command is not in flight, or belongs to another queue.
    pub unknown_completions: u64,
    /// Completions with an impossible submission queue head.
    pub wrong_heads: u64,
    /// Commands found complete at their timeout: the interrupt was lost.
    pub lost_interrupts: u64,
    /// Commands that timed out.
    pub timeouts: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Resets of the controller.
    pub resets: u64,
    /// Commands retried.
    pub retries: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Asynchronous events.
    pub events: u64,
}
