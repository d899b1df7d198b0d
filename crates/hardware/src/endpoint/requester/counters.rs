//! Counters of the requester side.

/// Counters of the requester side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Bytes read, as requested by the device.
    pub bytes_read: u64,
    /// Bytes written, as requested by the device.
    pub bytes_written: u64,
    /// Read requests sent.
    pub read_requests: u64,
    /// Write requests sent.
    pub write_requests: u64,
    /// Completions that matched a request.
    pub completions: u64,
    /// Completions that matched none.
    pub unexpected_completions: u64,
    /// Requests that timed out.
    pub timeouts: u64,
    /// Completions with a status other than success.
    pub failed_completions: u64,
    /// Completions whose data was poisoned.
    pub poisoned_completions: u64,
    /// Largest number of tags in use at once.
    pub most_tags: u16,
}
