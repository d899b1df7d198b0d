//! What an acknowledgement does: to what is under way, to the windows, to the search for losses.

use units::Time;
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::congestion::Acked;
use super::connection::{Connection, Recovery, State};
use super::rack::Rtts;
use super::seq::widen;

/// Duplicate acknowledgements that mean loss (RFC 5681, 3.2).
const DUPLICATES: u64 = 3;

/// What the first SACK block tells of as having come again (RFC 2883, 4): it lies before the acknowledgement, or within the
/// second block.
fn repetition(header: &TcpHeader) -> Option<(u32, u32)> {
    let before = |a: u32, b: u32| b.wrapping_sub(a) as i32 >= 0;
    match *header.options.sack.as_slice() {
        [first @ (_, end), ..] if before(end, header.acknowledgement) => Some(first),
        [first @ (start, end), (from, to), ..] if before(from, start) && before(end, to) => Some(first),
        _ => None,
    }
}

impl<P: Payload> Connection<P> {
    /// A segment whose data is of no use may acknowledge something.
    pub(super) fn take_ack_of_old(&mut self, now: Time, header: &TcpHeader, position: u64) {
        if !header.flags.contains(TcpFlags::ACK) || self.state <= State::SynReceived {
            return;
        }
        let ack = widen(header.acknowledgement, self.initial, self.una);
        if let Some(ack) = ack.filter(|&ack| ack > self.una && ack <= self.nxt) {
            self.take_ack(now, header, position, ack, 1);
        }
    }

    pub(super) fn take_ack(&mut self, now: Time, header: &TcpHeader, position: u64, ack: u64, length: u64) {
        let news = self.take_sack(now, header, ack);
        let repeated = repetition(header).filter(|_| self.sack);
        if let Some((start, end)) = repeated {
            self.counters.repetitions += 1;
            self.rack.repeated(self.una, self.nxt);
            let known = |number| widen(number, self.initial, self.una);
            if let (Some(start), Some(end)) = (known(start), known(end)) {
                self.undo.came_twice(start, end);
            }
        }
        let window = u64::from(header.window) << self.peer_shift;
        let edge_before = self.peer_edge;
        // Of two windows told at the same place the larger was told later, whichever comes first: nobody takes back what was
        // offered (RFC 9293, 3.8.6; Linux: `tcp_may_update_window`).
        let (told, edge) = ((position, ack), ack + window);
        if ack >= self.una && (told > self.window_by || told == self.window_by && edge > self.peer_edge) {
            self.peer_edge = edge;
            self.peer_window_most = self.peer_window_most.max(window);
            self.window_by = (position, ack);
        }
        if self.nxt == self.una && self.retries > 0 {
            // It answers probes.
            self.retries = 0;
        }
        if self.nxt == self.una && self.peer_edge > edge_before {
            self.resend_at = None;
            self.rtt.settle();
        }
        self.tail_acknowledged(
            now,
            ack,
            length == 0 && (repeated.is_some() || header.options.sack.as_slice().is_empty()),
        );
        if ack > self.una {
            self.take_new_ack(now, ack);
        } else if ack == self.una
            && self.nxt > self.una
            && length == 0
            && (news || self.peer_edge == edge_before)
        {
            self.duplicates += 1;
            self.counters.duplicate_acks += 1;
        }
        self.look_for_loss(now);
        self.try_undo();
    }

    /// Takes the SACK option; whether it told anything new.
    fn take_sack(&mut self, now: Time, header: &TcpHeader, ack: u64) -> bool {
        if !self.sack {
            return false;
        }
        let mut news = false;
        for &(start, end) in header.options.sack.as_slice() {
            let (Some(start), Some(end)) =
                (widen(start, self.initial, self.una), widen(end, self.initial, self.una))
            else {
                continue;
            };
            // Ranges before the acknowledgement are reports of duplicates (RFC 2883).
            if start >= ack.max(self.una) && end <= self.nxt {
                let (rack, least) = (&mut self.rack, self.rtt.least());
                news |= self.flight.hold(start, end, |sent| rack.delivered(now, sent, least));
            }
        }
        news
    }

    fn take_new_ack(&mut self, now: Time, ack: u64) {
        let flight = self.nxt - self.una;
        let bytes = ack - self.una;
        let slow = self.congestion.window() < self.congestion.threshold();
        let limited = self.limited_at >= self.una || slow && self.congestion.window() < 2 * flight;
        self.una = ack;
        let (rack, least) = (&mut self.rack, self.rtt.least());
        self.flight.acknowledge(ack, |sent| rack.delivered(now, sent, least));
        self.duplicates = 0;
        self.retries = 0;
        self.measured(now);
        self.rtt.settle();
        let acked = Acked { now, bytes, rtt: self.rtt.smoothed(), limited };
        match self.recovery {
            Recovery::Open => self.congestion.acked(acked),
            Recovery::Fast { point } if ack >= point => {
                self.congestion.recovered();
                self.rack.recovered();
                self.recovery = Recovery::Open;
            }
            // A partial acknowledgement without SACK: the next segment is lost too (RFC 6582, 3.2).
            Recovery::Fast { .. } if !self.sack => {
                self.flight.lose_range(ack, (ack + self.segment_room()).min(self.nxt));
                self.must_resend = true;
            }
            Recovery::Fast { .. } => {}
            Recovery::Timeout { point } => {
                self.congestion.acked(Acked { limited: true, ..acked });
                if ack >= point {
                    self.rack.recovered();
                    self.recovery = Recovery::Open;
                }
            }
        }
        self.resend_at = (self.nxt > self.una).then(|| now + self.rtt.rto());
        self.arm_tail(now);
        self.after_fin_acked(now);
    }

    /// Ends a measurement of the round-trip time.
    pub(super) fn measured(&mut self, now: Time) {
        if let Some((position, sent)) = self.timing
            && self.una >= position
        {
            self.rtt.sample(now.since(sent));
            self.timing = None;
        }
    }

    /// Finds out what is lost, and begins to recover from it.
    pub(super) fn look_for_loss(&mut self, now: Time) {
        self.reorder_at = None;
        if self.nxt == self.una || self.state <= State::SynReceived {
            return;
        }
        let is_open = self.recovery == Recovery::Open;
        if self.sack {
            let least = self.rtt.least().unwrap_or(self.rtt.rto());
            let rtts =
                Rtts { least, smoothed: self.rtt.smoothed().unwrap_or(least), mss: self.segment_room() };
            self.reorder_at = self.rack.look(now, &mut self.flight, rtts, !is_open);
        } else if is_open && self.duplicates >= DUPLICATES {
            self.flight.lose_range(self.una, (self.una + self.segment_room()).min(self.nxt));
        }
        if is_open && self.flight.lost() > 0 {
            self.congestion.lost(now, self.flight.in_network() + self.flight.lost());
            self.may_undo();
            self.recovery = Recovery::Fast { point: self.nxt };
            self.must_resend = true;
            self.window_reduced();
            self.counters.recoveries += 1;
            self.tail.forget();
        }
    }
}
