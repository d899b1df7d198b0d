//! Tail loss probes (TLP, RFC 8985, section 7): if the last segments are not acknowledged, another segment makes the
//! peer report what it holds, long before the retransmission timer expires.

use units::Time;

/// Probe state of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailProbe {
    /// When the next one is due.
    at: Option<Time>,
    /// One must be sent now.
    due: bool,
    /// The outstanding probe: its end, and whether it is a retransmission.
    out: Option<(u64, bool)>,
}

impl TailProbe {
    /// When the next one is due.
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// Whether a probe is outstanding.
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// Schedules a probe, or none.
    pub fn arm(&mut self, at: Option<Time>) {
        self.at = at;
    }

    /// The timer expired.
    pub fn timer(&mut self) {
        self.at = None;
        self.due = true;
    }

    /// Whether a probe must be sent now.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    /// A probe that ends at a position was sent.
    pub fn sent(&mut self, end: u64, again: bool) {
        self.out = Some((end, again));
    }

    /// Cancels: recovery has started and sends more than a probe would.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Processes an acknowledgement `ack`; `bare` if it has no data, no SACK blocks and no progress. Returns whether
    /// the probe repaired a loss (7.4).
    pub fn has_mended(&mut self, ack: u64, bare: bool) -> bool {
        let Some((end, again)) = self.out.filter(|&(end, _)| ack >= end) else { return false };
        if again && ack == end && !bare {
            // Another acknowledgement will tell whether the original segment had arrived.
            return false;
        }
        self.out = None;
        again && ack > end
    }
}
