//! What a segment that arrives does (RFC 9293, 3.10.7).

use units::Time;
use wire::ip::{TcpFlags, TcpHeader};

use super::Payload;
use super::connection::{Connection, Failure, Recovery, State};
use super::flight::Flight;
use super::seq::{narrow, widen};

impl<P: Payload> Connection<P> {
    /// A segment arrived. `segments` is of how many it was put together, 1 for one that came as it is.
    pub fn receive(&mut self, now: Time, header: &TcpHeader, data: P, segments: u16) {
        self.heard = (now, 0);
        match self.state {
            State::Closed => self.receive.discard(data),
            State::SynSent => {
                self.receive.discard(data);
                self.receive_in_syn_sent(now, header);
            }
            _ => self.receive_synchronised(now, header, data, segments),
        }
    }

    /// Takes what a SYN says.
    pub(super) fn take_syn(&mut self, now: Time, syn: &TcpHeader) {
        let options = &syn.options;
        self.peer_initial = syn.sequence;
        self.ecn_from_syn(syn.flags);
        self.peer_mss = options.mss.unwrap_or(536);
        self.sack = self.params.sack && options.sack_permitted;
        if let (Some(shift), true) = (options.window_scale, self.params.window_scaling) {
            self.peer_shift = shift.min(14);
            self.shift = self.params.window_shift();
        }
        if let (Some((value, _)), true) = (options.timestamps, self.params.timestamps) {
            self.timestamps = true;
            self.recent = value;
        }
        // The window of a SYN is never scaled.
        self.peer_edge = self.una.max(1) + u64::from(syn.window);
        self.peer_window_most = syn.window.into();
        let initial = u64::from(self.params.initial_window);
        self.congestion = self.params.congestion.start(self.segment_room(), initial);
        let _ = now;
    }

    fn receive_in_syn_sent(&mut self, now: Time, header: &TcpHeader) {
        let has_ack = header.flags.contains(TcpFlags::ACK);
        let ack = widen(header.acknowledgement, self.initial, self.una);
        let good_ack = has_ack && ack.is_some_and(|ack| ack > 0 && ack <= self.nxt);
        if has_ack && !good_ack {
            if !header.flags.contains(TcpFlags::RST) {
                self.reset = Some((header.acknowledgement, None));
            }
            self.counters.refused += 1;
            return;
        }
        if header.flags.contains(TcpFlags::RST) {
            if good_ack {
                self.end_now(Some(Failure::Refused));
            }
            return;
        }
        if !header.flags.contains(TcpFlags::SYN) {
            self.counters.refused += 1;
            return;
        }
        self.take_syn(now, header);
        if good_ack {
            self.una = 1;
            self.flight.acknowledge(1, |_| ());
            self.peer_edge = 1 + u64::from(header.window);
            self.window_by = (0, 1);
            self.measured(now);
            (self.resend_at, self.retries) = (None, 0);
            self.recovery = Recovery::Open;
            self.state = State::Established;
            self.ack_now = true;
        } else {
            // Both ends opened at once: the SYN is sent again, now with an acknowledgement.
            self.state = State::SynReceived;
            self.nxt = 0;
            self.flight = Flight::default();
            self.resend_at = None;
        }
    }

    fn receive_synchronised(&mut self, now: Time, header: &TcpHeader, data: P, segments: u16) {
        let flags = header.flags;
        let length = u64::from(data.len());
        let position = widen(header.sequence, self.peer_initial, self.receive.next);
        if self.is_too_old(header) && !flags.contains(TcpFlags::RST) {
            return self.refuse(data);
        }
        let Some(position) = position else { return self.refuse(data) };
        if !self.in_window(position, length, flags) {
            if flags.contains(TcpFlags::RST) {
                self.receive.discard(data);
                self.counters.refused += 1;
                return;
            }
            if self.state == State::TimeWait && flags.contains(TcpFlags::FIN) {
                self.linger_until = Some(now + self.params.time_wait);
            }
            if length > 0 && position + length <= self.receive.next {
                self.receive.repeated = Some((position, position + length));
            }
            // What it acknowledges counts all the same: a peer that probes a closed window may be the only one to
            // tell of an open one.
            self.take_ack_of_old(now, header, position);
            return self.refuse(data);
        }
        if flags.contains(TcpFlags::RST) {
            self.receive.discard(data);
            // RFC 5961, 3.2: only a reset at the very next position is believed.
            match position == self.receive.next {
                true => self.end_now(Some(self.failure_of_reset())),
                false => self.ack_now = true,
            }
            return;
        }
        if flags.contains(TcpFlags::SYN) && position > 0 {
            // RFC 5961, 4.2.
            return self.refuse(data);
        }
        if !flags.contains(TcpFlags::ACK) {
            return self.refuse(data);
        }
        if let (Some((value, _)), true) = (header.options.timestamps, self.timestamps)
            && position <= self.acked_to
            && value.wrapping_sub(self.recent) as i32 >= 0
        {
            self.recent = value;
        }
        let Some(ack) = widen(header.acknowledgement, self.initial, self.una) else {
            return self.refuse(data);
        };
        if self.state == State::SynReceived {
            if ack == 0 || ack > self.nxt {
                self.receive.discard(data);
                self.reset = Some((header.acknowledgement, None));
                return;
            }
            self.state = if self.finished { State::FinWait1 } else { State::Established };
            self.peer_edge = ack + (u64::from(header.window) << self.peer_shift);
            self.window_by = (position, ack);
        }
        if ack > self.nxt {
            return self.refuse(data);
        }
        self.take_ecn(now, flags, ack);
        self.take_ack(now, header, position, ack, length);
        if self.state == State::Closed {
            self.receive.discard(data);
            return;
        }
        // A SYN that was sent again takes up one position.
        let position = position + u64::from(flags.contains(TcpFlags::SYN));
        self.take_data(now, position, data, flags.contains(TcpFlags::FIN), segments);
    }

