//! Undoes a needless reduction of the congestion window: if the peer reports everything retransmitted as duplicate
//! (RFC 2883, RFC 3708; Linux: `tcp_try_undo_dsack`), the originals had only been late.

/// Retransmitted data, and the needless part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// Bytes retransmitted, and bytes reported as duplicates (more if the network duplicates).
    again: u64,
    reported: u64,
    reduction: Option<Reduction>,
}

/// A reduction that may be undone.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    /// The oldest unacknowledged position at the time: reports about earlier data do not count.
    marker: u64,
    /// Bytes retransmitted since then and not reported as duplicates; `None` before the first.
    doubtful: Option<u64>,
}

impl Undo {
    /// Data were retransmitted.
    pub fn sent_again(&mut self, bytes: u64) {
        self.again += bytes;
        if let Some(reduction) = &mut self.reduction {
            reduction.doubtful = Some(reduction.doubtful.unwrap_or(0) + bytes);
        }
    }

    /// The peer reports a duplicate range.
    pub fn came_twice(&mut self, start: u64, end: u64) {
        let bytes = end.saturating_sub(start);
        self.reported += bytes;
        if let Some(reduction) = &mut self.reduction
            && self.reported <= self.again
            && start >= reduction.marker
        {
            reduction.doubtful = reduction.doubtful.map(|doubtful| doubtful.saturating_sub(bytes));
        }
    }

    /// The window is reduced because of a suspected loss; everything before `una` was acknowledged.
    pub fn reduced(&mut self, una: u64) {
        self.reduction = Some(Reduction { marker: una, doubtful: None });
    }

    /// Whether the reduction is known to be needless.
    pub fn is_needless(&self) -> bool {
        self.reduction.is_some_and(|reduction| reduction.doubtful == Some(0))
    }

    /// The reduction is final: a router marked packets, or the loss was real.
    pub fn forget(&mut self) {
        self.reduction = None;
    }
}
