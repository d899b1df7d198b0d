//! Probes of the tail (TLP, RFC 8985, section 7): when nothing is heard of what was sent last, one more segment makes the
//! peer say what it holds, long before the retransmission timer goes off.

use units::Time;

use super::Payload;
use super::connection::{Connection, Recovery, State};
use super::output::Segment;

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
    pub fn at(&self) -> Option<Time> {
        self.at
    }

    /// Recovery has begun, and sends more than a probe would.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

impl<P: Payload> Connection<P> {
    /// Something new was sent or acknowledged (7.2).
    pub(super) fn arm_tail(&mut self, now: Time) {
        self.tail.at = None;
        let may = self.params.tail_probes
            && self.sack
            && self.state > State::SynReceived
            && self.recovery == Recovery::Open
            && self.nxt > self.una
            && self.flight.held() == 0
            && self.tail.out.is_none();
        let Some(smoothed) = self.rtt.smoothed().filter(|_| may) else { return };
        let mut at = now + smoothed + smoothed + self.params.tail_slack;
        if self.nxt - self.una <= self.segment_room() {
            at += self.params.peer_delayed_ack;
        }
        self.tail.at = Some(self.resend_at.map_or(at, |resend| at.min(resend)));
    }

    /// Nothing was heard for long.
    pub(super) fn tail_timer(&mut self, now: Time) {
        self.tail.at = None;
        self.tail.due = true;
        self.resend_at = Some(now + self.rtt.rto());
    }

    /// The probe (7.3): something new if the peer has room for it, or else the last segment again.
    pub(super) fn tail_probe(&mut self, now: Time) -> Option<Segment> {
        if !std::mem::take(&mut self.tail.due) || self.nxt == self.una {
            return None;
        }
        self.counters.tail_probes += 1;
        let size = self.segment_room();
        let fresh = self.end.saturating_sub(self.nxt).min(size);
        let (from, again) = match fresh > 0 && self.nxt + fresh <= self.peer_edge {
            true => (self.nxt, false),
            false => (self.last_segment(size), true),
        };
        if !again {
            self.nxt += fresh;
        }
        self.tail.out = Some((self.nxt, again));
        Some(self.segment(now, from, self.nxt, again))
    }

    /// Where the segment begins that was sent last.
    fn last_segment(&self, size: u64) -> u64 {
        let (start, end) = self.flight.last().unwrap_or((self.una, self.nxt));
        // The end of the stream takes up a position, and no room.
        let data = end.min(self.end).saturating_sub(start);
        start + data.saturating_sub(1) / size * size
    }

    /// An acknowledgement came, `bare` if it has neither data nor SACK blocks: did the probe mend anything (7.4)?
    pub(super) fn tail_acknowledged(&mut self, now: Time, ack: u64, bare: bool) {
        let Some((end, again)) = self.tail.out.filter(|&(end, _)| ack >= end) else { return };
        if again && ack == end && !(bare && ack == self.una) {
            // Another acknowledgement will tell whether the repeated segment had arrived before.
            return;
        }
        self.tail.out = None;
        if again && ack > end {
            // The probe has replaced what was lost: that is congestion, too.
            self.congestion.lost(now, self.flight.in_network());
            self.undo.forget();
            self.window_reduced();
        }
    }
}