    /// Acknowledges what is held already, and nothing else.
    fn refuse(&mut self, data: P) {
        self.receive.discard(data);
        self.counters.refused += 1;
        self.ack_now = true;
    }

    fn failure_of_reset(&self) -> Failure {
        match self.state {
            State::SynReceived => Failure::Refused,
            _ => Failure::Reset,
        }
    }

    /// Protection against wrapped sequence numbers (RFC 7323, 5.3).
    fn is_too_old(&self, header: &TcpHeader) -> bool {
        let Some((value, _)) = header.options.timestamps else { return false };
        self.timestamps && (value.wrapping_sub(self.recent) as i32) < 0
    }

    /// Table 6 of RFC 9293, 3.10.7.4.
    fn in_window(&self, position: u64, length: u64, flags: TcpFlags) -> bool {
        let taken =
            length + u64::from(flags.contains(TcpFlags::FIN)) + u64::from(flags.contains(TcpFlags::SYN));
        let (next, edge) = (self.receive.next, self.receive.offered());
        if taken == 0 {
            // The edge itself too, unlike the table: a sender that has filled the window is there, and two such would
            // answer each other's acknowledgements for ever.
            return (next..=edge.max(next)).contains(&position);
        }
        let last = position + taken - 1;
        next < edge && ((next..edge).contains(&position) || (next..edge).contains(&last))
            || position <= next && last >= edge && next < edge
            // With a closed window a FIN alone may still end the stream.
            || position == next && length == 0
    }

    pub(super) fn after_fin_acked(&mut self, now: Time) {
        let fin_acked = self.finished && self.una > self.end;
        if !fin_acked {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.orphan {
                    self.linger_until = Some(now + self.params.fin_timeout);
                }
            }
            State::Closing => self.begin_time_wait(now),
            State::LastAck => self.end_now(None),
            _ => {}
        }
    }

    fn begin_time_wait(&mut self, now: Time) {
        self.state = State::TimeWait;
        self.resend_at = None;
        self.linger_until = Some(now + self.params.time_wait);
    }

    fn take_data(&mut self, now: Time, position: u64, data: P, fin: bool, segments: u16) {
        let length = u64::from(data.len());
        let takes = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if fin && takes && position + length <= self.receive.offered() {
            self.receive.fin.get_or_insert(position + length);
        }
        if length > 0 {
            if !takes {
                self.receive.discard(data);
                self.ack_now = true;
                return;
            }
            if self.orphan {
                self.receive.discard(data);
                return self.abort();
            }
            self.take_payload(now, position, data, segments);
        } else {
            self.receive.discard(data);
        }
        if fin && !takes {
            self.ack_now = true;
        }
        self.take_fin(now);
    }

    fn take_payload(&mut self, now: Time, position: u64, data: P, segments: u16) {
        let (length, held_before) = (u64::from(data.len()), self.receive.has_early());
        let each = (length / u64::from(segments.max(1))) as u32;
        self.peer_segment = self.peer_segment.max(each.min(self.params.mss.into()));
        if position > self.receive.next {
            self.counters.out_of_order += 1;
        }
        let in_order = self.receive.take(position, data);
        // At once for what came too early, closes a hole, or was there already (RFC 5681, 4.2).
        if !in_order || held_before || self.quick > 0 {
            self.ack_now = true;
            self.quick = self.quick.saturating_sub(segments.min(255) as u8);
        } else if self.receive.next - self.acked_to > u64::from(self.peer_segment) {
            self.ack_now = true;
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + self.params.delayed_ack);
        }
    }

    /// The peer's stream may have come to its end.
    fn take_fin(&mut self, now: Time) {
        if self.receive.fin != Some(self.receive.next) {
            return;
        }
        self.receive.next += 1;
        self.ack_now = true;
        // Nothing lies behind the end of a stream, whatever had been said to.
        self.receive.forget_early();
        match self.state {
            State::Established => self.state = State::CloseWait,
            // Its acknowledgement of ours came before, or is still to come.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.begin_time_wait(now),
            _ => {}
        }
    }

    /// The number that the next byte from the peer will have.
    pub(super) fn acknowledgement(&self) -> u32 {
        narrow(self.receive.next, self.peer_initial)
    }
}
