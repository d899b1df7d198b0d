//! What is sent next.

use std::ops::Range;

use units::Time;
use wire::ip::{TcpFlags, TcpHeader, TcpOptions};

use super::Payload;
use super::connection::{Connection, State};
use super::seq::narrow;

/// A segment to send, or several that a device is to cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its header.
    pub header: TcpHeader,
    /// Offsets in the stream of its data.
    pub data: Range<u64>,
    /// Most payload of each segment on the wire.
    pub size: u16,
    /// It was sent before.
    pub again: bool,
    /// Routers may mark its packets.
    pub ecn: bool,
}

/// The reset that answers a segment to nobody (RFC 9293, 3.10.7.1); none answers a reset.
pub fn reset_for(header: &TcpHeader, payload: u32) -> Option<TcpHeader> {
    let flags = header.flags;
    if flags.contains(TcpFlags::RST) {
        return None;
    }
    let ports = TcpHeader { source: header.destination, destination: header.source, ..TcpHeader::default() };
    if flags.contains(TcpFlags::ACK) {
        return Some(TcpHeader { sequence: header.acknowledgement, flags: TcpFlags::RST, ..ports });
    }
    let taken = payload + u32::from(flags.contains(TcpFlags::SYN)) + u32::from(flags.contains(TcpFlags::FIN));
    Some(TcpHeader {
        acknowledgement: header.sequence.wrapping_add(taken),
        flags: TcpFlags::RST.with(TcpFlags::ACK),
        ..ports
    })
}

impl<P: Payload> Connection<P> {
    /// The next thing to send, with at most `limit` bytes of data, though never less than one segment's; `None` if
    /// there is nothing to send now.
    pub fn transmit(&mut self, now: Time, limit: u32) -> Option<Segment> {
        if let Some((sequence, ack)) = self.reset.take() {
            return Some(self.reset_segment(sequence, ack));
        }
        if self.state == State::Closed {
            return None;
        }
        if self.nxt == 0 {
            return Some(self.syn(now, false));
        }
        if let Some(probe) = self.tail_probe(now) {
            return Some(probe);
        }
        let found = self.retransmission(now, limit).or_else(|| self.fresh(now, limit));
        found.or_else(|| self.bare(now))
    }

    /// The next thing to send that no queue of data may hold up: a reset, the opening of the connection, an
    /// acknowledgement or a probe.
    pub fn transmit_control(&mut self, now: Time) -> Option<Segment> {
        if self.reset.is_some() || self.nxt == 0 {
            return self.transmit(now, 0);
        }
        if self.state == State::Closed { None } else { self.bare(now) }
    }

    /// Data that fits into a segment beside the options that it has now.
    pub(super) fn segment_room(&self) -> u64 {
        self.mss() - self.options_len()
    }

    fn options_len(&self) -> u64 {
        let stamps = if self.timestamps { 12 } else { 0 };
        if !self.sack || !self.has_ranges() {
            return stamps;
        }
        let (_, count) = self.receive.ranges_to_tell();
        stamps + 4 + 8 * count.min(if self.timestamps { 3 } else { 4 }) as u64
    }

    fn has_ranges(&self) -> bool {
        self.receive.has_early() || self.receive.repeated.is_some()
    }

    fn options(&self, now: Time) -> TcpOptions {
        let mut options = TcpOptions::default();
        if self.timestamps {
            options.timestamps = Some((self.clock(now), self.recent));
        }
        if self.sack && self.has_ranges() {
            let (ranges, count) = self.receive.ranges_to_tell();
            // Whoever has the last byte has the end that came with it, which would be sent again otherwise.
            let with_fin = |end: u64| end + u64::from(self.receive.fin == Some(end));
            let narrowed =
                ranges.map(|(a, b)| (narrow(a, self.peer_initial), narrow(with_fin(b), self.peer_initial)));
            options.sack = wire::ip::tcp::SackBlocks::new(&narrowed[..count]);
        }
        options
    }

