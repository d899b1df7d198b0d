//! Undoing a reduction of the congestion window that was needless: the peer has reported everything that was sent again as a
//! duplicate (RFC 2883, RFC 3708; Linux: `tcp_try_undo_dsack`), so that the first copies had arrived, only late.

/// What was sent again, and what of it was needless.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    /// Bytes sent again, and bytes that the peer has reported as duplicates: if the network duplicates, more.
    again: u64,
    reported: u64,
    reduction: Option<Reduction>,
}

/// A reduction that may be undone.
#[derive(Clone, Copy, Debug)]
struct Reduction {
    /// The oldest position that was not acknowledged then: reports of what lies before it are of something else.
    marker: u64,
    /// Bytes sent again since then that the peer has not reported. Nothing is known before the first.
    doubtful: Option<u64>,
}

impl Undo {
    /// Something was sent again.
    pub fn sent_again(&mut self, bytes: u64) {
        self.again += bytes;
        if let Some(reduction) = &mut self.reduction {
            reduction.doubtful = Some(reduction.doubtful.unwrap_or(0) + bytes);
        }
    }

    /// The peer reports that a range came twice.
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

    /// The window is reduced since something seems to be lost, with everything before `una` acknowledged.
    pub fn reduced(&mut self, una: u64) {
        self.reduction = Some(Reduction { marker: una, doubtful: None });
    }

    /// Whether the reduction is known to have been needless.
    pub fn is_needless(&self) -> bool {
        self.reduction.is_some_and(|reduction| reduction.doubtful == Some(0))
    }

    /// The window was reduced for a reason that stays: a router has said so, or what was lost is known to have been.
    pub fn forget(&mut self) {
        self.reduction = None;
    }
}
