//! What a connection counts.

/// Counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Fast recoveries started.
    pub recoveries: u64,
    /// Acknowledgements without progress.
    pub duplicate_acks: u64,
    /// Duplicates reported by the peer (D-SACK).
    pub repetitions: u64,
    /// Window reductions undone because nothing was lost.
    pub undone: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// Segments rejected for their numbers, timestamps or flags.
    pub refused: u64,
    /// Zero-window probes.
    pub probes: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Segments marked by routers.
    pub marked: u64,
    /// Reports of marks by the peer that reduced the window.
    pub echoes: u64,
    /// Keep-alive probes.
    pub keep_alives: u64,
}
