//! What a root complex is made of.

use units::Duration;

use super::peer::PeerReads;
use super::split::CompletionSplit;
use super::stack::StackParams;
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
    /// How the data of a read is cut into completions.
    pub split: CompletionSplit,
    /// How much of a read takes one place in the IOMMU's translation stage, in bytes.
    pub translation_unit: u32,
    /// Least interval between lookups of the lines of one request.
    pub line_interval: Duration,
    /// What merging a partial line of a write takes before it goes on as a line; the partial lines of one write wait for
    /// each other.
    pub partial_line: Duration,
    /// What a line waits whose earlier read is still under way.
    pub same_line_wait: Duration,
    /// Whether completions leave in the order of their requests.
    pub completions_in_order: bool,
    /// Largest payload that the port sends, in bytes.
    pub max_payload: u32,
    /// The I/O stack that it belongs to, if that bounds what devices write.
    pub stack: Option<StackParams>,
    /// From a posted write being globally ordered until its receive buffer is free.
    pub posted_release_latency: Duration,
    /// From an access of a core leaving its socket's mesh or ring until its TLP can go on the wire.
    pub outbound_latency: Duration,
    /// Posted writes of cores that the port has room for, until they have left on the wire.
    pub posted_places: u32,
    /// From a completion for a core arriving until the core has the data.
    pub inbound_completion_latency: Duration,
    /// Whether the port has access control services.
    pub access_control: bool,
    /// Whether a device's request for what is below the same port goes back there; it is refused otherwise.
    pub reflects_peers: bool,
    /// How a device's read from a peer is done, where it is not sent on as it is.
    pub peer_reads: Option<PeerReads>,
    /// From a peer's TLP having been looked up until it can go on the wire by the other port.
    pub peer_latency: Duration,
    /// Most bytes of the writes into which it cuts a write to a peer, a power of two; as it is if `None`.
    pub peer_writes: Option<u32>,
    /// Least interval between two of those pieces that came by one port.
    pub peer_write_interval: Duration,
    /// How long an access of a core waits for its completion; the base specification allows 50 us to 50 ms by default.
    pub completion_timeout: Duration,
}

impl RootPortParams {
    /// A port of node 0 that takes no time, for tests and as an upper bound.
    pub fn ideal() -> Self {
        Self {
            node: NodeId(0),
            intake_per_request: Duration::ZERO,
            intake_per_line: Duration::ZERO,
            request_latency: Duration::ZERO,
            completion_latency: Duration::ZERO,
            split: CompletionSplit::simple(256),
            translation_unit: 4096,
            line_interval: Duration::ZERO,
            partial_line: Duration::ZERO,
            same_line_wait: Duration::ZERO,
            completions_in_order: true,
            max_payload: 256,
            stack: None,
            posted_release_latency: Duration::ZERO,
            outbound_latency: Duration::ZERO,
            posted_places: 16,
            inbound_completion_latency: Duration::ZERO,
            access_control: false,
            reflects_peers: false,
            peer_reads: None,
            peer_latency: Duration::ZERO,
            peer_writes: None,
            peer_write_interval: Duration::ZERO,
            completion_timeout: Duration::from_ms(50),
        }
    }
}
