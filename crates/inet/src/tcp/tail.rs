//! Probes of the tail (TLP, RFC 8985, section 7): when nothing is heard of what was sent last, one more segment makes the
//! peer say what it holds, long before the retransmission timer goes off.

use units::Time;

/// The probe of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TailProbe {
    /// When to send one.
    at: Option<Time>,
    /// One is to be sent now.
    due: bool,
    /// One is out: its end, and whether it repeats something.
    out: Option<(u64, bool)>,
}

impl TailProbe {
    /// When one is due.
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// Whether one was sent and nothing is known of it yet.
    pub fn is_out(&self) -> bool {
        self.out.is_some()
    }

    /// One is due then, or none.
    pub fn arm(&mut self, at: Option<Time>) {
        self.at = at;
    }

    /// Nothing was heard for long.
    pub fn timer(&mut self) {
        self.at = None;
        self.due = true;
    }

    /// Whether one is to be sent now.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    /// One goes out that ends at a position.
    pub fn sent(&mut self, end: u64, again: bool) {
        self.out = Some((end, again));
    }

    /// Recovery has begun, and sends more than a probe would.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// The peer acknowledges `ack`, `bare` if with neither data nor SACK blocks nor progress: has the probe replaced
    /// something that was lost (7.4)?
    pub fn has_mended(&mut self, ack: u64, bare: bool) -> bool {
        let Some((end, again)) = self.out.filter(|&(end, _)| ack >= end) else { return false };
        if again && ack == end && !bare {
            // Another acknowledgement will tell whether the repeated segment had arrived before.
            return false;
        }
        self.out = None;
        again && ack > end
    }
}