    /// A header at a position, with acknowledgement and window; what it acknowledges counts as acknowledged.
    fn header(&mut self, now: Time, position: u64, flags: TcpFlags) -> TcpHeader {
        let edge = self.receive.edge(self.mss());
        let window = (edge - self.receive.next.min(edge)) >> self.shift;
        let window = window.min(u16::MAX.into());
        self.receive.offer(self.receive.next + (window << self.shift));
        self.acked_to = self.receive.next;
        (self.ack_now, self.ack_at) = (false, None);
        let header = TcpHeader {
            source: self.ports.0,
            destination: self.ports.1,
            sequence: narrow(position, self.initial),
            acknowledgement: self.acknowledgement(),
            flags: flags.with(TcpFlags::ACK),
            window: window as u16,
            urgent: 0,
            options: self.options(now),
        };
        self.receive.repeated = None;
        header
    }

    fn syn(&mut self, now: Time, again: bool) -> Segment {
        let answers = self.state != State::SynSent;
        // What the peer did not offer is not answered.
        let may = |wanted: bool, offered: bool| wanted && (offered || !answers);
        let options = TcpOptions {
            mss: Some(self.params.mss),
            window_scale: may(self.params.window_scaling, self.shift > 0 || self.peer_shift > 0)
                .then(|| self.params.window_shift()),
            sack_permitted: may(self.params.sack, self.sack),
            timestamps: may(self.params.timestamps, self.timestamps).then(|| (self.clock(now), self.recent)),
            ..TcpOptions::default()
        };
        // The window of a SYN is never scaled.
        let window = u64::from(self.params.receive_buffer).min(u16::MAX.into());
        self.receive.offer(self.receive.next + window);
        let flags = if answers { TcpFlags::SYN.with(TcpFlags::ACK) } else { TcpFlags::SYN };
        let flags = flags.with(self.ecn_of_syn(answers, again));
        if answers {
            self.acked_to = self.receive.next;
            (self.ack_now, self.ack_at) = (false, None);
        }
        self.nxt = 1;
        self.counters.retransmissions += u64::from(again);
        self.sent(now, 0, 1, again);
        let header = TcpHeader {
            source: self.ports.0,
            destination: self.ports.1,
            sequence: self.initial,
            acknowledgement: if answers { self.acknowledgement() } else { 0 },
            flags,
            window: window as u16,
            urgent: 0,
            options,
        };
        Segment { header, data: 0..0, size: 0, again, ecn: false }
    }

    /// Something that takes up positions up to `end` goes out.
    fn sent(&mut self, now: Time, from: u64, end: u64, again: bool) {
        if again {
            self.flight.resend(from, end, now);
            self.timing = None;
            self.undo.sent_again(end - from);
        } else {
            self.flight.push(from, end, now);
            self.timing = self.timing.or(Some((end, now)));
        }
        if self.resend_at.is_none() {
            self.resend_at = Some(now + self.rtt.rto());
        }
        self.last_sent = now;
    }

    fn reset_segment(&self, sequence: u32, ack: Option<u32>) -> Segment {
        let flags = if ack.is_some() { TcpFlags::RST.with(TcpFlags::ACK) } else { TcpFlags::RST };
        let header = TcpHeader {
            source: self.ports.0,
            destination: self.ports.1,
            sequence,
            acknowledgement: ack.unwrap_or(0),
            flags,
            ..TcpHeader::default()
        };
        Segment { header, data: 0..0, size: 0, again: false, ecn: false }
    }

    /// Positions `from..to` as a segment.
    pub(super) fn segment(&mut self, now: Time, from: u64, to: u64, again: bool) -> Segment {
        let fin = self.finished && to > self.end;
        let data = from..to.min(self.end);
        let mut flags = TcpFlags::default();
        if fin {
            flags = flags.with(TcpFlags::FIN);
        }
        if data.end == self.end && !data.is_empty() {
            flags = flags.with(TcpFlags::PSH);
        }
        let size = self.segment_room();
        let fresh = !again && !data.is_empty();
        let flags = flags.with(self.ecn_flags(fresh));
        let ecn = self.ecn_capable(fresh);
        let header = self.header(now, from, flags);
        if again {
            // As many as it will be cut into.
            self.counters.retransmissions += data.end.saturating_sub(data.start).div_ceil(size).max(1);
        }
        self.sent(now, from, to, again);
        Segment { header, data: data.start - 1..data.end.max(data.start) - 1, size: size as u16, again, ecn }
    }

