//! Parameters of a root complex.

use units::{ByteRate, Duration};

use super::quadrant::QuadrantParams;
use super::split::CompletionSplit;
use super::stack::StackParams;
use crate::memory::NodeId;

/// A root port and the root complex behind it.
#[derive(Clone, Debug)]
pub struct RootPortParams {
    /// Socket of the port.
    pub node: NodeId,
    /// Intake occupancy of a request TLP.
    pub intake_per_request: Duration,
    /// Additional intake occupancy for each cache line of a request.
    pub intake_per_line: Duration,
    /// From a request's intake until its address can be looked up.
    pub request_latency: Duration,
    /// From a read's data being available until its completion can go on the wire.
    pub completion_latency: Duration,
    /// How read data is split into completions.
    pub split: CompletionSplit,
    /// Bytes of a read covered by one place in the IOMMU's translation stage.
    pub translation_unit: u32,
    /// Time to merge a partial line of a write. The partial lines of one write are merged one after another.
    pub partial_line: Duration,
    /// Delay of a line whose earlier read is still in flight.
    pub same_line_wait: Duration,
    /// Whether completions are sent in request order.
    pub completions_in_order: bool,
    /// Largest payload that the port sends, in bytes.
    pub max_payload: u32,
    /// The port's I/O stack, if it limits devices' writes.
    pub stack: Option<StackParams>,
    /// Lines of strictly ordered writes to memory that the port lets be on their way, if it limits them.
    pub ordered_writes: Option<usize>,
    /// Strictly ordered writes to peers, or the pieces of them, that the port lets be on their way, if it limits them.
    pub ordered_peer_writes: Option<usize>,
    /// The quadrant of an I/O die that the port belongs to, if that limits what devices move to and from memory.
    pub quadrant: Option<QuadrantParams>,
    /// From global ordering of a posted write until its receive buffer is free.
    pub posted_release_latency: Duration,
    /// From a core's access leaving the mesh or ring of its socket until its TLP can go on the wire.
    pub outbound_latency: Duration,
    /// Posted writes of cores that the port can hold until they have left on the wire.
    pub posted_places: u32,
    /// From the arrival of a completion until the core has the data.
    pub inbound_completion_latency: Duration,
    /// Whether the port has access control services.
    pub access_control: bool,
    /// Whether the port forwards to functions beyond the eighth (ARI).
    pub ari_forwarding: bool,
    /// Whether the port can contain errors below it.
    pub containment: bool,
    /// Whether the port takes reports of the latency that devices tolerate.
    pub latency_reports: bool,
    /// Whether the port reflects peer-to-peer requests whose target is below the same port; otherwise it refuses them.
    pub reflects_peers: bool,
    /// How peer-to-peer reads are split; `None` forwards them unchanged.
    pub peer_reads: Option<PeerReads>,
    /// From the lookup of a peer-to-peer TLP until it can go on the wire at the other port.
    pub peer_latency: Duration,
    /// Largest piece, in bytes, into which a peer-to-peer write is split, a power of two; `None` forwards it unchanged.
    pub peer_writes: Option<u32>,
    /// Rate of the one of the interconnect's parallel links that the port's traffic to peers at other sockets takes; `None` where
    /// it takes all of them.
    pub peer_link: Option<ByteRate>,
    /// Minimum interval between such pieces that arrived through one port.
    pub peer_write_interval: Duration,
    /// Completion timeout of cores' accesses; the base specification allows 50 us to 50 ms by default.
    pub completion_timeout: Duration,
}

impl RootPortParams {
    /// A port of node 0 without delays, for tests and as an upper bound.
    pub fn ideal() -> Self {
        Self {
            node: NodeId(0),
            intake_per_request: Duration::ZERO,
            intake_per_line: Duration::ZERO,
            request_latency: Duration::ZERO,
            completion_latency: Duration::ZERO,
            split: CompletionSplit::simple(256),
            translation_unit: 4096,
            partial_line: Duration::ZERO,
            same_line_wait: Duration::ZERO,
            completions_in_order: true,
            max_payload: 256,
            stack: None,
            ordered_writes: None,
            ordered_peer_writes: None,
            quadrant: None,
            posted_release_latency: Duration::ZERO,
            outbound_latency: Duration::ZERO,
            posted_places: 16,
            inbound_completion_latency: Duration::ZERO,
            access_control: false,
            ari_forwarding: true,
            containment: false,
            latency_reports: false,
            reflects_peers: false,
            peer_reads: None,
            peer_latency: Duration::ZERO,
            peer_writes: None,
            peer_link: None,
            peer_write_interval: Duration::ZERO,
            completion_timeout: Duration::from_ms(50),
        }
    }
}

/// How a root complex splits peer-to-peer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerReads {
    /// Largest piece in bytes, a power of two; pieces end at its multiples.
    pub largest: u32,
    /// Largest number of outstanding pieces, at most 128.
    pub places: u16,
}
