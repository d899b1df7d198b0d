//! What a root complex is made of.

use units::Duration;

use crate::memory::NodeId;

/// A root complex: one port of it and how requests fare behind it.
#[derive(Clone, Debug)]
pub struct RootPortParams {
    /// Socket that the port belongs to.
    pub node: NodeId,
    /// Time for which a request TLP occupies the port's intake.
    pub intake_per_request: Duration,
    /// Time for which each cache line of a request occupies the intake, on top.
    pub intake_per_line: Duration,
    /// From the intake of a request until its address can be looked up.
    pub request_latency: Duration,
    /// From a read's data being there until its completion can go on the wire.
    pub completion_latency: Duration,
    /// Read completion boundary that the port announces, 64 or 128 bytes.
    pub rcb: u32,
    /// How large completions are.
    pub completion_sizes: Vec<CompletionSize>,
    /// Whether completions leave in the order of their requests.
    pub completions_in_order: bool,
    /// Largest payload that the port sends, in bytes.
    pub max_payload: u32,
    /// From a posted write being globally ordered until its receive buffer is free.
    pub posted_release_latency: Duration,
    /// From an access of a core leaving its socket's mesh or ring until its TLP can go on the wire.
    pub outbound_latency: Duration,
    /// From a completion for a core arriving until the core has the data.
    pub inbound_completion_latency: Duration,
}

/// Completions of reads up to some length carry at most so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionSize {
    /// Requests of at most so many bytes.
    pub request_up_to: u32,
    /// Bytes of payload in one completion.
    pub completion: u32,
}

impl RootPortParams {
    /// Bytes that a completion of a read of `length` bytes carries at most.
    pub fn completion_size(&self, length: u32) -> u32 {
        self.completion_sizes
            .iter()
            .find(|size| length <= size.request_up_to)
            .map_or(self.max_payload, |size| size.completion)
            .min(self.max_payload)
    }
}