    /// What is lost, from its first segment on.
    fn retransmission(&mut self, now: Time, limit: u32) -> Option<Segment> {
        let room = self.congestion.window().saturating_sub(self.in_flight());
        let size = self.segment_room();
        let most = u64::from(limit).min(room).max(size) / size * size;
        let (from, to) = self.flight.first_lost(most)?;
        if room < size.min(to - from) && !self.must_resend {
            return None;
        }
        self.must_resend = false;
        if from == 0 {
            return Some(self.syn(now, true));
        }
        if from == self.una {
            self.resend_at = Some(now + self.rtt.rto());
        }
        Some(self.segment(now, from, to, true))
    }

    fn fresh(&mut self, now: Time, limit: u32) -> Option<Segment> {
        if self.state <= State::SynReceived || self.state == State::TimeWait {
            return None;
        }
        let waiting = self.end.saturating_sub(self.nxt);
        let fin_waits = self.finished && self.nxt <= self.end;
        if waiting == 0 && !fin_waits {
            return None;
        }
        let flight = self.in_flight();
        if self.nxt == self.una && self.resend_at.is_none() && now.since(self.last_sent) > self.rtt.rto() {
            self.congestion.idle();
        }
        let size = self.segment_room();
        let window = self.peer_edge.saturating_sub(self.nxt);
        let congestion = self.congestion.window().saturating_sub(flight);
        let mut length = waiting.min(window).min(u64::from(limit).max(size));
        if length > congestion {
            // A segment goes out whole, if the window has room for any of it and nothing else is under way.
            length = if flight == 0 { length.min(congestion.max(size)) } else { congestion / size * size };
            self.limited_at = self.nxt;
        }
        if length > size {
            length -= if length == waiting && self.may_send_small(length % size) { 0 } else { length % size };
        }
        let last = length == waiting;
        if waiting > 0 && (length == 0 || length < size && !(last && self.may_send_small(length))) {
            // Silly windows (RFC 9293, 3.8.6.2.1): half of the largest that there was is worth a segment.
            let worth = length > 0 && !last && length >= self.peer_window_most / 2 && length == window;
            if !worth {
                return self.wait_for_window(now, window.min(waiting) < size.min(waiting));
            }
        }
        let fin = fin_waits && length == waiting;
        let from = self.nxt;
        self.nxt += length + u64::from(fin);
        if !length.is_multiple_of(size) {
            self.small_end = self.nxt;
        }
        if length > 0 {
            // Who answers at once is in a conversation: acknowledgements go with answers.
            if self.ack_at.is_some() {
                self.quick = 0;
            }
        }
        let segment = self.segment(now, from, self.nxt, false);
        self.arm_tail(now);
        Some(segment)
    }

    /// Whether a segment of less than full size may go out (Minshall's variant of Nagle's algorithm).
    fn may_send_small(&self, length: u64) -> bool {
        if length == 0 || self.finished {
            return true;
        }
        !self.corked && (self.params.no_delay || self.small_end <= self.una)
    }

    /// Nothing is under way that an acknowledgement could answer: the window is asked for now and then.
    fn wait_for_window(&mut self, now: Time, closed: bool) -> Option<Segment> {
        if closed && self.nxt == self.una && self.resend_at.is_none() {
            self.resend_at = Some(now + self.rtt.rto());
        }
        None
    }

    /// An acknowledgement or a probe, without data.
    fn bare(&mut self, now: Time) -> Option<Segment> {
        let ack = self.ack_now && self.state != State::SynSent;
        if !ack && !self.probe {
            return None;
        }
        // A probe repeats a position that the peer has: it answers with its window.
        let position = if self.probe { self.una - 1 } else { self.nxt };
        self.probe = false;
        let flags = self.ecn_flags(false);
        let header = self.header(now, position, flags);
        Some(Segment { header, data: 0..0, size: 0, again: false, ecn: false })
    }
}
